"""Where records wait: for each partition a queue of batches, of which the last one is being filled.

Answerable for putting records into batches, for the memory that all of them take together, and for putting a
batch back in its place. Knows nothing of nodes, time or numbers.

Invariants: a queue is in order, whatever was put back. The memory in use is the size of all batches that are
not over. Only queues with batches are in `active`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from random import Random

from moldau.client.producing.batch import Headers, ProducerBatch
from moldau.client.producing.identity import Sequences
from moldau.client.producing.partitioners import StickyPartitioner
from moldau.client.topology import TopicPartition
from moldau.records.batch import HEADER_BYTES, Buffer
from moldau.wire.ids import ZERO_UUID, Uuid

_RATIO_MARGIN = 1.05
_RATIO_UP = 0.05
_RATIO_DOWN = 0.005


class PartitionQueue:
    __slots__ = (
        "batches",
        "is_muted",
        "leader",
        "leader_epoch",
        "open",
        "order",
        "place",
        "sequences",
        "topic",
    )

    def __init__(self, topic: Topic, index: int) -> None:
        self.topic = topic
        self.place = TopicPartition(topic.name, index)
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None  # the last one, while it takes records
        self.order = 0
        self.is_muted = False
        self.leader: int | None = None
        self.leader_epoch = -1
        self.sequences = Sequences()

    def put_back(self, batch: ProducerBatch) -> None:
        """Into its place among those that are still here, which is at or near the front."""
        position = 0
        for waiting in self.batches:
            if waiting.order > batch.order:
                break
            position += 1
        self.batches.insert(position, batch)


class Topic:
    """What the producer keeps of a topic."""

    __slots__ = ("compression_ratio", "is_known", "name", "queues", "raw_name", "sticky", "topic_id")

    def __init__(self, name: str, random: Random, batch_bytes: int) -> None:
        self.name = name
        self.raw_name = name.encode()
        self.topic_id: Uuid = ZERO_UUID
        self.is_known = False
        self.queues: list[PartitionQueue] = []
        self.sticky = StickyPartitioner(random, batch_bytes)
        self.compression_ratio = 1.0

    def grow(self, partition_count: int) -> None:
        self.queues.extend(PartitionQueue(self, index) for index in range(len(self.queues), partition_count))

    def on_compressed(self, ratio: float) -> None:
        """What a batch took of its size. The estimate rises quickly and falls slowly: a batch that is too
        large costs more than one that could have held more."""
        if ratio > self.compression_ratio:
            self.compression_ratio = max(self.compression_ratio + _RATIO_UP, ratio)
        else:
            self.compression_ratio = max(self.compression_ratio - _RATIO_DOWN, ratio)


class Accumulator:
    def __init__(self, *, batch_bytes: int, memory: int, is_compressed: bool) -> None:
        self._batch_bytes = batch_bytes
        self._is_compressed = is_compressed
        self.memory = memory
        self.used = 0
        self.active: dict[PartitionQueue, None] = {}
        self.incomplete: dict[ProducerBatch, None] = {}  # in queues and under way

    def has_room(self, size: int) -> bool:
        """A record is taken whenever nothing else is here, or a large one would never be."""
        return self.used + size <= self.memory or not self.used

    def append(
        self,
        now_ms: int,
        queue: PartitionQueue,
        key: Buffer | None,
        value: Buffer | None,
        timestamp: int,
        headers: Headers,
        size: int,
    ) -> tuple[ProducerBatch, int]:
        """Add a record of about `size` bytes, for which there is room; where it is now."""
        batch = queue.open
        if batch is None or batch.size + size > batch.limit:
            batch = self._open(now_ms, queue)
        self.used += size
        batch.size += size
        # Of all there is this runs once a record, so it calls nobody where there is nothing to say.
        values = batch.values
        index = len(values)
        values.append(value)
        batch.timestamps.append(timestamp)
        if key is not None or batch.keys is not None:
            batch.add_key(index, key)
        if headers or batch.headers is not None:
            batch.add_headers(index, headers)
        return batch, index

    def extend(
        self,
        now_ms: int,
        queue: PartitionQueue,
        keys: list[Buffer | None] | None,
        values: list[Buffer | None],
        timestamps: list[int],
        headers: list[Headers] | None,
        ends: list[int],
        start: int,
    ) -> tuple[ProducerBatch, int, int]:
        """Add as many records from `start` on, at least one, as a batch takes and as there is room for; the
        batch, the index of the first one in it, and where to go on. `ends` are the sizes of all records up to
        and with each. There is room for one."""
        before = ends[start - 1] if start else 0
        batch = queue.open
        if batch is None or batch.size + ends[start] - before > batch.limit:
            batch = self._open(now_ms, queue)
        room = min(batch.limit - batch.size, self.memory - self.used)
        end = max(bisect_right(ends, before + room, start), start + 1)
        size = ends[end - 1] - before
        self.used += size
        index = batch.extend(
            None if keys is None else keys[start:end],
            values[start:end],
            timestamps[start:end],
            None if headers is None else headers[start:end],
            size,
        )
        return batch, index, end

    def _open(self, now_ms: int, queue: PartitionQueue) -> ProducerBatch:
        limit = self._batch_bytes - HEADER_BYTES
        if self._is_compressed:
            limit = int(limit / (queue.topic.compression_ratio * _RATIO_MARGIN))
        queue.order += 1
        batch = queue.open = ProducerBatch(queue, now_ms, limit, (queue.order,))
        queue.batches.append(batch)
        self.active[queue] = None
        self.incomplete[batch] = None
        return batch

    # What the sender does with batches --------------------------------------------------------------------

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        """The first batch of a queue. It takes no more records."""
        batch = queue.batches.popleft()
        if queue.open is batch:
            queue.open = None
        if not batch.is_closed:
            batch.close()
        if not queue.batches:
            del self.active[queue]
        return batch

    def remove(self, batch: ProducerBatch) -> None:
        """Out of its queue, if it is there."""
        queue = batch.queue
        if batch in queue.batches:
            queue.batches.remove(batch)
            if queue.open is batch:
                queue.open = None
            if not queue.batches:
                del self.active[queue]

    def put_back(self, batch: ProducerBatch) -> None:
        batch.queue.put_back(batch)
        self.active[batch.queue] = None

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """A batch was split."""
        del self.incomplete[batch]
        self.used -= batch.size
        for part in parts:
            self.used += part.size
            self.incomplete[part] = None
            self.put_back(part)

    def release(self, batch: ProducerBatch) -> None:
        """A batch is over: what it took is free."""
        del self.incomplete[batch]
        self.used -= batch.size
