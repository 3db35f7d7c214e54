"""The load of `moldau perf produce`: records at a pace, and how long each of them took.

Two times are kept of a record, in microseconds. The service time is what the client and the cluster took,
from the call of `send` to the acknowledgement. The response time starts when the record was meant to be
sent: if one was held up, those behind it were, too, and their times say so. Neither has the warm-up in it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from moldau.client.producer import AsyncProducer
from moldau.perf.measure.histogram import Histogram
from moldau.perf.measure.payload import Payloads
from moldau.perf.measure.producing import ProduceStats
from moldau.perf.measure.schedule import Schedule
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import KafkaError

# Records that go into one call share the time of it; at a pace these are few, or a call that had to wait for
# room would make what it has at the end look slow.
_TOGETHER_MAX = 200
_AT_A_PACE_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceLoad:
    """`per_second` of 0 or less does not hold back. With `transaction_ms` records are in transactions,
    which end when they have lasted for that long."""

    topic: str
    records: int
    per_second: float
    payloads: Payloads
    warmup: int = 0
    interval_ms: int = 5000
    transaction_ms: int | None = None


class ProduceRun:
    """One run of a load. May be looked at while it goes on."""

    def __init__(
        self, runtime: Runtime, producer: AsyncProducer, load: ProduceLoad, tell: Callable[[str], None]
    ) -> None:
        self._monotonic = runtime.clock.monotonic
        self._producer = producer
        self._load = load
        self._tell = tell
        self.service = Histogram()
        self.response = Histogram()
        self.failures: Counter[str] = Counter()  # by code,
        self.reasons: dict[str, str] = {}  # and the first of each in words
        self.stats = ProduceStats(self.now_ms(), load.interval_ms)
        self.steady: ProduceStats | None = None

    def now_us(self) -> int:
        return int(self._monotonic() * 1_000_000)

    def now_ms(self) -> int:
        return self.now_us() // 1000

    async def run(self) -> None:
        """Until every record has its outcome. Raises KafkaError for what keeps records from being taken."""
        load = self._load
        schedule = Schedule(start_us=self.now_us(), per_second=load.per_second)
        together = _TOGETHER_MAX if schedule.is_open else _AT_A_PACE_MAX
        sent = 0
        transaction_start_ms: int | None = None
        while sent < load.records:
            now_us = self.now_us()
            end = min(schedule.due(now_us, load.records), sent + together)
            if end <= sent:
                await asyncio.sleep((schedule.intended_us(sent) - now_us) / 1_000_000)
                continue
            if sent < load.warmup:
                end = min(end, load.warmup)
            elif load.warmup and self.steady is None:
                self.stats.is_silent = True
                self.steady = ProduceStats(now_us // 1000, load.interval_ms, is_steady=True)
            if load.transaction_ms is not None and transaction_start_ms is None:
                await self._producer.begin_transaction()
                transaction_start_ms = self.now_ms()
            await self._send(schedule, sent, end)
            sent = end
            if (
                load.transaction_ms is not None
                and transaction_start_ms is not None
                and self.now_ms() - transaction_start_ms >= load.transaction_ms
            ):
                await self._producer.commit_transaction()
                transaction_start_ms = None
        if transaction_start_ms is not None:
            await self._producer.commit_transaction()
        await self._producer.flush()
        await asyncio.sleep(0)  # what the flush has seen is told in the loop's next turn

    async def _send(self, schedule: Schedule, first: int, end: int) -> None:
        values = self._load.payloads.take(first, end - first)
        started_us = self.now_us()
        deliveries = await self._producer.send_batch(self._load.topic, values)
        sizes = [len(value) for value in values]
        deliveries.on_done(partial(self._on_done, schedule, first, started_us, sizes, self.steady))

    def _on_done(
        self,
        schedule: Schedule,
        first: int,
        started_us: int,
        sizes: Sequence[int],
        steady: ProduceStats | None,
        numbers: Sequence[int],
        error: KafkaError | None,
    ) -> None:
        count = len(numbers)
        if error is not None:
            self.failures[error.code.name] += count
            self.reasons.setdefault(error.code.name, str(error))
            return
        now_us = self.now_us()
        service_us = now_us - started_us
        size = sum(sizes[number] for number in numbers)
        if self._load.warmup == 0 or steady is not None:
            self.service.record(service_us, count)
            if schedule.is_open:
                self.response.record(service_us, count)
            else:
                for number in numbers:
                    self.response.record(now_us - schedule.intended_us(first + number))
        for stats in (self.stats, steady):
            if stats is not None:
                for line in stats.record(now_us // 1000, service_us // 1000, size, count):
                    self._tell(line)
