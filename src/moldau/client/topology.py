"""The cluster as one answer to Metadata told it: nodes, topics, and who leads what. Values, and nothing else.

Invariant: a view changes only as a whole, so one in hand stays consistent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.wire.errors import ErrorCode
from moldau.wire.ids import Uuid


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    index: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]

    def partition(self, index: int) -> PartitionInfo | None:
        # Partitions are numbered from zero without gaps, unless some of them have errors.
        if 0 <= index < len(self.partitions) and self.partitions[index].index == index:
            return self.partitions[index]
        return next((p for p in self.partitions if p.index == index), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What one answer to Metadata said. `topics` are those that were asked for and exist."""

    cluster_id: str | None
    controller_id: int | None
    nodes: dict[int, Node] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    errors: dict[str, ErrorCode] = field(default_factory=dict)
