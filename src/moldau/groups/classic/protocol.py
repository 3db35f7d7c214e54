"""The classic group protocol as a part of the shard: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, the records
that are replayed, and what the load of them sets off.

A group comes to be with its first record and goes with its tombstone. In between the log is a copy of it:
what is written of a living group is what it is already, or, with its assignment, what it becomes once that is
committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from moldau.coordinator.decision import NOTHING, Decision, Waiter
from moldau.coordinator.record import CoordinatorRecord
from moldau.coordinator.timers import Timers
from moldau.groups.classic.group import ClassicGroup, ClassicState
from moldau.groups.classic.joining import REASON_SHOWN_MAX, UNKNOWN_MEMBER, Join, Joins, refuse
from moldau.groups.classic.member import Protocols, SessionTimeout
from moldau.groups.classic.outcome import Outcome
from moldau.groups.classic.rebalance import (
    InitialDelay,
    JoinTimeout,
    Rebalances,
    SyncTimeout,
    assigned,
)
from moldau.groups.classic.records import group_record, new_group_record, read_group
from moldau.groups.environment import GroupEnvironment
from moldau.groups.group import Client, GroupStore, GroupType
from moldau.groups.records import GroupMetadataKey, GroupMetadataValue
from moldau.metadata.delta import Delta
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.describe_groups import DescribedGroup
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.wire.schema import Message

log = logging.getLogger(__name__)

_GROUP_ID_NOT_FOUND_FROM = 6

# Made once: they are most of what a coordinator answers.
_ALIVE: Decision[HeartbeatResponse] = Decision(reply=HeartbeatResponse())
_REBALANCING: Decision[HeartbeatResponse] = Decision(
    reply=HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
)


class ClassicProtocol:
    def __init__(self, groups: GroupStore, timers: Timers, environment: GroupEnvironment) -> None:
        self._groups = groups
        self._timers = timers
        self._environment = environment
        self._rebalances = Rebalances(groups, timers, environment)
        self._joins = Joins(self._rebalances, timers, environment)
        self._is_loaded = False
        self.completed_rebalances = 0

    def create_group(self, group_id: str) -> ClassicGroup:
        """A group that has offsets and no members. It is in the log by its offsets only."""
        group = ClassicGroup(group_id)
        self._groups.groups[group_id] = group
        return group

    def take_over(
        self,
        now_ms: int,
        group_id: str,
        protocols: Mapping[str, Protocols],
        reason: str | None,
        outcome: Outcome,
    ) -> None:
        """A group that was of another kind is a classic one by its record, which tells only of the protocol
        that was chosen; `protocols` are those that members support. With a `reason` it is to rebalance."""
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return
        for member in group.members.values():
            # Who has joined meanwhile has told them by itself.
            if member.awaiting_join is None and member.member_id in protocols:
                group.set_protocols(member, protocols[member.member_id])
            self._rebalances.watch(now_ms, member)
        if reason is not None and group.state is ClassicState.STABLE:
            self._rebalances.prepare(now_ms, group, reason, outcome)

    # ------------------------------------------------------------ JoinGroup

    def join(
        self,
        now_ms: int,
        client: Client,
        request: JoinGroupRequest,
        version: int,
        waiter: Waiter[JoinGroupResponse],
    ) -> Decision[JoinGroupResponse]:
        outcome = Outcome()
        join = Join(client, request, version, waiter)
        limits = self._environment.config.groups
        if not (limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms):
            refuse(join, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id, outcome)
            return outcome.decision()
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            self._joins.join(now_ms, group, join, outcome)
        elif group is not None and not (group.type is GroupType.CONSUMER and group.is_empty()):
            refuse(join, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER, outcome)
        elif request.member_id != UNKNOWN_MEMBER:
            refuse(join, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id, outcome)
        else:
            # A consumer group without members may go on as a classic one.
            outcome.records += group.tombstones() if group is not None else ()
            outcome.records.append(new_group_record(request.group_id, now_ms))
            outcome.after = partial(self._join_new_group, now_ms, join)
        return outcome.decision()

    def _join_new_group(self, now_ms: int, join: Join, failure: KafkaError | None, outcome: Outcome) -> None:
        group = self._groups.get(join.request.group_id)
        if failure is not None:
            refuse(join, failure.code, UNKNOWN_MEMBER, outcome)
        elif isinstance(group, ClassicGroup):
            self._joins.join(now_ms, group, join, outcome)
        else:
            refuse(join, ErrorCode.COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER, outcome)

    # ------------------------------------------------------------ SyncGroup

    def sync(
        self, now_ms: int, request: SyncGroupRequest, waiter: Waiter[SyncGroupResponse]
    ) -> Decision[SyncGroupResponse]:
        """Raises KafkaError."""
        group = self._find(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol_name, group.protocol_name
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is ClassicState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalances.on_synced(group, member.member_id)
        if group.state is ClassicState.STABLE:
            return Decision(reply=assigned(group, member))
        outcome = Outcome()
        # Of a connection that was given up, most likely.
        outcome.answer(member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = waiter
        if member.member_id == group.leader_id:
            self._assign(now_ms, group, request, outcome)
        return outcome.decision()

    def _assign(self, now_ms: int, group: ClassicGroup, request: SyncGroupRequest, outcome: Outcome) -> None:
        """The leader has assigned. That counts, and everyone is told, when it is committed."""
        assignments = {each.member_id: each.assignment for each in request.assignments}
        generation = group.generation

        def when_written(failure: KafkaError | None, following: Outcome) -> None:
            is_current = self._groups.get(group.group_id) is group and group.generation == generation
            if not is_current or group.state is not ClassicState.COMPLETING_REBALANCE:
                return  # something came between, and everyone was told of that
            if failure is None:
                self._rebalances.hand_out(now_ms, group, assignments, following)
                self.completed_rebalances += 1
            else:
                self._rebalances.call_off_assignment(now_ms, group, failure.code, following)
                reason = f"its assignment could not be written: {failure.code.name}"
                self._rebalances.prepare(now_ms, group, reason, following)

        outcome.records.append(group_record(group, assignments))
        outcome.after = when_written

    # ------------------------------------------------------------ Heartbeat

    def heartbeat(self, now_ms: int, request: HeartbeatRequest) -> Decision[HeartbeatResponse]:
        """Raises KafkaError."""
        group = self._find(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        session = member.session
        self._timers.set(session, now_ms + member.session_timeout_ms, session)
        return _REBALANCING if group.state is ClassicState.PREPARING_REBALANCE else _ALIVE

    # ------------------------------------------------------------ LeaveGroup

    def on_offset_commit(self, now_ms: int, group: ClassicGroup, member_id: str) -> None:
        """A member that commits is alive, as one that beats is."""
        if group.state in (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
            member = group.members.get(member_id)
            if member is not None:
                self._rebalances.watch(now_ms, member)

    def leave(self, now_ms: int, request: LeaveGroupRequest) -> Decision[LeaveGroupResponse]:
        """Raises KafkaError if there is no such group; what is wrong with a member is told of that member."""
        group = self._find(request.group_id)
        outcome = Outcome()
        responses = []
        for identity in request.members:
            try:
                self._take_out(group, identity, outcome)
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
        left = sum(not response.error_code for response in responses)
        if left and not group.is_empty():
            self._rebalances.prepare_or_complete(now_ms, group, f"{left} members have left", outcome)
        return outcome.decision(LeaveGroupResponse(members=responses))

    def _take_out(self, group: ClassicGroup, identity: MemberIdentity, outcome: Outcome) -> None:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id in group.pending_members:
            self._rebalances.forget_pending(group, member_id)
            return
        if member_id == UNKNOWN_MEMBER and instance_id is not None:
            # So does someone who manages the group, who knows the names of its static members only.
            member_id = group.static_members.get(instance_id, UNKNOWN_MEMBER)
        member = group.check_member(member_id, instance_id)
        log.info(
            "member %s has left group %s; its reason: %r",
            member_id,
            group.group_id,
            (identity.reason or "not provided")[:REASON_SHOWN_MAX],
        )
        self._rebalances.take_out(group, member, outcome)

    # ------------------------------------------------------------ DescribeGroups

    def describe(self, group_id: str, version: int) -> Decision[DescribedGroup]:
        """Whatever is no classic group is dead."""
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return Decision(reply=group.described())
        dead = DescribedGroup(group_id=group_id, group_state=ClassicState.DEAD)
        if version >= _GROUP_ID_NOT_FOUND_FROM:
            dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            if group is None:
                dead.error_message = f"Group {group_id} not found."
            else:
                dead.error_message = f"Group {group_id} is not a classic group."
        return Decision(reply=dead)

    # ------------------------------------------------------------ a part of the shard

    @property
    def appliers(self) -> Mapping[type[Message], Callable[[CoordinatorRecord, int], None]]:
        return {GroupMetadataKey: self._apply}

    @property
    def timer_handlers(self) -> Mapping[type, Callable[[int, Any], Decision[Any]]]:
        return {
            SessionTimeout: self._rebalances.on_session_timeout,
            InitialDelay: self._rebalances.on_initial_delay,
            JoinTimeout: self._rebalances.on_join_timeout,
            SyncTimeout: self._rebalances.on_sync_timeout,
        }

    def _apply(self, record: CoordinatorRecord, producer_id: int) -> None:
        key, value = record.key, record.value
        assert isinstance(key, GroupMetadataKey)
        known = self._groups.get(key.group)
        if value is not None:
            assert isinstance(value, GroupMetadataValue)
            if not (self._is_loaded and isinstance(known, ClassicGroup)):
                self._groups.groups[key.group] = read_group(key.group, value)
        elif isinstance(known, ClassicGroup):
            del self._groups.groups[key.group]
            self._rebalances.close(known)

    def on_loaded(self, now_ms: int) -> Decision[Any]:
        """The members of a group had their sessions with another coordinator, and get as much time here."""
        self._is_loaded = True
        outcome = Outcome()
        for group in self._all():
            for member in group.members.values():
                self._rebalances.watch(now_ms, member)
            if len(group.members) > self._environment.config.groups.max_size:
                reason = f"{len(group.members)} members are more than group.max.size allows"
                self._rebalances.prepare(now_ms, group, reason, outcome)
        return outcome.decision()

    def on_image(self, now_ms: int, delta: Delta) -> Decision[Any]:
        return NOTHING

    def on_unloaded(self) -> Sequence[Waiter[Any]]:
        return [waiter for group in self._all() for waiter in group.waiting()]

    def _all(self) -> list[ClassicGroup]:
        return [group for group in self._groups.groups.values() if isinstance(group, ClassicGroup)]

    def _find(self, group_id: str) -> ClassicGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
        return group


def _differs(asked: str | None, known: str | None) -> bool:
    """What is not said does not differ."""
    return asked is not None and known is not None and asked != known
