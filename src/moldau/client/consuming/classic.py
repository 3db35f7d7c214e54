"""A member of a classic group: joins, is told what it gets, beats, and joins again when the group changes.

Answerable for the order in which that happens, and for what an error means. What becomes of the assignment is
a queue of `changes` that the program is told in `poll`; the member joins again only when the queue is empty,
so what the program has not given back is never given away by us.

Invariants: one of JoinGroup and SyncGroup is in flight, and nothing but its answer, or that it failed, ends
it: what is learnt meanwhile (a subscription, metadata) is looked at when the member is stable again. An
answer counts only if it is to the request in flight. Heartbeats go from the answer to JoinGroup on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from moldau.client.consuming.asking import (
    GROUP_LANE,
    Ask,
    Backoff,
    Effect,
    may_pass,
    soonest,
)
from moldau.client.consuming.assignors import (
    ClassicAssignor,
    MemberSubscription,
    Shares,
    read_assignment,
    read_subscription,
    remember,
    write_assignment,
    write_subscription,
)
from moldau.client.consuming.config import ConsumerConfig
from moldau.client.consuming.coordinator import Coordinator
from moldau.client.consuming.holding import Holding
from moldau.client.consuming.metadata import Topics
from moldau.client.consuming.positions import Positions
from moldau.client.errors import error_of
from moldau.client.producing.operations import GroupMetadata
from moldau.wire.codec import ProtocolError
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from moldau.wire.schema import Message

PROTOCOL_TYPE = "consumer"
_JOIN_LAPSE_MS = 5000  # what JoinGroup may take beyond the time in which others have to join
_LEAVE_OF_MANY_FROM = 3
_NO_GENERATION = -1


class State(Enum):
    UNJOINED = "not a member"
    JOINING = "waits for the others to join"
    ASSIGNING = "has to assign, and waits for metadata"
    SYNCING = "waits for its assignment"
    STABLE = "knows its assignment"


class Round(NamedTuple):
    """What a request is part of."""

    kind: str
    generation_id: int
    member_id: str


class ClassicMember:
    def __init__(
        self,
        config: ConsumerConfig,
        positions: Positions,
        coordinator: Coordinator,
        topics: Topics,
        assignors: Sequence[ClassicAssignor],
        *,
        spread: Callable[[], float],
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        self.holding = Holding(positions)
        self.errors: dict[object, KafkaError] = {}
        self.subscription: frozenset[str] = frozenset()
        """Topics; none is no wish to be a member."""
        self.needed_topics: frozenset[str] = frozenset()
        """Those that the group is subscribed to, of which a leader has to know."""
        self.state = State.UNJOINED
        self.is_polling = False
        self.polled_ms: int | None = None
        self._config = config
        self._positions = positions
        self._coordinator = coordinator
        self._topics = topics
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        self._backoff = Backoff(retry_backoff_ms, retry_backoff_max_ms, spread)
        self._member_id = ""
        self._generation_id = _NO_GENERATION
        self._protocol = ""
        self._joined: frozenset[str] = frozenset()  # the subscription that the group knows
        self._assigned_from: dict[str, int] | None = None  # as a leader: numbers of partitions by topic
        self._joined_members: dict[str, MemberSubscription] = {}
        self._in_flight: Round | None = None
        self._heartbeat: Round | None = None
        self._next_heartbeat_ms = 0
        self._needs_to_join = True
        self._is_prepared = False
        self._is_leaving = False
        self._leads = False
        self._has_to_assign = False
        self._is_fenced = False

    @property
    def metadata(self) -> GroupMetadata:
        group_id, instance_id = self._coordinator.group_id, self._config.group_instance_id
        if self._generation_id == _NO_GENERATION:
            return GroupMetadata(group_id, group_instance_id=instance_id)
        return GroupMetadata(group_id, self._generation_id, self._member_id, instance_id)

    @property
    def may_commit_by_itself(self) -> bool:
        return self.state is State.STABLE and not self._needs_to_join

    # What the program does --------------------------------------------------------------------------------

    def on_poll(self, now_ms: int, *, is_polling: bool) -> None:
        self.polled_ms = now_ms
        self.is_polling = is_polling

    def rejoin(self) -> None:
        """Have the group assign anew."""
        self._needs_to_join = True

    def give_back(self) -> None:
        """Everything, before the member leaves."""
        self._is_leaving = True
        self.holding.give_back(has_lost=self._generation_id == _NO_GENERATION)

    def leave(self, reason: str) -> list[Effect]:
        """Say goodbye, unless it is a static member, which may be about to come back."""
        is_known = bool(self._member_id) and self._config.group_instance_id is None
        effects = self._leave(reason) if is_known else []
        self._is_leaving = False
        self._forget_generation()
        self.holding.changes.clear()
        return effects

    def _leave(self, reason: str) -> list[Effect]:
        if self._coordinator.node_id is None:
            return []
        member_id, group_id = self._member_id, self._coordinator.group_id

        def message(version: int) -> Message:
            if version < _LEAVE_OF_MANY_FROM:
                return LeaveGroupRequest(group_id=group_id, member_id=member_id)
            identity = MemberIdentity(member_id=member_id, reason=reason)
            return LeaveGroupRequest(group_id=group_id, members=[identity])

        about = Round("leave", self._generation_id, member_id)
        node_id = self._coordinator.node_id
        return [Ask(self, about, node_id, LeaveGroupRequest, message, LeaveGroupResponse, lane=GROUP_LANE)]

    # What is to be done -----------------------------------------------------------------------------------

    def step(self, now_ms: int) -> tuple[list[Effect], int | None]:
        if self._is_fenced:
            self.holding.lose()
            return [], None
        effects: list[Effect] = []
        if self._has_stopped_polling(now_ms):
            effects += self._expire()
        if self.state is State.STABLE and not self._needs_to_join:
            self._needs_to_join = self.subscription != self._joined or self._topics_have_changed()
        if self.state is State.ASSIGNING:
            effects += self._assign()
        wakeup_ms: int | None = None
        if self._may_join(now_ms):
            more, wakeup_ms = self._join(now_ms)
            effects += more
        beats, beat_ms = self._beat(now_ms)
        effects += beats
        expires_ms = None
        if self.polled_ms is not None and not self.is_polling and self._generation_id != _NO_GENERATION:
            expires_ms = self.polled_ms + self._config.max_poll_interval_ms
        return effects, soonest(wakeup_ms, beat_ms, expires_ms)

    def _has_stopped_polling(self, now_ms: int) -> bool:
        return (
            self.polled_ms is not None
            and not self.is_polling
            and now_ms - self.polled_ms >= self._config.max_poll_interval_ms
        )

    def _expire(self) -> list[Effect]:
        """The program is taken for stuck: others get its partitions, until it polls again."""
        if self._generation_id == _NO_GENERATION and self.state is State.UNJOINED:
            return []
        effects = [] if self._config.group_instance_id is not None else self._leave("max.poll.interval.ms")
        self._forget_generation()
        return effects

    def _topics_have_changed(self) -> bool:
        if self._assigned_from is None:
            return False
        return self._assigned_from != self._partition_counts(self._assigned_from)

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        known = self._topics.known
        return {name: len(known[name].partitions) if name in known else 0 for name in topics}

    def _may_join(self, now_ms: int) -> bool:
        if self.state not in (State.UNJOINED, State.STABLE) or not self._needs_to_join:
            return False
        if self._in_flight is not None or self._is_leaving:
            return False
        return (
            self.polled_ms is not None and not self._has_stopped_polling(now_ms) and bool(self.subscription)
        )

    def _join(self, now_ms: int) -> tuple[list[Effect], int | None]:
        if not self.holding.changes and not self._is_prepared:
            self._is_prepared = True
            self._prepare()
        if self.holding.changes:
            return [], None  # `poll` goes on from there
        coordinator = self._coordinator
        if coordinator.error is not None:
            self.errors["coordinator"] = coordinator.error
            return [], None
        if coordinator.node_id is None:
            coordinator.is_needed = True
            return [], None
        if self._backoff.until_ms > now_ms:
            return [], self._backoff.until_ms
        self.state = State.JOINING
        self._needs_to_join = False
        self._joined = self.subscription
        self._assigned_from = None
        about = self._in_flight = Round("join", self._generation_id, self._member_id)
        config = self._config
        request = JoinGroupRequest(
            group_id=coordinator.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=self._member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=write_subscription(self._describe(assignor)))
                for name, assignor in self._assignors.items()
            ],
        )
        ask = Ask(
            self,
            about,
            coordinator.node_id,
            JoinGroupRequest,
            lambda _: request,
            JoinGroupResponse,
            timeout_ms=config.max_poll_interval_ms + _JOIN_LAPSE_MS,
            lane=GROUP_LANE,
        )
        return [ask], None

    def _prepare(self) -> None:
        """What has to be given back before the member joins again."""
        if self._generation_id == _NO_GENERATION:
            self.holding.lose()
        elif self._is_cooperative:
            gone = [place for place in self.holding.owned if place.topic not in self.subscription]
            self.holding.revoke(gone)
        else:
            self.holding.revoke(self.holding.owned)

    def _describe(self, assignor: ClassicAssignor) -> MemberSubscription:
        owned = tuple(sorted(self.holding.owned))
        return MemberSubscription(
            self.subscription,
            owned,
            self._generation_id,
            self._config.group_instance_id,
            self._config.client_rack or None,
            assignor.user_data(owned, self._generation_id),
        )

    def _beat(self, now_ms: int) -> tuple[list[Effect], int | None]:
        if self._generation_id == _NO_GENERATION or self.state in (State.UNJOINED, State.JOINING):
            return [], None
        if self._heartbeat is not None:
            return [], None
        coordinator = self._coordinator
        if coordinator.node_id is None:
            coordinator.is_needed = True
            return [], None
        if self._next_heartbeat_ms > now_ms:
            return [], self._next_heartbeat_ms
        self._next_heartbeat_ms = now_ms + self._config.heartbeat_interval_ms
        about = self._heartbeat = Round("heartbeat", self._generation_id, self._member_id)
        request = HeartbeatRequest(
            group_id=coordinator.group_id,
            generation_id=self._generation_id,
            member_id=self._member_id,
            group_instance_id=self._config.group_instance_id,
        )
        timeout_ms = self._config.session_timeout_ms
        return [
            Ask(
                self,
                about,
                coordinator.node_id,
                HeartbeatRequest,
                lambda _: request,
                HeartbeatResponse,
                timeout_ms=timeout_ms,
                lane=GROUP_LANE,
            )
        ], None

    def _assign(self) -> list[Effect]:
        """As the leader, when it is known of all topics what they are."""
        if not self._leads:
            return self._sync({})
        known = self._topics.known.keys() | self._topics.missing
        if not self.needed_topics <= known:
            return []
        counts = self._assigned_from = self._partition_counts(self.needed_topics)
        if not self._has_to_assign:
            return self._sync({})
        assignor = self._assignors[self._protocol]
        # Topics that there are not yet have no partitions, and are not the assignor's concern.
        return self._sync(
            assignor.assign(self._joined_members, {name: count for name, count in counts.items() if count})
        )

    def _sync(self, shares: Shares) -> list[Effect]:
        self.state = State.SYNCING
        about = self._in_flight = Round("sync", self._generation_id, self._member_id)
        node_id = self._coordinator.node_id
        if node_id is None:
            self._in_flight = None
            self._join_again()
            return []
        request = SyncGroupRequest(
            group_id=self._coordinator.group_id,
            generation_id=self._generation_id,
            member_id=self._member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=write_assignment(places))
                for member_id, places in shares.items()
            ],
        )
        timeout_ms = self._config.max_poll_interval_ms + _JOIN_LAPSE_MS
        return [
            Ask(
                self,
                about,
                node_id,
                SyncGroupRequest,
                lambda _: request,
                SyncGroupResponse,
                timeout_ms=timeout_ms,
                lane=GROUP_LANE,
            )
        ]

    # What comes back --------------------------------------------------------------------------------------

    def on_response(self, now_ms: int, about: Round, response: Any) -> None:
        match about.kind:
            case "heartbeat":
                self._on_heartbeat(now_ms, about, response)
            case "join" if about is self._in_flight:
                self._in_flight = None
                self._on_joined(now_ms, response)
            case "sync" if about is self._in_flight:
                self._in_flight = None
                self._on_synced(now_ms, response)

    def on_failure(self, now_ms: int, about: Round, error: KafkaError) -> None:
        if about.kind == "heartbeat":
            self._heartbeat = None
        elif about is self._in_flight:
            self._in_flight = None
            self._join_again()
        else:
            return
        if not self._coordinator.lost(now_ms, error) and not may_pass(error):
            self.errors[about.kind] = error
        if about.kind != "heartbeat":
            self._backoff.failed(now_ms)

    def _on_joined(self, now_ms: int, response: JoinGroupResponse) -> None:
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = response.member_id
                self._join_again()
                self._backoff.succeeded()
            else:
                self._on_group_error(now_ms, code, "JoinGroup")
            return
        self._coordinator.answered()
        self._backoff.succeeded()
        self._generation_id = response.generation_id
        self._member_id = response.member_id
        self._protocol = response.protocol_name or ""
        self._next_heartbeat_ms = now_ms + self._config.heartbeat_interval_ms
        self.state = State.ASSIGNING
        self._leads = response.leader == response.member_id
        self._has_to_assign = self._leads and not response.skip_assignment
        self._joined_members = {}
        self.needed_topics = frozenset()
        if not self._leads:
            return
        try:
            self._joined_members = {
                member.member_id: read_subscription(member.metadata, member.group_instance_id)
                for member in response.members
            }
        except ProtocolError as error:
            reason = f"a member of the group is not understood: {error}"
            self.errors["join"] = error_of(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason)
            self._join_again()
            self._backoff.failed(now_ms)
            return
        self.needed_topics = self.subscription.union(
            *(member.topics for member in self._joined_members.values())
        )

    def _on_synced(self, now_ms: int, response: SyncGroupResponse) -> None:
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            self._on_group_error(now_ms, code, "SyncGroup")
            return
        try:
            assigned = frozenset(read_assignment(response.assignment))
        except ProtocolError as error:
            reason = f"the assignment is not understood: {error}"
            self.errors["sync"] = error_of(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason)
            self._join_again()
            self._backoff.failed(now_ms)
            return
        self._coordinator.answered()
        self.state = State.STABLE
        self._is_prepared = False
        if self._is_leaving:
            return
        remember(self._assignors[self._protocol], assigned, self._generation_id)
        revoked = self.holding.owned - assigned
        if revoked:
            # What others are to get of us they get in the next generation.
            self.holding.revoke(revoked)
            self._needs_to_join = True
        self.holding.assign(assigned - self.holding.owned)

    def _on_heartbeat(self, now_ms: int, about: Round, response: HeartbeatResponse) -> None:
        if about is self._heartbeat:
            self._heartbeat = None
        if (about.generation_id, about.member_id) != (self._generation_id, self._member_id):
            return
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            self._coordinator.answered()
        else:
            self._on_member_error(now_ms, code, "Heartbeat")

    def on_commit_error(self, now_ms: int, who: GroupMetadata, code: ErrorCode) -> None:
        if who == self.metadata:
            self._on_member_error(now_ms, code, "OffsetCommit")

    def _on_member_error(self, now_ms: int, code: ErrorCode, what: str) -> None:
        """Of a request beside those that the member joins with."""
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                if self.state is State.STABLE:
                    self._needs_to_join = True
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                self._forget_generation()
            case ErrorCode.FENCED_INSTANCE_ID:
                self._fence(what)
            case _:
                error = error_of(code, f"{what} of group {self._coordinator.group_id!r}")
                if not self._coordinator.lost(now_ms, error) and not code.retriable:
                    self.errors[what] = error

    def _on_group_error(self, now_ms: int, code: ErrorCode, what: str) -> None:
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._join_again()
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                self._forget_generation()
            case ErrorCode.FENCED_INSTANCE_ID:
                self._fence(what)
            case _:
                error = error_of(code, f"{what} of group {self._coordinator.group_id!r}")
                if not self._coordinator.lost(now_ms, error) and not code.retriable:
                    self.errors[what] = error
                self._join_again()
                self._backoff.failed(now_ms)

    def _join_again(self) -> None:
        self.state = State.UNJOINED
        self._needs_to_join = True
        self._is_prepared = False

    def _forget_generation(self) -> None:
        """The group does not know the member: what it had may be somebody else's already."""
        self._generation_id = _NO_GENERATION
        self._member_id = ""
        self._in_flight = self._heartbeat = None
        self._join_again()
        self.holding.stop_reading()

    def _fence(self, what: str) -> None:
        reason = f"{what}: another member has the group.instance.id {self._config.group_instance_id!r}"
        self.errors["fenced"] = error_of(ErrorCode.FENCED_INSTANCE_ID, reason)
        self._is_fenced = True
        self._forget_generation()
        self.holding.lose()
