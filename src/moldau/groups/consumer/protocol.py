"""The consumer group protocol as a part of the shard: heartbeats, descriptions, the records that are
replayed, and what happens by itself.

A heartbeat does three things: it says what the member is like, which may raise the group's epoch; if the
assignment is older than the group, a new one is found; and the member takes a step towards what it is to
have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moldau.coordinator.decision import NOTHING, Answer, Decision, Waiter
from moldau.coordinator.record import CoordinatorRecord
from moldau.coordinator.timers import Timers
from moldau.groups.classic.group import ClassicGroup
from moldau.groups.classic.protocol import ClassicProtocol
from moldau.groups.consumer import records
from moldau.groups.consumer.classic_members import ClassicMembers
from moldau.groups.consumer.departure import Departures
from moldau.groups.consumer.description import describe
from moldau.groups.consumer.group import ConsumerGroup, TopicIndex
from moldau.groups.consumer.member import (
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    Member,
    MemberState,
    Owned,
)
from moldau.groups.consumer.migration import Migration
from moldau.groups.consumer.patterns import Patterns, RegexChange, ResolveRegexes
from moldau.groups.consumer.rebalance import Change, Rebalances
from moldau.groups.consumer.records import ResolvedRegex
from moldau.groups.consumer.replacement import check_instance, check_size, replaced
from moldau.groups.consumer.timeouts import KINDS, RebalanceTimeout, Timeout
from moldau.groups.environment import GroupEnvironment
from moldau.groups.group import Client, Group, GroupStore
from moldau.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from moldau.metadata.delta import Delta
from moldau.metadata.image import ResourceType
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import random_uuid, uuid_to_string
from moldau.wire.messages.consumer_group_describe import DescribedGroup
from moldau.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from moldau.wire.schema import Message


class ConsumerProtocol:
    def __init__(
        self,
        groups: GroupStore,
        timers: Timers,
        environment: GroupEnvironment,
        classic: ClassicProtocol,
    ) -> None:
        self._groups = groups
        self._environment = environment
        self._index = TopicIndex()
        self.rebalances = Rebalances(timers, environment)
        self._patterns = Patterns(groups, timers, environment, self.rebalances)
        self._migration = Migration(classic, environment, self.rebalances)
        self._departures = Departures(self.rebalances, self._migration)
        self.classic_members = ClassicMembers(
            timers, environment, self.rebalances, self._patterns, self._migration, self._departures
        )

    # ------------------------------------------------------------ heartbeat

    def heartbeat(
        self, now_ms: int, client: Client, request: ConsumerGroupHeartbeatRequest
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """`request` was checked as far as it can be by itself. Raises KafkaError."""
        if request.member_epoch < 0:
            return self._leave(now_ms, request)
        written: list[CoordinatorRecord] = []
        answers: list[Answer] = []
        group = self._group_to_join(now_ms, request, written, answers)
        check_size(group, request.member_id, self._environment.config.groups.consumer_max_size)
        member_id = request.member_id or uuid_to_string(random_uuid(self._environment.random))
        old = self._member(group, member_id, request, written)
        new = old.heard(request, client)
        change = Change(group=group, old=old, new=new, records=written)
        has_new_topics = has_new_regex = False
        regex_change = RegexChange.NONE
        if new is not old:
            written.append(records.member_record(group.group_id, new))
            has_new_topics = new.topics != old.topics
        if new.regex or old.regex or group.subscribed_regexes:
            regex_change = self._patterns.update(now_ms, change)
            has_new_regex = regex_change is not RegexChange.NONE
        epoch = group.epoch
        is_due = has_new_topics or regex_change is RegexChange.RESOLVED
        if is_due or not group.has_seen_topics():
            epoch = self.rebalances.raise_epoch(change, is_due=is_due)
        target = self.rebalances.assign(now_ms, change, epoch)
        new = self.rebalances.step(
            now_ms,
            change,
            target,
            request.topic_partitions,
            has_new_subscription=has_new_topics or has_new_regex,
        )
        config = self.rebalances.config(group.group_id)
        self.rebalances.watch_session(now_ms, group.group_id, member_id, config.consumer_session_timeout_ms)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=new.epoch,
            heartbeat_interval_ms=config.consumer_heartbeat_interval_ms,
        )
        if _is_full(request) or new.assigned != old.assigned:
            response.assignment = _assignment(new)
        return Decision(records=written, reply=response, answers=answers)

    # ------------------------------------------------------------ the group and the member of a heartbeat

    def _group_to_join(
        self,
        now_ms: int,
        request: ConsumerGroupHeartbeatRequest,
        written: list[CoordinatorRecord],
        answers: list[Answer],
    ) -> ConsumerGroup:
        """The group; one that comes to be with the records, if the member is about to join."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if request.member_epoch != JOINING_EPOCH:
            if group is None:
                raise _no_group(f"Consumer group {request.group_id} not found.")
            raise _no_group(f"Group {request.group_id} is not a consumer group.")
        if isinstance(group, ClassicGroup):
            if not group.is_empty():
                return self._migration.upgraded(now_ms, group, written, answers)
            written += group.tombstones()
        elif group is not None:
            raise _no_group(f"Group {request.group_id} is not a consumer group.")
        return ConsumerGroup(request.group_id, self._index)

    def _find(self, group_id: str) -> ConsumerGroup:
        group: Group = self._groups.find(group_id)
        if not isinstance(group, ConsumerGroup):
            raise _no_group(f"Group {group_id} is not a consumer group.")
        return group

    def _member(
        self,
        group: ConsumerGroup,
        member_id: str,
        request: ConsumerGroupHeartbeatRequest,
        written: list[CoordinatorRecord],
    ) -> Member:
        is_joining = request.member_epoch == JOINING_EPOCH
        if request.instance_id is None:
            member = group.members.get(member_id)
            if member is None:
                member = Member(member_id=member_id) if is_joining else group.member(member_id)
            _check_epoch(member, request.member_epoch, request.topic_partitions)
            return member
        known = group.instance(request.instance_id)
        if not is_joining:
            member = check_instance(known, member_id, request.instance_id)
            _check_epoch(member, request.member_epoch, request.topic_partitions)
            return member
        if known is None:
            return group.members.get(member_id) or Member(member_id=member_id)
        if not known.is_classic and known.epoch != STATIC_LEAVING_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {request.instance_id} cannot join the group "
                f"because the instance id is owned by {known.member_id} member.",
            )
        return replaced(group, known, member_id, written)

    # ------------------------------------------------------------ leaving

    def _leave(
        self, now_ms: int, request: ConsumerGroupHeartbeatRequest
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        group = self._find(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            known = group.instance(request.instance_id)
            member = check_instance(known, request.member_id, request.instance_id)
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.instance_id is not None and request.member_epoch == STATIC_LEAVING_EPOCH:
            gone = records.current_record(group.group_id, member.left_for_now())
            return Decision(records=[gone], reply=response)
        return self._departures.fence(now_ms, group, [member], response)

    def _on_timeout(self, now_ms: int, event: Timeout) -> Decision[Any]:
        group = self._groups.get(event.group_id)
        if not isinstance(group, ConsumerGroup) or event.member_id not in group.members:
            return NOTHING
        member = group.members[event.member_id]
        if isinstance(event, RebalanceTimeout) and member.epoch != event.epoch:
            return NOTHING
        # Until its tombstones are applied: they may not get written.
        self.rebalances.try_again(now_ms, event)
        return self._departures.fence(now_ms, group, [member], None)

    # ------------------------------------------------------------ descriptions

    def describe(self, group_id: str) -> Decision[DescribedGroup]:
        """Raises KafkaError."""
        default, *_ = self.rebalances.assignors()
        return Decision(reply=describe(self._find(group_id), default, self._environment.image))

    # ------------------------------------------------------------ what happens by itself

    @property
    def timer_handlers(self) -> Mapping[type, Callable[[int, Any], Decision[Any]]]:
        return {
            **dict.fromkeys(KINDS, self._on_timeout),
            ResolveRegexes: self._patterns.on_resolve,
        }

    def on_loaded(self, now_ms: int) -> Decision[Any]:
        self._patterns.on_new_topics()
        for group in self._groups.groups.values():
            if not isinstance(group, ConsumerGroup):
                continue
            timeout_ms = self.rebalances.config(group.group_id).consumer_session_timeout_ms
            for member in group.members.values():
                self.rebalances.watch_session(now_ms, group.group_id, member.member_id, timeout_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self.rebalances.watch_revocation(now_ms, group.group_id, member)
        return NOTHING

    def on_image(self, now_ms: int, delta: Delta) -> Decision[Any]:
        """Groups look at their topics again when a member is heard of."""
        for resource in delta.configs:
            if resource.type == ResourceType.GROUP:
                self.rebalances.forget_config(resource.name)
        for deleted in delta.deleted_topics.values():
            self.rebalances.hashes.forget(deleted.name)
            self._look_again(deleted.name)
        for changed in delta.topics.values():
            self._look_again(changed.name)
        if any(changed.created for changed in delta.topics.values()):
            self._patterns.on_new_topics()
        return NOTHING

    def _look_again(self, topic: str) -> None:
        for group_id in self._index.groups_of(topic):
            group = self._groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                group.look_again()

    def on_unloaded(self) -> Sequence[Waiter[Any]]:
        return ()

    # ------------------------------------------------------------ records

    @property
    def appliers(self) -> Mapping[type[Message], Callable[[CoordinatorRecord, int], None]]:
        return {
            ConsumerGroupMetadataKey: self._apply_group,
            ConsumerGroupPartitionMetadataKey: self._apply_partition_metadata,
            ConsumerGroupMemberMetadataKey: self._apply_member,
            ConsumerGroupTargetAssignmentMetadataKey: self._apply_assignment,
            ConsumerGroupTargetAssignmentMemberKey: self._apply_target,
            ConsumerGroupCurrentMemberAssignmentKey: self._apply_current,
            ConsumerGroupRegularExpressionKey: self._apply_regex,
        }

    def _known(self, group_id: str) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _known_or_new(self, group_id: str) -> ConsumerGroup:
        """A group that only had offsets makes room."""
        group = self._known(group_id)
        if group is None:
            group = self._groups.groups[group_id] = ConsumerGroup(group_id, self._index)
        return group

    def _apply_group(self, record: CoordinatorRecord, producer_id: int) -> None:
        key, value = _parts(record)
        if value is not None:
            self._known_or_new(key.group_id).apply_epoch(value.epoch, value.metadata_hash)
        elif (group := self._known(key.group_id)) is not None:
            group.apply_gone()
            del self._groups.groups[key.group_id]
            self.rebalances.forget_config(key.group_id)

    def _apply_partition_metadata(self, record: CoordinatorRecord, producer_id: int) -> None:
        """Obsolete: only whether there is one counts, since it is to go."""
        key, value = _parts(record)
        if value is not None:
            self._known_or_new(key.group_id).has_partition_metadata = True
        elif (group := self._known(key.group_id)) is not None:
            group.has_partition_metadata = False

    def _apply_member(self, record: CoordinatorRecord, producer_id: int) -> None:
        key, value = _parts(record)
        if value is not None:
            group = self._known_or_new(key.group_id)
            member = group.members.get(key.member_id) or Member(member_id=key.member_id)
            group.apply_member(member.described_by(value))
        elif (known := self._known(key.group_id)) is not None:
            known.apply_member_gone(key.member_id)
            self.rebalances.forget_timers(key.group_id, key.member_id)

    def _apply_assignment(self, record: CoordinatorRecord, producer_id: int) -> None:
        key, value = _parts(record)
        if value is not None:
            group = self._known_or_new(key.group_id)
            group.apply_assignment(value.assignment_epoch, value.assignment_timestamp)
        elif (known := self._known(key.group_id)) is not None:
            known.apply_assignment(-1, 0)

    def _apply_target(self, record: CoordinatorRecord, producer_id: int) -> None:
        key, value = _parts(record)
        if value is not None:
            target = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
            self._known_or_new(key.group_id).apply_target(key.member_id, target)
        elif (group := self._known(key.group_id)) is not None:
            group.apply_target(key.member_id, None)

    def _apply_current(self, record: CoordinatorRecord, producer_id: int) -> None:
        key, value = _parts(record)
        if value is not None:
            group = self._known_or_new(key.group_id)
            member = group.members.get(key.member_id) or Member(member_id=key.member_id)
            group.apply_member(member.assigned_by(value))
        elif (known := self._known(key.group_id)) is not None and key.member_id in known.members:
            known.apply_member(known.members[key.member_id].unassigned())

    def _apply_regex(self, record: CoordinatorRecord, producer_id: int) -> None:
        key, value = _parts(record)
        if value is not None:
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            self._known_or_new(key.group_id).apply_regex(key.regular_expression, resolved)
        elif (group := self._known(key.group_id)) is not None:
            group.apply_regex(key.regular_expression, None)


def _parts(record: CoordinatorRecord) -> tuple[Any, Any]:
    """Of the classes that the key was declared with."""
    return record.key, record.value


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member tells everything, as it does when it has lost track, and so is told everything."""
    if request.member_epoch == JOINING_EPOCH:
        return True
    return (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _assignment(member: Member) -> Assignment:
    return Assignment(
        topic_partitions=[
            ResponseTopicPartitions(topic_id=topic, partitions=sorted(partitions))
            for topic, partitions in member.assigned.items()
        ]
    )


def _check_epoch(member: Member, epoch: int, owned: Owned | None) -> None:
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    # The answer that told it of its epoch may have been lost.
    if epoch < member.epoch and epoch == member.previous_epoch and member.owns_no_more_than(owned):
        return
    comparison = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _no_group(message: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
