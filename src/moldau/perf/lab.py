"""Runs the steps of the experiment on batching (`measure/linger.py`), each with a producer of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.client.producer import AsyncProducer
from moldau.perf.measure.linger import METRICS, MORE, Outcome, Step
from moldau.perf.measure.payload import RandomLetters
from moldau.perf.produce import ProduceLoad, ProduceRun
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import ErrorCode, KafkaError

_TOLD = (*METRICS, *MORE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LingerLoad:
    topic: str
    records: int
    record_size: int
    per_second: float


class StepRun:
    """One step. May be looked at while it goes on."""

    def __init__(self, runtime: Runtime, options: Mapping[str, str], load: LingerLoad, step: Step) -> None:
        self.step = step
        self.records = load.records
        self._producer = AsyncProducer(
            {**options, "linger.ms": step.linger_ms, "batch.size": step.batch_size}, runtime=runtime
        )
        produce_load = ProduceLoad(
            topic=load.topic,
            records=load.records,
            per_second=load.per_second,
            payloads=RandomLetters(load.record_size, runtime.random),
        )
        self._run = ProduceRun(runtime, self._producer, produce_load, lambda _: None)

    @property
    def done(self) -> int:
        return self._run.stats.count

    async def run(self) -> Outcome:
        """Raises KafkaError if a record was not written: numbers of a part of them would mislead."""
        async with self._producer:
            await self._run.run()
            metrics = self._producer.metrics()
        for reason in self._run.reasons.values():
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{self.step.name}: {reason}")
        response = self._run.response
        return Outcome(
            step=self.step,
            metrics={name: metrics[name] for name in _TOLD},
            response_p50_ms=response.percentile(50) / 1000,
            response_p99_ms=response.percentile(99) / 1000,
        )
