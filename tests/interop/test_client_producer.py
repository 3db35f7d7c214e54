"""Our producer against Apache Kafka 4.3 and against Moldau, read back by confluent-kafka."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bench.kafka import KafkaServer
from moldau.client.errors import AbortableError, FatalError, FencedError
from moldau.client.producer import AsyncProducer
from moldau.client.producing.operations import PreparedTransaction
from moldau.wire.errors import KafkaError
from tests.support.clients import CODECS, TIMEOUT_S
from tests.support.node import KEEP, MoldauNode, unique_name

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("beside kafka")]

KAFKA_OPTIONS = {
    "transaction.two.phase.commit.enable": "true",
    "unstable.api.versions.enable": "true",  # which InitProducerId v6 still is in 4.3
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[str]:
    with KafkaServer(tmp_path_factory.mktemp("kafka") / "data", properties=KAFKA_OPTIONS) as running:
        yield running.bootstrap


@pytest.fixture(scope="module")
def moldau(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with MoldauNode(tmp_path_factory.mktemp("moldau") / "data", KEEP) as running:
        yield running.bootstrap


@pytest.fixture(params=["moldau", pytest.param("kafka", marks=pytest.mark.java)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    address: str = request.getfixturevalue(request.param)
    return address


def create_topic(bootstrap: str, partitions: int = 1, name: str | None = None, **configs: str) -> str:
    name = name or unique_name("topic")
    new = NewTopic(name, partitions, config={key.replace("_", "."): value for key, value in configs.items()})
    admin = AdminClient({"bootstrap.servers": bootstrap})  # which has to live until the answer
    (made,) = admin.create_topics([new]).values()
    made.result(TIMEOUT_S)
    return name


def read(bootstrap: str, topic: str, partitions: int = 1) -> list[list[confluent_kafka.Message]]:
    """What is committed, by partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[list[confluent_kafka.Message]] = [[] for _ in range(partitions)]
    ends: set[int] = set()
    try:
        while len(ends) < partitions:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "no record and no end"
            if message.error():
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                ends.add(message.partition())
            else:
                found[message.partition()].append(message)
    finally:
        consumer.close()
    return found


def run(work: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
    return asyncio.run(work(*arguments))


@pytest.mark.parametrize("codec", CODECS)
def test_records_arrive_as_they_were_sent(bootstrap: str, codec: str) -> None:
    topic = create_topic(bootstrap, 3)
    sent = [
        (
            b"k%d" % (number % 17),
            b"v%d" % number if number % 9 else None,
            [("n", b"%d" % number), ("h", None)],
        )
        for number in range(500)
    ]

    async def produce() -> list[tuple[int, int]]:
        async with AsyncProducer(
            bootstrap_servers=bootstrap, compression_type=codec, batch_size=2000
        ) as producer:
            deliveries = [
                await producer.send(
                    topic, value, key=key, headers=headers, timestamp_ms=1_700_000_000_000 + at
                )
                for at, (key, value, headers) in enumerate(sent)
            ]
            return [((where := await delivery).partition, where.offset) for delivery in deliveries]

    places = run(produce)
    found = read(bootstrap, topic, 3)
    assert sum(map(len, found)) == 500
    for number, ((partition, offset), (key, value, headers)) in enumerate(zip(places, sent, strict=True)):
        message = found[partition][offset]
        assert (message.key(), message.value(), message.headers()) == (key, value, headers)
        assert message.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_700_000_000_000 + number)


def test_keys_go_where_the_java_client_sends_them(bootstrap: str) -> None:
    topic = create_topic(bootstrap, 5)
    reference = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 5}
    )
    theirs: dict[bytes, int] = {}
    for number in range(200):
        key = b"key-%d" % (number * number)
        reference.produce(
            topic,
            b"",
            key,
            on_delivery=lambda _, message: theirs.update({message.key(): message.partition()}),
        )
    assert reference.flush(TIMEOUT_S) == 0

    async def produce() -> dict[bytes, int]:
        async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
            keys = list(theirs)
            deliveries = await producer.send_batch(topic, [b""] * len(keys), keys=keys)
            await deliveries
            return {key: deliveries[at].partition for at, key in enumerate(keys)}

    assert run(produce) == theirs


def test_columns_of_many_batches(bootstrap: str) -> None:
    topic = create_topic(bootstrap, 4)
    values = [b"%06d" % number for number in range(20_000)]

    async def produce() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap, compression_type="lz4") as producer:
            await (await producer.send_batch(topic, values))

    run(produce)
    found = read(bootstrap, topic, 4)
    assert sorted(message.value() for part in found for message in part) == values
    for part in found:
        assert [message.value() for message in part] == sorted(message.value() for message in part)


def test_a_topic_with_small_messages_gets_smaller_batches(bootstrap: str) -> None:
    topic = create_topic(bootstrap, max_message_bytes="3000")

    async def produce() -> tuple[list[int], dict[str, float]]:
        async with AsyncProducer(bootstrap_servers=bootstrap, batch_size=100_000, linger_ms=50) as producer:
            deliveries = await producer.send_batch(topic, [b"%04d" % number * 20 for number in range(500)])
            await deliveries
            return [deliveries[at].result().offset for at in range(500)], producer.metrics()

    offsets, metrics = run(produce)
    assert offsets == list(range(500))
    assert metrics["batch-split-total"] > 0 and metrics["record-error-total"] == 0
    (found,) = read(bootstrap, topic)
    assert [message.value()[:4] for message in found] == [b"%04d" % number for number in range(500)]


@pytest.mark.parametrize("version", [1, 2])
def test_transactions(bootstrap: str, version: int) -> None:
    topic, group = create_topic(bootstrap, 2), unique_name("group")

    async def produce() -> None:
        async with transactional(bootstrap, version) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                for number in range(20):
                    await producer.send(topic, b"committed %d" % number, partition=number % 2)
                await producer.send_offsets_to_transaction({(topic, 0): 7}, group)
            with pytest.raises(KeyError):
                async with producer.transaction():
                    delivery = await producer.send(topic, b"aborted", partition=0)
                    await delivery
                    await producer.send_offsets_to_transaction({(topic, 0): 8}, group)
                    raise KeyError
            async with producer.transaction():
                pass  # nothing in it, so that nobody hears of it
            async with producer.transaction():
                await producer.send(topic, b"last", partition=1)
            assert producer.config.transactional_id is not None
            assert producer._transactions is not None and producer._transactions.is_v2 == (version == 2)

    run(produce)
    found = read(bootstrap, topic, 2)
    assert [message.value() for message in found[0]] == [b"committed %d" % n for n in range(0, 20, 2)]
    assert [message.value() for message in found[1]][-1] == b"last" and len(found[1]) == 11
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (committed,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], TIMEOUT_S)
        assert committed.offset == 7
    finally:
        consumer.close()


@pytest.mark.parametrize("version", [1, 2])
def test_a_failed_record_can_only_be_aborted_and_the_next_transaction_works(
    bootstrap: str, version: int
) -> None:
    topic = create_topic(bootstrap, max_message_bytes="1000")

    async def produce() -> None:
        async with transactional(bootstrap, version) as producer:
            await producer.init_transactions()
            for _ in range(2):
                await producer.begin_transaction()
                await producer.send(topic, b"fine")
                delivery = await producer.send(topic, bytes(2000))
                with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                    await delivery
                with pytest.raises(AbortableError):
                    await producer.send(topic, b"no more")
                with pytest.raises(AbortableError):
                    await producer.commit_transaction()
                await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"good")

    run(produce)
    assert [message.value() for message in read(bootstrap, topic)[0]] == [b"good"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_later_producer_fences_an_earlier_one(bootstrap: str, version: int) -> None:
    topic, name = create_topic(bootstrap), unique_name("transactional")

    async def produce() -> None:
        async with (
            transactional(bootstrap, version, name) as old,
            transactional(bootstrap, version, name) as new,
        ):
            await old.init_transactions()
            await old.begin_transaction()
            await (await old.send(topic, b"of the old one"))
            await new.init_transactions()
            with pytest.raises((AbortableError, FatalError)):
                await old.send(topic, b"too late")
                await old.commit_transaction()
            with pytest.raises(FencedError):
                await old.abort_transaction()
                await old.begin_transaction()
            async with new.transaction():
                await new.send(topic, b"of the new one")

    run(produce)
    assert [message.value() for message in read(bootstrap, topic)[0]] == [b"of the new one"]


@pytest.mark.java
def test_a_prepared_transaction_is_ended_as_was_decided_elsewhere(kafka: str) -> None:
    """In one life: Apache Kafka 4.3 does not know yet how to keep one for the next."""
    topic = create_topic(kafka)

    async def produce() -> None:
        async with AsyncProducer(
            bootstrap_servers=kafka,
            transactional_id=unique_name("transactional"),
            transaction_two_phase_commit_enable=True,
        ) as producer:
            await producer.init_transactions()
            for value, is_decided in ((b"yes", True), (b"no", False), (b"again", True)):
                await producer.begin_transaction()
                await producer.send(topic, value)
                prepared = await producer.prepare_transaction()
                with pytest.raises(RuntimeError, match="prepared"):
                    await producer.send(topic, b"too late")
                await producer.complete_transaction(prepared if is_decided else PreparedTransaction(0, 0))

    run(produce)
    assert [message.value() for message in read(kafka, topic)[0]] == [b"yes", b"again"]


def test_the_program_with_a_transaction_does_what_its_page_says(bootstrap: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
    (code,) = re.findall(r"<!-- needs transactions -->\n```python\n(.*?)```", page, re.DOTALL)
    create_topic(bootstrap, name="orders")
    exec(code.replace("127.0.0.1:9092", bootstrap), {})
    assert [message.value() for message in read(bootstrap, "invoices")[0]] == [b"3 apples"]
    assert [message.value() for message in read(bootstrap, "payments")[0]] == [b"3 euros"]


def transactional(bootstrap: str, version: int, name: str | None = None) -> AsyncProducer:
    """With version 1 the producer does not hear that the cluster has more."""
    producer = AsyncProducer(
        bootstrap_servers=bootstrap, transactional_id=name or unique_name("transactional")
    )
    if version == 1:
        start = producer.start

        async def started() -> None:
            await start()
            assert producer._transactions is not None
            producer._transactions.on_features = lambda _: None  # type: ignore[method-assign]

        producer.start = started  # type: ignore[method-assign]
    return producer
