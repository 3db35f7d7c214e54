from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from moldau.client.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Admin, IsolationLevel
from moldau.client.cluster import Cluster, TopicPartition, parse_addresses
from moldau.client.fetch import Fetcher, starting_offsets
from moldau.records.batch import iterate_headers
from moldau.records.builder import build_batch
from moldau.records.compression import Codec
from moldau.records.control import ControlType, EndTxnMarker, build_end_txn_batch
from moldau.records.record import Record
from moldau.sim.runtime import SimRuntime
from moldau.sim.simulation import Simulation
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.fetch import AbortedTransaction, FetchResponse
from tests.client.fake_broker import FakeBroker
from tests.support.producing import Message, produce

Scenario = Callable[[SimRuntime, FakeBroker, Cluster], Awaitable[None]]
GOLDEN = Path(__file__).parent.parent / "data" / "golden"


def simulate(scenario: Scenario) -> None:
    with Simulation(seed=1) as simulation:
        broker = FakeBroker(simulation.host("broker"), host="broker")

        async def main() -> None:
            runtime = simulation.host("client")
            async with Cluster(runtime, parse_addresses("broker")) as cluster:
                await scenario(runtime, broker, cluster)

        simulation.run(main())


async def read_all(
    runtime: SimRuntime, cluster: Cluster, places: list[TopicPartition], isolation: IsolationLevel
) -> list[Record]:
    fetcher = Fetcher(runtime, cluster, isolation=isolation)
    fetcher.assign(await starting_offsets(Admin(cluster), places, EARLIEST_TIMESTAMP, isolation))
    records: list[Record] = []
    ends = await Admin(cluster).list_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
    while any(fetcher.positions[place] < (ends[place].offset or 0) for place in places):
        fetched = await fetcher.poll(1)
        if fetched is not None:
            records += fetched.records
    await fetcher.close()
    return records


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("produce_version", [12, 13])
def test_what_is_produced_is_fetched(codec: Codec, produce_version: int) -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        broker.versions_max[ApiKey.PRODUCE] = produce_version
        broker.versions_max[ApiKey.FETCH] = produce_version
        broker.add_topic("a", 3)
        codec_name = codec.name.lower()
        messages = [
            Message(b"v%d" % number, key=b"k%d" % (number % 7), headers=(("h", None),), timestamp=number)
            for number in range(200)
        ]
        await produce(runtime, cluster, "a", messages, compression_type=codec_name, batch_size=500)
        places = [TopicPartition("a", index) for index in range(3)]
        records = await read_all(runtime, cluster, places, IsolationLevel.READ_UNCOMMITTED)
        assert sorted(records, key=lambda record: record.timestamp) == [
            Record(record.offset, message.timestamp or 0, message.key, message.value, message.headers)
            for record, message in zip(
                sorted(records, key=lambda record: record.timestamp), messages, strict=True
            )
        ]
        for place in places:
            log = broker.topics["a"].logs[place.partition]
            headers = [header for _, header in iterate_headers(log)]
            assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]
            assert {(header.producer_id, header.codec) for header in headers} == {(77, codec)}
            assert len(headers) > 3

    simulate(scenario)


def test_fetching_starts_inside_a_batch() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        broker.add_topic("a")
        await produce(runtime, cluster, "a", [Message(b"%d" % number) for number in range(10)])
        fetcher = Fetcher(runtime, cluster)
        fetcher.assign({TopicPartition("a", 0): 7})
        fetched = await fetcher.poll(1)
        assert fetched is not None
        assert [record.offset for record in fetched.records] == [7, 8, 9]
        assert fetched.high_watermark == 10
        await fetcher.close()

    simulate(scenario)


def test_a_poll_without_news_ends_in_time() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        broker.add_topic("a")
        broker.overrides[ApiKey.FETCH] = lambda _: None  # waits, as a broker may
        fetcher = Fetcher(runtime, cluster)
        fetcher.assign({TopicPartition("a", 0): 0})
        began = runtime.clock.monotonic()
        assert await fetcher.poll(2) is None
        assert runtime.clock.monotonic() - began == pytest.approx(2, abs=0.1)
        await fetcher.close()

    simulate(scenario)


def test_a_damaged_batch_is_told_of_after_what_came_before_it() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        good = build_batch([Record(0, 0, None, b"good")])
        bad = bytearray(build_batch([Record(0, 0, None, b"bad")], base_offset=1))
        bad[-1] ^= 1
        topic = broker.add_topic("a")
        topic.logs[0] += good + bad
        whole = broker._fetch

        def fetch_all(request: object) -> FetchResponse:
            response = whole(request)  # type: ignore[arg-type]
            assert isinstance(response, FetchResponse)
            data = response.responses[0].partitions[0]
            start = len(topic.logs[0]) - len(good + bad) if len(data.records or b"") > len(bad) else len(good)
            data.records = bytes(topic.logs[0][start:])
            return response

        broker.overrides[ApiKey.FETCH] = fetch_all
        cluster.retry_timeout_s = 1
        fetcher = Fetcher(runtime, cluster)
        fetcher.assign({TopicPartition("a", 0): 0})
        fetched = await fetcher.poll(1)
        assert fetched is not None
        assert [record.value for record in fetched.records] == [b"good"]
        with pytest.raises(KafkaError) as caught:
            await fetcher.poll(60)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        await fetcher.close()

    simulate(scenario)


def test_silence_is_told_from_nothing_to_read() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        broker.add_topic("a")
        fetcher = Fetcher(runtime, cluster)
        fetcher.assign({TopicPartition("a", 0): 0})
        began = runtime.clock.monotonic()
        assert await fetcher.poll(2) is None
        assert fetcher.heard_since(began)
        broker.overrides[ApiKey.FETCH] = lambda _: None
        assert await fetcher.poll(2) is None
        silent_since = runtime.clock.monotonic()
        assert await fetcher.poll(2) is None
        assert (fetcher.heard_since(silent_since), fetcher.failure) == (False, None)
        assert await fetcher.poll(30) is None
        assert fetcher.failure is not None and fetcher.failure.code is ErrorCode.REQUEST_TIMED_OUT
        await fetcher.close()

    simulate(scenario)


def transaction(producer_id: int, base_offset: int, *values: bytes) -> bytes:
    return build_batch(
        [Record(0, 0, None, value) for value in values],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=base_offset,
        is_transactional=True,
    )


def marker(producer_id: int, base_offset: int, kind: ControlType) -> bytes:
    return build_end_txn_batch(
        EndTxnMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=0, base_offset=base_offset
    )


def test_read_committed_asks_and_filters() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        topic = broker.add_topic("a")
        topic.logs[0] += transaction(1, 0, b"aborted") + marker(1, 1, ControlType.ABORT)
        broker.aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
        place = TopicPartition("a", 0)
        assert await read_all(runtime, cluster, [place], IsolationLevel.READ_COMMITTED) == []
        (record,) = await read_all(runtime, cluster, [place], IsolationLevel.READ_UNCOMMITTED)
        assert record.value == b"aborted"
        assert [request.isolation_level for request in broker.asked(ApiKey.FETCH)][:1] == [1]

    simulate(scenario)
