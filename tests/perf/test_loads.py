"""The loads on virtual time, with a broker in memory that stalls when a test wants it to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from moldau.client.cluster import Cluster, parse_addresses
from moldau.client.producer import AsyncProducer
from moldau.perf.consume import ConsumeLoad, ConsumeRun, FetchingReader, Piece
from moldau.perf.lab import LingerLoad, StepRun
from moldau.perf.latency import LatencyError, LatencyLoad, LatencyRun
from moldau.perf.measure.consuming import Consumed
from moldau.perf.measure.linger import Step
from moldau.perf.measure.payload import Monotonic, RandomLetters
from moldau.perf.produce import ProduceLoad, ProduceRun
from moldau.records.batch import iterate_headers
from moldau.records.record import read_records
from moldau.sim.runtime import SimRuntime
from moldau.sim.simulation import Simulation
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode
from tests.client.fake_broker import FakeBroker
from tests.client.test_async_producer import refusal

Scenario = Callable[[SimRuntime, FakeBroker], Awaitable[None]]


def simulate(scenario: Scenario) -> None:
    with Simulation(seed=1) as simulation:
        broker = FakeBroker(simulation.host("broker"), host="broker")
        broker.add_topic("t")
        simulation.run(scenario(simulation.host("client"), broker))


def producer(runtime: SimRuntime, **options: Any) -> AsyncProducer:
    return AsyncProducer(runtime=runtime, bootstrap_servers="broker", linger_ms=0, **options)


def values(broker: FakeBroker) -> list[bytes | None]:
    log = broker.topics["t"].logs[0]
    return [record.value for at, _ in iterate_headers(log) for record in read_records(log[at:])]


def stall_once(runtime: SimRuntime, broker: FakeBroker, after_s: float) -> None:
    """One request after this time is never answered; its connection ends with the request's time."""
    end_s = runtime.clock.monotonic() + after_s

    def answer(request: Any) -> Any:
        if runtime.clock.monotonic() >= end_s:
            del broker.overrides[ApiKey.PRODUCE]
            return None
        return broker._produce(request)

    broker.overrides[ApiKey.PRODUCE] = answer


def test_records_leave_when_they_are_meant_to() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        lines: list[str] = []
        load = ProduceLoad(topic="t", records=500, per_second=100, payloads=Monotonic(), warmup=100)
        async with producer(runtime) as client:
            run = ProduceRun(runtime, client, load, lines.append)
            began = runtime.clock.monotonic()
            await run.run()
            assert runtime.clock.monotonic() - began == pytest.approx(5, abs=0.2)
        assert values(broker) == [b"%d" % number for number in range(500)]
        assert run.stats.count == 500 and run.steady is not None and run.steady.count == 400
        assert run.service.count == run.response.count == 400
        assert not run.failures

    simulate(scenario)


def test_a_stall_is_seen_by_every_record_that_it_held_up() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        # Room for a few records: the caller is held up, and has nothing to measure meanwhile.
        options = {"buffer_memory": 3000, "batch_size": 500, "request_timeout_ms": 1000}
        load = ProduceLoad(topic="t", records=600, per_second=200, payloads=RandomLetters(200, Random(1)))
        async with producer(runtime, max_in_flight_requests_per_connection=1, **options) as client:
            run = ProduceRun(runtime, client, load, lambda _: None)
            stall_once(runtime, broker, 1)
            await run.run()
        assert len(values(broker)) == 600
        # A second of a pace of 200 a second.
        assert run.response.percentile(90) > 400_000 and run.response.max > 1_000_000
        assert run.service.percentile(90) < 100_000 and run.service.max > 1_000_000
        assert run.service.count == run.response.count == 600

    simulate(scenario)


def test_what_fails_is_counted_and_not_measured() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        broker.overrides[ApiKey.PRODUCE] = lambda _: None
        load = ProduceLoad(topic="t", records=5, per_second=-1, payloads=Monotonic())
        async with producer(runtime, request_timeout_ms=1000, delivery_timeout_ms=2000) as client:
            run = ProduceRun(runtime, client, load, lambda _: None)
            await run.run()
        assert sum(run.failures.values()) == 5
        assert run.stats.count == run.service.count == 0

    simulate(scenario)


def test_columns_tell_of_their_records_when_these_are_known() -> None:
    """Also of those whose batch was refused as too large, and split."""

    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        def answer(request: Any) -> Any:
            (data,) = request.topic_data[0].partition_data
            if len(data.records or b"") > 800:
                return refusal(request, ErrorCode.MESSAGE_TOO_LARGE)
            return broker._produce(request)

        broker.overrides[ApiKey.PRODUCE] = answer
        told: list[int] = []
        async with producer(runtime) as client:
            deliveries = await client.send_batch("t", [b"%3d" % number + bytes(97) for number in range(40)])
            deliveries.on_done(lambda numbers, error: told.extend(numbers) if error is None else None)
            assert told == []
            await client.flush()
            await asyncio.sleep(0)
            assert sorted(told) == list(range(40))
            deliveries.on_done(lambda numbers, error: told.extend(numbers))
            await asyncio.sleep(0.1)
            assert len(told) == 80

    simulate(scenario)


def test_a_topic_is_read_to_the_number_of_records() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        async with producer(runtime) as client:
            await client.send_batch("t", [b"12345"] * 300)
        async with Cluster(runtime, parse_addresses("broker")) as cluster:
            reader = FetchingReader(runtime, cluster, ["t"])
            run = ConsumeRun(runtime, reader, ConsumeLoad(records=300), lambda *_: None)
            whole = await run.run()
            await reader.close()
        assert (whole.records, whole.bytes, run.timed_out) == (300, 1500, False)
        assert reader.metrics()["records-consumed-total"] == 300
        assert reader.metrics()["records-lag-max"] >= 0

    simulate(scenario)


class SlowReader:
    """Takes a second to start; then there is a record every second, five times."""

    def __init__(self) -> None:
        self.left = 5

    async def start(self) -> None:
        await asyncio.sleep(1)

    async def poll(self, timeout_s: float) -> Piece | None:
        if not self.left:
            await asyncio.sleep(timeout_s)
            return None
        await asyncio.sleep(1)
        self.left -= 1
        return Piece(1, 100)

    async def close(self) -> None:
        pass

    def metrics(self) -> dict[str, float]:
        return {}


def test_intervals_follow_each_other_and_silence_ends_the_run() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        parts: list[Consumed] = []
        load = ConsumeLoad(records=6, timeout_ms=3000, interval_ms=2000)
        run = ConsumeRun(runtime, SlowReader(), load, lambda _, part: parts.append(part))
        whole = await run.run()
        assert run.timed_out and whole.records == 5
        assert whole.elapsed_ms == pytest.approx(9100, abs=100)
        assert [(part.records, part.rebalance_ms) for part in parts] == [(1, 1000), (2, 0), (2, 0)]

    simulate(scenario)


@pytest.mark.parametrize("per_second", [-1, 50])
def test_records_are_timed_until_they_are_read(per_second: float) -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        told: list[int] = []
        load = LatencyLoad(
            topic="t",
            records=30,
            record_size=20,
            per_second=per_second,
            warmup=5,
            key_size=3,
            header_count=2,
            header_key_size=4,
            header_size=-1,
        )
        async with Cluster(runtime, parse_addresses("broker")) as cluster, producer(runtime) as client:
            run = LatencyRun(runtime, cluster, client, load, lambda number, _: told.append(number))
            await run.run()
        assert told == list(range(30))
        assert run.read.count == run.acknowledged.count == len(run.latencies_ns) == 25
        assert run.read.min >= run.acknowledged.min > 0

    simulate(scenario)


@pytest.mark.parametrize("per_second", [-1, 50])
def test_records_of_others_end_the_measurement(per_second: float) -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        load = LatencyLoad(topic="t", records=10, record_size=20, per_second=per_second)
        async with Cluster(runtime, parse_addresses("broker")) as cluster, producer(runtime) as client:
            run = LatencyRun(runtime, cluster, client, load, lambda *_: None)
            served = broker._produce

            def answer(request: Any) -> Any:
                served(request)
                return served(request)

            broker.overrides[ApiKey.PRODUCE] = answer
            await client.send_batch("t", [b"x"] * 2)
            with pytest.raises(LatencyError):
                await run.run()

    simulate(scenario)


def test_the_experiment_ends_batches_by_time_or_by_size() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        load = LingerLoad(topic="t", records=300, record_size=1000, per_second=200)
        options = {"bootstrap.servers": "broker"}
        steps = [(0, 16_384), (100, 16_384), (100, 300_000), (1500, 300_000)]
        runs = [
            StepRun(runtime, options, load, Step(linger_ms=linger, batch_size=size)) for linger, size in steps
        ]
        outcomes = await asyncio.gather(*(run.run() for run in runs))
        records = [outcome.metrics["records-per-request-avg"] for outcome in outcomes]
        # One each 5 ms; 16 fit into 16384 bytes, 297 into 300000.
        assert records[0] == pytest.approx(1, abs=0.1)
        assert records[1] == pytest.approx(300 / 19, abs=0.1)
        assert records[2] == pytest.approx(20, abs=1.5)
        assert records[3] == 150
        assert [run.done for run in runs] == [300] * 4
        queued = [outcome.metrics["record-queue-time-avg"] for outcome in outcomes]
        assert queued == sorted(queued) and queued[0] < 5

    simulate(scenario)
