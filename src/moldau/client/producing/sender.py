"""Which batch leaves when, and what becomes of it: the heart of a producer.

Answerable for leaders, requests under way, repeating what failed for a passing reason, order within a
partition, and the end of every batch within `delivery.timeout.ms`. Its driver calls `step` whenever something
may have changed, performs the effects in their order, and comes back at `wakeup_ms` at the latest.

Invariants: a batch is in its queue, in one flight, or over. Flights of a node never exceed
`max.in.flight.requests.per.connection`. With idempotence, batches of a partition are written in their order,
each once; without it, only if one request at a time is allowed. Memory is given back exactly when a batch is
over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import NamedTuple, TypeAlias

from moldau.client.errors import DeliveryTimeoutError, error_of, metadata_is_stale
from moldau.client.producing.accumulator import Accumulator, PartitionQueue, Topic
from moldau.client.producing.batch import ProducerBatch
from moldau.client.producing.config import ProducerConfig
from moldau.client.producing.identity import Identity
from moldau.client.producing.metrics import ProducerMetrics
from moldau.client.producing.operations import Ask
from moldau.client.producing.transactions import Transactions
from moldau.client.topology import TopicInfo
from moldau.records.batch import HEADER_BYTES
from moldau.records.compression import Codec
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.ids import ZERO_UUID
from moldau.wire.produce import PartitionResult

BACKOFF_JITTER = 0.2
_IMPLICIT_TRANSACTIONS_FROM = 12
_TOPIC_IDS_FROM = 13
_FOREVER_MS = 1 << 62
_UNCERTAIN = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""Errors after which a batch may be in the log all the same."""


class Send(NamedTuple):
    """Send the batches of `flight` in one produce request."""

    flight: Flight


class Connect(NamedTuple):
    node_id: int


class RefreshMetadata(NamedTuple):
    topics: tuple[str, ...]


class AskProducerId(NamedTuple):
    """For a producer that is idempotent and has no transactions; any node gives one."""


Effect: TypeAlias = Send | Connect | RefreshMetadata | AskProducerId | Ask


class Flight:
    """A produce request that is under way."""

    __slots__ = ("batches", "node", "sent_ms", "version_max")

    def __init__(self, node: NodeState, batches: list[ProducerBatch], sent_ms: int, version_max: int) -> None:
        self.node = node
        self.batches = batches
        self.sent_ms = sent_ms
        self.version_max = version_max


class NodeState:
    __slots__ = (
        "attempts",
        "drained_ms",
        "flights",
        "is_connected",
        "is_connecting",
        "node_id",
        "not_before_ms",
        "ready_ms",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.is_connected = False
        self.is_connecting = False
        self.flights = 0
        self.attempts = 0  # to connect, since it was connected
        self.not_before_ms = 0
        self.ready_ms = 0  # when something was ready for it,
        self.drained_ms = 0  # and when it last took something


class Sender:
    def __init__(
        self,
        config: ProducerConfig,
        random: Random,
        *,
        transactions: Transactions | None = None,
        identity: Identity | None = None,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        reconnect_backoff_ms: int = 50,
        reconnect_backoff_max_ms: int = 1000,
        metadata_max_age_ms: int = 300_000,
    ) -> None:
        self.metrics = ProducerMetrics()
        self.transactions = transactions
        self.identity = identity
        self.accumulator = Accumulator(
            batch_bytes=config.batch_size,
            memory=config.buffer_memory,
            is_compressed=config.codec is not Codec.NONE,
        )
        self.topics: dict[str, Topic] = {}
        self.nodes: dict[int, NodeState] = {}
        self.flights: dict[Flight, None] = {}
        self.finished: list[ProducerBatch] = []  # for the driver to tell, and to forget
        self.flushing = 0  # callers that wait for everything
        self.waiting_for_memory = 0
        self.is_closing = False
        self.wakeup_ms: int | None = None
        self.metadata_at_ms = 0
        self._config = config
        self._random = random
        self._codec, self._level = config.codec, config.level
        self._linger_ms = config.linger_ms
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._retries = config.retries
        self._in_flight_max = config.max_in_flight_requests_per_connection
        self._mutes = self._in_flight_max == 1  # which keeps order without numbers, too
        self._retry_backoff = retry_backoff_ms, retry_backoff_max_ms
        self._reconnect_backoff = reconnect_backoff_ms, reconnect_backoff_max_ms
        self._metadata_max_age_ms = metadata_max_age_ms
        self._next_expiry_ms = _FOREVER_MS
        self._stale: dict[str, None] = {}
        self._metadata_is_asked = False
        self._metadata_attempts = 0
        self._metadata_not_before_ms = 0
        self._id_is_asked = False
        self._id_attempts = 0
        self._id_not_before_ms = 0

    # Records ----------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """What is kept of a topic; the cluster is asked about a new one."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(name, self._random, self._config.batch_size)
            self._stale[name] = None
        return topic

    def forget_topic(self, name: str) -> None:
        """A topic that nobody has turned out to know, and of which nothing is here."""
        topic = self.topics.get(name)
        if topic is not None and not any(queue.batches for queue in topic.queues):
            del self.topics[name]
            self._stale.pop(name, None)

    def refresh(self, name: str) -> None:
        self._stale[name] = None

    def switch_sticky(self, topic: Topic) -> None:
        """Another partition for records without a key."""
        led = [queue for queue in topic.queues if queue.leader is not None] or topic.queues
        lengths = None
        if self._config.partitioner_adaptive_partitioning_enable:
            timeout_ms = self._config.partitioner_availability_timeout_ms
            if timeout_ms > 0:
                led = [queue for queue in led if self._is_available(queue, timeout_ms)] or led
            lengths = [len(queue.batches) for queue in led]
        topic.sticky.switch([queue.place.partition for queue in led], lengths)

    def _is_available(self, queue: PartitionQueue, timeout_ms: int) -> bool:
        node = None if queue.leader is None else self.nodes.get(queue.leader)
        return node is None or node.ready_ms - node.drained_ms <= timeout_ms

    def on_opened(self, batch: ProducerBatch) -> None:
        """A batch has its first record: its end is in sight."""
        self._next_expiry_ms = min(self._next_expiry_ms, batch.created_ms + self._delivery_timeout_ms)

    # What to do now ---------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        self.wakeup_ms = None
        self._step_identity(now_ms, effects)
        if now_ms >= self._next_expiry_ms:
            self._expire(now_ms)
        ready = self._ready_by_node(now_ms)
        for node_id, queues in ready.items():
            self._send_to(now_ms, node_id, queues, effects)
        if self.transactions is not None:
            self._step_transactions(now_ms, effects)
        self._step_metadata(now_ms, effects)
        if self._next_expiry_ms < _FOREVER_MS:
            self._wake_at(self._next_expiry_ms)
        return effects

    def _step_identity(self, now_ms: int, effects: list[Effect]) -> None:
        identity = self.identity
        if identity is None:
            return
        if not identity.resolve():
            assert self.transactions is not None
            self.transactions.on_sequences_lost()
        if self.transactions is not None:
            reason = self.transactions.reason_to_drop()
            if reason is not None and self.accumulator.active:
                self._drop(now_ms, reason, everything=self.transactions.is_fatal)
            return
        identity.bump_if_needed()
        if not identity.is_known and not self._id_is_asked:
            if now_ms >= self._id_not_before_ms:
                self._id_is_asked = True
                effects.append(AskProducerId())
            else:
                self._wake_at(self._id_not_before_ms)

    def _step_transactions(self, now_ms: int, effects: list[Effect]) -> None:
        assert self.transactions is not None
        ask = self.transactions.next_request(now_ms, has_batches=bool(self.accumulator.incomplete))
        if ask is not None:
            effects.append(ask)
        wakeup_ms = self.transactions.wakeup_ms
        if wakeup_ms is not None and wakeup_ms > now_ms:
            self._wake_at(wakeup_ms)

    def _step_metadata(self, now_ms: int, effects: list[Effect]) -> None:
        if self._metadata_is_asked:
            return
        if not self._stale and self.topics:
            due_ms = self.metadata_at_ms + self._metadata_max_age_ms
            if now_ms < due_ms:
                self._wake_at(due_ms)
                return
            self._stale.update(dict.fromkeys(self.topics))
        if not self._stale:
            return
        if now_ms < self._metadata_not_before_ms:
            self._wake_at(self._metadata_not_before_ms)
            return
        self._metadata_is_asked = True
        # What is asked about is what is in use: leaders move together.
        effects.append(RefreshMetadata(tuple(self.topics)))

    def _ready_by_node(self, now_ms: int) -> dict[int, list[PartitionQueue]]:
        """Queues whose first batch may leave, by the node that leads them."""
        ready: dict[int, list[PartitionQueue]] = {}
        transactions = self.transactions
        rush = (
            self.flushing > 0
            or self.waiting_for_memory > 0
            or self.is_closing
            or (transactions is not None and transactions.is_completing)
        )
        linger_ms = self._linger_ms
        for queue in self.accumulator.active:
            if queue.is_muted:
                continue
            leader = queue.leader
            first = queue.batches[0]
            if leader is None:
                self._stale[queue.topic.name] = None
                continue
            if first.attempts:
                # A leader that has not been asked yet is asked at once.
                due_ms = now_ms if queue.leader_epoch > first.leader_epoch >= 0 else first.not_before_ms
            elif (
                rush or first is not queue.open or first.size + first.size // len(first.values) > first.limit
            ):
                due_ms = now_ms
            else:
                due_ms = first.created_ms + linger_ms
            if now_ms < due_ms:
                self._wake_at(due_ms)
                continue
            if transactions is not None and not transactions.may_send_to(queue.place):
                continue
            if self.identity is not None and not self.identity.may_send(first):
                continue
            ready.setdefault(leader, []).append(queue)
        return ready

    def _send_to(
        self, now_ms: int, node_id: int, queues: list[PartitionQueue], effects: list[Effect]
    ) -> None:
        node = self.nodes.get(node_id)
        if node is None:
            node = self.nodes[node_id] = NodeState(node_id)
        node.ready_ms = now_ms
        if not node.is_connected:
            node.drained_ms = node.drained_ms or now_ms
            if not node.is_connecting:
                if now_ms >= node.not_before_ms:
                    node.is_connecting = True
                    effects.append(Connect(node_id))
                else:
                    self._wake_at(node.not_before_ms)
            return
        while queues and node.flights < self._in_flight_max:
            node.drained_ms = now_ms
            batches = self._drain(now_ms, queues)
            flight = Flight(node, batches, now_ms, self._version_max(batches))
            node.flights += 1
            self.flights[flight] = None
            effects.append(Send(flight))
            queues = [queue for queue in queues if self._has_more(now_ms, queue)]

    def _has_more(self, now_ms: int, queue: PartitionQueue) -> bool:
        """Whether another batch is as ready as the one that just left: full, and not to be repeated."""
        if queue.is_muted or not queue.batches:
            return False
        first = queue.batches[0]
        if first.attempts or (first is queue.open and not self.flushing and not self.is_closing):
            return False
        return self.identity is None or self.identity.may_send(first)

    def _drain(self, now_ms: int, queues: list[PartitionQueue]) -> list[ProducerBatch]:
        """The first batch of each queue, as many as a request may hold; at least one."""
        batches: list[ProducerBatch] = []
        filled = 0
        metrics = self.metrics
        for queue in queues:
            first = queue.batches[0]
            size = first.size if first.data is None else len(first.data)
            if batches and filled + size > self._config.max_request_size:
                break
            batch = self.accumulator.take(queue)
            if batch.data is None:
                self._build(now_ms, batch)
            assert batch.data is not None
            filled += len(batch.data)
            batch.leader_epoch = queue.leader_epoch
            batch.sent_to = -1 if queue.leader is None else queue.leader
            batch.drained_ms = now_ms
            batches.append(batch)
            if self._mutes:
                queue.is_muted = True
            # Queues take turns at the front of a request.
            if queue in self.accumulator.active:
                del self.accumulator.active[queue]
                self.accumulator.active[queue] = None
            if not batch.attempts:
                metrics.queue_times.record_max(now_ms, waited := now_ms - batch.created_ms, waited)
        count = sum(batch.record_count for batch in batches)
        metrics.records_per_request.record(now_ms, count)
        return batches

    def _build(self, now_ms: int, batch: ProducerBatch) -> None:
        if self.identity is not None and not batch.has_sequence:
            self.identity.assign(batch)
        largest = max(len(value) if value is not None else 0 for value in batch.values) if batch.values else 0
        size = len(batch.build(self._codec, self._level))
        metrics = self.metrics
        if self._codec:
            ratio = (size - HEADER_BYTES) / max(batch.size, 1)
            batch.queue.topic.on_compressed(ratio)
            metrics.compression.record(now_ms, size / (batch.size + HEADER_BYTES))
        else:
            metrics.compression.record(now_ms, 1.0)
        metrics.batch_sizes.record_max(now_ms, size, size)
        metrics.records.record(now_ms, batch.record_count)
        metrics.bytes.record(now_ms, size)
        metrics.record_sizes.record_max(now_ms, batch.size, largest, batch.record_count)

    def _version_max(self, batches: list[ProducerBatch]) -> int:
        """Produce from version 12 on adds partitions to transactions, and from 13 on knows topics by id."""
        if self.transactions is not None and not self.transactions.is_v2:
            return _IMPLICIT_TRANSACTIONS_FROM - 1
        if any(batch.queue.topic.topic_id == ZERO_UUID for batch in batches):
            return _TOPIC_IDS_FROM - 1
        return _TOPIC_IDS_FROM

    # Answers ----------------------------------------------------------------------------------------------

    def on_answer(
        self,
        now_ms: int,
        flight: Flight,
        results: Mapping[tuple[bytes, int], PartitionResult],
        *,
        by_id: bool = False,
        throttle_ms: int = 0,
    ) -> None:
        """The node answered; `results` by the raw name of the topic, or its id, and the partition."""
        self._land(flight)
        metrics = self.metrics
        latency = now_ms - flight.sent_ms
        metrics.latencies.record_max(now_ms, latency, latency)
        metrics.throttles.record_max(now_ms, throttle_ms, throttle_ms)
        for batch in flight.batches:
            topic = batch.queue.topic
            result = results.get((topic.topic_id if by_id else topic.raw_name, batch.queue.place.partition))
            if result is None:
                # An id that has changed meanwhile, or a broker that does not keep its side.
                result = PartitionResult(batch.queue.place.partition, ErrorCode.UNKNOWN_TOPIC_ID)
            self._on_result(now_ms, batch, result)

    def on_unanswered(self, now_ms: int, flight: Flight) -> None:
        """With acks=0 a request is over when it is sent."""
        self._land(flight)
        for batch in flight.batches:
            self._on_result(now_ms, batch, PartitionResult(batch.queue.place.partition))

    def on_failure(self, now_ms: int, flight: Flight, error: KafkaError) -> None:
        """There is no answer, and there will be none."""
        self._land(flight)
        for batch in flight.batches:
            result = PartitionResult(batch.queue.place.partition, error.code, error_message=error.message)
            self._on_result(now_ms, batch, result)

    def _land(self, flight: Flight) -> None:
        del self.flights[flight]
        flight.node.flights -= 1

    def _on_result(self, now_ms: int, batch: ProducerBatch, result: PartitionResult) -> None:
        if self._mutes:
            batch.queue.is_muted = False
        code = error_code(result.error_code)
        if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # A duplicate is written, but long ago: where, the broker does not know any more.
            base_offset = -1 if code else result.base_offset
            if self.identity is not None:
                self.identity.on_completed(batch, base_offset)
            if not batch.is_done:
                batch.complete(base_offset, result.log_append_time_ms)
                self._end(batch)
            return
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1 and not batch.is_done:
            self._split(now_ms, batch)
        elif self._may_retry(now_ms, batch, code, result.log_start_offset):
            self._retry(now_ms, batch, code)
        else:
            self._fail(
                now_ms,
                batch,
                self._error(batch, code, result),
                result,
                may_be_written=batch.attempts > 0 or code in _UNCERTAIN,
            )
        if metadata_is_stale(code):
            self._stale[batch.queue.topic.name] = None
            if result.leader_id >= 0:
                self.on_leader(batch.queue, result.leader_id, result.leader_epoch)

    def _may_retry(self, now_ms: int, batch: ProducerBatch, code: ErrorCode, log_start_offset: int) -> bool:
        if batch.is_done or batch.attempts >= self._retries:
            return False
        if now_ms >= batch.created_ms + self._delivery_timeout_ms:
            return False
        if self.transactions is not None and self.transactions.is_fatal:
            return False
        if self.identity is not None:
            return self.identity.may_retry(batch, code, log_start_offset)
        return code.retriable

    def _retry(self, now_ms: int, batch: ProducerBatch, code: ErrorCode) -> None:
        batch.not_before_ms = now_ms + self._jittered(backoff_ms(batch.attempts, self._retry_backoff))
        batch.attempts += 1
        batch.last_code = code
        self.accumulator.put_back(batch)
        self.metrics.retries.record(now_ms, batch.record_count)

    def _split(self, now_ms: int, batch: ProducerBatch) -> None:
        """By half at least, or it would come back as it is."""
        topic = batch.queue.topic
        if batch.data is not None:
            topic.compression_ratio = max(1.0, (len(batch.data) - HEADER_BYTES) / max(batch.size, 1))
        if self.identity is not None:
            batch.queue.sequences.remove(batch)
        parts = batch.split(max(min(self._config.batch_size, batch.size // 2), 1))
        self.accumulator.replace(batch, parts)
        if self.identity is not None:
            for part in parts:
                batch.queue.sequences.add(part)
        self.finished.append(batch)
        self.metrics.splits.record(now_ms, 1)

    def _error(self, batch: ProducerBatch, code: ErrorCode, result: PartitionResult) -> KafkaError:
        texts = (text for _, text in result.record_errors if text)
        reason = result.error_message or next(texts, None)
        place = f"partition {batch.queue.place}"
        return error_of(code, f"{place}: {reason}" if reason else place)

    def _fail(
        self,
        now_ms: int,
        batch: ProducerBatch,
        error: KafkaError,
        result: PartitionResult | None = None,
        *,
        may_be_written: bool,
    ) -> None:
        if batch.is_done:
            if self.identity is not None:
                batch.queue.sequences.remove(batch)
            return
        self.metrics.errors.record(now_ms, batch.record_count)
        batch.fail(error, () if result is None else result.record_errors, error.message)
        if self.identity is not None:
            if self.transactions is not None:
                self.transactions.on_batch_failed(error)
            self.identity.on_failed(batch, error.code, may_be_written=may_be_written)
        self._end(batch)

    def _end(self, batch: ProducerBatch) -> None:
        self.accumulator.release(batch)
        self.finished.append(batch)

    def _expire(self, now_ms: int) -> None:
        """Fail what has had its time, in queues and under way, and see when the next will have."""
        next_ms = _FOREVER_MS
        for batch in list(self.accumulator.incomplete):
            end_ms = batch.created_ms + self._delivery_timeout_ms
            if end_ms > now_ms:
                next_ms = min(next_ms, end_ms)
                continue
            reason = (
                f"{len(batch.values)} records for {batch.queue.place} were not acknowledged"
                f" within {self._delivery_timeout_ms} ms"
            )
            if batch.last_code is not None:
                reason = f"{reason}; the last attempt ended in {batch.last_code.name}"
            elif batch.queue.leader is None:
                reason = f"{reason}; no leader is known"
            self.accumulator.remove(batch)
            self._fail(
                now_ms, batch, DeliveryTimeoutError(ErrorCode.REQUEST_TIMED_OUT, reason), may_be_written=True
            )
        self._next_expiry_ms = next_ms

    def _drop(self, now_ms: int, reason: KafkaError, *, everything: bool) -> None:
        """Fail what has not left yet; with `everything` also what waits to be repeated."""
        for queue in list(self.accumulator.active):
            for batch in list(queue.batches):
                if everything or not batch.has_sequence:
                    self.accumulator.remove(batch)
                    batch.fail(reason)
                    self.metrics.errors.record(now_ms, batch.record_count)
                    if self.identity is not None:
                        queue.sequences.remove(batch)
                    self._end(batch)

    def abort_all(self, now_ms: int, reason: KafkaError) -> None:
        """Fail every batch there is: nothing will be sent, and no answer waited for."""
        for batch in list(self.accumulator.incomplete):
            self.accumulator.remove(batch)
            batch.fail(reason)
            self.metrics.errors.record(now_ms, batch.record_count)
            batch.queue.sequences.remove(batch)
            self._end(batch)

    # What the driver hears of the cluster -----------------------------------------------------------------

    def on_connected(self, node_id: int) -> None:
        node = self.nodes[node_id]
        node.is_connecting, node.is_connected, node.attempts = False, True, 0

    def on_disconnected(self, now_ms: int, node_id: int) -> None:
        """Lost, or not to be had."""
        node = self.nodes[node_id]
        node.is_connecting = node.is_connected = False
        pause_ms = backoff_ms(node.attempts, self._reconnect_backoff)
        node.not_before_ms = now_ms + self._jittered(pause_ms)
        node.attempts += 1
        for topic in self.topics.values():
            if any(queue.leader == node_id for queue in topic.queues):
                self._stale[topic.name] = None

    def on_metadata(self, now_ms: int, topics: Mapping[str, TopicInfo], asked: Iterable[str]) -> None:
        self._metadata_is_asked = False
        self.metadata_at_ms = now_ms
        for name in asked:
            self._stale.pop(name, None)
        for name, info in topics.items():
            topic = self.topics.get(name)
            if topic is None:
                continue
            topic.topic_id = info.topic_id
            topic.is_known = True
            topic.grow(len(info.partitions))
            for partition in info.partitions:
                if partition.index < len(topic.queues):
                    self.on_leader(topic.queues[partition.index], partition.leader, partition.leader_epoch)
        if any(name not in topics for name in asked) or self._has_leaderless():
            self._metadata_not_before_ms = now_ms + self._metadata_pause()
        else:
            # Not at once again either, or a leader that does not know yet would be asked about all the time.
            self._metadata_attempts = 0
            self._metadata_not_before_ms = now_ms + self._retry_backoff[0]

    def on_metadata_failed(self, now_ms: int) -> None:
        self._metadata_is_asked = False
        self._metadata_not_before_ms = now_ms + self._metadata_pause()

    def on_leader(self, queue: PartitionQueue, leader: int | None, leader_epoch: int) -> None:
        """Who leads a partition; what is older than what is known is not believed."""
        if leader is not None and 0 <= leader_epoch < queue.leader_epoch:
            return
        queue.leader = leader
        if leader is not None:
            queue.leader_epoch = leader_epoch

    def on_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        assert self.identity is not None
        self._id_is_asked = False
        self._id_attempts = 0
        self.identity.become(producer_id, producer_epoch)

    def on_no_producer_id(self, now_ms: int, error: KafkaError) -> None:
        """As in Kafka, what may not be idempotent fails, and the next record asks again."""
        self._id_is_asked = False
        self._id_not_before_ms = now_ms + self._jittered(backoff_ms(self._id_attempts, self._retry_backoff))
        self._id_attempts += 1
        if not error.code.retriable and error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
            self._drop(now_ms, error, everything=True)

    def _has_leaderless(self) -> bool:
        return any(queue.leader is None for queue in self.accumulator.active)

    def _metadata_pause(self) -> int:
        pause_ms = self._jittered(backoff_ms(self._metadata_attempts, self._retry_backoff))
        self._metadata_attempts += 1
        return pause_ms

    def _jittered(self, pause_ms: int) -> int:
        return round(pause_ms * self._random.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER))

    def _wake_at(self, time_ms: int) -> None:
        if self.wakeup_ms is None or time_ms < self.wakeup_ms:
            self.wakeup_ms = time_ms

    @property
    def has_unfinished(self) -> bool:
        """Batches that are not over, or requests of a transaction."""
        return bool(self.accumulator.incomplete) or (
            self.transactions is not None and self.transactions.has_requests
        )


def backoff_ms(attempts: int, bounds: tuple[int, int]) -> int:
    """The pause after so many failures in a row before this one, doubled each time."""
    first, most = bounds
    return min(first << min(attempts, 20), max(most, first))
