"""The node in memory as users meet it, and what the front does to requests, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import moldau.testing
from moldau.client.cluster import TopicPartition
from moldau.client.connection import Connection
from moldau.client.fetch import Fetcher
from moldau.testing.world import Simulated, simulated
from moldau.wire.api import ApiKey
from moldau.wire.codec import encode
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.support.producing import Message, Writer, produce

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def run(scenario: Callable[[Simulated], Awaitable[object]], seed: int = 0) -> object:
    async def main(world: Simulated) -> object:
        return await scenario(world)

    with simulated(seed) as world:
        return world.run(main(world))


def test_the_same_seed_is_the_same_history() -> None:
    async def scenario(world: Simulated) -> object:
        orders = await world.topic("orders", partitions=4)
        for number in range(20):
            await world.produce(orders, str(number), key=str(number % 7))
        world.kill()
        await world.restart()
        world.fail_next("Produce", error="REQUEST_TIMED_OUT", times=2)
        await world.produce(orders, "last")
        return await world.collect(orders, 21), world.now

    histories = [run(scenario, seed) for seed in (7, 7, 8)]
    assert histories[0] == histories[1] != histories[2]


def test_time_costs_nothing() -> None:
    async def scenario(world: Simulated) -> None:
        orders = await world.topic("orders", retention_ms=600_000)
        await world.produce(orders, "old")
        await asyncio.sleep(3600)
        assert await world.collect(orders) == []  # retention had its way

    run(scenario)


def test_a_failed_produce_writes_nothing_and_is_tried_again() -> None:
    async def scenario(world: Simulated) -> None:
        orders, other = await world.topic("orders"), await world.topic("other")
        fault = world.fail_next("Produce", error=NOT_LEADER, times=2, topic=orders)
        async with world.cluster() as cluster:
            writer = Writer(world.client, cluster)
            await writer.produce(other, [Message(b"not meant")])
            assert fault.hits == 0
            await writer.produce(orders, [Message(b"once")])
        assert fault.hits == 2
        assert [record.value for record in await world.collect(orders)] == [b"once"]

    run(scenario)


def test_a_lost_answer_is_no_lost_record() -> None:
    async def scenario(world: Simulated) -> None:
        orders = await world.topic("orders")
        fault = world.lose_next("Produce")
        async with world.cluster() as cluster:
            # Idempotent: what is sent again is known.
            await produce(world.client, cluster, orders, [Message(b"once")])
        assert fault.hits == 1
        assert [record.value for record in await world.collect(orders)] == [b"once"]

    run(scenario)


def test_a_fetch_that_waits_loses_its_answer_when_it_comes() -> None:
    async def scenario(world: Simulated) -> None:
        orders = await world.topic("orders")
        fault = world.lose_next("Fetch")
        async with world.cluster(client_id="reader") as cluster:
            fetcher = Fetcher(world.client, cluster, wait_ms_max=10_000)
            fetcher.assign({TopicPartition(orders, 0): 0})
            waiting = asyncio.ensure_future(fetcher.poll(60))
            await asyncio.sleep(1)
            assert fault.hits == 1 and not waiting.done()
            await world.produce(orders, "hello")
            fetched = await waiting
            assert fetched is not None and [record.value for record in fetched.records] == [b"hello"]
            await fetcher.close()

    run(scenario)


def test_a_delay_holds_requests_back() -> None:
    async def scenario(world: Simulated) -> None:
        orders = await world.topic("orders")
        async with world.cluster() as cluster:
            writer = Writer(world.client, cluster)
            await writer.produce(orders, [Message(b"at once")])
            delay = world.delay("Produce", seconds=5)
            before = world.now
            await writer.produce(orders, [Message(b"late")])
            assert 5 <= world.now - before < 6
            delay.clear()
            await writer.produce(orders, [Message(b"at once")])
            assert world.now - before < 7
            # Who gives up waiting has not called it off.
            world.delay("Produce", seconds=5, times=1)
        async with world.cluster(request_timeout_s=1, retry_timeout_s=1) as impatient:
            with pytest.raises(KafkaError):
                await produce(world.client, impatient, orders, [Message(b"too late")], acks=1)
        await asyncio.sleep(10)
        values = [record.text for record in await world.collect(orders)]
        assert values[:3] == ["at once", "late", "at once"] and "too late" in values

    run(scenario)


async def ask_metadata(connection: Connection, name: str) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    return await connection.request(request, MetadataResponse)


def test_metadata_with_an_error_still_names_the_brokers() -> None:
    async def scenario(world: Simulated) -> None:
        orders = await world.topic("orders")
        connection = await world.connect()
        world.fail_next("Metadata", error="LEADER_NOT_AVAILABLE")
        response = await ask_metadata(connection, orders)
        assert [topic.error_code for topic in response.topics] == [ErrorCode.LEADER_NOT_AVAILABLE]
        assert [broker.host for broker in response.brokers] == ["node"]
        assert [topic.error_code for topic in (await ask_metadata(connection, orders)).topics] == [0]
        world.fail_next("Metadata", error="UNKNOWN_SERVER_ERROR", whole=True)
        assert (await ask_metadata(connection, orders)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        connection.close()

    run(scenario)


def test_a_session_is_made_to_say_again_what_it_is_about() -> None:
    async def scenario(world: Simulated) -> None:
        orders = await world.topic("orders")
        connection = await world.connect()
        topic = FetchTopic(
            topic=orders, partitions=[FetchPartition(fetch_offset=0, partition_max_bytes=1000)]
        )

        async def fetch(session: int, epoch: int, topics: list[FetchTopic]) -> FetchResponse:
            request = FetchRequest(
                max_wait_ms=10, max_bytes=1000, session_id=session, session_epoch=epoch, topics=topics
            )
            return await connection.request(request, FetchResponse, version=12)

        session = (await fetch(0, 0, [topic])).session_id
        assert session and (await fetch(session, 1, [])).error_code == 0
        fault = world.fail_next("Fetch", error=NOT_LEADER, topic=orders)
        assert (await fetch(session, 2, [])).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert fault.hits == 0
        failed = (await fetch(0, 0, [topic])).responses[0].partitions[0]
        assert (failed.error_code, failed.high_watermark, failed.records) == (NOT_LEADER, -1, b"")
        assert fault.hits == 1
        assert (await fetch(0, 0, [topic])).responses[0].partitions[0].error_code == 0
        connection.close()

    run(scenario)


def test_a_produce_without_acks_can_only_be_told_by_the_end() -> None:
    async def scenario(world: Simulated) -> None:
        await world.topic("orders")
        connection = await world.connect()
        world.fail_next("Produce", error=NOT_LEADER)
        version = connection.version_of(ApiKey.PRODUCE)
        body = [encode(ProduceRequest(acks=0, topic_data=[]), version)]
        connection.post(ApiKey.PRODUCE, version, body, lambda error: None)
        await asyncio.sleep(1)
        assert connection.is_closed

    run(scenario)


def test_the_connection_of_a_lost_answer_ends() -> None:
    async def scenario(world: Simulated) -> None:
        connection = await world.connect()
        fault = world.lose_next("Metadata")
        with pytest.raises(KafkaError):
            await ask_metadata(connection, "orders")
        assert connection.is_closed and fault.hits == 1
        again = await world.connect()
        assert await ask_metadata(again, "orders")
        with pytest.raises(KafkaError):
            world.drop_connections()
            await again.request(ProduceRequest(acks=1), ProduceResponse)

    run(scenario)


def test_a_partition_and_its_end() -> None:
    async def scenario(world: Simulated) -> None:
        orders = await world.topic("orders")
        async with world.cluster() as cluster:
            writer = Writer(world.client, cluster)
            await writer.produce(orders, [Message(b"before")])
            world.partition()
            during = asyncio.ensure_future(writer.produce(orders, [Message(b"during")]))
            await asyncio.sleep(10)
            assert not during.done()
            world.heal()
            await during
        assert [record.text for record in await world.collect(orders)] == ["before", "during"]

    run(scenario)


def test_a_full_disk_a_wrong_clock_and_a_power_cut() -> None:
    async def scenario(world: Simulated) -> None:
        orders = await world.topic("orders", flush_messages=1)
        await world.produce(orders, "durable")
        world.disk_full()
        async with world.cluster(retry_timeout_s=0.5) as cluster:
            with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
                await produce(world.client, cluster, orders, [Message(bytes(9000))])
        world.clear_faults()
        world.power_cut()
        await world.restart()
        assert [record.text for record in await world.collect(orders)] == ["durable"]
        world.skew_clock(-3600)
        early = await world.topic("early", message_timestamp_type="LogAppendTime")
        await world.produce(early, "x")
        (record,) = await world.collect(early)
        assert world.client.clock.now_ms() - record.timestamp > 3_590_000

    run(scenario)


def test_collect_has_what_is_there_in_all_partitions() -> None:
    async def scenario(world: Simulated) -> None:
        orders = await world.topic("orders", partitions=8)
        for number in range(40):
            await world.produce(orders, str(number), partition=number % 7)
        records = await world.collect(orders)
        assert sorted(int(record.text) for record in records) == list(range(40))

    run(scenario)


def test_a_collect_that_is_not_enough_says_what_came() -> None:
    async def scenario(world: Simulated) -> None:
        orders = await world.topic("orders", partitions=2)
        await world.produce(orders, "a", None, key="k", headers={"h": "v", "n": None})
        with pytest.raises(TimeoutError, match=r"waited 3 s for 5 records, 2 came: b'a', None"):
            await world.collect(orders, 5, timeout=3)
        first, second = await world.collect(orders)
        assert (first.key, first.headers, second.value) == (b"k", (("h", b"v"), ("n", None)), None)

    run(scenario)


def test_clusters_are_not_there_yet() -> None:
    with pytest.raises(ValueError, match="nodes=3: Moldau runs as a single node so far"):
        moldau.testing.simulated(nodes=3)
