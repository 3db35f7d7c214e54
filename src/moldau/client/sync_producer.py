"""The producer for programs without an event loop: the same one, in a thread of its own.

    with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        delivery = producer.send("orders", b"value", key=b"key")
        print(delivery.result().offset)

Answerable for the way between threads, and for nothing else: what it does is `AsyncProducer`'s to do. It may
be used from many threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from moldau.client.delivery import BatchMetadata, Delivery, RecordMetadata
from moldau.client.errors import BlockedTooLongError, ClosedError
from moldau.client.loop_thread import LoopThread
from moldau.client.producer import AsyncProducer
from moldau.client.producing.operations import GroupMetadata, OffsetAndMetadata, PreparedTransaction
from moldau.client.topology import PartitionInfo, TopicPartition
from moldau.records.record import Header
from moldau.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")

OnDelivery = Callable[[RecordMetadata | None, KafkaError | None], None]


class SyncDelivery:
    """What became, or becomes, of one record."""

    __slots__ = ("_delivery", "_error", "_producer", "_waiting")

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._delivery: Delivery | None = None  # from when the loop has taken the record
        self._error: BaseException | None = None
        self._waiting: list[Future[None]] | None = None

    def done(self) -> bool:
        return self._error is not None or (self._delivery is not None and self._delivery.done())

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait until it is known where the record is; raises why it is nowhere, or TimeoutError."""
        if not self.done():
            self._producer._wait_for(self, timeout_s)
        if self._error is not None:
            raise self._error
        assert self._delivery is not None
        return self._delivery.result()

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait, and tell why the record was not written; None if it was."""
        try:
            self.result(timeout_s)
        except KafkaError as error:
            return error
        return None


_Record = tuple[SyncDelivery, str, Any, dict[str, Any]]


class Producer:
    """As `AsyncProducer`, with calls that wait. Callbacks and interceptors are called on the client's
    thread."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        self._producer = AsyncProducer(config, **options)
        self._max_block_s = self._producer.config.max_block_ms / 1000
        self._thread: LoopThread[_Record] | None = None
        self._is_closed = False

    def __enter__(self) -> Producer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(timeout_s=None if kind is None else 0)

    def start(self) -> None:
        if self._is_closed:
            raise ClosedError.because("the producer is closed")
        if self._thread is None:
            self._thread = LoopThread("moldau-producer", self._take)
            self._thread.call(self._producer.start)

    def close(self, timeout_s: float | None = None) -> None:
        """Send what is here, abort a transaction that was not ended, and hang up."""
        thread, self._thread = self._thread, None
        self._is_closed = True
        if thread is not None:
            try:
                thread.call(lambda: self._producer.close(timeout_s))
            finally:
                thread.stop()

    # Records ----------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> SyncDelivery:
        """Hand a record over. What keeps it from being taken is told by what is returned; only that the
        producer does not get to it within `max.block.ms` is raised here."""
        thread = self._thread or self._started()
        delivery = SyncDelivery(self)
        arguments: dict[str, Any] = {}
        if key is not None:
            arguments["key"] = key
        if partition is not None:
            arguments["partition"] = partition
        if headers:
            arguments["headers"] = headers
        if timestamp_ms is not None:
            arguments["timestamp_ms"] = timestamp_ms
        if on_delivery is not None:
            arguments["on_delivery"] = on_delivery
        if not thread.hand_over((delivery, topic, value, arguments), self._max_block_s):
            reason = f"the producer was busy for {self._max_block_s:g} s (max.block.ms)"
            raise BlockedTooLongError(ErrorCode.REQUEST_TIMED_OUT, reason)
        return delivery

    def send_batch(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        partition: int | None = None,
        headers: Sequence[Sequence[Header]] | None = None,
        timestamps_ms: Sequence[int] | None = None,
        wait: bool = False,
    ) -> list[BatchMetadata]:
        """Columns of records at once. With `wait` returns where they are, and raises the first error;
        without, an empty list when all have been taken: `flush` and the metrics tell the rest."""

        async def work() -> list[BatchMetadata]:
            deliveries = await self._producer.send_batch(
                topic, values, keys=keys, partition=partition, headers=headers, timestamps_ms=timestamps_ms
            )
            return await deliveries if wait else []

        return self._call(work)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all that was sent is acknowledged or has failed."""
        self._call(self._producer.flush, timeout_s)

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        return self._call(lambda: self._producer.partitions_for(topic))

    def metrics(self) -> dict[str, float]:
        async def work() -> dict[str, float]:
            return self._producer.metrics()

        return self._call(work)

    # Transactions -----------------------------------------------------------------------------------------

    def init_transactions(self, *, keep_prepared: bool = False) -> None:
        self._call(lambda: self._producer.init_transactions(keep_prepared=keep_prepared))

    def begin_transaction(self) -> None:
        self._call(self._producer.begin_transaction)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition | tuple[str, int], OffsetAndMetadata | int],
        group: GroupMetadata | str,
    ) -> None:
        self._call(lambda: self._producer.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort_transaction(self) -> None:
        self._call(self._producer.abort_transaction)

    def prepare_transaction(self) -> PreparedTransaction:
        return self._call(self._producer.prepare_transaction)

    def complete_transaction(self, prepared: PreparedTransaction) -> None:
        self._call(lambda: self._producer.complete_transaction(prepared))

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """A transaction that is committed at the end of the block, or aborted if the block or the end
        fails."""
        whole = self._producer.transaction()
        self._call(whole.__aenter__)
        try:
            yield self
        except BaseException as error:
            failure = error
            self._call(lambda: whole.__aexit__(type(failure), failure, failure.__traceback__))
            raise
        self._call(lambda: whole.__aexit__(None, None, None))

    # Between the threads ----------------------------------------------------------------------------------

    def _started(self) -> LoopThread[_Record]:
        if self._thread is None:
            raise ClosedError.because(
                "the producer is closed" if self._is_closed else "the producer is not started"
            )
        return self._thread

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T:
        return self._started().call(work, timeout_s)

    async def _take(self, record: _Record) -> None:
        sync, topic, value, arguments = record
        try:
            delivery = await self._producer.send(topic, value, **arguments)
        except Exception as error:
            sync._error = error
        else:
            sync._delivery = delivery
        if sync._waiting is not None:
            for future in sync._waiting:
                self._tell(sync, future)
            sync._waiting = None

    def _wait_for(self, sync: SyncDelivery, timeout_s: float | None) -> None:
        future: Future[None] = Future()

        async def watch() -> None:
            if sync._delivery is None and sync._error is None:
                sync._waiting = [*(sync._waiting or ()), future]
            else:
                self._tell(sync, future)

        thread = self._thread
        if thread is None:
            if not sync.done():
                sync._error = ClosedError.because("the producer was closed before this was sent")
            return
        thread.call(watch)
        future.result(timeout_s)

    def _tell(self, sync: SyncDelivery, future: Future[None]) -> None:
        def tell() -> None:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

        if sync._delivery is None:
            tell()
        else:
            sync._delivery.on_done(tell)
