"""A consumer group as its records describe it: members, what they are to have, what they have.

It changes only by what is applied to it, and applying never refuses: of records that contradict each other,
as a log that is being compacted may have them, the later one counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from moldau.coordinator.record import CoordinatorRecord
from moldau.groups.assignors.assignment import NO_PARTITIONS, Assignment
from moldau.groups.consumer import records
from moldau.groups.consumer.member import Member, MemberState, Partitions
from moldau.groups.consumer.records import ResolvedRegex
from moldau.groups.group import CheckPartition, GroupType
from moldau.metadata.image import ClusterImage
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid

PROTOCOL_TYPE = "consumer"

EMPTY = "Empty"
ASSIGNING = "Assigning"
RECONCILING = "Reconciling"
STABLE = "Stable"

_FIRST_EPOCH = 1
_NO_EPOCH = -1
_COMMITS_BY_MEMBERS_FROM = 9


class TopicIndex:
    """The groups that subscribe to a topic, whether by its name or by a pattern."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, None]] = {}

    def groups_of(self, topic: str) -> Collection[str]:
        return self._groups.get(topic, {}).keys()

    def add(self, topic: str, group_id: str) -> None:
        self._groups.setdefault(topic, {})[group_id] = None

    def remove(self, topic: str, group_id: str) -> None:
        groups = self._groups.get(topic)
        if groups is not None:
            groups.pop(group_id, None)
            if not groups:
                del self._groups[topic]


class ConsumerGroup:
    """`targets` is what members are to have as of `assignment_epoch`; while that is behind `epoch`, another
    assignment is due."""

    type = GroupType.CONSUMER
    protocol_type = PROTOCOL_TYPE

    def __init__(self, group_id: str, index: TopicIndex) -> None:
        self.group_id = group_id
        self.epoch = _FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = _FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        """The member that a static instance is."""
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False
        self._index = index
        self._owners: dict[Uuid, dict[int, str]] = {}
        # How many members, and how many patterns, there are for a topic; and members for each pattern.
        self._topics: Counter[str] = Counter()
        self._regex_members: Counter[str] = Counter()
        self._assignors: Counter[str] = Counter()
        self._classic_protocols: Counter[str] = Counter()
        self.classic_count = 0
        # Not in the log: until when what was seen of the topics is taken to be so, and at which epoch it was.
        self._seen_at_epoch: int | None = None

    # ------------------------------------------------------------ to look at

    @property
    def state(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return STABLE
        return RECONCILING

    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._topics

    def member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def instance(self, instance_id: str) -> Member | None:
        member_id = self.instances.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str, instance_id: str | None) -> Assignment:
        """An instance that is coming back under another id has what it had."""
        if instance_id is not None:
            member_id = self.instances.get(instance_id, member_id)
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_owned(self, topic_id: Uuid, partition: int) -> bool:
        return partition in self._owners.get(topic_id, ())

    def is_waiting_for_partitions(self, member: Member) -> bool:
        """Whether somebody still has what the member is to have."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            self.is_owned(topic, partition)
            for topic, partitions in self.targets.get(member.member_id, NO_PARTITIONS).items()
            for partition in partitions - member.assigned.get(topic, {}).keys()
        )

    # ------------------------------------------------------------ subscriptions

    @property
    def subscribed_regexes(self) -> Collection[str]:
        return self._regex_members.keys()

    def regex_members(self, regex: str) -> int:
        return self._regex_members[regex]

    @property
    def topics(self) -> Collection[str]:
        """What members and patterns name, whether it exists or not."""
        return self._topics.keys()

    def topics_if(
        self, without: Iterable[Collection[str]], instead: Iterable[Collection[str]]
    ) -> Collection[str]:
        """What there would be if some of that which names topics were replaced by something else."""
        gone: Counter[str] = Counter()
        for topics in without:
            gone.update(topics)
        left = {topic for topic, count in self._topics.items() if count > gone[topic]}
        return left.union(*instead)

    def subscription(self, member: Member) -> tuple[frozenset[str], frozenset[str]]:
        """By name and by pattern; a pattern that is not resolved yet matches nothing."""
        resolved = self.regexes.get(member.regex)
        return member.topics, frozenset() if resolved is None else resolved.topics

    def is_member_subscribed(self, member: Member, topic_id: Uuid, image: ClusterImage) -> bool:
        name = image.topic_names.get(topic_id)
        return name is not None and any(name in topics for topics in self.subscription(member))

    def preferred_assignor(self, old: Member | None = None, new: Member | None = None) -> str | None:
        """What most members ask for, if one of them were replaced; of equals the one asked for first."""
        counts = self._assignors.copy()
        if old is not None and old.assignor is not None:
            counts[old.assignor] -= 1
        if new is not None and new.assignor is not None:
            counts[new.assignor] += 1
        preferred = max(counts, key=lambda name: counts[name], default=None)
        return preferred if preferred is not None and counts[preferred] > 0 else None

    # ------------------------------------------------------------ what was seen of the topics

    def has_seen_topics(self) -> bool:
        """Whether nothing has been heard of a change since they were last looked at. The epoch goes back if
        what was decided then could not be written."""
        return self._seen_at_epoch is not None and self.epoch >= self._seen_at_epoch

    def saw_topics(self, epoch: int) -> None:
        self._seen_at_epoch = epoch

    def look_again(self) -> None:
        self._seen_at_epoch = None

    # ------------------------------------------------------------ checks

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        is_transactional: bool,
        version: int,
    ) -> CheckPartition | None:
        if generation < 0 and not self.members:
            return None
        # Producers from before they knew of groups say nothing about members.
        if is_transactional and generation == _NO_EPOCH and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not is_transactional and not member.is_classic and version < _COMMITS_BY_MEMBERS_FROM:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if generation == member.epoch:
            return None
        if generation > member.epoch:
            raise _stale(
                member,
                f"generation id {generation} is newer than current member epoch {member.epoch}.",
                "Received ",
            )
        return lambda topic, topic_id, partition: _check_partition(
            member, generation, topic, topic_id, partition
        )

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise _stale(
                member,
                f"generation id {member_epoch} does not match the expected member epoch {member.epoch}.",
                "The received ",
            )

    def check_offset_delete(self) -> None:
        """Topics that members consume are looked after one by one."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def offset_expiration_base_ms(self, topic: str, committed_ms: int) -> int | None:
        return committed_ms

    def should_expire(self) -> bool:
        return True

    def tombstones(self) -> list[CoordinatorRecord]:
        return list(self.tombstones_of(self.members))

    def tombstones_of(self, member_ids: Collection[str]) -> Iterator[CoordinatorRecord]:
        """Of the group with members of these ids, each of whose records is written after what needs it."""
        group_id = self.group_id
        yield from (records.current_tombstone(group_id, member_id) for member_id in member_ids)
        yield from (records.target_tombstone(group_id, member_id) for member_id in member_ids)
        yield records.assignment_tombstone(group_id)
        yield from (records.member_tombstone(group_id, member_id) for member_id in member_ids)
        yield from (records.regex_tombstone(group_id, regex) for regex in self.regexes)
        yield records.partition_metadata_tombstone(group_id)
        yield records.group_tombstone(group_id)

    # ------------------------------------------------------------ classic members

    def supports_classic(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """Whether all members who speak the classic protocol have one of these in common."""
        if protocol_type != PROTOCOL_TYPE:
            return False
        if not self.members:
            return bool(protocols)
        return any(self._classic_protocols[name] == self.classic_count for name in protocols)

    def is_classic_without(self, leaving: Collection[Member]) -> bool:
        """Whether every member but these speaks the classic protocol."""
        leaving_classic = sum(member.is_classic for member in leaving)
        return self.classic_count - leaving_classic == len(self.members) - len(leaving)

    # ------------------------------------------------------------ applying

    def apply_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch, self.metadata_hash = epoch, metadata_hash

    def apply_assignment(self, epoch: int, timestamp_ms: int) -> None:
        self.assignment_epoch, self.assignment_timestamp_ms = epoch, timestamp_ms

    def apply_member(self, member: Member) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is None or old.topics is not member.topics:
            self._count_topics(() if old is None else old.topics, member.topics)
        if old is None or (old.regex, old.assignor, old.classic) != (
            member.regex,
            member.assignor,
            member.classic,
        ):
            self._count(old, -1)
            self._count(member, 1)
        if old is None or (old.assigned, old.pending_revocation) != (
            member.assigned,
            member.pending_revocation,
        ):
            self._disown(old)
            self._own(member)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id

    def apply_member_gone(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count_topics(member.topics, ())
        self._count(member, -1)
        self._disown(member)
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]

    def apply_target(self, member_id: str, target: Assignment | None) -> None:
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def apply_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        old = self.regexes.pop(regex, None)
        if resolved is not None:
            self.regexes[regex] = resolved
        self._count_topics(() if old is None else old.topics, () if resolved is None else resolved.topics)

    def apply_gone(self) -> None:
        """Nobody finds it any more; whoever has it in hand sees it empty."""
        for topic in self._topics:
            self._index.remove(topic, self.group_id)
        self._topics.clear()

    def _count_topics(self, old: Collection[str], new: Collection[str]) -> None:
        if old == new:
            return
        for topic in new:
            self._topics[topic] += 1
            if self._topics[topic] == 1:
                self._index.add(topic, self.group_id)
        for topic in old:
            self._topics[topic] -= 1
            if not self._topics[topic]:
                del self._topics[topic]
                self._index.remove(topic, self.group_id)

    def _count(self, member: Member | None, step: int) -> None:
        if member is None:
            return
        if member.regex:
            _add(self._regex_members, member.regex, step)
        if member.assignor is not None:
            _add(self._assignors, member.assignor, step)
        if member.classic is not None:
            self.classic_count += step
            for protocol in member.classic.supported_protocols:
                _add(self._classic_protocols, protocol.name, step)

    def _own(self, member: Member) -> None:
        for topic, partition in _each(member.assigned, member.pending_revocation):
            self._owners.setdefault(topic, {})[partition] = member.member_id

    def _disown(self, member: Member | None) -> None:
        if member is None:
            return
        for topic, partition in _each(member.assigned, member.pending_revocation):
            owners = self._owners.get(topic)
            if owners is not None and owners.get(partition) == member.member_id:
                del owners[partition]
                if not owners:
                    del self._owners[topic]


def _each(*partitions: Partitions) -> Iterator[tuple[Uuid, int]]:
    for topics in partitions:
        for topic, of_topic in topics.items():
            for partition in of_topic:
                yield topic, partition


def _add(counts: Counter[str], name: str, step: int) -> None:
    counts[name] += step
    if not counts[name]:
        del counts[name]


def _stale(member: Member, of_generation: str, prefix: str) -> KafkaError:
    """Members of the classic protocol know epochs as generations."""
    if member.is_classic:
        return KafkaError(ErrorCode.ILLEGAL_GENERATION, prefix + of_generation)
    of_epoch = of_generation.replace("generation id", "member epoch", 1)
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, prefix + of_epoch)


def _check_partition(member: Member, generation: int, topic: str, topic_id: Uuid, partition: int) -> None:
    """A commit under an earlier epoch counts if the member has had the partition since then."""
    epoch = member.epoch_of(topic_id, partition)
    if epoch is None:
        code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
        raise KafkaError(
            code, f"Partition {topic}-{partition} is not assigned or pending revocation for member."
        )
    if generation < epoch:
        raise _stale(
            member,
            f"generation id {generation} is older than assignment epoch {epoch} "
            f"for partition {topic}-{partition}.",
            "Received ",
        )
