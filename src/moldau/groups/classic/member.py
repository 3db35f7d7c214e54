"""A member of a classic group, as its last JoinGroup described it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moldau.coordinator.decision import Waiter
from moldau.groups.group import Client
from moldau.wire.messages.join_group import JoinGroupResponse
from moldau.wire.messages.sync_group import SyncGroupResponse

Protocols = Sequence[tuple[str, bytes]]
"""Names and the member's metadata for each, in the order in which the member prefers them."""


@dataclass(frozen=True, slots=True, eq=False)
class SessionTimeout:
    """Nothing was heard of a member for too long. It is its own key among the timers, so that a heartbeat
    makes no new one."""

    group_id: str
    member_id: str


class Member:
    """What it said of itself is written with its group. Its session, and the requests of its that wait, are
    this coordinator's alone."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
    )

    def __init__(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        client: Client,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client = client
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.session = SessionTimeout(group_id, member_id)
        self.awaiting_join: Waiter[JoinGroupResponse] | None = None
        self.awaiting_sync: Waiter[SyncGroupResponse] | None = None
        self.is_new = False
        """Has not been told its id yet, unless it asked for one first, and so cannot send heartbeats."""

    def metadata(self, protocol: str) -> bytes:
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def is_excused(self) -> bool:
        """Whether its silence is no sign of failure: its request waits here. But a new member that gave up
        waiting comes back as another one, so that it is not waited for without end."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)
