"""Producers and consumers that live on while the node is stopped or crashes and comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import Random

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType

from tests.interop.conftest import create_topic
from tests.support.clients import CLIENTS, TIMEOUT_S, Confluent, Record
from tests.support.node import MoldauNode

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90)]

ENDINGS: dict[str, Callable[[MoldauNode], None]] = {
    "stopped": MoldauNode.restart,
    "killed": MoldauNode.crash_and_restart,
}


def noise(seed: int, size: int) -> bytes:
    """Bytes that no codec makes smaller, so that segments fill and roll."""
    return Random(seed).randbytes(size)


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_was_there_is_there_again(own_node, ending):
    topic = create_topic(own_node, partitions=3, segment_bytes=str(1 << 20), index_interval_bytes="500")
    written = {}
    for partition, (client, codec) in enumerate(zip(CLIENTS.values(), ("none", "lz4", "zstd"), strict=True)):
        records = [Record(b"%d" % number, noise(number, 3000)) for number in range(600)]
        for first in range(0, 600, 100):
            client.write(
                own_node.bootstrap, topic, records[first : first + 100], partition=partition, codec=codec
            )
        written[partition] = list(enumerate(records))
    admin = AdminClient({"bootstrap.servers": own_node.bootstrap})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(TIMEOUT_S)
    gone = create_topic(own_node)
    admin.delete_topics([gone])[gone].result(TIMEOUT_S)

    ENDINGS[ending](own_node)

    cluster = AdminClient({"bootstrap.servers": own_node.bootstrap}).list_topics(timeout=TIMEOUT_S)
    assert {name: len(found.partitions) for name, found in cluster.topics.items()} == {topic: 4}
    described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
    (config,) = (future.result(TIMEOUT_S) for future in described.values())
    assert config["segment.bytes"].value == str(1 << 20)
    for client in CLIENTS.values():
        for partition, expected in written.items():
            assert client.read(own_node.bootstrap, topic, partition=partition) == expected
        assert client.read(own_node.bootstrap, topic, partition=3) == []
    more = [Record(None, b"more")]
    assert CLIENTS["aiokafka"].write(own_node.bootstrap, topic, more, idempotent=True) == [600]


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_idempotent_producer_goes_on_without_loss_or_repetition(own_node, ending):
    """It never stops sending while the node goes away and comes back, twice."""
    topic = create_topic(own_node)
    delivered: dict[bytes, int] = {}
    failures = []

    def on_delivery(error, message):
        if error is not None:
            failures.append(str(error))
        else:
            delivered[message.value()] = message.offset()

    producer = Confluent().producer(
        own_node.bootstrap,
        enable_idempotence=True,
        linger_ms=1,
        message_timeout_ms=60_000,
        reconnect_backoff_max_ms=200,
        retry_backoff_ms=50,
    )
    stop = threading.Event()
    sent = 0

    def send() -> None:
        nonlocal sent
        while not stop.is_set():
            if sent - len(delivered) > 2000:
                producer.poll(0.005)
                continue
            producer.produce(topic, b"%d" % sent, partition=0, on_delivery=on_delivery)
            sent += 1
            producer.poll(0.001)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(2):
            wait_for_progress(delivered, 300)
            ENDINGS[ending](own_node)
        wait_for_progress(delivered, 300)
    finally:
        stop.set()
        sender.join()
    assert producer.flush(40) == 0
    assert failures == []
    found = CLIENTS["confluent-kafka"].read(own_node.bootstrap, topic)
    assert [record.value for _, record in found] == [b"%d" % number for number in range(sent)]
    # Of a batch that was stored before the node went away the producer may never have learned the offset.
    assert all(delivered[record.value] in (offset, -1001) for offset, record in found)


def wait_for_progress(delivered: dict[bytes, int], count: int) -> None:
    target = len(delivered) + count
    deadline = time.monotonic() + TIMEOUT_S
    while len(delivered) < target:
        assert time.monotonic() < deadline, f"{len(delivered)} of {target} delivered after {TIMEOUT_S} s"
        time.sleep(0.005)


@pytest.mark.parametrize("client", CLIENTS)
def test_everything_acknowledged_survives_a_crash(own_node, client):
    """With acks=1 and no flush: a process that dies takes nothing along that the system has."""
    topic = create_topic(own_node, segment_bytes=str(1 << 20))
    records = [Record(None, noise(number, 1000)) for number in range(1500)]
    offsets = CLIENTS[client].write(own_node.bootstrap, topic, records, acks=1)
    own_node.crash_and_restart()
    assert offsets == list(range(1500))
    assert CLIENTS["confluent-kafka"].read(own_node.bootstrap, topic) == list(enumerate(records))


def test_deleted_records_stay_deleted(own_node):
    topic = create_topic(own_node, segment_bytes=str(1 << 20))
    for first in range(0, 200, 10):
        batch = [Record(None, noise(number, 12_000)) for number in range(first, first + 10)]
        CLIENTS["kafka-python"].write(own_node.bootstrap, topic, batch)
    admin = AdminClient({"bootstrap.servers": own_node.bootstrap})
    where = confluent_kafka.TopicPartition(topic, 0, 123)
    (deleted,) = (future.result(TIMEOUT_S) for future in admin.delete_records([where]).values())
    assert deleted.low_watermark == 123
    for ending in ENDINGS.values():
        ending(own_node)
        found = CLIENTS["kafka-python"].read(own_node.bootstrap, topic, offset=123)
        assert [offset for offset, _ in found] == list(range(123, 200))
        consumer = confluent_kafka.Consumer({"bootstrap.servers": own_node.bootstrap, "group.id": "unused"})
        assert consumer.get_watermark_offsets(where, timeout=TIMEOUT_S) == (123, 200)
        consumer.close()
