"""The same log, compacted by Moldau and by Apache Kafka 4.3: the same records stay, and each reads what the
other has cleaned."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.kafka import java_tool
from moldau.records.batch import iterate_headers
from moldau.records.record import read_records
from tests.interop.test_kafka_directory import SUSPICIOUS, kafka_on
from tests.support.clients import TIMEOUT_S
from tests.support.node import MoldauNode

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(240)]

TOPIC = "compacted"
KEYS = 40
QUICK = {"log.cleaner.backoff.ms": "200"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Batch(NamedTuple):
    """What a cleaning decides of a batch. When it may go for good is a matter of the clock."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    codec: int
    is_transactional: bool
    is_control: bool
    has_delete_horizon: bool
    max_timestamp: int
    records: tuple[object, ...]


def test_both_keep_the_same_records_and_read_each_others_logs(tmp_path: Path, kafka_classpath: str) -> None:
    data = tmp_path / "data"
    with MoldauNode(data):
        pass  # makes the cluster
    kafka = kafka_on(data)
    with kafka:
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": str(1 << 20),
            "min.cleanable.dirty.ratio": "1.0",
            "delete.retention.ms": "1",
            "index.interval.bytes": "1000",
        }
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(TIMEOUT_S)
        for seed, codec in enumerate(CODECS):
            write(kafka.bootstrap, seed, codec)
    before = log_of(data)

    ours = tmp_path / "ours" / "data"
    shutil.copytree(data, ours)
    with kafka_on(data, QUICK) as theirs_running:
        clean(theirs_running.bootstrap, data)
        theirs_first = log_of(data)
        write(theirs_running.bootstrap, 9, "lz4", transactional=False)
        clean(theirs_running.bootstrap, data)
        theirs_read = read(theirs_running.bootstrap)
    moldau = MoldauNode(ours, QUICK)
    with moldau:
        clean(moldau.bootstrap, ours)
        ours_first = log_of(ours)
        write(moldau.bootstrap, 9, "lz4", transactional=False)
        clean(moldau.bootstrap, ours)
        ours_read = read(moldau.bootstrap)
    assert len(records_in(ours_first)) < len(records_in(before)) / 2
    assert any(batch.has_delete_horizon for batch in ours_first)
    assert ours_first == theirs_first
    assert settled(log_of(ours)) == settled(log_of(data))
    assert ours_read == theirs_read
    assert moldau.errors.read_text() == ""
    check_dump(ours / f"{TOPIC}-0")

    kafka = kafka_on(ours)
    with kafka:
        assert read(kafka.bootstrap) == ours_read
    assert [line for line in kafka.output.read_text().splitlines() if SUSPICIOUS.search(line)] == []
    with MoldauNode(data) as moldau:
        assert read(moldau.bootstrap) == theirs_read
    assert moldau.errors.read_text() == ""


def write(bootstrap: str, seed: int, codec: str, *, transactional: bool = True) -> None:
    """Updates, tombstones and, on a Kafka, transactions, half of which are aborted; more than a segment of
    it."""
    random = Random(seed)
    options = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 1000}
    plain = Producer({**options, "enable.idempotence": True, "batch.num.messages": 7})
    now_ms = 1_700_000_000_000 + seed * 1000

    def send(producer: Producer, count: int) -> None:
        for number in range(count):
            key = b"key-%d" % random.randrange(KEYS)
            value = None if random.random() < 0.1 else random.randbytes(300) + b"text " * 60
            producer.produce(TOPIC, value, key, partition=0, timestamp=now_ms + number)
            if number % 7 == 6:
                assert not producer.flush(TIMEOUT_S)
        assert not producer.flush(TIMEOUT_S)

    producer = Producer({**options, "transactional.id": f"{seed}"} if transactional else options)
    if transactional:
        producer.init_transactions(TIMEOUT_S)
    for _ in range(10):
        if transactional:
            for is_aborted in (False, True, False):
                producer.begin_transaction()
                send(producer, 20)
                if is_aborted:
                    producer.abort_transaction(TIMEOUT_S)
                else:
                    producer.commit_transaction(TIMEOUT_S)
        send(plain, 60 if transactional else 250)


def set_option(bootstrap: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def clean(bootstrap: str, data: Path) -> None:
    """Let the topic be cleaned up to its active segment, once."""
    active = max(int(path.stem) for path in (data / f"{TOPIC}-0").glob("*.log"))
    checkpoint = data / "cleaner-offset-checkpoint"
    set_option(bootstrap, "min.cleanable.dirty.ratio", "0.001")
    wait_for(lambda: checkpoint.exists() and f"{TOPIC} 0 {active}" in checkpoint.read_text().splitlines())
    set_option(bootstrap, "min.cleanable.dirty.ratio", "1.0")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def log_of(data: Path) -> list[Batch]:
    batches = []
    for path in sorted((data / f"{TOPIC}-0").glob("*.log")):
        content = path.read_bytes()
        for position, header in iterate_headers(content):
            batch = content[position : position + header.size]
            batches.append(
                Batch(
                    header.base_offset,
                    header.last_offset,
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.codec,
                    header.is_transactional,
                    header.is_control,
                    header.delete_horizon_ms is not None,
                    header.max_timestamp,
                    tuple(read_records(batch)),
                )
            )
    return batches


def records_in(batches: list[Batch]) -> list[object]:
    return [record for batch in batches for record in batch.records]


def settled(batches: list[Batch]) -> list[object]:
    """The records, without the time at which a second writer made its own."""
    return [
        (record.offset, record.key, record.value)
        for batch in batches
        for record in batch.records  # type: ignore[attr-defined]
    ]


def read(bootstrap: str) -> list[tuple[int, bytes | None, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    found = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return found
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()


def check_dump(directory: Path) -> None:
    """Kafka's own tool finds nothing wrong with any file."""
    for pattern, arguments in (
        ("*.log", ("--deep-iteration",)),
        ("*index", ("--index-sanity-check",)),
        ("*index", ("--deep-iteration", "--verify-index-only")),
    ):
        files = ",".join(str(path) for path in sorted(directory.glob(pattern)))
        done = java_tool("org.apache.kafka.tools.DumpLogSegments", "--files", files, *arguments)
        assert done.returncode == 0, done.stderr
        assert "isvalid: false" not in done.stdout
        assert not re.search(r"mismatch|out of order|not found|corrupt", done.stdout, re.IGNORECASE)
