"""The consumer for programs without an event loop: the same one, in a thread of its own.

    with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record.offset, record.value)

Answerable for the way between threads, and for nothing else: what it does is `AsyncConsumer`'s to do.
Callbacks of an assignment are called where the program polls, in its own thread, and may use the consumer. A
consumer is for one thread at a time.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from moldau.client.admin import OffsetAndTimestamp
from moldau.client.consumed import ConsumerBatch, ConsumerRecord
from moldau.client.consumer import AsyncConsumer, Offsets, OnChange, OnCommit, Place
from moldau.client.errors import ClosedError
from moldau.client.loop_thread import LoopThread
from moldau.client.producing.operations import GroupMetadata, OffsetAndMetadata
from moldau.client.topology import PartitionInfo, TopicPartition

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")


class _Told(NamedTuple):
    """A callback that the loop asks the program's thread to make."""

    callback: OnChange
    places: list[TopicPartition]
    answer: asyncio.Future[None]


class _Outcome(NamedTuple):
    result: Any
    error: BaseException | None


class Consumer:
    """As `AsyncConsumer`, with calls that wait."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        self._consumer = AsyncConsumer(config, **options)
        self._thread: LoopThread[None] | None = None
        self._is_closed = False
        self._inbox: queue.SimpleQueue[_Told | _Outcome] = queue.SimpleQueue()

    def __enter__(self) -> Consumer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        if self._is_closed:
            raise ClosedError.because("the consumer is closed")
        if self._thread is None:
            self._thread = LoopThread("moldau-consumer", _take_nothing)
            self._call(self._consumer.start)

    def close(self, *, leave_group: bool = True) -> None:
        """Commit what was handed out, if that happens by itself, give the partitions back, and hang up."""
        if self._thread is not None:
            try:
                self._while_telling(lambda: self._consumer.close(leave_group=leave_group))
            finally:
                self._thread.stop()
                self._thread = None
        self._is_closed = True

    # What is read -----------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: OnChange | None = None,
        on_revoked: OnChange | None = None,
        on_lost: OnChange | None = None,
    ) -> None:
        """As `AsyncConsumer.subscribe`; the callbacks are plain functions."""
        callbacks = {
            "on_assigned": self._from_loop(on_assigned),
            "on_revoked": self._from_loop(on_revoked),
            "on_lost": self._from_loop(on_lost),
        }
        self._now(lambda: self._consumer.subscribe(topics, pattern=pattern, **callbacks))

    def unsubscribe(self) -> None:
        self._while_telling(self._consumer.unsubscribe)

    def assign(self, places: Iterable[Place]) -> None:
        self._now(lambda: self._consumer.assign(places))

    def assignment(self) -> set[TopicPartition]:
        return self._now(self._consumer.assignment)

    def subscription(self) -> frozenset[str]:
        return self._now(self._consumer.subscription)

    # Records ----------------------------------------------------------------------------------------------

    def poll(
        self,
        timeout_s: float = 1.0,
        *,
        max_records: int | None = None,
        places: Collection[Place] | None = None,
    ) -> list[ConsumerRecord]:
        """What is there or comes first, `max.poll.records` at most; nothing if nothing came in time."""
        batches = self.poll_columns(timeout_s, max_records=max_records, places=places)
        return [record for batch in batches for record in batch]

    def poll_columns(
        self,
        timeout_s: float = 1.0,
        *,
        max_records: int | None = None,
        places: Collection[Place] | None = None,
    ) -> list[ConsumerBatch]:
        consumer = self._consumer
        return self._while_telling(
            lambda: consumer.poll_columns(timeout_s, max_records=max_records, places=places)
        )

    def poll_arrow(
        self,
        timeout_s: float = 1.0,
        *,
        max_records: int | None = None,
        places: Collection[Place] | None = None,
    ) -> pyarrow.Table:
        consumer = self._consumer
        return self._while_telling(
            lambda: consumer.poll_arrow(timeout_s, max_records=max_records, places=places)
        )

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record, however long that takes."""
        unread = self._consumer._unread
        while True:
            while unread:
                record = unread[0].next()
                if record is not None:
                    return record
                self._now(self._consumer._end_run)
            self._while_telling(self._consumer._fill)

    # Positions --------------------------------------------------------------------------------------------

    def seek(self, place: Place, offset: int | OffsetAndMetadata) -> None:
        self._now(lambda: self._consumer.seek(place, offset))

    def seek_to_beginning(self, *places: Place) -> None:
        self._now(lambda: self._consumer.seek_to_beginning(*places))

    def seek_to_end(self, *places: Place) -> None:
        self._now(lambda: self._consumer.seek_to_end(*places))

    def position(self, place: Place) -> int:
        return self._call(lambda: self._consumer.position(place))

    def pause(self, *places: Place) -> None:
        self._now(lambda: self._consumer.pause(*places))

    def resume(self, *places: Place) -> None:
        self._now(lambda: self._consumer.resume(*places))

    def paused(self) -> set[TopicPartition]:
        return self._now(self._consumer.paused)

    def lag(self, place: Place) -> int | None:
        return self._now(lambda: self._consumer.lag(place))

    def beginning_offsets(self, places: Iterable[Place]) -> dict[TopicPartition, int]:
        return self._call(lambda: self._consumer.beginning_offsets(places))

    def end_offsets(self, places: Iterable[Place]) -> dict[TopicPartition, int]:
        return self._call(lambda: self._consumer.end_offsets(places))

    def offsets_for_times(
        self, timestamps_ms: Mapping[Place, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return self._call(lambda: self._consumer.offsets_for_times(timestamps_ms))

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        return self._call(lambda: self._consumer.partitions_for(topic))

    # Commits ----------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit offsets, each of the next record to read; without any, those behind what was handed out."""
        self._call(lambda: self._consumer.commit(offsets))

    def commit_nowait(self, offsets: Offsets | None = None, on_commit: OnCommit | None = None) -> None:
        """As `commit`, without waiting. `on_commit` is called on the consumer's thread."""
        self._now(lambda: self._consumer.commit_nowait(offsets, on_commit))

    def committed(self, places: Iterable[Place]) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._call(lambda: self._consumer.committed(places))

    def group_metadata(self) -> GroupMetadata:
        return self._now(self._consumer.group_metadata)

    def enforce_rebalance(self) -> None:
        self._now(self._consumer.enforce_rebalance)

    # Between the threads ----------------------------------------------------------------------------------

    def _started(self) -> LoopThread[None]:
        if self._thread is None:
            raise ClosedError.because(
                "the consumer is closed" if self._is_closed else "the consumer is not started"
            )
        return self._thread

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._started().call(work)

    def _now(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self._started().call(run)

    def _while_telling(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for `work`, and make the callbacks that it asks for meanwhile."""
        thread = self._started()
        inbox = self._inbox

        async def run() -> None:
            try:
                inbox.put(_Outcome(await work(), None))
            except BaseException as error:
                inbox.put(_Outcome(None, error))

        running = asyncio.run_coroutine_threadsafe(run(), thread.loop)
        try:
            while isinstance(item := inbox.get(), _Told):
                self._make(thread, item)
        except BaseException:
            # A program that is interrupted, as by Ctrl-C: nobody waits for the outcome any more.
            running.cancel()
            self._inbox = queue.SimpleQueue()
            raise
        if item.error is not None:
            raise item.error
        result: T = item.result
        return result

    def _make(self, thread: LoopThread[None], told: _Told) -> None:
        error: Exception | None = None
        try:
            told.callback(told.places)
        except Exception as raised:
            error = raised

        def answer() -> None:
            if told.answer.done():
                return
            if error is None:
                told.answer.set_result(None)
            else:
                told.answer.set_exception(error)

        thread.loop.call_soon_threadsafe(answer)

    def _from_loop(
        self, callback: OnChange | None
    ) -> Callable[[list[TopicPartition]], Awaitable[None]] | None:
        if callback is None:
            return None

        async def tell(places: list[TopicPartition]) -> None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._inbox.put(_Told(callback, places, future))
            await future

        return tell


async def _take_nothing(_: None) -> None:
    """Nothing is handed over to a consumer."""
