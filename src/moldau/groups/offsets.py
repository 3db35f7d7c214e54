"""The offsets that groups have committed: kept, fetched, deleted, expired.

Offsets belong to a group by its id alone. A group that has no members and never had any, as of a consumer
that assigns itself its partitions, comes to be with its first offset, and goes with its last.

What a transaction commits is pending until its marker: then it counts, unless a commit that came later in the
log counts already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from moldau.coordinator.decision import NOTHING, Decision, Waiter
from moldau.coordinator.record import CoordinatorRecord
from moldau.coordinator.timers import Timers
from moldau.groups.environment import GroupEnvironment
from moldau.groups.group import CheckPartition, Group, GroupStore
from moldau.groups.offset_commit import (
    NO_RETENTION,
    NO_TIMESTAMP,
    CommittedOffset,
    OffsetCommit,
    OffsetRecord,
)
from moldau.groups.records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from moldau.metadata.delta import Delta
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from moldau.wire.schema import Message

_NO_OFFSET = -1
_GROUP_ID_NOT_FOUND_FROM = 9

# Looked at in one go: others get their turn before all groups of a large shard were.
GROUPS_AT_ONCE = 500


class ExpireOffsets(NamedTuple):
    """The timer's event. `groups` are those that this round has still to look at; None begins one."""

    groups: tuple[str, ...] | None = None


_new_tuple = tuple.__new__  # half the time that a named tuple's class takes

OffsetsOfTopics = dict[str, dict[int, CommittedOffset]]
CreateGroup = Callable[[str], Group]


class Offsets:
    """A part of the shard. `create_group` makes the group of a consumer that has an offset and no members."""

    def __init__(
        self, groups: GroupStore, timers: Timers, environment: GroupEnvironment, create_group: CreateGroup
    ) -> None:
        self._groups = groups
        self._timers = timers
        self._environment = environment
        self._create_group = create_group
        self._by_group: dict[str, OffsetsOfTopics] = {}
        self._pending: dict[int, dict[str, OffsetsOfTopics]] = {}  # by producer id
        self._open_transactions: dict[str, set[int]] = {}  # producer ids by group
        self._sequence = 0
        self.commits = 0
        self.deletions = 0
        self.expirations = 0

    # ------------------------------------------------------------ to look at

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        return self._by_group.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        topics = self._by_group.get(group_id)
        return None if topics is None else topics.get(topic, {}).get(partition)

    def count(self) -> int:
        return sum(len(each) for topics in self._by_group.values() for each in topics.values())

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction is about to commit an offset there."""
        return any(
            partition in self._pending[producer_id].get(group_id, {}).get(topic, {})
            for producer_id in self._open_transactions.get(group_id, ())
        )

    # ------------------------------------------------------------ commit

    def decide_commit(self, now_ms: int, commit: OffsetCommit) -> Decision[Sequence[ErrorCode]]:
        """The partitions exist. Replies with the code of each offset, in their order."""
        group_id = commit.group_id
        check = self._check_commit(commit)
        metadata_max = self._environment.config.offsets.offset_metadata_max_bytes
        expire_timestamp = NO_TIMESTAMP
        if commit.retention_ms != NO_RETENTION:
            expire_timestamp = now_ms + commit.retention_ms
        records = []
        codes = []
        for topic, topic_id, partition, offset, leader_epoch, metadata in commit.offsets:
            if len(metadata) > metadata_max:
                codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            if check is not None:
                check(topic, topic_id, partition)
            codes.append(ErrorCode.NONE)
            record = (
                group_id,
                topic,
                partition,
                offset,
                leader_epoch,
                metadata,
                now_ms,
                expire_timestamp,
                topic_id,
            )
            records.append(_new_tuple(OffsetRecord, record))
        self.commits += len(records)
        return Decision(records, codes)

    def _check_commit(self, commit: OffsetCommit) -> CheckPartition | None:
        group = self._groups.get(commit.group_id)
        if group is not None:
            return group.check_offset_commit(
                commit.member_id,
                commit.instance_id,
                commit.generation,
                is_transactional=False,
                version=commit.version,
            )
        if commit.generation >= 0:
            # Without a generation it is a consumer that assigns itself its partitions, or a tool.
            if commit.version >= _GROUP_ID_NOT_FOUND_FROM:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {commit.group_id} not found.")
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return None

    # ------------------------------------------------------------ commit in a transaction

    def decide_txn_commit(
        self, now_ms: int, request: TxnOffsetCommitRequest, version: int
    ) -> Decision[TxnOffsetCommitResponse]:
        """The topics of the request exist. A member whose epoch is stale is told so in words that producers
        know."""
        try:
            check = self._check_txn_commit(request, version)
            return self._decide_txn_commit(now_ms, request, check)
        except KafkaError as failure:
            if failure.code is ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, failure.message) from None
            raise

    def _check_txn_commit(self, request: TxnOffsetCommitRequest, version: int) -> CheckPartition | None:
        group = self._groups.get(request.group_id)
        if group is not None:
            return group.check_offset_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                is_transactional=True,
                version=version,
            )
        if request.generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return None

    def _decide_txn_commit(
        self, now_ms: int, request: TxnOffsetCommitRequest, check: CheckPartition | None
    ) -> Decision[TxnOffsetCommitResponse]:
        metadata_max = self._environment.config.offsets.offset_metadata_max_bytes
        records: list[OffsetRecord] = []
        response = TxnOffsetCommitResponse(topics=[])
        for topic in request.topics:
            known = self._environment.image.topics.get(topic.name)
            if known is None and check is not None:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            topic_id = ZERO_UUID if known is None else known.topic_id
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                if len(partition.committed_metadata or "") <= metadata_max:
                    if check is not None:
                        check(topic.name, topic_id, index)
                    code = ErrorCode.NONE
                    records.append(
                        OffsetRecord(
                            group=request.group_id,
                            topic=topic.name,
                            partition=index,
                            offset=partition.committed_offset,
                            leader_epoch=partition.committed_leader_epoch,
                            metadata=partition.committed_metadata or "",
                            commit_timestamp=now_ms,
                            expire_timestamp=NO_TIMESTAMP,
                            topic_id=topic_id,
                        )
                    )
                partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=code))
            response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        self.commits += len(records)
        return Decision(
            records=records, reply=response, producer=(request.producer_id, request.producer_epoch)
        )

    # ------------------------------------------------------------ fetch

    def decide_fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Decision[OffsetFetchResponseGroup]:
        """All topics of the group if the request names none."""
        group = self._groups.get(request.group_id)
        if group is not None:
            group.check_offset_fetch(request.member_id, request.member_epoch)
        known = self._by_group.get(request.group_id, {})
        if request.topics is None:
            image = self._environment.image
            asked = []
            for name, partitions in known.items():
                topic = image.topics.get(name)
                topic_id = ZERO_UUID if topic is None else topic.topic_id
                asked.append((name, topic_id, list(partitions)))
        else:
            asked = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in request.topics]
        topics = []
        for name, topic_id, indexes in asked:
            of_topic = known.get(name, {})
            partitions_told = [
                self._fetched(request.group_id, name, topic_id, index, of_topic.get(index), require_stable)
                for index in indexes
            ]
            topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions_told))
        return Decision(reply=OffsetFetchResponseGroup(group_id=request.group_id, topics=topics))

    def _fetched(
        self,
        group_id: str,
        topic: str,
        topic_id: Uuid,
        index: int,
        committed: CommittedOffset | None,
        require_stable: bool,
    ) -> OffsetFetchResponsePartitions:
        code = ErrorCode.NONE
        if (
            require_stable
            and group_id in self._open_transactions
            and self.has_pending(group_id, topic, index)
        ):
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        elif committed is not None and (
            ZERO_UUID in (topic_id, committed.topic_id) or topic_id == committed.topic_id
        ):
            return OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
            )
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
        )

    # ------------------------------------------------------------ delete

    def decide_delete(self, request: OffsetDeleteRequest) -> Decision[OffsetDeleteResponse]:
        group = self._groups.find(request.group_id)
        group.check_offset_delete()
        records = []
        topics = []
        for topic in request.topics:
            code = ErrorCode.NONE
            if group.is_subscribed_to(topic.name):
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            partitions = []
            for asked in topic.partitions:
                index = asked.partition_index
                partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
                if not code and self._is_known(request.group_id, topic.name, index):
                    records.append(_tombstone(request.group_id, topic.name, index))
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        self.deletions += len(records)
        return Decision(records=records, reply=OffsetDeleteResponse(topics=topics))

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """What deletes all offsets of a group, those of open transactions too."""
        known = {
            (topic, partition): None
            for topics in self._all_of(group_id)
            for topic, partitions in topics.items()
            for partition in partitions
        }
        return [_tombstone(group_id, topic, partition) for topic, partition in known]

    def _all_of(self, group_id: str) -> Iterator[OffsetsOfTopics]:
        yield self._by_group.get(group_id, {})
        for producer_id in self._open_transactions.get(group_id, ()):
            yield self._pending[producer_id].get(group_id, {})

    def _is_known(self, group_id: str, topic: str, partition: int) -> bool:
        return any(partition in topics.get(topic, {}) for topics in self._all_of(group_id))

    # ------------------------------------------------------------ what happens by itself

    def on_loaded(self, now_ms: int) -> Decision[Any]:
        self._set_timer(now_ms)
        image = self._environment.image
        return Decision(
            records=[
                _tombstone(group_id, topic, index)
                for group_id, topics in self._by_group.items()
                for topic, partitions in topics.items()
                for index, committed in partitions.items()
                # Its topic was deleted before anybody here could be told.
                if committed.topic_id != ZERO_UUID and image.topic_by_id(committed.topic_id) is None
            ],
            is_atomic=False,
        )

    def on_image(self, now_ms: int, delta: Delta) -> Decision[Any]:
        """Offsets of a deleted topic go with it: another one of its name has other records."""
        if not delta.deleted_topics:
            return NOTHING
        deleted = {topic.name for topic in delta.deleted_topics.values()}
        known = {
            (group_id, topic, partition): None
            for by_group in (self._by_group, *self._pending.values())
            for group_id, topics in by_group.items()
            for topic in deleted & topics.keys()
            for partition in topics[topic]
        }
        return Decision(records=[_tombstone(*place) for place in known], is_atomic=False)

    def on_unloaded(self) -> Sequence[Waiter[Any]]:
        return ()

    @property
    def timer_handlers(self) -> Mapping[type, Callable[[int, Any], Decision[Any]]]:
        return {ExpireOffsets: self._on_expire}

    def _set_timer(self, now_ms: int) -> None:
        interval_ms = self._environment.config.offsets.retention_check_interval_ms
        self._timers.set(ExpireOffsets, now_ms + interval_ms, ExpireOffsets())

    def _on_expire(self, now_ms: int, event: ExpireOffsets) -> Decision[Any]:
        """Forgets what expired, and groups that have neither members nor offsets."""
        left = tuple(self._groups.groups) if event.groups is None else event.groups
        records: list[CoordinatorRecord] = []
        for group_id in left[:GROUPS_AT_ONCE]:
            group = self._groups.get(group_id)
            if group is None:
                continue
            expired, is_all = self._expired(now_ms, group)
            records += expired
            self.expirations += len(expired)
            if is_all and group.is_empty() and group.should_expire():
                records += group.tombstones()
        if len(left) > GROUPS_AT_ONCE:
            self._timers.set(ExpireOffsets, now_ms, ExpireOffsets(left[GROUPS_AT_ONCE:]))
        else:
            self._set_timer(now_ms)
        return Decision(records=records, is_atomic=False)

    def _expired(self, now_ms: int, group: Group) -> tuple[list[CoordinatorRecord], bool]:
        """Tombstones for what has expired, and whether that is everything that the group has."""
        retention_ms = self._environment.config.offsets.retention_minutes * 60_000
        group_id = group.group_id
        records = []
        is_all = group_id not in self._open_transactions
        for topic, partitions in self._by_group.get(group_id, {}).items():
            if group.is_subscribed_to(topic):
                is_all = False
                continue
            for index, committed in partitions.items():
                base_ms = group.offset_expiration_base_ms(topic, committed.commit_timestamp)
                if committed.expire_timestamp >= 0:
                    is_expired = base_ms is not None and now_ms >= committed.expire_timestamp
                else:
                    is_expired = base_ms is not None and now_ms - base_ms >= retention_ms
                if is_expired and not self.has_pending(group_id, topic, index):
                    records.append(_tombstone(group_id, topic, index))
                else:
                    is_all = False
        return records, is_all

    # ------------------------------------------------------------ apply

    @property
    def appliers(self) -> Mapping[type[Message], Callable[[CoordinatorRecord, int], None]]:
        return {OffsetCommitKey: self._apply, LegacyOffsetCommitKey: self._apply_legacy}

    def apply_committed(self, record: OffsetRecord, producer_id: int) -> None:
        group_id, topic, partition, *committed = record
        self._keep(group_id, topic, partition, committed, producer_id)

    def _apply(self, record: CoordinatorRecord, producer_id: int) -> None:
        key, value = record.key, record.value
        assert isinstance(key, OffsetCommitKey)
        if value is None:
            self._forget(key.group, key.topic, key.partition)
            return
        assert isinstance(value, OffsetCommitValue)
        committed = [
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        ]
        self._keep(key.group, key.topic, key.partition, committed, producer_id)

    def _apply_legacy(self, record: CoordinatorRecord, producer_id: int) -> None:
        key, value = record.key, record.value
        assert isinstance(key, LegacyOffsetCommitKey)
        if value is None:
            self._forget(key.group, key.topic, key.partition)
            return
        assert isinstance(value, LegacyOffsetCommitValue)
        committed = [value.offset, -1, value.metadata, value.commit_timestamp, NO_TIMESTAMP, ZERO_UUID]
        self._keep(key.group, key.topic, key.partition, committed, producer_id)

    def _keep(
        self, group_id: str, topic: str, partition: int, committed: list[Any], producer_id: int
    ) -> None:
        """What is committed, without its place in the order of the log."""
        self._sequence += 1
        committed.append(self._sequence)
        if group_id not in self._groups.groups:
            self._create_group(group_id)
        by_group = self._by_group
        if producer_id >= 0:
            by_group = self._pending.setdefault(producer_id, {})
            self._open_transactions.setdefault(group_id, set()).add(producer_id)
        topics = by_group.get(group_id)
        if topics is None:
            topics = by_group[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = _new_tuple(CommittedOffset, committed)

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        for topics in self._all_of(group_id):
            _remove(topics, topic, partition)
        if not self._by_group.get(group_id, True):
            del self._by_group[group_id]

    def apply_marker(self, producer_id: int, *, is_committed: bool) -> None:
        for group_id, topics in self._pending.pop(producer_id, {}).items():
            open_ids = self._open_transactions[group_id]
            open_ids.discard(producer_id)
            if not open_ids:
                del self._open_transactions[group_id]
            if not is_committed:
                continue
            for topic, partitions in topics.items():
                for index, committed in partitions.items():
                    known = self.get(group_id, topic, index)
                    if known is None or known.sequence < committed.sequence:
                        of_topics = self._by_group.setdefault(group_id, {})
                        of_topics.setdefault(topic, {})[index] = committed


def _remove(topics: OffsetsOfTopics, topic: str, partition: int) -> None:
    partitions = topics.get(topic)
    if partitions is not None:
        partitions.pop(partition, None)
        if not partitions:
            del topics[topic]


def _tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
