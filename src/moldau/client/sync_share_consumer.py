"""The consumer of share groups for programs without an event loop: the same one, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from moldau.client.errors import ClosedError
from moldau.client.loop_thread import LoopThread
from moldau.client.share_consumer import AsyncShareConsumer, ShareRecord
from moldau.client.sharing.fetching import AcknowledgeType
from moldau.client.topology import TopicPartition
from moldau.wire.errors import KafkaError

T = TypeVar("T")


class ShareConsumer:
    """As `AsyncShareConsumer`, with calls that wait. For one thread at a time."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        self._consumer = AsyncShareConsumer(config, **options)
        self._thread: LoopThread[None] | None = None
        self._is_closed = False

    def __enter__(self) -> ShareConsumer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(accept=kind is None)

    def start(self) -> None:
        if self._is_closed:
            raise ClosedError.because("the consumer is closed")
        if self._thread is None:
            self._thread = LoopThread("moldau-share-consumer", _take_nothing)
            self._call(self._consumer.start)

    def close(self, *, accept: bool = True) -> None:
        """Acknowledge what was handed out, unless that is to be done explicitly or `accept` is false; release
        the rest, and leave the group."""
        thread, self._thread = self._thread, None
        self._is_closed = True
        if thread is not None:
            try:
                thread.call(lambda: self._consumer.close(accept=accept))
            finally:
                thread.stop()

    def subscribe(self, topics: Iterable[str]) -> None:
        self._now(lambda: self._consumer.subscribe(topics))

    def subscription(self) -> frozenset[str]:
        return self._now(self._consumer.subscription)

    def poll(self, timeout_s: float = 1.0) -> list[ShareRecord]:
        """What this consumer acquires; nothing if nothing came in time."""
        return self._call(lambda: self._consumer.poll(timeout_s))

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        self._now(lambda: self._consumer.acknowledge(record, kind))

    def commit(self) -> dict[TopicPartition, KafkaError | None]:
        """Send acknowledgements, and wait for what becomes of them, by partition: None is success."""
        return self._call(self._consumer.commit)

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._thread is None:
            raise ClosedError.because(
                "the consumer is closed" if self._is_closed else "the consumer is not started"
            )
        return self._thread.call(work)

    def _now(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self._call(run)


async def _take_nothing(_: None) -> None:
    """Nothing is handed over to a consumer."""
