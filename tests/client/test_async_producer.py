"""The producer as programs use it, on virtual time, with a broker in memory that answers what a test
wants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moldau.client.cluster import Cluster, parse_addresses
from moldau.client.errors import (
    BlockedTooLongError,
    ClosedError,
    DeliveryTimeoutError,
    InvalidConfigurationError,
    RecordError,
    RefreshRetriableError,
)
from moldau.client.producer import AsyncProducer, ProducerRecord
from moldau.config.option import ConfigError
from moldau.records.batch import iterate_headers
from moldau.records.record import Record, read_records
from moldau.sim.runtime import SimRuntime
from moldau.sim.simulation import Simulation
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from moldau.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.fake_broker import FakeBroker

Scenario = Callable[[Callable[..., AsyncProducer], FakeBroker], Awaitable[None]]


def simulate(scenario: Scenario) -> None:
    """`make(**options)` gives producers of one client, which are closed at the end."""
    with Simulation(seed=1) as simulation:
        broker = FakeBroker(simulation.host("broker"), host="broker")
        runtime: SimRuntime = simulation.host("client")

        async def main() -> None:
            made: list[AsyncProducer] = []

            def make(**options: Any) -> AsyncProducer:
                producer = AsyncProducer(runtime=runtime, bootstrap_servers="broker", **options)
                made.append(producer)
                return producer

            await scenario(make, broker)
            for producer in made:
                await producer.close(timeout_s=0)

        simulation.run(main())


def written(broker: FakeBroker, topic: str, partition: int = 0) -> list[Record]:
    log = broker.topics[topic].logs[partition]
    return [record for position, _ in iterate_headers(log) for record in read_records(log[position:])]


def refusal(request: ProduceRequest, code: ErrorCode, message: str | None = None) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=data.index, error_code=code, error_message=message, base_offset=-1
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def test_a_record_is_written_and_tells_where() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a", 3)
        async with make() as producer:
            delivery = await producer.send(
                "a", b"value", key=b"key", partition=2, headers=[("h", b"1")], timestamp_ms=5
            )
            assert not delivery.done()
            with pytest.raises(asyncio.InvalidStateError):
                delivery.result()
            assert await delivery == ("a", 2, 0, 5)
            assert delivery.done() and delivery.exception() is None
            assert await delivery == delivery.result()  # as often as one likes
        assert written(broker, "a", 2) == [Record(0, 5, b"key", b"value", (("h", b"1"),))]

    simulate(scenario)


def test_records_linger_and_leave_together() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a")
        async with make(linger_ms=1000) as producer:
            await producer.send_and_wait("a", b"first")
            began = asyncio.get_running_loop().time()
            deliveries = [await producer.send("a", b"%d" % number) for number in range(10)]
            await asyncio.gather(*(asyncio.ensure_future(_wait(delivery)) for delivery in deliveries))
            assert asyncio.get_running_loop().time() - began == pytest.approx(1, abs=0.1)
            headers = [header.record_count for _, header in iterate_headers(broker.topics["a"].logs[0])]
            assert headers == [1, 10]
            await producer.send("a", b"now")
            began = asyncio.get_running_loop().time()
            await producer.flush()
            assert asyncio.get_running_loop().time() - began < 0.5

    simulate(scenario)


async def _wait(delivery: Any) -> Any:
    return await delivery


def test_full_batches_do_not_wait() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a")
        async with make(linger_ms=60_000, batch_size=1000) as producer:
            deliveries = [await producer.send("a", bytes(100)) for _ in range(20)]
            await deliveries[0]
            assert not deliveries[-1].done()
        assert deliveries[-1].done()  # closing sends what is left

    simulate(scenario)


def test_keyless_records_fill_batches_and_move_on() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a", 8)
        async with make(batch_size=10_000, linger_ms=100) as producer:
            for _ in range(1000):
                await producer.send("a", bytes(100))
        counts = [
            header.record_count for log in broker.topics["a"].logs for _, header in iterate_headers(log)
        ]
        assert sum(counts) == 1000
        assert len(counts) <= 13
        assert sum(bool(log) for log in broker.topics["a"].logs) > 2

    simulate(scenario)


def test_a_batch_that_is_sent_again_is_the_same_batch() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a")
        codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS]

        def answer(request: ProduceRequest) -> ProduceResponse:
            if not codes:
                del broker.overrides[ApiKey.PRODUCE]
                return refusal(request, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
            return refusal(request, codes.pop())

        broker.overrides[ApiKey.PRODUCE] = answer
        async with make() as producer:
            deliveries = await producer.send_batch("a", [b"x", b"y"])
            assert await deliveries == [("a", 0, -1, 2)]
            sent = [bytes(r.topic_data[0].partition_data[0].records) for r in broker.asked(ApiKey.PRODUCE)]
            assert len(sent) == 3
            assert len(set(sent)) == 1
            await producer.send_and_wait("a", b"z")
        (header,) = [header for _, header in iterate_headers(broker.topics["a"].logs[0])]
        assert header.base_sequence == 2

    simulate(scenario)


def test_a_batch_that_is_too_large_is_split() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a")

        def answer(request: ProduceRequest) -> Any:
            (data,) = request.topic_data[0].partition_data
            if len(data.records or b"") > 800:
                return refusal(request, ErrorCode.MESSAGE_TOO_LARGE)
            return broker._produce(request)

        broker.overrides[ApiKey.PRODUCE] = answer
        told: list[int] = []
        async with make(linger_ms=10) as producer:
            deliveries = [
                await producer.send(
                    "a", b"%3d" % number + bytes(97), on_delivery=lambda where, _: told.append(where.offset)
                )
                for number in range(40)
            ]
            # Brokers take sequences in their order only; this one does not look.
            assert [(await delivery).offset for delivery in deliveries] == list(range(40))
        assert [int((record.value or b"")[:3]) for record in written(broker, "a")] == list(range(40))
        sequences = [header.base_sequence for _, header in iterate_headers(broker.topics["a"].logs[0])]
        assert sequences == sorted(sequences) and len(sequences) > 4
        assert sorted(told) == list(range(40))

    simulate(scenario)


def test_what_fails_for_good_is_told_with_the_brokers_words() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a")
        broker.overrides[ApiKey.PRODUCE] = lambda request: refusal(
            request, ErrorCode.MESSAGE_TOO_LARGE, "no room"
        )
        async with make() as producer:
            delivery = await producer.send("a", b"x")
            with pytest.raises(RecordError, match="MESSAGE_TOO_LARGE: partition a-0: no room"):
                await delivery
            assert isinstance(delivery.exception(), RecordError)
            with pytest.raises(RefreshRetriableError, match="has no partition 4"):
                await producer.send("a", b"x", partition=4)
        assert len(broker.asked(ApiKey.PRODUCE)) == 1

    simulate(scenario)


def test_a_partition_that_is_new_is_found() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        topic = broker.add_topic("a")
        async with make() as producer:
            await producer.send_and_wait("a", b"x")
            topic.logs.append(bytearray())
            assert (await producer.send_and_wait("a", b"y", partition=1)).partition == 1

    simulate(scenario)


@pytest.mark.parametrize("acks", ["0", "1"])
def test_fewer_acks_need_no_producer_id(acks: str) -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        async with make(acks=acks) as producer:
            assert (await producer.send_and_wait("new", b"x")).offset == (0 if acks == "1" else -1)
            await asyncio.sleep(1)
        assert broker.asked(ApiKey.INIT_PRODUCER_ID) == []
        assert broker.topics["new"].end_offset(0) == 1

    simulate(scenario)


def test_a_broker_that_never_answers_costs_the_delivery_timeout() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a")
        broker.overrides[ApiKey.PRODUCE] = lambda _: None
        loop = asyncio.get_running_loop()
        async with make(request_timeout_ms=3000, delivery_timeout_ms=10_000) as producer:
            began = loop.time()
            with pytest.raises(DeliveryTimeoutError):
                await producer.send_and_wait("a", b"x")
            assert 9.9 < loop.time() - began < 10.5
            assert len(broker.asked(ApiKey.PRODUCE)) > 1
            assert producer.metrics()["buffer-available-bytes"] == 32 << 20

    simulate(scenario)


def test_a_full_buffer_makes_callers_wait_for_a_time() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a")
        loop = asyncio.get_running_loop()
        async with make(buffer_memory=10_000, batch_size=1000, max_block_ms=2000) as producer:
            await producer.send_and_wait("a", b"x")
            broker.overrides[ApiKey.PRODUCE] = lambda _: None
            for _ in range(8):
                await producer.send("a", bytes(1200))
            began = loop.time()
            with pytest.raises(BlockedTooLongError, match=r"buffer\.memory"):
                await producer.send("a", bytes(1200))
            assert loop.time() - began == pytest.approx(2, abs=0.1)
            assert producer.metrics()["buffer-exhausted-total"] == 1
            assert 0 < producer.metrics()["bufferpool-wait-ratio"] <= 1
            with pytest.raises(RecordError, match=r"buffer\.memory"):
                await producer.send("a", bytes(20_000))
            waiting = asyncio.create_task(producer.send("a", bytes(1200)))
            await asyncio.sleep(0.1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert producer.metrics()["waiting-threads"] == 0
            del broker.overrides[ApiKey.PRODUCE]
            for stream in broker.streams:
                stream.close()
            await producer.flush()
            assert producer.metrics()["buffer-available-bytes"] == 10_000

    simulate(scenario)


def test_callers_that_wait_for_room_get_it_in_their_order() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a")
        async with make(buffer_memory=3000, batch_size=500, linger_ms=1) as producer:
            sends = [
                asyncio.create_task(producer.send("a", b"%2d" % number + bytes(600))) for number in range(30)
            ]
            await asyncio.gather(*sends)
            await producer.flush()
        assert [int((record.value or b"")[:2]) for record in written(broker, "a")] == list(range(30))

    simulate(scenario)


def test_topics_that_cannot_be_written_to() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        def answer(code: ErrorCode) -> Callable[[Any], MetadataResponse]:
            def metadata(request: Any) -> MetadataResponse:
                response = broker._metadata(request)
                assert isinstance(response, MetadataResponse)
                response.topics = [
                    MetadataResponseTopic(name=topic.name, error_code=code) for topic in request.topics or []
                ]
                return response

            return metadata

        async with make(max_block_ms=3000) as producer:
            broker.overrides[ApiKey.METADATA] = answer(ErrorCode.INVALID_TOPIC_EXCEPTION)
            with pytest.raises(InvalidConfigurationError, match="INVALID_TOPIC"):
                await producer.send("a b", b"x")
            broker.overrides[ApiKey.METADATA] = answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            with pytest.raises(BlockedTooLongError, match="nothing is known of topic 'a'"):
                await producer.send("a", b"x")

    simulate(scenario)


def test_a_cluster_that_is_not_there() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.close()
        async with make(max_block_ms=3000) as producer:
            with pytest.raises(BlockedTooLongError):
                await producer.send("a", b"x")

    simulate(scenario)


def test_a_lost_connection_loses_no_record() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a", 2)
        async with make(linger_ms=0) as producer:
            for number in range(200):
                await producer.send("a", b"%03d" % number, partition=number % 2)
                if number % 40 == 20:
                    await asyncio.sleep(0.003)
                    for stream in broker.streams:
                        stream.close()
            await producer.flush()
            assert producer.metrics()["record-error-total"] == 0
        # The broker in memory does not look at sequences: some records may be there twice.
        for index in range(2):
            values = [record.value for record in written(broker, "a", index)]
            assert set(values) == {b"%03d" % number for number in range(200) if number % 2 == index}

    simulate(scenario)


def test_columns_are_what_records_are() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("one", 4)
        broker.add_topic("many", 4)
        values = [b"v%d" % number if number % 5 else None for number in range(300)]
        keys = [b"k%d" % (number % 11) for number in range(300)]
        headers = [(("h", b"%d" % (number % 3)),) if number % 2 else () for number in range(300)]
        times = [1000 + number // 10 for number in range(300)]
        async with make(batch_size=600) as producer:
            for value, key, header, time in zip(values, keys, headers, times, strict=True):
                await producer.send("one", value, key=key, headers=header, timestamp_ms=time)
            deliveries = await producer.send_batch(
                "many", values, keys=keys, headers=headers, timestamps_ms=times
            )
            runs = await deliveries
            assert sum(run.record_count for run in runs) == len(deliveries) == 300
            assert deliveries.done()
            for number in (0, 17, 299):
                place = deliveries[number].result()
                record = written(broker, "many", place.partition)[place.offset]
                assert (record.key, record.value) == (keys[number], values[number])
            assert len(deliveries[3:7]) == 4
            await producer.flush()
        for index in range(4):
            assert written(broker, "one", index) == written(broker, "many", index)

    simulate(scenario)


def test_columns_wait_for_room_and_go_where_they_are_told() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a", 3)
        async with make(buffer_memory=5000, batch_size=1000, partitioner="round_robin") as producer:
            await producer.send_batch("a", [bytes(100)] * 300)
            await producer.flush()
            assert [broker.topics["a"].end_offset(index) for index in range(3)] == [100, 100, 100]
            await (await producer.send_batch("a", [b"x"] * 10, partition=1))
            assert broker.topics["a"].end_offset(1) == 110
            assert await (await producer.send_batch("a", [])) == []
            with pytest.raises(ValueError, match="columns of 2 and 1"):
                await producer.send_batch("a", [b"x", b"y"], keys=[b"k"])
            with pytest.raises(RecordError):
                await producer.send_batch("a", [b"x", bytes(2 << 20)])

    simulate(scenario)


def test_keyless_columns_move_on_when_a_batch_is_full() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a", 4)
        async with make(batch_size=1000) as producer:
            await producer.send_batch("a", [bytes(100)] * 400)
        ends = [broker.topics["a"].end_offset(index) for index in range(4)]
        assert sum(ends) == 400 and min(ends) > 0

    simulate(scenario)


def test_serializers_interceptors_and_partitioners() -> None:
    class Stamp:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(headers=(*record.headers, ("stamp", b"1")))

        def on_acknowledgement(self, metadata: Any, error: KafkaError | None) -> None:
            self.seen.append((metadata, error))

    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a", 3)
        stamp = Stamp()
        async with make(
            key_serializer="str",
            value_serializer="json",
            interceptors=[stamp],
            partitioner=lambda topic, key, count: count - 1,
        ) as producer:
            await producer.send("a", {"n": 1}, key="k")
            await producer.send_batch("a", [[2], None], keys=["l", None])
            await producer.flush()
            await asyncio.sleep(0)
            assert [metadata.offset for metadata, _ in stamp.seen] == [0, 1, 2]
        assert [record[2:] for record in written(broker, "a", 2)] == [
            (b"k", b'{"n":1}', (("stamp", b"1"),)),
            (b"l", b"[2]", (("stamp", b"1"),)),
            (None, None, (("stamp", b"1"),)),
        ]
        async with make(partitioner=lambda *_: 3) as producer:
            with pytest.raises(ValueError, match="chose partition 3"):
                await producer.send("a", b"x")
        async with make() as producer:
            with pytest.raises(TypeError, match="str, not bytes"):
                await producer.send("a", "text")
            changing = bytearray(b"before")
            await producer.send("a", changing, partition=0)
            changing[:] = b"after!"
            await producer.flush()
        assert [record.value for record in written(broker, "a", 0)] == [b"before"]

    simulate(scenario)


def test_a_closed_producer_takes_nothing_and_leaves_nobody_waiting() -> None:
    async def scenario(make: Callable[..., AsyncProducer], broker: FakeBroker) -> None:
        broker.add_topic("a")
        producer = make()
        with pytest.raises(ClosedError):
            await producer.send("a", b"x")
        async with producer:
            await producer.send_and_wait("a", b"x")
            broker.overrides[ApiKey.PRODUCE] = lambda _: None
            delivery = await producer.send("a", b"y")
            await producer.close(timeout_s=1)
            with pytest.raises(ClosedError):
                await delivery
            with pytest.raises(ClosedError):
                await producer.send("a", b"z")
            await producer.close()

    simulate(scenario)


def test_a_cluster_may_be_shared() -> None:
    with Simulation(seed=1) as simulation:
        broker = FakeBroker(simulation.host("broker"), host="broker")

        async def main() -> None:
            runtime = simulation.host("client")
            async with Cluster(runtime, parse_addresses("broker")) as cluster:
                for _ in range(2):
                    async with AsyncProducer(runtime=runtime, cluster=cluster) as producer:
                        await producer.send_and_wait("a", b"x")
                await cluster.refresh(["a"])
            assert broker.topics["a"].end_offset(0) == 2

        simulation.run(main())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"linger": 5}, "Unknown configuration linger"),
        ({"linger_msec": 5}, "did you mean linger.ms"),
        ({"linger_ms": -1}, "at least 0"),
        ({"linger_ms": "x"}, "linger.ms"),
        ({"acks": "2"}, "acks"),
        ({"acks": "1", "enable_idempotence": True}, "acks must be all"),
        ({"acks": "1", "transactional_id": "t"}, "acks must be all"),
        ({"transactional_id": ""}, "transactional.id"),
        ({"transactional_id": "t", "enable_idempotence": False}, "enable.idempotence"),
        ({"max_in_flight_requests_per_connection": 6, "enable_idempotence": True}, "at most 5"),
        ({"delivery_timeout_ms": 1000}, "delivery.timeout.ms should be"),
        ({"compression_type": "lz5"}, "compression.type"),
        ({"compression_type": "gzip", "compression_gzip_level": 10}, "compression.gzip.level"),
        ({"security_protocol": "SASL_SSL"}, "not supported by this client yet"),
        ({"transaction_two_phase_commit_enable": True}, "needs a transactional.id"),
    ],
)
def test_options_are_refused_by_name(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        AsyncProducer(bootstrap_servers="broker", **options)


def test_options_are_kafkas_names_or_keywords_and_texts_or_values() -> None:
    texts = {"bootstrap.servers": "a:1,b:2", "linger.ms": "7", "acks": "1", "enable.idempotence": "false"}
    from_texts = AsyncProducer(texts).config
    from_values = AsyncProducer(
        bootstrap_servers=["a:1", "b:2"], linger_ms=7, acks=1, enable_idempotence=False
    ).config
    assert from_texts == from_values
    assert from_values.linger_ms == 7 and from_values.required_acks == 1
    with pytest.raises(ConfigError, match="given twice"):
        AsyncProducer(texts, linger_ms=8)
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        AsyncProducer()
    with pytest.raises(ConfigError, match="not host:port"):
        AsyncProducer(bootstrap_servers="a:b")


def test_idempotence_gives_way_when_nobody_asked_for_it() -> None:
    assert AsyncProducer(bootstrap_servers="a").config.enable_idempotence
    assert not AsyncProducer(bootstrap_servers="a", acks="1").config.enable_idempotence
