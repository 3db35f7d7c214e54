"""The load of `moldau perf txn`: transactions one after the other, each with records over partitions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from moldau.client.producer import AsyncProducer
from moldau.perf.measure.histogram import Histogram
from moldau.perf.measure.payload import Payloads
from moldau.perf.measure.schedule import Schedule
from moldau.runtime.interfaces import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLoad:
    """`per_second`, of transactions, of 0 or less does not hold back. Every `abort_every`th is aborted; 0
    aborts none."""

    topic: str
    transactions: int
    records: int
    partitions: int
    payloads: Payloads
    per_second: float = -1
    abort_every: int = 0
    warmup: int = 0


class TransactionRun:
    """One run of a load. May be looked at while it goes on. Times are in microseconds, without the
    warm-up."""

    def __init__(self, runtime: Runtime, producer: AsyncProducer, load: TransactionLoad) -> None:
        self._monotonic = runtime.clock.monotonic
        self._producer = producer
        self._load = load
        self.done = 0
        self.committed = 0
        self.aborted = 0
        self.elapsed_us = 0
        self.send = Histogram()  # from begin until all records are acknowledged
        self.end = Histogram()  # commit or abort
        self.response = Histogram()  # from the moment it was meant for until its end

    async def run(self) -> None:
        """Raises KafkaError for what ends it."""
        load = self._load
        await self._producer.init_transactions()
        schedule = Schedule(start_us=self._now_us(), per_second=load.per_second)
        steady_us = self._now_us()
        for number in range(load.transactions):
            if number == load.warmup:
                steady_us = self._now_us()
            while not schedule.is_open and (wait_us := schedule.intended_us(number) - self._now_us()) > 0:
                await asyncio.sleep(wait_us / 1_000_000)
            await self._one(schedule, number)
            if number >= load.warmup:
                self.elapsed_us = self._now_us() - steady_us

    async def _one(self, schedule: Schedule, number: int) -> None:
        load, producer = self._load, self._producer
        start_us = self._now_us()
        await producer.begin_transaction()
        share, rest = divmod(load.records, load.partitions)
        values = load.payloads.take(number * load.records, load.records)
        first = 0
        for partition in range(load.partitions):
            end = first + share + (partition < rest)
            if end > first:
                await producer.send_batch(load.topic, values[first:end], partition=partition)
            first = end
        await producer.flush()
        sent_us = self._now_us()
        is_aborted = load.abort_every > 0 and number % load.abort_every == load.abort_every - 1
        if is_aborted:
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
        end_us = self._now_us()
        self.done += 1
        if number < load.warmup:
            return
        self.aborted += is_aborted
        self.committed += not is_aborted
        self.send.record(sent_us - start_us)
        self.end.record(end_us - sent_us)
        self.response.record(end_us - (start_us if schedule.is_open else schedule.intended_us(number)))

    def _now_us(self) -> int:
        return int(self._monotonic() * 1_000_000)
