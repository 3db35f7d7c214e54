"""Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup
as steps of the consumer protocol.

A member's epoch is its generation, its SyncGroup brings what the coordinator assigned, and its heartbeat
tells it to join again when there is something to give up or to take. A join or a sync that is due and does
not come ends the membership.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from moldau.coordinator.decision import Decision
from moldau.coordinator.record import CoordinatorRecord
from moldau.coordinator.timers import Timers
from moldau.groups.classic.joining import Join
from moldau.groups.consumer import records
from moldau.groups.consumer.departure import Departures
from moldau.groups.consumer.embedded import read_subscription, version_of, write_assignment
from moldau.groups.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from moldau.groups.consumer.member import Member, MemberState
from moldau.groups.consumer.migration import Migration, classic_metadata
from moldau.groups.consumer.patterns import Patterns, RegexChange
from moldau.groups.consumer.rebalance import Change, Rebalances
from moldau.groups.consumer.replacement import check_instance, check_size, replaced
from moldau.groups.consumer.timeouts import JoinTimeout, SyncTimeout, key
from moldau.groups.environment import GroupEnvironment
from moldau.wire.codec import ProtocolError
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import random_uuid, uuid_to_string
from moldau.wire.messages.consumer_group_heartbeat import RequestTopicPartitions
from moldau.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.join_group import JoinGroupResponse
from moldau.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_UNKNOWN_MEMBER = ""
_MEMBER_ID_REQUIRED_FROM = 4


class ClassicMembers:
    def __init__(
        self,
        timers: Timers,
        environment: GroupEnvironment,
        rebalances: Rebalances,
        patterns: Patterns,
        migration: Migration,
        departures: Departures,
    ) -> None:
        self._timers = timers
        self._environment = environment
        self._rebalances = rebalances
        self._patterns = patterns
        self._migration = migration
        self._departures = departures

    # ------------------------------------------------------------ JoinGroup

    def join(self, now_ms: int, group: ConsumerGroup, join: Join) -> Decision[JoinGroupResponse]:
        """Raises KafkaError. Who may not join is told no id, as of nobody."""
        limits = self._environment.config.groups
        timeout_ms = join.request.session_timeout_ms
        if not limits.min_session_timeout_ms <= timeout_ms <= limits.max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        try:
            return self._join(now_ms, group, join)
        except KafkaError as failure:
            return Decision(reply=JoinGroupResponse(error_code=failure.code))

    def _join(self, now_ms: int, group: ConsumerGroup, join: Join) -> Decision[JoinGroupResponse]:
        request = join.request
        is_unknown = request.member_id == _UNKNOWN_MEMBER
        member_id = request.member_id
        if is_unknown:
            member_id = uuid_to_string(random_uuid(self._environment.random))
        check_size(group, member_id, self._environment.config.groups.consumer_max_size)
        if not group.supports_classic(request.protocol_type, [name for name, _ in join.protocols]):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported."
            )
        instance_id = request.group_instance_id
        if is_unknown and instance_id is None and join.version >= _MEMBER_ID_REQUIRED_FROM:
            again = ErrorCode.MEMBER_ID_REQUIRED
            return Decision(reply=JoinGroupResponse(member_id=member_id, error_code=again))
        written: list[CoordinatorRecord] = []
        old = self._member(group, member_id, instance_id, written, is_unknown=is_unknown)
        subscription = _subscription(join)
        change = Change(group=group, old=old, new=_joining(old, join, subscription), records=written)
        epoch, is_subscription_new = self._subscribe(now_ms, change)
        return self._assign(now_ms, change, join, epoch, subscription, is_subscription_new)

    def _member(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        written: list[CoordinatorRecord],
        *,
        is_unknown: bool,
    ) -> Member:
        if instance_id is None:
            return group.members.get(member_id) or Member(member_id=member_id)
        known = group.instance(instance_id)
        if not is_unknown:
            return check_instance(known, member_id, instance_id)
        if known is None:
            return Member(member_id=member_id)
        return replaced(group, known, member_id, written)

    def _subscribe(self, now_ms: int, change: Change) -> tuple[int, bool]:
        """The group's epoch as it will be, and whether the member has another subscription."""
        group, old, new = change.group, change.old, change.new
        is_subscription_new = False
        if new != old:
            change.records.append(records.member_record(group.group_id, new))
            is_subscription_new = new.topics != old.topics
        if self._patterns.update(now_ms, change) is not RegexChange.NONE:
            is_subscription_new = True
        if is_subscription_new or not group.has_seen_topics():
            return self._rebalances.raise_epoch(change, is_due=is_subscription_new), is_subscription_new
        return group.epoch, is_subscription_new

    def _assign(
        self,
        now_ms: int,
        change: Change,
        join: Join,
        epoch: int,
        subscription: ConsumerProtocolSubscription,
        is_subscription_new: bool,
    ) -> Decision[JoinGroupResponse]:
        group, member = change.group, change.new
        owned = self._owned(subscription)
        known = None if member.instance_id is None else group.instance(member.instance_id)
        if known is not None and self._migration.may_downgrade_with(group, known):
            reason = None
            if group.assignment_epoch < epoch:
                reason = "it becomes classic with an assignment that is old"
            else:
                target = group.assignment_epoch, group.target_of(member.member_id, member.instance_id)
                self._rebalances.step(now_ms, change, target, owned, has_new_subscription=is_subscription_new)
            reply = _joined(change.new)
            return self._migration.downgraded(now_ms, group, (), change.new, reason, change.records, reply)
        target = self._rebalances.assign(now_ms, change, epoch)
        member = self._rebalances.step(
            now_ms, change, target, owned, has_new_subscription=is_subscription_new
        )
        group_id, member_id = group.group_id, member.member_id
        self._timers.cancel(key(JoinTimeout, group_id, member_id))
        self._rebalances.watch_session(now_ms, group_id, member_id, join.request.session_timeout_ms)
        self._timers.set(
            key(SyncTimeout, group_id, member_id),
            now_ms + join.rebalance_timeout_ms,
            SyncTimeout(group_id, member_id),
        )
        return Decision(records=change.records, reply=_joined(member))

    def _owned(self, subscription: ConsumerProtocolSubscription) -> Sequence[RequestTopicPartitions]:
        topics = self._environment.image.topics
        return [
            RequestTopicPartitions(topic_id=topics[each.topic].topic_id, partitions=each.partitions)
            for each in subscription.owned_partitions
            if each.topic in topics
        ]

    # ------------------------------------------------------------ SyncGroup and Heartbeat

    def sync(
        self, now_ms: int, group: ConsumerGroup, request: SyncGroupRequest
    ) -> Decision[SyncGroupResponse]:
        """Raises KafkaError."""
        member = _classic(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        _check_protocol(member, request.protocol_type, request.protocol_name)
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._await_join(now_ms, group, member)
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"A new rebalance is triggered in group {group.group_id} and member {member.member_id} "
                "should rejoin to catch up.",
            )
        self._timers.cancel(key(SyncTimeout, group.group_id, member.member_id))
        self._watch(now_ms, group, member)
        assert member.classic is not None
        assignment = write_assignment(
            {topic: indexes.keys() for topic, indexes in member.assigned.items()},
            version_of(member.classic.supported_protocols[0].metadata),
            self._environment.image,
        )
        return Decision(
            reply=SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=assignment,
            )
        )

    def heartbeat(
        self, now_ms: int, group: ConsumerGroup, request: HeartbeatRequest
    ) -> Decision[HeartbeatResponse]:
        """Raises KafkaError."""
        member = _classic(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        self._watch(now_ms, group, member)
        response = HeartbeatResponse()
        if (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (
                member.state is MemberState.UNRELEASED_PARTITIONS
                and not group.is_waiting_for_partitions(member)
            )
        ):
            response.error_code = ErrorCode.REBALANCE_IN_PROGRESS
            self._await_join(now_ms, group, member)
        return Decision(reply=response)

    def _watch(self, now_ms: int, group: ConsumerGroup, member: Member) -> None:
        assert member.classic is not None
        self._rebalances.watch_session(
            now_ms, group.group_id, member.member_id, member.classic.session_timeout_ms
        )

    def _await_join(self, now_ms: int, group: ConsumerGroup, member: Member) -> None:
        """For as long as the first time that it was told to join."""
        timer = key(JoinTimeout, group.group_id, member.member_id)
        if timer not in self._timers:
            event = JoinTimeout(group.group_id, member.member_id)
            self._timers.set(timer, now_ms + member.rebalance_timeout_ms, event)

    # ------------------------------------------------------------ LeaveGroup

    def leave(
        self, now_ms: int, group: ConsumerGroup, request: LeaveGroupRequest
    ) -> Decision[LeaveGroupResponse]:
        """Of members of either protocol: whoever manages a group takes out members by their instances."""
        leaving: dict[str, Member] = {}
        responses = []
        for identity in request.members:
            try:
                member = _leaving(group, identity)
                leaving[member.member_id] = member
                code = ErrorCode.NONE
            except KafkaError as failure:
                code = failure.code
            responses.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=code,
                )
            )
        reply = LeaveGroupResponse(members=responses)
        return self._departures.fence(now_ms, group, list(leaving.values()), reply)


def _subscription(join: Join) -> ConsumerProtocolSubscription:
    """Of the first of its protocols, which all say the same."""
    try:
        return read_subscription(join.protocols[0][1])
    except ProtocolError:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "Malformed embedded consumer protocol in subscription deserialization.",
        ) from None


def _joining(old: Member, join: Join, subscription: ConsumerProtocolSubscription) -> Member:
    request = join.request
    return replace(
        old,
        instance_id=old.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or old.rack_id,
        rebalance_timeout_ms=(
            old.rebalance_timeout_ms if join.rebalance_timeout_ms == -1 else join.rebalance_timeout_ms
        ),
        topics=frozenset(subscription.topics),
        regex="",
        client_id=join.client.id,
        client_host=join.client.host,
        classic=classic_metadata(request.session_timeout_ms, join.protocols),
    )


def _joined(member: Member) -> JoinGroupResponse:
    assert member.classic is not None
    return JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=member.classic.supported_protocols[0].name,
    )


def _classic(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    if instance_id is None:
        member = group.member(member_id)
    else:
        known = group.instance(instance_id)
        if known is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member with instance id {instance_id} is not a member of group {group.group_id}.",
            )
        member = check_instance(known, member_id, instance_id)
    if not member.is_classic:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol."
        )
    return member


def _check_generation(member: Member, generation: int) -> None:
    if generation != member.epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of "
            f"member {member.member_id}.",
        )


def _check_protocol(member: Member, protocol_type: str | None, protocol_name: str | None) -> None:
    """What is not said does not differ."""
    assert member.classic is not None
    known = member.classic.supported_protocols[0].name
    if protocol_type not in (None, PROTOCOL_TYPE):
        told = (
            f"type {protocol_type} from member {member.member_id} request is not equal to the group protocol"
        )
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The protocol {told} type {PROTOCOL_TYPE}.")
    if protocol_name not in (None, known):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The protocol name {protocol_name} from member {member.member_id} request is not equal to the "
            f"protocol name {known} returned in the join response.",
        )


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    known = group.instance(instance_id)
    if known is not None and identity.member_id == _UNKNOWN_MEMBER:
        return known
    return check_instance(known, identity.member_id, instance_id)
