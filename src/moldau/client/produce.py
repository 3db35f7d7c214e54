"""Writing records: given many at once, they leave as few batches, and come back as their offsets.

Answerable for partitions, batches by size, idempotence and retries, in a transaction or not. There is no
lingering here: what is given is sent, and the call returns when all of it is acknowledged. One batch of a
partition is in flight at a time, which keeps order; batches of several partitions share a request per leader.

Invariant: a batch is built once. An attempt that is repeated sends the same bytes, with the same sequence, so
a broker that has it already says so and nothing is written twice.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from moldau.client.admin import gather_all
from moldau.client.cluster import Cluster, TopicPartition
from moldau.client.connection import error_code
from moldau.client.partitioner import StickyPartitioner
from moldau.client.transaction import PRODUCE_VERSION_MAX, Transaction
from moldau.records.batch import HEADER_BYTES
from moldau.records.builder import build_batch
from moldau.records.compression import Codec
from moldau.records.record import Header, Record
from moldau.runtime.interfaces import Runtime
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BATCH_BYTES_MAX = 1 << 20  # what brokers accept by default, less their 12 bytes of log overhead
REQUEST_BYTES_MAX = 8 << 20
_RECORD_OVERHEAD = 24  # at most: lengths, deltas and attributes of a record as varints
_HEADER_OVERHEAD = 10
_TIMEOUT_MS = 30_000
_TOPIC_ID_VERSION = 13
_SEQUENCES = 1 << 31
ACKS_ALL = -1


class Message(NamedTuple):
    """What a user wants written. `partition` None lets the key decide; `timestamp` None is the present."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One batch that was taken. `base_offset` is None when nobody answered (acks=0) or told it anew."""

    place: TopicPartition
    record_count: int
    base_offset: int | None


class _Batch(NamedTuple):
    place: TopicPartition
    record_count: int
    data: bytes


class Producer:
    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES_MAX,
        transaction: Transaction | None = None,
    ) -> None:
        if acks not in (ACKS_ALL, 0, 1):
            raise ValueError(f"acks is 0, 1 or all, not {acks}")
        if transaction is not None and acks != ACKS_ALL:
            raise ValueError("a transaction takes acks=all")
        self._clock = runtime.clock
        self._random = runtime.random
        self._cluster = cluster
        self._acks = acks
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._transaction = transaction
        self._partitioners: dict[str, StickyPartitioner] = {}
        self._producer_id: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = defaultdict(int)

    async def produce(self, topic: str, messages: Iterable[Message]) -> list[Delivery]:
        """Write `messages`, in their order within each partition; creates the topic where the cluster allows.

        Raises the first error when all that can be written is.
        """
        info = await self._cluster.retrying(
            lambda: self._cluster.topic(topic, allow_auto_topic_creation=True), topics=[topic]
        )
        producer = await self._identity()
        queues = self._batches(topic, len(info.partitions), messages, producer)
        if self._transaction is not None:
            await self._transaction.add(queues)
        deliveries: list[Delivery] = []
        while queues:
            first = [queue.popleft() for queue in queues.values()]
            await self._send_all(first, deliveries)
            queues = {place: queue for place, queue in queues.items() if queue}
        return deliveries

    async def _identity(self) -> tuple[int, int]:
        """Producer id and epoch; without acks=all, or from a broker that has none to give, (-1, -1)."""
        if self._transaction is not None:
            return await self._transaction.identity()
        if self._producer_id is None:
            if self._acks != ACKS_ALL:
                self._producer_id = (-1, -1)
            else:
                self._producer_id = await self._cluster.retrying(self._new_identity)
        return self._producer_id

    async def _new_identity(self) -> tuple[int, int]:
        connection = await self._cluster.connection_to_any()
        if not connection.supports(ApiKey.INIT_PRODUCER_ID):
            return (-1, -1)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        response = await connection.request(request, InitProducerIdResponse)
        if response.error_code:
            raise KafkaError(error_code(response.error_code), "no producer id")
        return (response.producer_id, response.producer_epoch)

    def _batches(
        self, topic: str, partition_count: int, messages: Iterable[Message], producer: tuple[int, int]
    ) -> dict[TopicPartition, deque[_Batch]]:
        partitioner = self._partitioners.setdefault(topic, StickyPartitioner(self._random))
        now_ms = self._clock.now_ms()
        records: dict[int, list[Record]] = defaultdict(list)
        sticky_bytes = 0
        for message in messages:
            partition = message.partition
            if partition is None:
                if message.key is None:
                    sticky_bytes += _size(message)
                    if sticky_bytes > self._batch_bytes - HEADER_BYTES:
                        partitioner.switch(partition_count)
                        sticky_bytes = _size(message)
                partition = partitioner.partition(message.key, partition_count)
            elif not 0 <= partition < partition_count:
                reason = f"topic {topic!r} has no partition {partition} (it has {partition_count})"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
            timestamp = now_ms if message.timestamp is None else message.timestamp
            records[partition].append(Record(0, timestamp, message.key, message.value, message.headers))
        partitioner.switch(partition_count)
        queues: dict[TopicPartition, deque[_Batch]] = {}
        for partition, those in records.items():
            place = TopicPartition(topic, partition)
            queues[place] = deque(self._build(place, chunk, producer) for chunk in self._chunks(those))
        return queues

    def _chunks(self, records: list[Record]) -> Iterator[list[Record]]:
        """Runs of records that fit into a batch; one that is too large alone is for the broker to refuse."""
        chunk: list[Record] = []
        filled = 0
        for record in records:
            size = _size(record)
            if chunk and filled + size > self._batch_bytes - HEADER_BYTES:
                yield chunk
                chunk, filled = [], 0
            chunk.append(record)
            filled += size
        if chunk:
            yield chunk

    def _build(self, place: TopicPartition, records: list[Record], producer: tuple[int, int]) -> _Batch:
        producer_id, producer_epoch = producer
        sequence = -1
        if producer_id >= 0:
            sequence = self._sequences[place]
            self._sequences[place] = (sequence + len(records)) % _SEQUENCES
        data = build_batch(
            records,
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            is_transactional=self._transaction is not None,
        )
        return _Batch(place, len(records), data)

    async def _send_all(self, batches: list[_Batch], deliveries: list[Delivery]) -> None:
        """Send one batch for each of several partitions, and again what failed for a passing reason."""
        waiting = {batch.place: batch for batch in batches}

        async def attempt() -> None:
            by_leader: dict[int, list[_Batch]] = defaultdict(list)
            for place, batch in waiting.items():
                by_leader[await self._cluster.leader(place)].append(batch)
            await gather_all(self._send_to(leader, those, done) for leader, those in by_leader.items())

        def done(batch: _Batch, base_offset: int | None) -> None:
            del waiting[batch.place]
            deliveries.append(
                Delivery(place=batch.place, record_count=batch.record_count, base_offset=base_offset)
            )

        await self._cluster.retrying(attempt, topics={place.topic for place in waiting})

    async def _send_to(
        self, leader: int, batches: list[_Batch], done: Callable[[_Batch, int | None], None]
    ) -> None:
        connection = await self._cluster.connection_to(leader)
        version = connection.version_of(
            ApiKey.PRODUCE, None if self._transaction is None else PRODUCE_VERSION_MAX
        )
        failure: KafkaError | None = None
        for group in _requests(batches):
            request = await self._request(group, version)
            if self._acks == 0:
                await connection.send_unanswered(request, version=version)
                for batch in group:
                    done(batch, None)
                continue
            response = await connection.request(request, ProduceResponse, version=version)
            answers = {part.index: part for topic in response.responses for part in topic.partition_responses}
            for batch in group:
                try:
                    done(batch, _base_offset(batch, answers.get(batch.place.partition)))
                except KafkaError as error:
                    # What fails for good is the news, not what will be tried again.
                    if failure is None or failure.code.retriable:
                        failure = error
        if failure is not None:
            raise failure

    async def _request(self, batches: list[_Batch], version: int) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = defaultdict(list)
        for batch in batches:
            topics[batch.place.topic].append(
                PartitionProduceData(index=batch.place.partition, records=batch.data)
            )
        data = []
        for name, partitions in topics.items():
            topic = TopicProduceData(partition_data=partitions)
            if version >= _TOPIC_ID_VERSION:
                topic.topic_id = (await self._cluster.topic(name)).topic_id
            else:
                topic.name = name
            data.append(topic)
        return ProduceRequest(
            transactional_id=None if self._transaction is None else self._transaction.transactional_id,
            acks=self._acks,
            timeout_ms=_TIMEOUT_MS,
            topic_data=data,
        )


def _requests(batches: list[_Batch]) -> Iterator[list[_Batch]]:
    group: list[_Batch] = []
    filled = 0
    for batch in batches:
        if group and filled + len(batch.data) > REQUEST_BYTES_MAX:
            yield group
            group, filled = [], 0
        group.append(batch)
        filled += len(batch.data)
    if group:
        yield group


def _base_offset(batch: _Batch, answer: PartitionProduceResponse | None) -> int | None:
    if answer is None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer for partition {batch.place}")
    code = error_code(answer.error_code)
    if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return None  # an earlier attempt was written, and its answer was lost
    if code is not ErrorCode.NONE:
        details = [error.batch_index_error_message for error in answer.record_errors]
        reason = answer.error_message or next((text for text in details if text), None)
        raise KafkaError(code, f"partition {batch.place}: {reason}" if reason else f"partition {batch.place}")
    return answer.base_offset if answer.base_offset >= 0 else None


def _size(record: Message | Record) -> int:
    """What the record takes in a batch, at most, before compression."""
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, content in record.headers:
        size += _HEADER_OVERHEAD + 3 * len(name) + len(content or b"")
    return size
