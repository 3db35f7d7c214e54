"""The replicas of this broker, found by what a request calls them: raw name or raw id, and partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import add, attrgetter

from moldau.replica.partition import Partition
from moldau.wire.errors import ErrorCode, KafkaError

COUNTERS = (
    "bytes_in",
    "bytes_out",
    "messages_in",
    "produce_requests",
    "fetch_requests",
    "failed_produce_requests",
    "failed_fetch_requests",
    "isr_shrinks",
    "isr_expands",
)
"""What each partition counts."""

counters_of: Callable[[Partition], tuple[int, ...]] = attrgetter(*COUNTERS)
"""What one has counted, in the order of COUNTERS."""


class Replicas:
    def __init__(self) -> None:
        self.retired = (0,) * len(COUNTERS)  # what partitions had counted that are gone
        self.by_name: dict[bytes, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(map(len, self.by_name.values()))

    def get(self, topic: str, index: int) -> Partition | None:
        return self.by_name.get(topic.encode(), {}).get(index)

    def find(self, topic: str, index: int) -> Partition:
        partition = self.get(topic, index)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def add(self, partition: Partition) -> None:
        name = partition.topic.encode()
        partitions = self.by_name.get(name)
        if partitions is None:
            partitions = self.by_name[name] = self.by_id[partition.topic_id] = {}
        partitions[partition.index] = partition

    def remove_topic(self, topic: str) -> list[Partition]:
        removed = self.by_name.pop(topic.encode(), {})
        for partition in removed.values():
            self.by_id.pop(partition.topic_id, None)
            partition.is_leader = False
            partition.release_waiters()
        for partition in removed.values():
            self.retired = tuple(map(add, self.retired, counters_of(partition)))
        return list(removed.values())
