"""The loads of `moldau perf latency`: how long a record takes from the producer to a consumer.

In turn, as kafka-e2e-latency does it: one record is sent, acknowledged and read, and then the next one. At
a pace: records are sent when they are meant to be, whatever is still under way, and carry their number;
the time of each runs from the moment it was meant for until it was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random

from moldau.client.admin import LATEST_TIMESTAMP, Admin, IsolationLevel
from moldau.client.cluster import Cluster, TopicPartition
from moldau.client.fetch import Fetcher, starting_offsets
from moldau.client.producer import AsyncProducer
from moldau.perf.measure.histogram import Histogram
from moldau.perf.measure.payload import RandomLetters
from moldau.perf.measure.schedule import Schedule
from moldau.records.record import Header, Record
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import ErrorCode, KafkaError

POLL_S = 60.0
NUMBER_BYTES = 8


class LatencyError(Exception):
    """What was read is not what was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLoad:
    """`per_second` of 0 or less is one in turn."""

    topic: str
    records: int
    record_size: int
    per_second: float = -1
    warmup: int = 0
    key_size: int = 0
    header_count: int = 0
    header_key_size: int = 0
    header_size: int = 0  # -1 for no value


class LatencyRun:
    """One run of a load, the topic of which nobody else writes to meanwhile. May be looked at while it
    goes on."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        producer: AsyncProducer,
        load: LatencyLoad,
        on_read: Callable[[int, int], None],
    ) -> None:
        self._runtime = runtime
        self._monotonic = runtime.clock.monotonic
        self._cluster = cluster
        self._producer = producer
        self._load = load
        self._on_read = on_read
        self._values = RandomLetters(load.record_size, runtime.random)
        self._numbered = RandomLetters(max(0, load.record_size - NUMBER_BYTES), runtime.random)
        self.seen = 0
        self.latencies_ns: list[int] = []
        self.acknowledged = Histogram()  # us, as the next one
        self.read = Histogram()

    async def run(self) -> None:
        # As Kafka's tool: a consumer that waits for nothing. At a pace it waits for what comes.
        wait_ms = 0 if self._load.per_second <= 0 else 500
        fetcher = Fetcher(self._runtime, self._cluster, wait_ms_max=wait_ms)
        topic = await self._cluster.topic(self._load.topic)
        places = [TopicPartition(topic.name, partition.index) for partition in topic.partitions]
        ends = await starting_offsets(
            Admin(self._cluster), places, LATEST_TIMESTAMP, IsolationLevel.READ_UNCOMMITTED
        )
        fetcher.assign(ends)
        try:
            if self._load.per_second <= 0:
                await self._in_turn(fetcher)
            else:
                await self._at_a_pace(fetcher)
        finally:
            await fetcher.close()

    async def _in_turn(self, fetcher: Fetcher) -> None:
        load = self._load
        for number in range(load.records):
            (value,) = self._values.take(number, 1)
            key, headers = self._extras()
            start_s = self._monotonic()
            await self._producer.send_and_wait(load.topic, value, key=key, headers=headers)
            acknowledged_s = self._monotonic()
            records = await self._next(fetcher)
            elapsed_s = self._monotonic() - start_s
            if len(records) != 1:
                raise LatencyError(f"one record was sent, and {len(records)} came: somebody else writes, too")
            if (records[0].value, records[0].key, records[0].headers) != (value, key, headers):
                raise LatencyError("the record that was read is not the one that was sent")
            self._on_read(number, int(elapsed_s * 1e9))
            self.seen += 1
            if number >= load.warmup:
                self.latencies_ns.append(int(elapsed_s * 1e9))
                self.acknowledged.record(int((acknowledged_s - start_s) * 1e6))
                self.read.record(int(elapsed_s * 1e6))

    async def _at_a_pace(self, fetcher: Fetcher) -> None:
        load = self._load
        schedule = Schedule(start_us=self._now_us(), per_second=load.per_second)
        reading = self._runtime.spawn(self._read_all(fetcher, schedule), "read")
        try:
            await self._send_all(schedule, reading)
            await reading
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, KafkaError, LatencyError):
                await reading

    async def _send_all(self, schedule: Schedule, reading: asyncio.Task[None]) -> None:
        load, sent = self._load, 0
        while sent < load.records and not reading.done():
            now_us = self._now_us()
            if schedule.due(now_us, load.records) <= sent:
                await asyncio.sleep((schedule.intended_us(sent) - now_us) / 1_000_000)
                continue
            (letters,) = self._numbered.take(sent, 1)
            key, headers = self._extras()
            delivery = await self._producer.send(
                load.topic, sent.to_bytes(NUMBER_BYTES, "big") + letters, key=key, headers=headers
            )
            delivery.on_done(partial(self._on_acknowledged, schedule.intended_us(sent), sent))
            sent += 1

    def _on_acknowledged(self, intended_us: int, number: int) -> None:
        if number >= self._load.warmup:
            self.acknowledged.record(self._now_us() - intended_us)

    async def _read_all(self, fetcher: Fetcher, schedule: Schedule) -> None:
        load = self._load
        came = bytearray(load.records)
        while self.seen < load.records:
            records = await self._next(fetcher)
            now_us = self._now_us()
            for record in records:
                value = record.value or b""
                number = int.from_bytes(value[:NUMBER_BYTES], "big")
                if (
                    len(value) != max(load.record_size, NUMBER_BYTES)
                    or number >= load.records
                    or came[number]
                ):
                    raise LatencyError("a record came that was not sent: somebody else writes, too")
                came[number] = True
                elapsed_us = now_us - schedule.intended_us(number)
                self._on_read(number, elapsed_us * 1000)
                self.seen += 1
                if number >= load.warmup:
                    self.latencies_ns.append(elapsed_us * 1000)
                    self.read.record(elapsed_us)

    async def _next(self, fetcher: Fetcher) -> list[Record]:
        deadline_s = self._monotonic() + POLL_S
        while (left_s := deadline_s - self._monotonic()) > 0:
            fetched = await fetcher.poll(left_s)
            if fetched is not None and fetched.records:
                return fetched.records
        raise fetcher.failure or KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no record came for {POLL_S:.0f} s")

    def _extras(self) -> tuple[bytes | None, tuple[Header, ...]]:
        load = self._load
        random: Random = self._runtime.random
        key = RandomLetters(load.key_size, random).take(0, 1)[0] if load.key_size else None
        headers = tuple(
            (
                RandomLetters(load.header_key_size, random).take(0, 1)[0].decode(),
                None if load.header_size < 0 else RandomLetters(load.header_size, random).take(0, 1)[0],
            )
            for _ in range(load.header_count)
        )
        return key, headers

    def _now_us(self) -> int:
        return int(self._monotonic() * 1_000_000)
