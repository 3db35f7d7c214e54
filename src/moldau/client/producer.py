"""The producer for asyncio: what a program writes records with.

    async with AsyncProducer(bootstrap_servers="127.0.0.1:9092") as producer:
        delivery = await producer.send("orders", b"value", key=b"key")
        print((await delivery).offset)

Answerable for the calls: their arguments, serializers, interceptors, partitions, and waiting for room. What
is decided is in `moldau.client.producing`, and what is done about it in `moldau.client.produce`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from types import TracebackType
from typing import Any, NamedTuple, Protocol, cast

from moldau.client.cluster import Cluster, parse_addresses
from moldau.client.columns import Columns, serialized
from moldau.client.config import ConnectionConfig, check_security, parse_config
from moldau.client.delivery import Deliveries, Delivery, RecordMetadata, wholly_over
from moldau.client.errors import BlockedTooLongError, ClosedError, RecordError, error_of
from moldau.client.produce import ProduceDriver
from moldau.client.producing.accumulator import PartitionQueue, Topic
from moldau.client.producing.batch import RECORD_OVERHEAD, Headers, record_size_max
from moldau.client.producing.config import ProducerConfig, checked
from moldau.client.producing.identity import Identity
from moldau.client.producing.operations import GroupMetadata, OffsetAndMetadata, PreparedTransaction
from moldau.client.producing.partitioners import Partitioner, RoundRobin, partition_of_key
from moldau.client.producing.sender import Sender
from moldau.client.producing.transactions import Transactions
from moldau.client.serializers import Serializer, bytes_serializer, serializer_of
from moldau.client.topology import PartitionInfo, TopicPartition
from moldau.config.option import ConfigError
from moldau.records.columns import headers_size
from moldau.records.record import Header
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import ErrorCode, KafkaError


class ProducerRecord(NamedTuple):
    """A record as an interceptor sees it, before it is serialized."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


class Interceptor(Protocol):
    """Looks at records on their way. Any of the two methods may be missing; what they raise is the
    caller's."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send in the place of this one."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """What became of a record."""
        ...


class AsyncProducer:
    """Writes records to a cluster. Made with Kafka's options, as a mapping or as keywords with `_` for `.`.

    Use it as an async context manager, or `start` and `close` it. All of it belongs to one event loop.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        key_serializer: Serializer | str | None = None,
        value_serializer: Serializer | str | None = None,
        partitioner: Partitioner | str | None = None,
        interceptors: Iterable[Interceptor] = (),
        runtime: Runtime | None = None,
        cluster: Cluster | None = None,
        **options: Any,
    ) -> None:
        given = dict(config or {})
        if cluster is not None:
            given.setdefault("bootstrap.servers", ["of the cluster"])
        sections = parse_config([ConnectionConfig, ProducerConfig], given, options)
        self._connection = cast(ConnectionConfig, sections[0])
        asked = {name.replace("_", ".") for name in (*given, *options)}
        self.config = checked(
            self._connection,
            cast(ProducerConfig, sections[1]),
            idempotence_is_asked="enable.idempotence" in asked,
        )
        check_security(self._connection)
        if cluster is None:
            try:
                self._bootstrap = parse_addresses(",".join(self._connection.bootstrap_servers))
            except ValueError as error:
                raise ConfigError.of("bootstrap.servers", str(error)) from None
        self._serialize_key = serializer_of(key_serializer)
        self._serialize_value = serializer_of(value_serializer)
        self._ignores_keys = self.config.partitioner_ignore_keys
        self._partition = self._partitioner(partitioner)
        self._interceptors = tuple(interceptors)
        self._runtime = runtime
        self._cluster = cluster
        self._owns_cluster = cluster is None
        self._owned_runtime: Any = None
        self._driver: ProduceDriver | None = None
        self._is_closed = False
        self._max_block_ms = self.config.max_block_ms
        self._max_request_size = self.config.max_request_size

    def _partitioner(self, given: Partitioner | str | None) -> Partitioner | None:
        match given:
            case None | "default":
                return None
            case "round_robin":
                return RoundRobin()
            case "sticky":
                self._ignores_keys = True
                return None
            case str():
                raise ValueError(f"there is no partitioner {given!r}; there are default, round_robin, sticky")
            case _:
                return given

    # Life -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> AsyncProducer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Who is leaving because something failed does not want to wait for what it was about to write.
        await self.close(timeout_s=None if kind is None else 0)

    async def start(self) -> None:
        """Get ready; nothing is sent yet, and the cluster need not be there."""
        if self._driver is not None:
            return
        if self._is_closed:
            raise ClosedError.because("the producer is closed")
        if self._runtime is None:
            from moldau.runtime.real import RealRuntime

            self._owned_runtime = self._runtime = RealRuntime(asyncio.get_running_loop())
        options = self._connection
        if self._cluster is None:
            self._cluster = Cluster(
                self._runtime,
                self._bootstrap,
                client_id=options.client_id,
                request_timeout_s=options.request_timeout_ms / 1000,
                connect_timeout_s=options.socket_connection_setup_timeout_ms / 1000,
            )
        config = self.config
        identity = transactions = None
        if config.enable_idempotence:
            identity = Identity(is_transactional=config.transactional_id is not None)
        if config.transactional_id is not None and identity is not None:
            transactions = Transactions(
                identity,
                config.transactional_id,
                config.transaction_timeout_ms,
                is_two_phase=config.transaction_two_phase_commit_enable,
                backoff_ms=options.retry_backoff_ms,
                backoff_max_ms=options.retry_backoff_max_ms,
            )
        self._transactions = transactions
        self._sender = Sender(
            config,
            self._runtime.random,
            transactions=transactions,
            identity=identity,
            retry_backoff_ms=options.retry_backoff_ms,
            retry_backoff_max_ms=options.retry_backoff_max_ms,
            reconnect_backoff_ms=options.reconnect_backoff_ms,
            reconnect_backoff_max_ms=options.reconnect_backoff_max_ms,
            metadata_max_age_ms=options.metadata_max_age_ms,
        )
        self._accumulator = self._sender.accumulator
        self._topics = self._sender.topics
        self._now_ms = self._runtime.clock.now_ms
        self._monotonic = self._runtime.clock.monotonic
        self._driver = ProduceDriver(
            self._runtime, self._cluster, self._sender, config, request_timeout_ms=options.request_timeout_ms
        )

    async def close(self, timeout_s: float | None = None) -> None:
        """Send what is here, abort a transaction that was not ended, and hang up. What is not acknowledged
        within `timeout_s` (None: as long as it takes) fails."""
        if self._is_closed:
            return
        self._is_closed = True
        driver = self._driver
        if driver is None or self._cluster is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                if timeout_s != 0:
                    self._sender.is_closing = True
                    await self._drain(driver)
        except TimeoutError:
            pass
        finally:
            error = ClosedError.because("the producer was closed before this was acknowledged")
            self._sender.abort_all(self._now_ms(), error)
            if self._transactions is not None:
                self._transactions.close(error)
            driver.close()
            if self._owns_cluster:
                self._cluster.close()
            if self._owned_runtime is not None:
                self._owned_runtime.close()

    async def _drain(self, driver: ProduceDriver) -> None:
        for batch in list(self._accumulator.incomplete):
            driver.wake()
            await wholly_over(batch)
        transactions = self._transactions
        if transactions is not None and transactions.is_ongoing and not transactions.is_completing:
            try:
                deadline = self._deadline()
                await driver.wait(transactions.abort(), deadline, self._max_block_ms)
            except KafkaError:
                pass  # its coordinator will abort it when its time is over

    # Records ----------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
        on_delivery: Callable[[RecordMetadata | None, KafkaError | None], None] | None = None,
    ) -> Delivery:
        """Put a record into its batch, and return at once, or when there is room (`buffer.memory`).

        Await what is returned to know where the record is. `on_delivery(metadata, error)` is called when that
        is known, with one of the two. Raises what keeps the record from being taken.
        """
        if self._is_closed or self._driver is None:
            raise ClosedError.because(
                "the producer is closed" if self._is_closed else "the producer is not started"
            )
        if self._interceptors:
            record = self._intercepted(
                ProducerRecord(topic, value, key, partition, tuple(headers), timestamp_ms)
            )
            topic, value, key, partition, headers, timestamp_ms = record
        if self._serialize_value is not None:
            value = self._serialize_value(topic, value)
        elif type(value) is not bytes:
            value = bytes_serializer(topic, value)
        if self._serialize_key is not None:
            key = self._serialize_key(topic, key)
        elif key is not None and type(key) is not bytes:
            key = bytes_serializer(topic, key)
        size = RECORD_OVERHEAD
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            headers = tuple(headers)
            size += headers_size(headers)
        else:
            headers = ()

        known = self._topics.get(topic)
        deadline = 0.0
        if known is None or not known.is_known:
            deadline = self._deadline()
            known = await self._know(topic, deadline)
        sticky = None
        if partition is not None:
            if not 0 <= partition < len(known.queues):
                await self._find_partition(known, partition)
            queue = known.queues[partition]
        elif self._partition is not None:
            queue = self._chosen(known, key)
        elif key is not None and not self._ignores_keys:
            queues = known.queues
            queue = queues[partition_of_key(key, len(queues))]
        else:
            sticky = known.sticky
            if sticky.partition < 0:
                self._sender.switch_sticky(known)
            queue = known.queues[sticky.partition]
        if self._transactions is not None:
            self._transactions.add_partition(queue.place)

        accumulator = self._accumulator
        if (
            accumulator.used + size > accumulator.memory
            or size > self._max_request_size
            or self._driver.waiting
        ):
            self._check_size(key, value, headers, size)
            await self._room(size, deadline)
        now_ms = self._now_ms()
        batch, index = accumulator.append(
            now_ms, queue, key, value, now_ms if timestamp_ms is None else timestamp_ms, headers, size
        )
        delivery = Delivery(batch, index)
        if on_delivery is not None or self._interceptors:
            self._when_done(delivery, on_delivery)
        is_complete = batch.size + size > batch.limit
        if index == 0 or is_complete:
            if sticky is not None and sticky.on_batch(batch, is_complete=is_complete):
                self._sender.switch_sticky(known)
            self._sender.on_opened(batch)
            self._driver.wake()
            if is_complete:
                # A turn for the loop, or a program that only sends would let nothing leave until it is full.
                await asyncio.sleep(0)
        return delivery

    async def send_and_wait(self, topic: str, value: Any = None, **arguments: Any) -> RecordMetadata:
        """`send`, and where the record is. For many records, send them all and await them afterwards."""
        delivery = await self.send(topic, value, **arguments)
        return await delivery

    async def send_batch(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        partition: int | None = None,
        headers: Sequence[Sequence[Header]] | None = None,
        timestamps_ms: Sequence[int] | None = None,
    ) -> Deliveries:
        """Columns of records, taken many at a time: several times as fast as a `send` for each.

        Returns when all have been taken, which waits for room as `send` does. Records of one partition keep
        their order. Interceptors see each record, so that with them this is no faster.
        """
        if self._is_closed or self._driver is None:
            raise ClosedError.because(
                "the producer is closed" if self._is_closed else "the producer is not started"
            )
        columns = Columns(values, keys, headers, timestamps_ms)
        if self._interceptors:
            return await self._send_each(topic, columns, partition)
        columns.values = serialized(topic, columns.values, self._serialize_value)
        if columns.keys is not None:
            columns.keys = serialized(topic, columns.keys, self._serialize_key)
        deliveries = Deliveries(len(columns.values))
        if not columns.values:
            return deliveries
        deadline = self._deadline()
        known = self._topics.get(topic)
        if known is None or not known.is_known:
            known = await self._know(topic, deadline)
        if partition is not None:
            if not 0 <= partition < len(known.queues):
                await self._find_partition(known, partition)
            await self._extend(known, known.queues[partition], columns, range(len(columns)), deliveries)
            return deliveries
        by_key: dict[int, list[int]] = {}
        sticky: list[int] = []
        for number, key in enumerate(columns.keys or ()):
            if self._partition is not None:
                by_key.setdefault(self._chosen(known, key).place.partition, []).append(number)
            elif key is not None and not self._ignores_keys:
                by_key.setdefault(partition_of_key(key, len(known.queues)), []).append(number)
            else:
                sticky.append(number)
        if columns.keys is None and self._partition is not None:
            for number in range(len(columns)):
                by_key.setdefault(self._chosen(known, None).place.partition, []).append(number)
        for index, numbers in by_key.items():
            await self._extend(known, known.queues[index], columns.at(numbers), numbers, deliveries)
        if columns.keys is None and self._partition is None:
            await self._extend(known, None, columns, range(len(columns)), deliveries)
        elif sticky:
            await self._extend(known, None, columns.at(sticky), sticky, deliveries)
        return deliveries

    async def _extend(
        self,
        topic: Topic,
        queue: PartitionQueue | None,
        columns: Columns,
        numbers: Sequence[int],
        deliveries: Deliveries,
    ) -> None:
        """All of `columns` into one queue, or without one into those that records without key stick to."""
        assert self._driver is not None
        accumulator = self._accumulator
        sizes = columns.sizes()
        if max(sizes) > self._max_request_size:
            number = sizes.index(max(sizes))
            self._check_size(*columns.record(number), sizes[number])
        ends = list(accumulate(sizes))
        timestamps = columns.timestamps
        start = 0
        while start < len(sizes):
            target = queue
            if target is None:
                if topic.sticky.partition < 0:
                    self._sender.switch_sticky(topic)
                target = topic.queues[topic.sticky.partition]
            if self._transactions is not None:
                self._transactions.add_partition(target.place)
            size = sizes[start]
            if accumulator.used + size > accumulator.memory or self._driver.waiting:
                self._check_size(*columns.record(start), size)
                await self._room(size, 0.0)
            now_ms = self._now_ms()
            batch, index, end = accumulator.extend(
                now_ms,
                target,
                columns.keys,
                columns.values,
                [now_ms] * len(sizes) if timestamps is None else timestamps,
                columns.headers,
                ends,
                start,
            )
            deliveries.add(batch, index, numbers[start:end])
            is_complete = end < len(sizes) or batch.size + sizes[-1] > batch.limit
            if queue is None and topic.sticky.on_batch(batch, is_complete=is_complete):
                self._sender.switch_sticky(topic)
            self._sender.on_opened(batch)
            self._driver.wake()
            start = end
            if is_complete:
                await asyncio.sleep(0)

    async def _send_each(self, topic: str, columns: Columns, partition: int | None) -> Deliveries:
        deliveries = Deliveries(len(columns))
        for number in range(len(columns)):
            key, value, headers = columns.record(number)
            delivery = await self.send(
                topic,
                value,
                key=key,
                partition=partition,
                headers=headers,
                timestamp_ms=None if columns.timestamps is None else columns.timestamps[number],
            )
            deliveries.add(delivery._batch, delivery._index, (number,))
        return deliveries

    async def flush(self) -> None:
        """Send what is here without waiting for more, until all of it is acknowledged or has failed."""
        driver = self._started()
        started = time.perf_counter_ns()
        self._sender.flushing += 1
        try:
            for batch in list(self._accumulator.incomplete):
                driver.wake()
                await wholly_over(batch)
        finally:
            self._sender.flushing -= 1
            self._sender.metrics.times_ns["flush"] += time.perf_counter_ns() - started

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic, as the cluster tells them."""
        self._started()
        assert self._cluster is not None
        await self._know(topic, self._deadline())
        return list((await self._cluster.topic(topic)).partitions)

    def metrics(self) -> dict[str, float]:
        """Kafka's producer metrics (rates and averages of the last minute, totals of all time) by name."""
        driver = self._started()
        now_ms = self._now_ms()
        return self._sender.metrics.snapshot(
            now_ms,
            in_flight=len(self._sender.flights),
            memory=self._accumulator.memory,
            memory_used=self._accumulator.used,
            waiting=driver.waiting,
            connections=driver.connection_count,
            metadata_age_s=(now_ms - self._sender.metadata_at_ms) / 1000,
        )

    # Transactions -----------------------------------------------------------------------------------------

    async def init_transactions(self, *, keep_prepared: bool = False) -> None:
        """Once, before the first transaction: takes over from an earlier producer with the same id, whose
        open transaction is aborted, unless it is a prepared one that is to be kept."""
        await self._wait("txn_init", lambda: self._transactional().init(keep_prepared=keep_prepared))

    async def begin_transaction(self) -> None:
        self._transactional().begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition | tuple[str, int], OffsetAndMetadata | int],
        group: GroupMetadata | str,
    ) -> None:
        """Commit offsets of a consumer group with the transaction: of the next record to read."""
        transactions = self._transactional()
        whole = {
            TopicPartition(*place): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for place, offset in offsets.items()
        }
        who = GroupMetadata(group) if isinstance(group, str) else group
        if whole:
            await self._wait("txn_send_offsets", lambda: transactions.send_offsets(whole, who))

    async def commit_transaction(self) -> None:
        """Make all of it visible. Raises AbortableError if it can only be aborted."""
        await self._wait("txn_commit", lambda: self._transactional().commit())

    async def abort_transaction(self) -> None:
        """Make none of it visible. Records that have not left fail."""
        await self._wait("txn_abort", lambda: self._transactional().abort())

    async def prepare_transaction(self) -> PreparedTransaction:
        """With two-phase commit: write all of it, and leave it to `complete_transaction`, now or in a later
        life (`init_transactions(keep_prepared=True)`)."""
        transactions = self._transactional()
        await self.flush()
        return transactions.prepare()

    async def complete_transaction(self, prepared: PreparedTransaction) -> None:
        """Commit the prepared transaction if it is the one given, else abort it."""
        await self._wait("txn_commit", lambda: self._transactional().complete(prepared))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncProducer]:
        """A transaction that is committed at the end of the block, or aborted if the block or the end
        fails."""
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            transactions = self._transactional()
            if transactions.is_ongoing and not transactions.is_fatal:
                try:
                    await self.abort_transaction()
                except KafkaError:
                    pass  # what made it necessary is the news
            raise

    async def _wait(self, time_name: str, begin: Callable[[], Any]) -> None:
        driver = self._started()
        started = time.perf_counter_ns()
        try:
            await driver.wait(begin(), self._deadline(), self._max_block_ms)
        finally:
            self._sender.metrics.times_ns[time_name] += time.perf_counter_ns() - started

    def _transactional(self) -> Transactions:
        self._started()
        if self._transactions is None:
            raise RuntimeError("transactions need a transactional.id")
        return self._transactions

    # Parts of sending -------------------------------------------------------------------------------------

    def _started(self) -> ProduceDriver:
        if self._is_closed or self._driver is None:
            raise ClosedError.because(
                "the producer is closed" if self._is_closed else "the producer is not started"
            )
        return self._driver

    def _deadline(self) -> float:
        return self._monotonic() + self._max_block_ms / 1000

    async def _know(self, name: str, deadline: float) -> Topic:
        """What is kept of a topic, when its partitions are known."""
        driver = self._started()
        sender = self._sender
        started = time.perf_counter_ns()
        topic = sender.topic(name)
        try:
            while not topic.is_known:
                if not await driver.metadata_told(deadline):
                    code = driver.topic_errors.get(name, ErrorCode.LEADER_NOT_AVAILABLE)
                    reason = (
                        f"nothing is known of topic {name!r} after {self._max_block_ms} ms (max.block.ms)"
                    )
                    raise BlockedTooLongError(code, reason)
                code = driver.topic_errors.get(name, ErrorCode.NONE)
                if code is not ErrorCode.NONE and not code.retriable:
                    raise error_of(code, f"topic {name!r}")
                if self._is_closed:
                    raise ClosedError.because("the producer is closed")
                sender.refresh(name)
        except BaseException:
            if not topic.is_known:
                sender.forget_topic(name)
            raise
        finally:
            sender.metrics.times_ns["metadata_wait"] += time.perf_counter_ns() - started
        return topic

    async def _find_partition(self, topic: Topic, partition: int) -> None:
        """A partition that is not known may be new: the cluster is asked once more."""
        driver = self._started()
        if partition >= 0:
            self._sender.refresh(topic.name)
            await driver.metadata_told(self._deadline())
        if not 0 <= partition < len(topic.queues):
            reason = f"topic {topic.name!r} has no partition {partition} (it has {len(topic.queues)})"
            raise error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)

    def _chosen(self, topic: Topic, key: bytes | None) -> PartitionQueue:
        assert self._partition is not None
        count = len(topic.queues)
        partition = self._partition(topic.name, key, count)
        if not 0 <= partition < count:
            raise ValueError(f"the partitioner chose partition {partition} of {count} of {topic.name!r}")
        return topic.queues[partition]

    def _check_size(self, key: bytes | None, value: bytes | None, headers: Headers, size: int) -> None:
        largest = record_size_max(key, value, headers)
        for name, limit in (
            ("max.request.size", self._max_request_size),
            ("buffer.memory", self._accumulator.memory),
        ):
            if largest > limit:
                reason = f"a record of up to {largest} bytes is larger than {name}, which is {limit}"
                raise RecordError(ErrorCode.MESSAGE_TOO_LARGE, reason)

    async def _room(self, size: int, deadline: float) -> None:
        driver = self._started()
        if self._accumulator.has_room(size) and not driver.waiting:
            return
        await driver.room(size, deadline or self._deadline(), self._max_block_ms)
        driver.give_back(size)
        if self._is_closed:
            raise ClosedError.because("the producer is closed")

    def _intercepted(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self._interceptors:
            on_send = getattr(interceptor, "on_send", None)
            if on_send is not None:
                record = on_send(record)
        return record

    def _when_done(
        self,
        delivery: Delivery,
        on_delivery: Callable[[RecordMetadata | None, KafkaError | None], None] | None,
    ) -> None:
        def tell() -> None:
            error = delivery.exception()
            metadata = delivery.result() if error is None else None
            for interceptor in self._interceptors:
                on_acknowledgement = getattr(interceptor, "on_acknowledgement", None)
                if on_acknowledgement is not None:
                    on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        def tell_apart() -> None:
            # What a callback raises is for the loop's handler, and no concern of the batch's other records.
            asyncio.get_running_loop().call_soon(tell)

        delivery.on_done(tell_apart)
