"""From the wish for a new generation to the moment when its members are told of it.

A rebalance is prepared: members learn of it by their heartbeats and join again, each one's request waiting
here for the last. It is over when all have joined, or when the slowest had its time; whoever has not joined
by then is out, unless it is static, so that it may be gone for as long as its session lasts.

The first rebalance of a group without members would be over with the first one who joins. It is put off a
little, as long as more come, so that a group that starts does not rebalance for each of them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from moldau.coordinator.decision import Decision
from moldau.coordinator.timers import Timers
from moldau.groups.classic.group import ClassicGroup, ClassicState
from moldau.groups.classic.member import Member, SessionTimeout
from moldau.groups.classic.outcome import Outcome
from moldau.groups.classic.records import group_record
from moldau.groups.environment import GroupEnvironment
from moldau.groups.group import GroupStore
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.join_group import JoinGroupResponse
from moldau.wire.messages.sync_group import SyncGroupResponse

log = logging.getLogger(__name__)

# While nobody joins a rebalance it is tried again, and not without pause for members that allow it no time.
LONELY_WAIT_MIN_MS = 1000


@dataclass(frozen=True, slots=True)
class InitialDelay:
    """The first rebalance was put off by `delay_ms`; `remaining_ms` is what may still be added."""

    group_id: str
    delay_ms: int
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class JoinTimeout:
    group_id: str


@dataclass(frozen=True, slots=True)
class SyncTimeout:
    """Members that joined this generation have not asked for their assignments."""

    group_id: str
    generation: int


class Rebalances:
    def __init__(self, groups: GroupStore, timers: Timers, environment: GroupEnvironment) -> None:
        self._groups = groups
        self._timers = timers
        self._environment = environment

    # ------------------------------------------------------------ preparing

    def prepare(self, now_ms: int, group: ClassicGroup, reason: str, outcome: Outcome) -> None:
        if group.state is ClassicState.COMPLETING_REBALANCE:
            self.call_off_assignment(now_ms, group, ErrorCode.REBALANCE_IN_PROGRESS, outcome)
        group.pending_sync.clear()
        self._timers.cancel(_sync_key(group))
        group.become(ClassicState.PREPARING_REBALANCE, now_ms)
        log.info(
            "group %s begins to rebalance after generation %d: %s", group.group_id, group.generation, reason
        )
        if group.is_initial_rebalance():
            group.has_newcomer = False
            delay_ms = self._environment.config.groups.initial_rebalance_delay_ms
            remaining_ms = max(0, group.rebalance_timeout_ms() - delay_ms)
            self._put_off(now_ms, InitialDelay(group.group_id, delay_ms, remaining_ms))
        elif group.have_all_joined():
            self.complete(now_ms, group, outcome)
        else:
            self._wait_for_joins(now_ms, group)

    def prepare_or_complete(self, now_ms: int, group: ClassicGroup, reason: str, outcome: Outcome) -> None:
        """Something of the group has changed: that takes a rebalance, or may be the end of one."""
        if group.state is ClassicState.PREPARING_REBALANCE:
            self.complete_if_all_joined(now_ms, group, outcome)
        else:
            self.prepare(now_ms, group, reason, outcome)

    def complete_if_all_joined(self, now_ms: int, group: ClassicGroup, outcome: Outcome) -> None:
        """The first rebalance takes its time."""
        if (
            group.state is ClassicState.PREPARING_REBALANCE
            and not group.is_initial_rebalance()
            and group.have_all_joined()
        ):
            self.complete(now_ms, group, outcome)

    def on_initial_delay(self, now_ms: int, event: InitialDelay) -> Decision[None]:
        group = self._find(event.group_id)
        outcome = Outcome()
        if group is not None and group.is_initial_rebalance():
            if group.has_newcomer and event.remaining_ms:
                group.has_newcomer = False
                delay_ms = self._environment.config.groups.initial_rebalance_delay_ms
                self._put_off(
                    now_ms,
                    InitialDelay(
                        group.group_id,
                        min(delay_ms, event.remaining_ms),
                        max(0, event.remaining_ms - event.delay_ms),
                    ),
                )
            else:
                self.complete(now_ms, group, outcome)
        return outcome.decision()

    def on_join_timeout(self, now_ms: int, event: JoinTimeout) -> Decision[None]:
        group = self._find(event.group_id)
        outcome = Outcome()
        if group is not None and group.state is ClassicState.PREPARING_REBALANCE:
            self.complete(now_ms, group, outcome)
        return outcome.decision()

    # ------------------------------------------------------------ completing

    def complete(self, now_ms: int, group: ClassicGroup, outcome: Outcome) -> None:
        """Ends the wait for those who have not joined, and begins a generation of those who have."""
        self._timers.cancel(_join_key(group))
        for member in list(group.members.values()):
            if member.awaiting_join is None and member.instance_id is None:
                self.take_out(group, member, outcome)
        if group.members and not group.elect_joined_leader():
            # Static members alone, of whom none has come back: their sessions will tell.
            self._wait_for_joins(now_ms, group, LONELY_WAIT_MIN_MS)
            return
        group.begin_generation(now_ms)
        log.info(
            "group %s has generation %d, with %d members",
            group.group_id,
            group.generation,
            len(group.members),
        )
        if group.is_empty():
            outcome.records.append(group_record(group))
            return
        for member in group.members.values():
            waiter = group.take_awaiting_join(member)
            if waiter is not None:
                is_leader = member.member_id == group.leader_id
                outcome.answer(waiter, group.joined(member.member_id, with_members=is_leader))
            member.is_new = False
            self.watch(now_ms, member)
        group.pending_sync.update(group.members)
        self._timers.set(
            _sync_key(group),
            now_ms + group.rebalance_timeout_ms(),
            SyncTimeout(group.group_id, group.generation),
        )

    def on_sync_timeout(self, now_ms: int, event: SyncTimeout) -> Decision[None]:
        group = self._find(event.group_id)
        outcome = Outcome()
        if group is not None and group.generation == event.generation and group.pending_sync:
            silent = [member for member in group.members.values() if member.member_id in group.pending_sync]
            for member in silent:
                self.take_out(group, member, outcome)
            self.prepare(now_ms, group, f"{len(silent)} members have not asked for assignments", outcome)
        return outcome.decision()

    def on_synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self._timers.cancel(_sync_key(group))

    # ------------------------------------------------------------ assignments

    def hand_out(
        self, now_ms: int, group: ClassicGroup, assignments: dict[str, bytes], outcome: Outcome
    ) -> None:
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            self._answer_sync(now_ms, member, assigned(group, member), outcome)
        group.become(ClassicState.STABLE, now_ms)

    def call_off_assignment(
        self, now_ms: int, group: ClassicGroup, code: ErrorCode, outcome: Outcome
    ) -> None:
        for member in group.members.values():
            member.assignment = b""
            self._answer_sync(now_ms, member, SyncGroupResponse(error_code=code), outcome)

    def _answer_sync(
        self, now_ms: int, member: Member, response: SyncGroupResponse, outcome: Outcome
    ) -> None:
        if member.awaiting_sync is not None:
            outcome.answer(member.awaiting_sync, response)
            member.awaiting_sync = None
            # While it waited, its session could not end.
            self.watch(now_ms, member)

    # ------------------------------------------------------------ members

    def watch(self, now_ms: int, member: Member, timeout_ms: int | None = None) -> None:
        """It was heard of: its session begins anew."""
        wait_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self._timers.set(member.session, now_ms + wait_ms, member.session)

    def on_session_timeout(self, now_ms: int, event: SessionTimeout) -> Decision[None]:
        group = self._find(event.group_id)
        outcome = Outcome()
        if group is None:
            return outcome.decision()
        if group.pending_members.get(event.member_id) is event:
            self.forget_pending(group, event.member_id)
            self._complete_without(now_ms, group, outcome)
        member = group.members.get(event.member_id)
        if member is not None and member.session is event and not member.is_excused():
            log.info("member %s of group %s is out: its session is over", member.member_id, group.group_id)
            self.take_out(group, member, outcome)
            if group.state is ClassicState.PREPARING_REBALANCE:
                self._complete_without(now_ms, group, outcome)
            else:
                self.prepare(now_ms, group, f"the session of {member.member_id} is over", outcome)
        return outcome.decision()

    def _complete_without(self, now_ms: int, group: ClassicGroup, outcome: Outcome) -> None:
        """Even the first rebalance does not take its time when it was waiting for who has gone."""
        if group.state is ClassicState.PREPARING_REBALANCE and group.have_all_joined():
            self.complete(now_ms, group, outcome)

    def take_out(self, group: ClassicGroup, member: Member, outcome: Outcome) -> None:
        """Whatever it waits for is over: it may join again, as another one."""
        self._timers.cancel(member.session)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        outcome.answer(group.take_awaiting_join(member), JoinGroupResponse(error_code=unknown))
        outcome.answer(member.awaiting_sync, SyncGroupResponse(error_code=unknown))
        member.awaiting_sync = None
        group.remove(member)

    def forget_pending(self, group: ClassicGroup, member_id: str) -> None:
        self._timers.cancel(group.pending_members.pop(member_id))

    def close(self, group: ClassicGroup) -> None:
        """The group is gone: nothing of it is to happen any more."""
        for session in group.pending_members.values():
            self._timers.cancel(session)
        for member in group.members.values():
            self._timers.cancel(member.session)
        self._timers.cancel(_join_key(group))
        self._timers.cancel(_sync_key(group))

    # ------------------------------------------------------------

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _put_off(self, now_ms: int, event: InitialDelay) -> None:
        self._timers.set((JoinTimeout, event.group_id), now_ms + event.delay_ms, event)

    def _wait_for_joins(self, now_ms: int, group: ClassicGroup, min_ms: int = 0) -> None:
        wait_ms = max(min_ms, group.rebalance_timeout_ms())
        self._timers.set(_join_key(group), now_ms + wait_ms, JoinTimeout(group.group_id))


def assigned(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def _join_key(group: ClassicGroup) -> tuple[type, str]:
    return JoinTimeout, group.group_id


def _sync_key(group: ClassicGroup) -> tuple[type, str]:
    return SyncTimeout, group.group_id
