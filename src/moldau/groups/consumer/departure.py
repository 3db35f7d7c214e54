"""Members that go, by their own will or because nothing was heard of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from moldau.coordinator.decision import Decision
from moldau.groups.consumer.group import ConsumerGroup
from moldau.groups.consumer.member import Member
from moldau.groups.consumer.migration import Migration
from moldau.groups.consumer.rebalance import Rebalances

R = TypeVar("R")


class Departures:
    def __init__(self, rebalances: Rebalances, migration: Migration) -> None:
        self._rebalances = rebalances
        self._migration = migration

    def fence(
        self, now_ms: int, group: ConsumerGroup, members: Sequence[Member], reply: R | None
    ) -> Decision[R]:
        """Takes members out of the group. If only members of the classic protocol are left, they go on in a
        classic group."""
        if not members:
            return Decision(reply=reply)
        if self._migration.may_downgrade(group, members):
            reason = "members of the consumer protocol have left"
            return self._migration.downgraded(now_ms, group, members, None, reason, [], reply)
        return self._rebalances.fence(group, members, reply)
