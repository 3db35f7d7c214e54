"""Each record once, for programs that keep their offsets with their results, in a store of their own.

    with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="ledger") as consumer:
        once = Once(consumer, load)
        once.subscribe(["payments"])
        while batch := once.poll(10):
            store(batch)

`load(places)` tells what the store has: for each partition the offset of the next record, if it has one. A
batch has `records`, and by partition where it begins and ends (`begins`, `ends`). The store takes the results
and the ends in one step of its own (a transaction, a file that is replaced), and only if what it has for each
partition is where the batch begins. So a member whose partitions went to others while it was busy stores
nothing: it is the store that says whose turn it is, and not the group.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from moldau.client.consumed import ConsumerRecord
from moldau.client.consumer import AsyncConsumer
from moldau.client.sync_consumer import Consumer
from moldau.client.topology import TopicPartition

Stored: TypeAlias = Mapping[TopicPartition, int]


class OnceBatch(NamedTuple):
    """`begins` has the offsets that the store has to have, `ends` those that it is to have with the results.
    A partition that the store has nothing of begins at None."""

    records: list[ConsumerRecord]
    begins: dict[TopicPartition, int | None]
    ends: dict[TopicPartition, int]

    def __bool__(self) -> bool:
        return bool(self.records)


class _Book:
    """What the store has, as far as it is known here."""

    def __init__(self) -> None:
        self._stored: dict[TopicPartition, int | None] = {}

    def on_assigned(self, places: Iterable[TopicPartition], stored: Stored) -> dict[TopicPartition, int]:
        """Where to go."""
        for place in places:
            self._stored[place] = stored.get(place)
        return {place: offset for place in places if (offset := stored.get(place)) is not None}

    def on_revoked(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._stored.pop(place, None)

    def batch(self, records: list[ConsumerRecord]) -> OnceBatch:
        ends = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
        begins = {place: self._stored[place] for place in ends}
        self._stored.update(ends)
        return OnceBatch(records, begins, ends)


class Once:
    """For `Consumer`; see the module."""

    def __init__(self, consumer: Consumer, load: Callable[[list[TopicPartition]], Stored]) -> None:
        self._consumer = consumer
        self._load = load
        self._book = _Book()

    def subscribe(self, topics: Iterable[str] = (), *, pattern: str | None = None) -> None:
        self._consumer.subscribe(
            topics, pattern=pattern, on_assigned=self._on_assigned, on_revoked=self._book.on_revoked
        )

    def poll(self, timeout_s: float = 1.0, *, max_records: int | None = None) -> OnceBatch:
        """The next batch; one without records if nothing came in time."""
        return self._book.batch(self._consumer.poll(timeout_s, max_records=max_records))

    def _on_assigned(self, places: list[TopicPartition]) -> None:
        for place, offset in self._book.on_assigned(places, self._load(places)).items():
            self._consumer.seek(place, offset)


class AsyncOnce:
    """For `AsyncConsumer`; `load` may be a coroutine function."""

    def __init__(
        self,
        consumer: AsyncConsumer,
        load: Callable[[list[TopicPartition]], Stored | Awaitable[Stored]],
    ) -> None:
        self._consumer = consumer
        self._load = load
        self._book = _Book()

    def subscribe(self, topics: Iterable[str] = (), *, pattern: str | None = None) -> None:
        self._consumer.subscribe(
            topics, pattern=pattern, on_assigned=self._on_assigned, on_revoked=self._book.on_revoked
        )

    async def poll(self, timeout_s: float = 1.0, *, max_records: int | None = None) -> OnceBatch:
        return self._book.batch(await self._consumer.poll(timeout_s, max_records=max_records))

    async def _on_assigned(self, places: list[TopicPartition]) -> None:
        stored = self._load(places)
        if inspect.isawaitable(stored):
            stored = await stored
        for place, offset in self._book.on_assigned(places, stored).items():
            self._consumer.seek(place, offset)
