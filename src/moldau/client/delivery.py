"""What `send` gives back: a view of one record in its batch, to be awaited or asked.

A batch has one outcome, and a record's own part of it is worked out when somebody asks. So a record that
nobody asks about costs one small object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, NamedTuple

from moldau.client.producing.batch import ProducerBatch
from moldau.wire.errors import KafkaError


class RecordMetadata(NamedTuple):
    """Where a record is. `offset` is -1 when nobody told it (acks=0, or a repetition of what was long
    there)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class BatchMetadata(NamedTuple):
    """Where a run of records is: `record_count` of them from `base_offset` on."""

    topic: str
    partition: int
    base_offset: int
    record_count: int


class Delivery:
    """Awaited, it gives a RecordMetadata or raises why there is none. It may be awaited by many, or by
    nobody."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def topic(self) -> str:
        return self._batch.queue.place.topic

    @property
    def partition(self) -> int:
        return self._batch.queue.place.partition

    def done(self) -> bool:
        return self._batch.locate(self._index)[0].is_done

    def exception(self) -> KafkaError | None:
        """Why the record was not written; None if it was, or if that is not known yet."""
        batch, index = self._batch.locate(self._index)
        return batch.error_of_record(index) if batch.is_done else None

    def result(self) -> RecordMetadata:
        """What awaiting it would give, of a record that is done."""
        batch, index = self._batch.locate(self._index)
        if not batch.is_done:
            raise asyncio.InvalidStateError("the record has not been delivered yet")
        error = batch.error_of_record(index)
        if error is not None:
            raise type(error)(error.code, error.message) from None
        place = batch.queue.place
        offset = batch.base_offset + index if batch.base_offset >= 0 else -1
        timestamp_ms = batch.log_append_time_ms if batch.log_append_time_ms >= 0 else batch.timestamps[index]
        return RecordMetadata(place.topic, place.partition, offset, timestamp_ms)

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call back on the loop when it is done, or soon if it is."""

        def wake() -> None:
            batch, _ = self._batch.locate(self._index)
            if batch.is_done:
                callback()
            else:
                batch.waiters.append(wake)  # the batch was split

        batch, _ = self._batch.locate(self._index)
        if batch.is_done:
            asyncio.get_running_loop().call_soon(callback)
        else:
            batch.waiters.append(wake)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        while True:
            batch, _ = self._batch.locate(self._index)
            if batch.is_done:
                return self.result()
            yield from over(batch).__await__()


class Deliveries(Sequence[Delivery]):
    """The deliveries of a `send_batch`, in the order of its records. Awaited, it gives a BatchMetadata for
    each run of records that stayed together, or raises the first error when all are over."""

    __slots__ = ("_count", "_pieces", "_places")

    def __init__(self, count: int) -> None:
        self._count = count
        self._pieces: list[tuple[ProducerBatch, int, Sequence[int]]] = []
        self._places: list[tuple[ProducerBatch, int]] | None = None

    def add(self, batch: ProducerBatch, first: int, numbers: Sequence[int]) -> None:
        """The records with these numbers are in `batch`, from the index `first` on."""
        self._pieces.append((batch, first, numbers))
        self._places = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if self._places is None:
            places: list[Any] = [None] * self._count
            for batch, first, numbers in self._pieces:
                for index, each in enumerate(numbers, first):
                    places[each] = (batch, index)
            self._places = places
        if isinstance(number, slice):
            return [Delivery(*place) for place in self._places[number]]
        return Delivery(*self._places[number])

    def done(self) -> bool:
        return all(
            batch.locate(first + index)[0].is_done
            for batch, first, numbers in self._pieces
            for index in ((0, len(numbers) - 1) if batch.parts else (0,))
        )

    def on_done(self, callback: Callable[[Sequence[int], KafkaError | None], None]) -> None:
        """Call back on the loop for each run of records whose outcome became known together: with their
        numbers, and why they were not written, or None."""
        for batch, first, numbers in self._pieces:
            _tell_outcome(batch, first, numbers, callback)

    async def _gather(self) -> list[BatchMetadata]:
        runs: list[BatchMetadata] = []
        failure: KafkaError | None = None
        for batch, first, numbers in self._pieces:
            await wholly_over(batch)
            index, end = first, first + len(numbers)
            while index < end:
                final, within = batch.locate(index)
                count = min(end - index, final.record_count - within)
                index += count
                errors = (final.error_of_record(each) for each in range(within, within + count))
                error = next((each for each in errors if each is not None), None) if final.error else None
                if error is not None:
                    failure = failure or error
                    continue
                offset = final.base_offset + within if final.base_offset >= 0 else -1
                runs.append(BatchMetadata(*final.queue.place, offset, count))
        if failure is not None:
            raise type(failure)(failure.code, failure.message) from None
        return runs

    def __await__(self) -> Generator[Any, None, list[BatchMetadata]]:
        return self._gather().__await__()


def _tell_outcome(
    batch: ProducerBatch,
    first: int,
    numbers: Sequence[int],
    callback: Callable[[Sequence[int], KafkaError | None], None],
) -> None:
    """When it is known, of the records from the index `first` on, which have these numbers."""
    loop = asyncio.get_running_loop()

    def tell() -> None:
        if batch.parts:
            start = 0
            while start < len(numbers):
                part, index = batch.locate(first + start)
                end = min(len(numbers), start + part.record_count - index)
                _tell_outcome(part, index, numbers[start:end], callback)
                start = end
        elif batch.record_errors is None:
            callback(numbers, batch.error)
        else:
            for index, number in enumerate(numbers, first):
                callback((number,), batch.error_of_record(index))

    if batch.is_done:
        loop.call_soon(tell)
    else:
        batch.waiters.append(partial(loop.call_soon, tell))


async def over(batch: ProducerBatch) -> None:
    """Until the batch has an outcome or was split."""
    if batch.is_done:
        return
    future = asyncio.get_running_loop().create_future()
    batch.waiters.append(partial(release, future))
    await future


def release(future: asyncio.Future[None]) -> None:
    """End a wait, unless whoever waited has gone."""
    if not future.done():
        future.set_result(None)


async def wholly_over(batch: ProducerBatch) -> None:
    """Until it, and whatever it was split into, has an outcome."""
    await over(batch)
    for _, part in batch.parts:
        await wholly_over(part)
