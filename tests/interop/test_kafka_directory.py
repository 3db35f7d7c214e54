"""One data directory, served, changed, left and crashed on in turn by Moldau and by Apache Kafka 4.3: neither
notices the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from bench.kafka import KafkaServer, free_port
from tests.interop.conftest import create_topic
from tests.support.clients import CLIENTS, CODECS, TIMEOUT_S, Confluent, Record
from tests.support.node import MoldauNode

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.timeout(150)]

# What Kafka says of files that are not as it would have left them. It also warns of what is in order.
SUSPICIOUS = re.compile(
    r"\] (?:WARN|ERROR|FATAL) .*\((?:kafka\.log|org\.apache\.kafka\.(?:storage|raft|metadata|image|snapshot))"
    r"|corrupt|-> RECOVERING|Recovering unflushed segment [1-9]|truncating"
)


def test_kafka_serves_what_moldau_wrote_and_moldau_what_kafka_wrote(tmp_path: Path, kafka_classpath):
    data = tmp_path / "data"
    contents: dict[tuple[str, int], list[tuple[int, Record]]] = {}
    moldau = MoldauNode(data)
    with moldau:
        codecs = create_topic(moldau, partitions=len(CODECS))
        segments = create_topic(
            moldau, segment_bytes=str(1 << 20), retention_ms="-1", index_interval_bytes="600"
        )
        grown = create_topic(moldau, max_message_bytes="2000000")
        for client in CLIENTS.values():
            for partition, codec in enumerate(CODECS):
                write(contents, client, moldau.bootstrap, codecs, partition, codec=codec, idempotent=True)
        for seed in range(5):
            write(contents, Confluent(), moldau.bootstrap, segments, size=5000, seed=seed)
        admin = AdminClient({"bootstrap.servers": moldau.bootstrap})
        delete_records(admin, segments, 237)
        admin.create_partitions([NewPartitions(grown, 2)])[grown].result(TIMEOUT_S)
        moldau.restart()
        for partition in (0, 1):
            write(contents, CLIENTS["aiokafka"], moldau.bootstrap, grown, partition, idempotent=True)
    contents[segments, 0] = contents[segments, 0][237:]
    expected_config = {
        (segments, "retention.ms"): "-1",
        (segments, "index.interval.bytes"): "600",
        (grown, "max.message.bytes"): "2000000",
    }

    kafka = kafka_on(data)
    with kafka:
        check(kafka.bootstrap, contents, expected_config)
        assert low_watermark(kafka.bootstrap, segments) == 237
        for client in CLIENTS.values():
            write(contents, client, kafka.bootstrap, codecs, 3, codec="lz4", idempotent=True)
            write(contents, client, kafka.bootstrap, grown, 1)
        write(contents, Confluent(), kafka.bootstrap, segments, size=5000, seed=9)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        delete_records(admin, segments, 600)
        admin.create_partitions([NewPartitions(grown, 3)])[grown].result(TIMEOUT_S)
        new = create_topic(kafka, retention_ms="123456789")
        write(contents, Confluent(), kafka.bootstrap, new, codec="zstd")
    assert [line for line in kafka.output.read_text().splitlines() if SUSPICIOUS.search(line)] == []
    contents[segments, 0] = [found for found in contents[segments, 0] if found[0] >= 600]
    expected_config[new, "retention.ms"] = "123456789"

    with moldau:
        check(moldau.bootstrap, contents, expected_config)
        assert low_watermark(moldau.bootstrap, segments) == 600
        write(contents, CLIENTS["kafka-python"], moldau.bootstrap, grown, 2, idempotent=True)
        write(contents, Confluent(), moldau.bootstrap, segments, size=5000, seed=10, idempotent=True)
        moldau.crash_and_restart()
        check(moldau.bootstrap, contents, expected_config)
    assert moldau.errors.read_text() == ""

    with kafka_on(data) as again:
        check(again.bootstrap, contents, expected_config)
        admin = AdminClient({"bootstrap.servers": again.bootstrap})
        admin.delete_topics([new])[new].result(TIMEOUT_S)
        change = ConfigEntry("retention.ms", "987654321", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, grown, incremental_configs=[change])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
        write(contents, Confluent(), again.bootstrap, codecs, 1, codec="gzip", idempotent=True)
        again.kill()
    del contents[new, 0], expected_config[new, "retention.ms"]
    expected_config[grown, "retention.ms"] = "987654321"

    with moldau:
        check(moldau.bootstrap, contents, expected_config)
        write(contents, Confluent(), moldau.bootstrap, codecs, 1, idempotent=True)
    assert moldau.errors.read_text() == ""


def kafka_on(data: Path, options: Mapping[str, str] | None = None) -> KafkaServer:
    """`moldau up` names its voter in a property, as kafka-storage without --standalone expects it."""
    port, controller_port = free_port(), free_port()
    return KafkaServer(
        data,
        port=port,
        properties={
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            **(options or {}),
        },
    )


def take_turns(
    moldau: MoldauNode,
    lead: Callable[[MoldauNode | KafkaServer, int], None],
    look: Callable[[], None],
    unread: re.Pattern[str],
) -> None:
    """Both lead on the same directory, step by step, after clean stops and after crashes. `look` is for
    what the first has written, `unread` for what Kafka says of records that it cannot make sense of."""
    data = moldau.data_dir
    with moldau:
        lead(moldau, 0)
    look()
    kafka = kafka_on(data)
    with kafka:
        lead(kafka, 1)
    lines = kafka.output.read_text().splitlines()
    assert [line for line in lines if SUSPICIOUS.search(line) or unread.search(line)] == []
    with moldau:
        lead(moldau, 2)
        moldau.crash_and_restart()
        lead(moldau, 3)
        moldau.kill()
    again = kafka_on(data)
    with again:
        lead(again, 4)
        again.kill()
    with moldau:
        lead(moldau, 5)
    assert moldau.errors.read_text() == ""


def write(
    contents, client, bootstrap, topic, partition=0, *, size=40, seed=0, codec="none", idempotent=False
):
    """Some records at the end of a partition, kept in `contents` for `check`."""
    random = Random(seed)
    records = [
        Record(b"%d" % number if number % 3 else None, random.randbytes(size), (("n", b"%d" % number),))
        for number in range(120)
    ]
    offsets = client.write(bootstrap, topic, records, partition=partition, codec=codec, idempotent=idempotent)
    known = contents.setdefault((topic, partition), [])
    assert offsets[0] == (known[-1][0] + 1 if known else 0)
    known += zip(offsets, records, strict=True)


def check(bootstrap, contents, expected_config):
    for (topic, partition), expected in contents.items():
        found = Confluent().read(bootstrap, topic, partition=partition, offset=expected[0][0])
        assert found == expected, f"{topic}-{partition}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    assert {topic for topic, _ in contents} == {name for name in topics if not name.startswith("__")}
    for (topic, option), value in expected_config.items():
        (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        assert described.result(TIMEOUT_S)[option].value == value


def delete_records(admin: AdminClient, topic: str, offset: int) -> None:
    (deleted,) = admin.delete_records([confluent_kafka.TopicPartition(topic, 0, offset)]).values()
    assert deleted.result(TIMEOUT_S).low_watermark == offset


def low_watermark(bootstrap: str, topic: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        low, _ = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=TIMEOUT_S)
        return low
    finally:
        consumer.close()
