"""Brokers in a few lines, on virtual time, for the rules of a producer: they keep logs and producers' numbers
as Kafka's do, lose requests and answers, change leaders, and answer with any error.

`ModelCluster` performs a Sender's effects. What chance decides comes from one seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any

from moldau.client.errors import ClosedError
from moldau.client.producing.accumulator import PartitionQueue
from moldau.client.producing.batch import ProducerBatch
from moldau.client.producing.operations import Ask
from moldau.client.producing.sender import AskProducerId, Connect, Flight, RefreshMetadata, Send, Sender
from moldau.client.topology import PartitionInfo, TopicInfo
from moldau.records.batch import parse_header
from moldau.records.record import read_records
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.produce import PartitionResult

REMEMBERED = 5
TOPIC_ID = b"topic".ljust(16, b"\0")

# What a broker may answer without having written anything,
NOT_WRITTEN = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
)
# and what after it has written.
WRITTEN = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
FOR_GOOD = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)


@dataclass
class Faults:
    """How likely each thing is, for each request."""

    lost_request: float = 0.0
    lost_answer: float = 0.0
    error: float = 0.0
    error_for_good: float = 0.0
    leader_change: float = 0.0
    forgotten_producer: float = 0.0
    no_metadata: float = 0.0
    no_connection: float = 0.0
    latency_ms: tuple[int, int] = (1, 30)
    batch_bytes_max: int = 1 << 30


@dataclass
class Known:
    """What a partition knows of a producer."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)  # first and last sequence, base offset


@dataclass
class ModelPartition:
    leader: int
    leader_epoch: int = 0
    values: list[bytes] = field(default_factory=list)
    producers: dict[int, Known] = field(default_factory=dict)

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        header = parse_header(data)
        values = [record.value or b"" for record in read_records(data)]
        if header.has_producer_id:
            known = self.producers.get(header.producer_id)
            if known is not None:
                verdict = self._check(
                    known, header.producer_epoch, header.base_sequence, header.last_sequence
                )
                if verdict is not None:
                    return verdict
                if header.producer_epoch > known.epoch:
                    known = None
            if known is None:
                known = self.producers[header.producer_id] = Known(header.producer_epoch)
            known.batches.append((header.base_sequence, header.last_sequence, len(self.values)))
            del known.batches[:-REMEMBERED]
        base = len(self.values)
        self.values += values
        return ErrorCode.NONE, base

    def _check(self, known: Known, epoch: int, first: int, last: int) -> tuple[ErrorCode, int] | None:
        if epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if epoch > known.epoch:
            return None if first == 0 else (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        for other_first, other_last, base in known.batches:
            if (first, last) == (other_first, other_last):
                return ErrorCode.NONE, base
        newest = known.batches[-1][1]
        if first == newest + 1:
            return None
        if last <= newest:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1


class ModelCluster:
    """Time stands in `now_ms`, and moves to the next thing that happens."""

    def __init__(self, sender: Sender, seed: int, *, nodes: int = 3, partitions: int = 2) -> None:
        self.sender = sender
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.faults = Faults()
        self.partitions = [ModelPartition(index % nodes) for index in range(partitions)]
        self.nodes = nodes
        self.finished_at: dict[ProducerBatch, int] = {}
        self.producer_ids = 0
        self.requests = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._lines: dict[int, int] = {}  # when the last request of a connection arrives: it is in order
        self._connections: dict[int, int] = {}  # how many there were to a node: what was lost stays lost
        self._flights: dict[int, list[tuple[Flight, int]]] = {}

    def at(self, time_ms: int, what: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._events, (time_ms, self._count, what))

    def later(self, what: Callable[[], None]) -> None:
        self.at(self.now_ms + self.random.randint(*self.faults.latency_ms), what)

    def queue(self, partition: int) -> PartitionQueue:
        topic = self.sender.topic("t")
        if not topic.is_known:
            self._tell_metadata(("t",))
        return topic.queues[partition]

    def append(self, partition: int, value: bytes) -> tuple[ProducerBatch, int]:
        queue = self.queue(partition)
        batch, index = self.sender.accumulator.append(
            self.now_ms, queue, None, value, self.now_ms, (), 12 + len(value)
        )
        if index == 0:
            self.sender.on_opened(batch)
        return batch, index

    def run(self, until_ms: int | None = None) -> None:
        """Until then, or until nothing more will happen."""
        for _ in range(100_000):
            self.step()
            times = [self._events[0][0]] if self._events else []
            if self.sender.wakeup_ms is not None and (until_ms is not None or self.sender.has_unfinished):
                times.append(max(self.sender.wakeup_ms, self.now_ms))
            if not times or (until_ms is not None and min(times) > until_ms):
                self.now_ms = until_ms or self.now_ms
                return
            self.now_ms = max(self.now_ms, min(times))
            while self._events and self._events[0][0] <= self.now_ms:
                heappop(self._events)[2]()
        raise AssertionError("the producer never comes to rest")

    def step(self) -> None:
        for effect in self.sender.step(self.now_ms):
            self._perform(effect)
        finished, self.sender.finished = self.sender.finished, []
        for batch in finished:
            assert batch not in self.finished_at, "a batch ends once"
            self.finished_at[batch] = self.now_ms

    def _perform(self, effect: Any) -> None:
        happens = self.random.random
        match effect:
            case Send(flight):
                self._send(flight)
            case Connect(node_id):
                if happens() < self.faults.no_connection:
                    self.later(lambda: self.sender.on_disconnected(self.now_ms, node_id))
                else:
                    self.later(lambda: self._connected(node_id))
            case RefreshMetadata(topics):
                if happens() < self.faults.no_metadata:
                    self.later(lambda: self.sender.on_metadata_failed(self.now_ms))
                else:
                    self.later(lambda: self._tell_metadata(topics))
            case AskProducerId():
                if happens() < self.faults.no_metadata:
                    error = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                    self.later(lambda: self.sender.on_no_producer_id(self.now_ms, error))
                else:
                    self.producer_ids += 1
                    number = self.producer_ids
                    self.later(lambda: self.sender.on_producer_id(number, 0))
            case Ask():
                self.on_ask(effect)

    def on_ask(self, ask: Ask) -> None:
        raise AssertionError("no transactions here")

    def _connected(self, node_id: int) -> None:
        self._connections[node_id] = self._connections.get(node_id, 0) + 1
        self.sender.on_connected(node_id)

    def _tell_metadata(self, topics: tuple[str, ...]) -> None:
        info = TopicInfo(
            name="t",
            topic_id=TOPIC_ID,
            is_internal=False,
            partitions=tuple(
                PartitionInfo(
                    index=index,
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    replicas=(),
                    isr=(),
                    offline=(),
                )
                for index, partition in enumerate(self.partitions)
            ),
        )
        self.sender.on_metadata(self.now_ms, {"t": info}, topics)

    def _send(self, flight: Flight) -> None:
        """To the node, in the order of its connection. A connection that is lost loses all that is on it."""
        self.requests += 1
        node = flight.node
        connection = self._connections[node.node_id]
        self._flights.setdefault(node.node_id, []).append((flight, connection))
        # A snapshot, as the socket has it: what is numbered anew meanwhile is another attempt.
        data = [(batch.queue.place.partition, bytes(batch.data or b"")) for batch in flight.batches]
        arrives = max(
            self.now_ms + self.random.randint(*self.faults.latency_ms), self._lines.get(node.node_id, 0)
        )
        self._lines[node.node_id] = arrives
        self.at(arrives, lambda: self._arrive(flight, connection, data))

    def _is_up(self, flight: Flight, connection: int) -> bool:
        return (flight, connection) in self._flights.get(flight.node.node_id, [])

    def _lose_connection(self, node_id: int, connection: int) -> None:
        lost = [each for each in self._flights[node_id] if each[1] == connection]
        self._flights[node_id] = [each for each in self._flights[node_id] if each[1] != connection]
        self.sender.on_disconnected(self.now_ms, node_id)
        error = KafkaError(ErrorCode.NETWORK_EXCEPTION, "lost")
        for flight, _ in lost:
            self.sender.on_failure(self.now_ms, flight, error)

    def _arrive(self, flight: Flight, connection: int, data: list[tuple[int, bytes]]) -> None:
        # A connection that the producer has given up may still deliver what was in the kernel's hands.
        is_up = self._is_up(flight, connection)
        happens = self.random.random
        if not is_up and happens() < 0.5:
            return
        if is_up and happens() < self.faults.lost_request:
            self._lose_connection(flight.node.node_id, connection)
            return
        results = {}
        for index, batch in data:
            if happens() < self.faults.leader_change:
                partition = self.partitions[index]
                partition.leader = self.random.randrange(self.nodes)
                partition.leader_epoch += 1
            results[TOPIC_ID, index] = self._append(flight.node.node_id, index, batch)
        if not is_up:
            return
        if happens() < self.faults.lost_answer:
            self._lose_connection(flight.node.node_id, connection)
            return

        def answer() -> None:
            if self._is_up(flight, connection):
                self._flights[flight.node.node_id].remove((flight, connection))
                self.sender.on_answer(self.now_ms, flight, results, by_id=True)

        answers = max(
            self.now_ms + self.random.randint(*self.faults.latency_ms),
            self._lines.get(-1 - flight.node.node_id, 0),
        )
        self._lines[-1 - flight.node.node_id] = answers
        self.at(answers, answer)

    def _append(self, node_id: int, index: int, data: bytes) -> PartitionResult:
        partition = self.partitions[index]
        happens = self.random.random
        if partition.leader != node_id:
            leader = (partition.leader, partition.leader_epoch) if happens() < 0.5 else (-1, -1)
            return PartitionResult(
                index,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                leader_id=leader[0],
                leader_epoch=leader[1],
            )
        if len(data) > self.faults.batch_bytes_max:
            return PartitionResult(index, ErrorCode.MESSAGE_TOO_LARGE)
        if happens() < self.faults.error_for_good:
            return PartitionResult(index, self.random.choice(FOR_GOOD))
        is_error = happens() < self.faults.error
        if is_error and happens() < 0.5:
            return PartitionResult(index, self.random.choice(NOT_WRITTEN))
        if happens() < self.faults.forgotten_producer:
            partition.producers.clear()
        code, base_offset = partition.append(data)
        if is_error and code is ErrorCode.NONE:
            code = self.random.choice(WRITTEN)
        return PartitionResult(index, code, base_offset, log_start_offset=0)

    def close(self) -> None:
        self.sender.abort_all(self.now_ms, ClosedError.because("closed"))
        self.step()
