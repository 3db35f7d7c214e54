"""Committed offsets of a group: what is committed next, and what was.

Answerable for the order: one commit is in flight, the next waits for its outcome, and what is committed by
itself is what the program has come back from at the moment it leaves. So what is committed of a partition
goes back only if the program says so. Also for what an error means: the coordinator is another one, it
passes, or the group has gone on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from moldau.client.consuming.asking import Ask, Backoff, Call, Effect, may_pass, soonest, too_late
from moldau.client.consuming.config import ConsumerConfig
from moldau.client.consuming.coordinator import Coordinator
from moldau.client.consuming.positions import Partition, Positions, State
from moldau.client.errors import FencedError, error_of
from moldau.client.producing.operations import GroupMetadata, OffsetAndMetadata
from moldau.client.topology import TopicPartition
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from moldau.wire.schema import Message

_NAMES_MAX = 9  # from version 10 on topics are told by id
_GROUPS_FROM = 8
_MEMBERS_FROM = 9
_STABLE_FROM = 7
_GONE_ON = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


class Member(Protocol):
    """Who commits, as far as that matters here."""

    @property
    def metadata(self) -> GroupMetadata: ...
    @property
    def may_commit_by_itself(self) -> bool: ...
    @property
    def may_commit(self) -> bool:
        """False for one that should be a member, and is none at the moment: what it has read may be somebody
        else's, and a group without members takes commits from anybody."""
        ...

    def on_commit_error(self, now_ms: int, who: GroupMetadata, code: ErrorCode) -> None: ...


class Commit(Call):
    """Offsets to commit; None stands for what the program has come back from when it leaves. `had` are the
    partitions as the consumer had them when it was asked: in the next generation it may have them no more, or
    again, behind others."""

    __slots__ = ("had", "offsets", "who")

    def __init__(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        deadline_ms: int | None,
        had: Mapping[TopicPartition, Partition] | None = None,
    ) -> None:
        super().__init__("commit", deadline_ms)
        self.offsets = offsets
        self.had = had or {}
        self.who: GroupMetadata | None = None


class Lookup(Call):
    """Committed offsets to be told. `lives` are those of the partitions that wait for them, if any do."""

    __slots__ = ("lives", "places", "who")

    def __init__(
        self, places: Collection[TopicPartition], deadline_ms: int | None, lives: Mapping[TopicPartition, int]
    ) -> None:
        super().__init__("committed", deadline_ms)
        self.places = places
        self.lives = lives
        self.who: GroupMetadata | None = None


class Commits:
    def __init__(
        self,
        config: ConsumerConfig,
        positions: Positions,
        coordinator: Coordinator,
        member: Member,
        *,
        spread: Callable[[], float],
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        self.finished: list[Call] = []
        self.errors: dict[object, KafkaError] = {}
        self.failure: KafkaError | None = None
        self._config = config
        self._positions = positions
        self._coordinator = coordinator
        self._member = member
        self._queue: deque[Commit] = deque()
        self._commit: Commit | None = None  # in flight
        self._lookups: deque[Lookup] = deque()
        self._lookup: Lookup | None = None
        self._commit_backoff = Backoff(retry_backoff_ms, retry_backoff_max_ms, spread)
        self._lookup_backoff = Backoff(retry_backoff_ms, retry_backoff_max_ms, spread)
        self._known: dict[TopicPartition, int] = {}
        self._next_auto_ms: int | None = None
        self._waiting: dict[TopicPartition, int] = {}  # lives of partitions whose offsets are being asked for

    # What the program asks --------------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, deadline_ms: int | None
    ) -> Commit:
        """Commit after what is to be committed already. None is all that was handed out and come back
        from."""
        had = {place: self._positions[place] for place in offsets or () if place in self._positions}
        call = Commit(offsets, deadline_ms, had)
        if offsets is None and not self._changed() and self._commit is None and not self._queue:
            call.end(self.finished)
            return call
        self._queue.append(call)
        return call

    def committed(self, places: Collection[TopicPartition], deadline_ms: int | None) -> Lookup:
        call = Lookup(places, deadline_ms, {})
        self._lookups.append(call)
        return call

    def forget(self, places: Collection[TopicPartition]) -> None:
        """They are somebody else's, whose commits are not known here."""
        for place in places:
            self._known.pop(place, None)

    def close(self, error: KafkaError) -> None:
        for call in (*self._queue, *self._lookups, self._commit, self._lookup):
            if call is not None:
                call.end(self.finished, error)
        self._queue.clear()
        self._lookups.clear()

    # What is sent -----------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> tuple[list[Effect], int | None]:
        wakeup_ms = self._expire(now_ms)
        wakeup_ms = soonest(wakeup_ms, self._commit_by_itself(now_ms))
        self._ask_for_new()
        has_work = (self._queue and self._commit is None) or (self._lookups and self._lookup is None)
        if not has_work:
            return [], wakeup_ms
        coordinator = self._coordinator
        if coordinator.error is not None:
            self.errors["coordinator"] = coordinator.error
            self.close(coordinator.error)
            return [], wakeup_ms
        if coordinator.node_id is None:
            coordinator.is_needed = True
            return [], wakeup_ms
        effects: list[Effect] = []
        if self._commit is None and self._queue:
            if self._commit_backoff.until_ms > now_ms:
                wakeup_ms = soonest(wakeup_ms, self._commit_backoff.until_ms)
            else:
                effects += self._send_commit(coordinator.node_id)
        if self._lookup is None and self._lookups:
            if self._lookup_backoff.until_ms > now_ms:
                wakeup_ms = soonest(wakeup_ms, self._lookup_backoff.until_ms)
            else:
                effects.append(self._send_lookup(coordinator.node_id))
        return effects, wakeup_ms

    def _expire(self, now_ms: int) -> int | None:
        """Ends calls whose time is over. A commit in flight may happen all the same, but in its order."""
        wakeup_ms: int | None = None
        calls: list[Call | None] = [*self._queue, *self._lookups, self._commit, self._lookup]
        for call in calls:
            if call is None or call.deadline_ms is None or call.is_done:
                continue
            if call.deadline_ms <= now_ms:
                call.end(self.finished, too_late(call, self.failure or self._coordinator.failure))
            else:
                wakeup_ms = soonest(wakeup_ms, call.deadline_ms)
        self._queue = deque(call for call in self._queue if not call.is_done)
        self._lookups = deque(call for call in self._lookups if not call.is_done)
        return wakeup_ms

    def _commit_by_itself(self, now_ms: int) -> int | None:
        if not self._config.enable_auto_commit:
            return None
        if self._next_auto_ms is None:
            self._next_auto_ms = now_ms + self._config.auto_commit_interval_ms
        if not self._member.may_commit_by_itself or self._queue or self._commit is not None:
            return None  # whatever ends that looks again
        if not self._changed():
            return None
        if self._next_auto_ms <= now_ms:
            self._next_auto_ms = now_ms + self._config.auto_commit_interval_ms
            self._queue.append(Commit(None, None))
            return None
        return self._next_auto_ms

    def _changed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            place: OffsetAndMetadata(offset)
            for place, offset in self._positions.to_commit().items()
            if self._known.get(place) != offset
        }

    def _ask_for_new(self) -> None:
        places: dict[TopicPartition, int] = {}
        for partition in self._positions.in_state(State.NEW):
            if self._waiting.get(partition.place) != partition.life:
                places[partition.place] = self._waiting[partition.place] = partition.life
        if places:
            self._lookups.append(Lookup(list(places), None, places))

    def _send_commit(self, node_id: int) -> list[Effect]:
        commit = self._queue.popleft()
        offsets = self._changed() if commit.offsets is None else commit.offsets
        if not offsets:
            commit.end(self.finished)
            return []
        if not self._member.may_commit or any(
            self._positions.partitions.get(place) is not partition for place, partition in commit.had.items()
        ):
            reason = "the group has gone on, and the partitions may be somebody else's"
            commit.end(self.finished, error_of(ErrorCode.REBALANCE_IN_PROGRESS, reason))
            return []
        self._commit = commit
        who = commit.who = self._member.metadata
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for place, committed in offsets.items():
            topic = topics.setdefault(place.topic, OffsetCommitRequestTopic(name=place.topic))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=place.partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=who.group_id,
            generation_id_or_member_epoch=who.generation_id,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
            topics=list(topics.values()),
        )
        about = (commit, offsets)
        return [
            Ask(
                self,
                about,
                node_id,
                OffsetCommitRequest,
                lambda _: request,
                OffsetCommitResponse,
                _NAMES_MAX,
            )
        ]

    def _send_lookup(self, node_id: int) -> Ask:
        lookup = self._lookup = self._lookups.popleft()
        who = lookup.who = self._member.metadata
        topics: dict[str, list[int]] = {}
        for place in lookup.places:
            topics.setdefault(place.topic, []).append(place.partition)
        is_stable = self._config.is_read_committed

        def message(version: int) -> Message:
            if version < _GROUPS_FROM:
                return OffsetFetchRequest(
                    group_id=who.group_id,
                    topics=[
                        OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                        for name, indexes in topics.items()
                    ],
                    require_stable=is_stable and version >= _STABLE_FROM,
                )
            of_members = version >= _MEMBERS_FROM and not self._config.is_classic and bool(who.member_id)
            group = OffsetFetchRequestGroup(
                group_id=who.group_id,
                member_id=who.member_id if of_members else None,
                member_epoch=who.generation_id if of_members else -1,
                topics=[
                    OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
            )
            return OffsetFetchRequest(groups=[group], require_stable=is_stable)

        return Ask(self, lookup, node_id, OffsetFetchRequest, message, OffsetFetchResponse, _NAMES_MAX)

    # What comes back --------------------------------------------------------------------------------------

    def on_response(self, now_ms: int, about: Any, response: Any) -> None:
        if isinstance(about, Lookup):
            self._on_offsets(now_ms, about, response)
        else:
            commit, offsets = about
            self._on_committed(now_ms, commit, offsets, response)

    def on_failure(self, now_ms: int, about: Any, error: KafkaError) -> None:
        if isinstance(about, Lookup):
            self._lookup_failed(now_ms, about, error)
        else:
            self._commit_failed(now_ms, about[0], error)

    def _on_committed(
        self,
        now_ms: int,
        commit: Commit,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        response: OffsetCommitResponse,
    ) -> None:
        self._coordinator.answered()
        error: KafkaError | None = None
        for topic in response.topics:
            for answer in topic.partitions:
                place = TopicPartition(topic.name, answer.partition_index)
                code = error_code(answer.error_code)
                if code is ErrorCode.NONE:
                    if place in self._positions:
                        self._known[place] = offsets[place].offset
                elif error is None or not code.retriable:
                    error = error_of(code, f"the offset of partition {place}")
        if error is not None:
            self._commit_failed(now_ms, commit, error)
            return
        self._commit = None
        self._commit_backoff.succeeded()
        self.failure = None
        commit.end(self.finished)

    def _commit_failed(self, now_ms: int, commit: Commit, error: KafkaError) -> None:
        self._commit = None
        self._coordinator.lost(now_ms, error)
        assert commit.who is not None
        code = error.code
        if code is ErrorCode.STALE_MEMBER_EPOCH:
            now = self._member.metadata
            passes = bool(now.member_id) and now.generation_id not in (commit.who.generation_id, 0, -1)
        else:
            passes = may_pass(error)
        if code in _GONE_ON or (code is ErrorCode.STALE_MEMBER_EPOCH and not passes):
            self._member.on_commit_error(now_ms, commit.who, code)
        if passes and not commit.is_done:
            self.failure = error
            self._commit_backoff.failed(now_ms)
            if commit.offsets is not None or commit.deadline_ms is not None:
                self._queue.appendleft(commit)  # what commits by itself does so again
            return
        if isinstance(error, FencedError):
            self.errors["fenced"] = error
        commit.end(self.finished, error)

    def _on_offsets(self, now_ms: int, lookup: Lookup, response: OffsetFetchResponse) -> None:
        self._coordinator.answered()
        code = response.error_code
        topics: Any = response.topics
        if response.groups:
            code = response.groups[0].error_code
            topics = response.groups[0].topics
        if code:
            self._lookup_failed(
                now_ms, lookup, error_of(error_code(code), f"group {self._coordinator.group_id!r}")
            )
            return
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic in topics:
            for answer in topic.partitions:
                place = TopicPartition(topic.name, answer.partition_index)
                if answer.error_code:
                    error = error_of(error_code(answer.error_code), f"the offset of partition {place}")
                    self._lookup_failed(now_ms, lookup, error)
                    return
                if answer.committed_offset >= 0:
                    found[place] = OffsetAndMetadata(
                        answer.committed_offset, answer.committed_leader_epoch, answer.metadata or ""
                    )
        self._lookup = None
        self._lookup_backoff.succeeded()
        self.failure = None
        for place, life in lookup.lives.items():
            self._begin(place, life, found.get(place))
        lookup.result = found
        lookup.end(self.finished)

    def _begin(self, place: TopicPartition, life: int, committed: OffsetAndMetadata | None) -> None:
        self._waiting.pop(place, None)
        partition = self._positions.partitions.get(place)
        if partition is None or partition.life != life or partition.state is not State.NEW:
            return
        if committed is None:
            self._positions.look_up(place, self._config.reset)
        else:
            self._known[place] = committed.offset
            self._positions.seek(place, committed.offset, committed.leader_epoch)

    def _lookup_failed(self, now_ms: int, lookup: Lookup, error: KafkaError) -> None:
        self._lookup = None
        self._coordinator.lost(now_ms, error)
        assert lookup.who is not None
        code = error.code
        if code in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            passes = bool(lookup.lives) or self._member.metadata != lookup.who
        else:
            passes = may_pass(error)
        if passes and not lookup.is_done:
            self.failure = error
            self._lookup_backoff.failed(now_ms)
            self._lookups.appendleft(lookup)
            return
        if lookup.lives:
            self.errors["committed"] = error
            for place in lookup.lives:  # asked for again when the program has been told
                self._waiting.pop(place, None)
            self._lookup_backoff.failed(now_ms)
        lookup.end(self.finished, error)
