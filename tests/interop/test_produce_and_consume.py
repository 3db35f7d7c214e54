"""What one client writes, it and the others read, byte for byte."""

from __future__ import annotations

import asyncio
import time

import aiokafka
import confluent_kafka
import kafka.errors
import pytest
from aiokafka.errors import MessageSizeTooLargeError

from moldau.records.batch import iterate_headers
from tests.support.clients import CLIENTS, CODECS, TIMEOUT_S, Confluent, Record
from tests.support.node import unique_name

pytestmark = [pytest.mark.interop, pytest.mark.timeout(60)]

BASE_MS = 1_700_000_000_000


def samples(client: str, codec: str) -> list[Record]:
    """Every shape a record can have; compressible and not."""
    tag = f"{client}/{codec}".encode()
    # kafka-python reads headers without a value but does not write them.
    null = b"null" if client == "kafka-python" else None
    return [
        Record(b"key", tag + b" value", (), BASE_MS),
        Record(None, b"no key", (), BASE_MS + 1),
        Record(b"tombstone", None, (), BASE_MS + 2),
        # The others refuse by themselves to send a record that is nothing at all.
        *([Record(None, None, (), BASE_MS + 3)] if client == "confluent-kafka" else []),
        Record(b"", b"", (), BASE_MS + 4),
        Record(b"h", b"headers", (("a", b"1"), ("null", null), ("a", b"again"), ("", b"")), BASE_MS + 5),
        Record(b"text", "żółć €".encode() * 50, (("ключ", "значение".encode()),), BASE_MS + 6),
        Record(b"older", b"time may go back", (), BASE_MS - 1000),
        *(Record(b"%d" % number, tag * (number % 40), (), BASE_MS + number) for number in range(10, 200)),
    ]


@pytest.mark.parametrize("writer", CLIENTS)
def test_every_codec_of_every_client_is_read_by_all(node, new_topic, writer):
    topic = new_topic(partitions=len(CODECS))
    written = {}
    for partition, codec in enumerate(CODECS):
        records = samples(writer, codec)
        idempotent = partition % 2 == 0
        offsets = CLIENTS[writer].write(
            node.bootstrap, topic, records, partition=partition, codec=codec, idempotent=idempotent
        )
        assert offsets == list(range(len(records)))
        written[partition] = list(enumerate(records))
    for name, reader in CLIENTS.items():
        for partition, expected in written.items():
            found = reader.read(node.bootstrap, topic, partition=partition)
            assert found == expected, f"{name} reads partition {partition} otherwise"


@pytest.mark.parametrize("writer", CLIENTS)
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_stored_is_compressed_as_the_client_chose(node, new_topic, writer, codec):
    if (writer, codec) == ("confluent-kafka", "lz4"):
        pytest.skip("librdkafka sends LZ4 only to brokers that advertise FindCoordinator")
    topic = new_topic()
    CLIENTS[writer].write(node.bootstrap, topic, samples(writer, codec), codec=codec)
    segment = (node.data_dir / f"{topic}-0" / f"{0:020d}.log").read_bytes()
    stored = {header.attributes & 7 for _, header in iterate_headers(memoryview(segment))}
    # A batch that would not get smaller is sent as it is.
    assert stored - {0} == {CODECS.index(codec)} - {0}


@pytest.mark.parametrize("writer", CLIENTS)
@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy", "uncompressed"])
def test_a_topic_with_its_own_codec_holds_the_same_records(node, new_topic, writer, codec):
    topic = new_topic(compression_type=codec)
    records = samples(writer, codec)
    CLIENTS[writer].write(node.bootstrap, topic, records[:100], codec="none")
    CLIENTS[writer].write(node.bootstrap, topic, records[100:], codec="gzip")
    for name, reader in CLIENTS.items():
        assert reader.read(node.bootstrap, topic) == list(enumerate(records)), name


@pytest.mark.parametrize("reader", CLIENTS)
def test_reading_begins_inside_a_batch(node, new_topic, reader):
    topic = new_topic()
    records = [Record(None, b"%d" % number) for number in range(50)]
    CLIENTS["confluent-kafka"].write(node.bootstrap, topic, records, codec="lz4")
    found = CLIENTS[reader].read(node.bootstrap, topic, offset=33)
    assert found == list(enumerate(records))[33:]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement(node, new_topic, client, acks):
    topic = new_topic()
    records = [Record(None, b"%d" % number) for number in range(200)]
    offsets = CLIENTS[client].write(node.bootstrap, topic, records, acks=acks)
    assert len(offsets) == 200
    assert acks == 0 or offsets == list(range(200))
    deadline = time.monotonic() + TIMEOUT_S
    while len(found := CLIENTS["confluent-kafka"].read(node.bootstrap, topic)) < 200:
        assert time.monotonic() < deadline, f"{len(found)} of 200 records are there"
    assert found == list(enumerate(records))


@pytest.mark.parametrize("client", CLIENTS)
def test_big_records(node, new_topic, client):
    topic = new_topic()
    noise = bytes(range(256)) * 3600
    records = [Record(b"big", noise[:size]) for size in (900_000, 1, 500_000, 900_000)]
    CLIENTS[client].write(node.bootstrap, topic, records)
    for reader in CLIENTS.values():
        assert reader.read(node.bootstrap, topic) == list(enumerate(records))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_batch_that_is_too_large_is_refused_as_such(node, new_topic, client):
    topic = new_topic(max_message_bytes="10000")
    CLIENTS[client].write(node.bootstrap, topic, [Record(None, b"fits")])
    # What librdkafka raises has the code inside, the others a class for it.
    refused = (
        confluent_kafka.KafkaException,
        MessageSizeTooLargeError,
        kafka.errors.MessageSizeTooLargeError,
    )
    with pytest.raises(refused) as failure:
        CLIENTS[client].write(node.bootstrap, topic, [Record(None, bytes(20_000))])
    if isinstance(failure.value, confluent_kafka.KafkaException):
        assert failure.value.args[0].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
    # Its size is what counts as it is stored: compressed it fits.
    CLIENTS[client].write(node.bootstrap, topic, [Record(None, bytes(20_000))], codec="gzip")
    assert [offset for offset, _ in CLIENTS[client].read(node.bootstrap, topic)] == [0, 1]


def test_log_append_time_is_the_brokers(node, new_topic):
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before_ms = time.time_ns() // 1_000_000
    for client in CLIENTS.values():
        client.write(node.bootstrap, topic, [Record(None, b"x", (), BASE_MS)] * 3, codec="gzip")
    after_ms = time.time_ns() // 1_000_000
    for name, client in CLIENTS.items():
        times = [record.timestamp_ms for _, record in client.read(node.bootstrap, topic)]
        assert len(times) == 9
        assert all(before_ms <= time_ms <= after_ms for time_ms in times), name


def test_a_record_without_key_is_refused_where_keys_are_what_stays(node, new_topic):
    topic = new_topic(cleanup_policy="compact")
    with pytest.raises(confluent_kafka.KafkaException) as failure:
        CLIENTS["confluent-kafka"].write(node.bootstrap, topic, [Record(None, b"lost")])
    assert failure.value.args[0].code() == confluent_kafka.KafkaError.INVALID_RECORD
    assert CLIENTS["confluent-kafka"].write(node.bootstrap, topic, [Record(b"k", b"kept")]) == [0]


@pytest.mark.parametrize("idempotent", [True, False])
def test_many_small_requests_in_flight_keep_their_order(node, new_topic, idempotent):
    topic = new_topic()
    producer = Confluent().producer(
        node.bootstrap,
        linger_ms=0,
        batch_num_messages=1,
        max_in_flight_requests_per_connection=5,
        enable_idempotence=idempotent,
    )
    offsets = []
    for number in range(2000):
        producer.produce(
            topic,
            b"%d" % number,
            partition=0,
            on_delivery=lambda _, message: offsets.append(message.offset()),
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert offsets == list(range(2000))
    found = CLIENTS["confluent-kafka"].read(node.bootstrap, topic)
    assert [record.value for _, record in found] == [b"%d" % number for number in range(2000)]


def test_twenty_connections_at_once(node, new_topic):
    topic = new_topic(partitions=4)

    async def one(number: int) -> list[int]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=node.bootstrap, acks="all") as producer:
            stored = []
            for step in range(25):
                value = b"%d:%d" % (number, step)
                stored.append(await producer.send_and_wait(topic, value, partition=number % 4))
            return [found.offset for found in stored]

    async def main() -> list[list[int]]:
        async with asyncio.timeout(40):
            return await asyncio.gather(*(one(number) for number in range(20)))

    offsets = asyncio.run(main())
    for partition in range(4):
        found = CLIENTS["confluent-kafka"].read(node.bootstrap, topic, partition=partition)
        told = {
            (b"%d:%d" % (number, step), offset)
            for number in range(partition, 20, 4)
            for step, offset in enumerate(offsets[number])
        }
        assert {(record.value, offset) for offset, record in found} == told
        assert [offset for offset, _ in found] == list(range(125))


def test_a_consumer_is_woken_by_what_arrives(node, new_topic):
    """It waits in a fetch of ten seconds; what is written meanwhile ends the wait."""
    topic = new_topic()

    async def main() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=node.bootstrap, fetch_max_wait_ms=10_000, request_timeout_ms=40_000
        )
        async with asyncio.timeout(40), consumer:
            where = aiokafka.TopicPartition(topic, 0)
            consumer.assign([where])
            consumer.seek(where, 0)
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=node.bootstrap) as producer:
                for number in range(20):
                    waiting = asyncio.create_task(consumer.getone(where))
                    await producer.send_and_wait(topic, b"%d" % number, partition=0)
                    # Less than one wait for all twenty, so none of them was sat out.
                    async with asyncio.timeout(8):
                        assert (await waiting).value == b"%d" % number

    asyncio.run(main())


def test_a_topic_is_made_by_its_first_producer(node):
    for client in CLIENTS.values():
        topic = unique_name("auto")
        assert client.write(node.bootstrap, topic, [Record(b"first", b"record")]) == [0]
        assert client.read(node.bootstrap, topic) == [(0, Record(b"first", b"record"))]
