"""Our consumer against Apache Kafka 4.3 and against Moldau."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bench.kafka import KafkaServer
from moldau import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    FencedError,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from tests.support.clients import CODECS, TIMEOUT_S
from tests.support.node import KEEP, MoldauNode, unique_name

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("beside kafka")]

OPTIONS = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}
PROTOCOLS = ["classic", "consumer"]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[str]:
    with KafkaServer(tmp_path_factory.mktemp("kafka") / "data", properties=OPTIONS) as running:
        yield running.bootstrap


@pytest.fixture(scope="module")
def moldau(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with MoldauNode(tmp_path_factory.mktemp("moldau") / "data", KEEP | OPTIONS) as running:
        yield running.bootstrap


@pytest.fixture(params=["moldau", pytest.param("kafka", marks=pytest.mark.java)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    address: str = request.getfixturevalue(request.param)
    return address


def create_topic(bootstrap: str, partitions: int = 1, name: str | None = None) -> str:
    name = name or unique_name("topic")
    admin = AdminClient({"bootstrap.servers": bootstrap})  # which has to live until the answer
    (made,) = admin.create_topics([NewTopic(name, partitions)]).values()
    made.result(TIMEOUT_S)
    return name


def fill(bootstrap: str, topic: str, count: int, partitions: int = 1, **options: Any) -> None:
    """Numbers, each with its offset as value and as time."""
    with Producer(bootstrap_servers=bootstrap, **options) as producer:
        for partition in range(partitions):
            producer.send_batch(
                topic,
                [b"%d" % number for number in range(count)],
                keys=[b"k%d" % number if number % 3 else None for number in range(count)],
                headers=[[("h", b"x")] if number % 5 == 0 else [] for number in range(count)],
                timestamps_ms=[1_700_000_000_000 + number for number in range(count)],
                partition=partition,
            )


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def within() -> Any:
        async with asyncio.timeout(TIMEOUT_S):
            return await work()

    return asyncio.run(within())


@pytest.mark.parametrize("codec", CODECS)
def test_assigned_partitions_are_read_to_the_end(bootstrap: str, codec: str) -> None:
    topic = create_topic(bootstrap, 2)
    fill(bootstrap, topic, 1000, 2, compression_type=codec, batch_size=3000)

    async def read() -> None:
        options = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 8000}
        async with AsyncConsumer(bootstrap_servers=bootstrap, **options) as consumer:
            consumer.assign([(topic, 0), (topic, 1)])
            found: dict[int, list[Any]] = {0: [], 1: []}
            async for record in consumer:
                found[record.partition].append(record)
                if sum(map(len, found.values())) == 2000:
                    break
            for partition, records in found.items():
                assert [record.offset for record in records] == list(range(1000))
                assert await consumer.position((topic, partition)) == 1000
                assert consumer.lag((topic, partition)) == 0
                for number, record in enumerate(records):
                    assert record.value == b"%d" % number
                    assert record.key == (b"k%d" % number if number % 3 else None)
                    assert record.headers == ((("h", b"x"),) if number % 5 == 0 else ())
                    assert record.timestamp_ms == 1_700_000_000_000 + number
            assert await consumer.poll(0) == []

    run(read)


def test_offsets_are_found_and_sought(bootstrap: str) -> None:
    topic = create_topic(bootstrap)
    fill(bootstrap, topic, 100)
    place = TopicPartition(topic, 0)

    async def read() -> None:
        async with AsyncConsumer(bootstrap_servers=bootstrap) as consumer:
            assert await consumer.beginning_offsets([place]) == {place: 0}
            assert await consumer.end_offsets([place]) == {place: 100}
            found = await consumer.offsets_for_times({place: 1_700_000_000_042})
            assert found[place].offset == 42
            assert (await consumer.offsets_for_times({place: 1_800_000_000_000}))[place].offset is None
            consumer.assign([place])
            assert await consumer.position(place) == 100  # latest
            consumer.seek(place, 97)
            assert [record.offset for record in await consumer.poll(TIMEOUT_S)] == [97, 98, 99]
            consumer.seek_to_beginning(place)
            assert (await consumer.poll(TIMEOUT_S, max_records=1))[0].offset == 0
            consumer.pause(place)
            assert await consumer.poll(0.2) == []
            consumer.resume(place)
            assert (await consumer.poll(TIMEOUT_S, max_records=1))[0].offset == 1
            consumer.seek(place, 1000)
            assert [record.offset for record in await _nonempty(consumer)] == []

    async def _nonempty(consumer: AsyncConsumer) -> list[Any]:
        """An offset that there is not is reset, here to the end."""
        records = await consumer.poll(1)
        assert await consumer.position(place) == 100
        return records

    run(read)
    for reset, first in (("by_duration:P36500D", 0), ("by_duration:PT1S", 100)):

        async def begin(reset: str = reset, first: int = first) -> None:
            async with AsyncConsumer(bootstrap_servers=bootstrap, auto_offset_reset=reset) as consumer:
                consumer.assign([place])
                assert await consumer.position(place) == first

        run(begin)

    async def refuse() -> None:
        async with AsyncConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
            consumer.assign([place])
            with pytest.raises(KafkaError, match="has no offset"):
                await consumer.poll(TIMEOUT_S)

    run(refuse)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_remembers(bootstrap: str, protocol: str) -> None:
    topic = create_topic(bootstrap, 2)
    fill(bootstrap, topic, 50, 2)
    group = unique_name("group")
    told: list[tuple[str, list[TopicPartition]]] = []
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
    }

    async def read() -> None:
        async with AsyncConsumer(**options, enable_auto_commit=False, max_poll_records=10) as consumer:

            async def revoked(places: list[TopicPartition]) -> None:
                await consumer.commit()
                told.append(("revoked", places))

            consumer.subscribe(
                [topic], on_assigned=lambda places: told.append(("assigned", places)), on_revoked=revoked
            )
            records = []
            while len(records) < 30:
                records += await consumer.poll(TIMEOUT_S)
            metadata = consumer.group_metadata()
            assert (metadata.group_id, metadata.generation_id > 0) == (group, True)
            await consumer.commit({(topic, 0): OffsetAndMetadata(3, metadata="note")})
            assert (await consumer.committed([(topic, 0)]))[TopicPartition(topic, 0)][::2] == (3, "note")
        both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        assert [each for each in told if each[1]] == [("assigned", both), ("revoked", both)]
        async with AsyncConsumer(**options) as consumer:
            consumer.subscribe([topic])
            while len(records) < 100:
                records += await consumer.poll(TIMEOUT_S)
            assert len({(record.partition, record.offset) for record in records}) == 100
        async with AsyncConsumer(**options) as consumer:  # what was handed out was committed by itself
            committed = await consumer.committed(both)
            assert [committed[place].offset for place in both] == [50, 50]

    run(read)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pattern_finds_topics_that_come_later(bootstrap: str, protocol: str) -> None:
    prefix = unique_name("many")
    fill(bootstrap, create_topic(bootstrap, 1, f"{prefix}.a"), 5)

    async def read() -> None:
        async with AsyncConsumer(
            bootstrap_servers=bootstrap,
            group_id=prefix,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            metadata_max_age_ms=500,
        ) as consumer:
            consumer.subscribe(pattern=f"{prefix}\\.[ab]")
            assert len(await consumer.poll(TIMEOUT_S)) == 5
            later = create_topic(bootstrap, 1, f"{prefix}.b")
            create_topic(bootstrap, 1, f"{prefix}.bb")
            await asyncio.to_thread(fill, bootstrap, later, 7)
            assert {record.topic for record in await consumer.poll(TIMEOUT_S)} == {later}
            assert {place.topic for place in consumer.assignment()} == {f"{prefix}.a", later}

    run(read)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_comes_back_to_what_it_had(bootstrap: str, protocol: str) -> None:
    topic = create_topic(bootstrap, 4)
    group = unique_name("group")

    async def member(instance: str) -> AsyncConsumer:
        consumer = AsyncConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_protocol=protocol,
            group_instance_id=instance,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        consumer.subscribe([topic])
        return consumer

    async def share() -> None:
        one, two = await member("one"), await member("two")
        while len(one.assignment()) != 2 or len(two.assignment()) != 2:
            await asyncio.gather(one.poll(0.1), two.poll(0.1))
        had = two.assignment()
        await two.close()
        two = await member("two")
        while len(two.assignment()) != 2:
            await asyncio.gather(one.poll(0.1), two.poll(0.1))
        assert (two.assignment(), len(one.assignment())) == (had, 2)
        usurper = await member("one")
        if protocol == "classic":
            await usurper.poll(0.5)
            with pytest.raises(FencedError):
                while True:
                    await one.poll(0.1)
        else:
            with pytest.raises(KafkaError, match="UNRELEASED_INSTANCE_ID"):
                await usurper.poll(TIMEOUT_S)
        await asyncio.gather(one.close(), two.close(), usurper.close())

    run(share)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_consume_transform_produce(bootstrap: str, protocol: str, isolation: str) -> None:
    source, target = create_topic(bootstrap), create_topic(bootstrap)
    fill(bootstrap, source, 60)
    group = unique_name("group")

    async def transform(*, fails_at: int | None) -> None:
        async with (
            AsyncConsumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                group_protocol=protocol,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                max_poll_records=10,
            ) as consumer,
            AsyncProducer(bootstrap_servers=bootstrap, transactional_id=group) as producer,
        ):
            consumer.subscribe([source])
            await producer.init_transactions()
            for number in range(6):
                records = await consumer.poll(TIMEOUT_S)
                if not records:
                    return
                await producer.begin_transaction()
                for record in records:
                    await producer.send(target, record.value)
                offsets = {(source, 0): records[-1].offset + 1}
                await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                if number == fails_at:
                    await producer.flush()
                    await producer.abort_transaction()
                    return
                await producer.commit_transaction()
                if offsets[source, 0] == 60:
                    return

    run(lambda: transform(fails_at=2))
    run(lambda: transform(fails_at=None))

    async def read() -> list[bytes]:
        async with AsyncConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=isolation
        ) as consumer:
            consumer.assign([(target, 0)])
            end = (await consumer.end_offsets([(target, 0)]))[TopicPartition(target, 0)]
            values: list[bytes] = []
            while await consumer.position((target, 0)) < end:
                values += [record.value for record in await consumer.poll(1)]
            return values

    expected = [b"%d" % number for number in range(60)]
    if isolation == "read_uncommitted":
        expected[20:20] = expected[20:30]  # what was aborted
    assert run(read) == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_a_loop(bootstrap: str, protocol: str) -> None:
    topic = create_topic(bootstrap, 2)
    fill(bootstrap, topic, 20, 2)
    told: list[str] = []
    with Consumer(
        {"bootstrap.servers": bootstrap, "group.id": unique_name("group")},
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        value_deserializer="json",
    ) as consumer:

        def revoked(places: list[TopicPartition]) -> None:
            consumer.commit()  # from within a callback
            told.append(f"revoked {len(places)}")

        consumer.subscribe(
            [topic], on_assigned=lambda p: told.append(f"assigned {len(p)}"), on_revoked=revoked
        )
        found = []
        for record in consumer:
            found.append(record.value)
            if len(found) == 30:
                break
        consumer.commit()
        committed = consumer.committed(consumer.assignment())
        assert sum(each.offset for each in committed.values()) == 30
        assert sorted(found + [record.value for record in consumer.poll(TIMEOUT_S)]) == sorted(
            [*range(20)] * 2
        )
        consumer.unsubscribe()
        assert consumer.assignment() == set()
    assert [each for each in told if not each.endswith(" 0")] == ["assigned 2", "revoked 2"]
