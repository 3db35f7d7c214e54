"""JoinGroup: who may be a member of a group, and what it takes to become or to remain one."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from moldau.coordinator.decision import Waiter
from moldau.coordinator.timers import Timers
from moldau.groups.classic.group import ClassicGroup, ClassicState
from moldau.groups.classic.member import Member, Protocols, SessionTimeout
from moldau.groups.classic.outcome import Outcome
from moldau.groups.classic.rebalance import Rebalances
from moldau.groups.classic.records import group_record
from moldau.groups.environment import GroupEnvironment
from moldau.groups.group import Client
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.sync_group import SyncGroupResponse

UNKNOWN_MEMBER = ""
# A new member that does not know its id yet cannot send heartbeats. It has this long to be told; if it is
# still there then, it asks again.
NEW_MEMBER_TIMEOUT_MS = 300_000
# Ids that were given out and not used yet are kept for a session each; a group needs no more at a time.
PENDING_MEMBERS_MAX = 65_536

_MEMBER_ID_REQUIRED_FROM = 4
_SKIPS_ASSIGNMENT_FROM = 9
# As much of it as Kafka's own clients send.
REASON_SHOWN_MAX = 255


class Join(NamedTuple):
    """One JoinGroup, and who waits for its answer."""

    client: Client
    request: JoinGroupRequest
    version: int
    waiter: Waiter[JoinGroupResponse]

    @property
    def protocols(self) -> Protocols:
        return tuple((protocol.name, protocol.metadata) for protocol in self.request.protocols)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Version 0 does not know of one."""
        return self.request.session_timeout_ms if self.version == 0 else self.request.rebalance_timeout_ms

    @property
    def reason(self) -> str:
        return repr((self.request.reason or "not provided")[:REASON_SHOWN_MAX])


class Joins:
    def __init__(self, rebalances: Rebalances, timers: Timers, environment: GroupEnvironment) -> None:
        self._rebalances = rebalances
        self._timers = timers
        self._environment = environment

    def join(self, now_ms: int, group: ClassicGroup, join: Join, outcome: Outcome) -> None:
        request = join.request
        if not self._has_room(group, request.member_id):
            member = group.members.get(request.member_id)
            if member is not None:
                self._rebalances.take_out(group, member, outcome)
                self._rebalances.complete_if_all_joined(now_ms, group, outcome)
            refuse(join, ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER, outcome)
        elif not group.supports(request.protocol_type, join.protocols):
            refuse(join, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id, outcome)
        elif request.member_id == UNKNOWN_MEMBER:
            self._join_unknown(now_ms, group, join, outcome)
        elif request.member_id in group.pending_members:
            if request.group_instance_id is not None:
                # No id was given to a static member: that is no mistake that a client makes.
                refuse(join, ErrorCode.UNKNOWN_SERVER_ERROR, UNKNOWN_MEMBER, outcome)
                return
            self._rebalances.forget_pending(group, request.member_id)
            self._add(now_ms, group, join, request.member_id, outcome)
        else:
            try:
                member = group.check_member(request.member_id, request.group_instance_id)
            except KafkaError as failure:
                refuse(join, failure.code, request.member_id, outcome)
                return
            self._join_again(now_ms, group, member, join, outcome)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        size_max = self._environment.config.groups.max_size
        member = group.members.get(member_id)
        match group.state:
            case ClassicState.EMPTY:
                return True
            case ClassicState.PREPARING_REBALANCE:
                # Who has joined counts, not who may: when the limit was lowered, the last are out.
                is_waiting = member is not None and member.awaiting_join is not None
                return is_waiting or group.awaiting_join_count < size_max
        return member is not None or len(group.members) < size_max

    # ------------------------------------------------------------ without a member id

    def _join_unknown(self, now_ms: int, group: ClassicGroup, join: Join, outcome: Outcome) -> None:
        request = join.request
        instance_id = request.group_instance_id
        unique = UUID(int=self._environment.random.getrandbits(128), version=4)
        member_id = f"{join.client.id if instance_id is None else instance_id}-{unique}"
        if instance_id is not None:
            known = group.static_members.get(instance_id)
            if known is None:
                self._add(now_ms, group, join, member_id, outcome)
            else:
                self._replace(now_ms, group, group.members[known], join, member_id, outcome)
        elif join.version < _MEMBER_ID_REQUIRED_FROM:
            self._add(now_ms, group, join, member_id, outcome)
        elif len(group.pending_members) >= PENDING_MEMBERS_MAX:
            refuse(join, ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER, outcome)
        else:
            # It gets an id to come back with: were it added now, and its connection broken before it is
            # answered, it would come again as another one, and this one would be waited for.
            pending = SessionTimeout(group.group_id, member_id)
            group.pending_members[member_id] = pending
            self._timers.set(pending, now_ms + request.session_timeout_ms, pending)
            refuse(join, ErrorCode.MEMBER_ID_REQUIRED, member_id, outcome)

    def _add(self, now_ms: int, group: ClassicGroup, join: Join, member_id: str, outcome: Outcome) -> None:
        request = join.request
        member = Member(
            group.group_id,
            member_id,
            request.group_instance_id,
            join.client,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=join.protocols,
        )
        member.is_new = True
        if group.is_initial_rebalance():
            group.has_newcomer = True
        group.add(member, request.protocol_type)
        group.await_join(member, join.waiter)
        self._rebalances.watch(now_ms, member, NEW_MEMBER_TIMEOUT_MS)
        reason = f"member {member_id} is new; its reason: {join.reason}"
        self._rebalances.prepare_or_complete(now_ms, group, reason, outcome)

    # ------------------------------------------------------------ with a member id

    def _join_again(
        self, now_ms: int, group: ClassicGroup, member: Member, join: Join, outcome: Outcome
    ) -> None:
        is_leader = member.member_id == group.leader_id
        is_same = list(member.protocols) == list(join.protocols)
        match group.state:
            case ClassicState.COMPLETING_REBALANCE if is_same:
                # The answer to its first request may have been lost.
                answer = group.joined(member.member_id, with_members=is_leader)
                outcome.answer(join.waiter, answer)
            case ClassicState.STABLE if is_same and not is_leader:
                outcome.answer(join.waiter, group.joined(member.member_id, with_members=False))
            case _:
                # A leader that joins again wants to assign anew: there is more to assign, say.
                self._update(group, member, join, outcome)
                reason = f"member {member.member_id} joins again; its reason: {join.reason}"
                self._rebalances.prepare_or_complete(now_ms, group, reason, outcome)

    def _update(self, group: ClassicGroup, member: Member, join: Join, outcome: Outcome) -> None:
        group.set_protocols(member, join.protocols)
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.session_timeout_ms = join.request.session_timeout_ms
        # Of a connection that was given up, most likely.
        refuse_waiting(
            group.take_awaiting_join(member), ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, outcome
        )
        group.await_join(member, join.waiter)

    # ------------------------------------------------------------ static members that come back

    def _replace(
        self, now_ms: int, group: ClassicGroup, old: Member, join: Join, member_id: str, outcome: Outcome
    ) -> None:
        """A static member has been started again: it takes its own place, and if the group would choose the
        same protocol, nobody else needs to know. Whoever goes on under its old id is fenced."""
        fenced = ErrorCode.FENCED_INSTANCE_ID
        refuse_waiting(group.take_awaiting_join(old), fenced, old.member_id, outcome)
        outcome.answer(old.awaiting_sync, SyncGroupResponse(error_code=fenced))
        old.awaiting_sync = None
        old_leader_id = group.leader_id
        new = Member(
            group.group_id,
            member_id,
            old.instance_id,
            old.client,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            session_timeout_ms=join.request.session_timeout_ms,
            protocols=join.protocols,
            assignment=old.assignment,
        )
        group.replace(old, new)
        self._timers.cancel(old.session)
        self._rebalances.watch(now_ms, new)
        group.await_join(new, join.waiter)
        if group.state is not ClassicState.STABLE or group.select_protocol() != group.protocol_name:
            reason = f"static member {member_id} is back; its reason: {join.reason}"
            self._rebalances.prepare_or_complete(now_ms, group, reason, outcome)
            return

        def when_written(failure: KafkaError | None, following: Outcome) -> None:
            if failure is not None:
                refuse_waiting(group.take_awaiting_join(new), failure.code, UNKNOWN_MEMBER, following)
                group.replace(new, old)
                group.note_subscribed_topics()
                self._timers.cancel(new.session)
                self._rebalances.watch(now_ms, old)
            elif new.awaiting_join is join.waiter:
                group.take_awaiting_join(new)
                following.answer(join.waiter, self._welcome_back(group, new, join.version, old_leader_id))

        group.note_subscribed_topics()
        outcome.records.append(group_record(group))
        outcome.after = when_written

    def _welcome_back(
        self, group: ClassicGroup, member: Member, version: int, old_leader_id: str | None
    ) -> JoinGroupResponse:
        is_leader = member.member_id == group.leader_id
        if version >= _SKIPS_ASSIGNMENT_FROM:
            answer = group.joined(member.member_id, with_members=is_leader)
            answer.skip_assignment = is_leader
        else:
            # It is not told that it leads: it would assign, and the group is not waiting for that.
            answer = group.joined(member.member_id, with_members=False)
            answer.leader = old_leader_id or ""
        return answer


def refuse(join: Join, code: ErrorCode, member_id: str, outcome: Outcome) -> None:
    refuse_waiting(join.waiter, code, member_id, outcome)


def refuse_waiting(
    waiter: Waiter[JoinGroupResponse] | None, code: ErrorCode, member_id: str, outcome: Outcome
) -> None:
    outcome.answer(waiter, JoinGroupResponse(error_code=code, member_id=member_id))
