"""What assignors are told, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from moldau.wire.ids import Uuid

Assignment = Mapping[Uuid, frozenset[int]]
"""Partitions by topic; no topic without partitions."""

NO_PARTITIONS: Assignment = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """`topics` are those that there are. `assigned` is what the last assignment gave, which may speak of
    topics and partitions that are gone."""

    topics: frozenset[Uuid]
    assigned: Assignment = field(default_factory=dict)
    instance_id: str | None = None


Assignor = Callable[[Mapping[str, Subscriber], Mapping[Uuid, int]], dict[str, Assignment]]
"""Members by their ids and numbers of partitions by topic, to an assignment for each member: every partition
that has a subscriber belongs to one of them."""
