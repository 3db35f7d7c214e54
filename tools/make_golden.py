"""Makes tests/data/kafka-4.3.tar.xz: data directories that Apache Kafka wrote, and what consumers read.

Runs a real Kafka (Java and, the first time, Maven are needed), writes a few small topics, and keeps its
directory twice: `clean`, after it was stopped, and `killed`, after it was started again, written to and
killed. `expected-<name>.json` beside them holds all records and the options of the topics that were set.
Run as `python -m tools.make_golden` from the top of the repository.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from bench.kafka import KafkaServer
from tests.support.clients import CODECS, Confluent

ARCHIVE = Path(__file__).resolve().parent.parent / "tests" / "data" / "kafka-4.3.tar.xz"
CLUSTER_ID = "bW9sZGF1LWdvbGRlbi0tMQ"
BASE_MS = 1_700_000_000_000
TIMEOUT_S = 30
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (2, {"index.interval.bytes": "512", "retention.ms": "-1"}),
    "codecs": (1, {"retention.ms": "-1", "max.message.bytes": "2000000"}),
    "txn": (1, {"retention.ms": "-1"}),
    "compacted": (
        1,
        {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "86400000",
        },
    ),
}
SERVER = {
    # Preallocated and full of zeros otherwise; nothing here comes near it.
    "log.index.size.max.bytes": "4096",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "metadata.log.max.snapshot.interval.ms": "3000",
    "log.initial.task.delay.ms": "200",
}


def main() -> None:
    work = Path(tempfile.mkdtemp())
    try:
        server = KafkaServer(work / "data", properties=SERVER)
        server.format(CLUSTER_ID)
        with server:
            create_topics(server.bootstrap)
            write_plain(server.bootstrap, 0, 300)
            write_codecs(server.bootstrap)
            write_transactions(server.bootstrap)
            write_compacted(server.bootstrap, work / "data" / "compacted-0")
            keep_expectation(server.bootstrap, work / "expected-clean.json")
        shutil.copytree(server.data_dir, work / "clean")
        server.start()
        write_plain(server.bootstrap, 300, 500)
        keep_expectation(server.bootstrap, work / "expected-killed.json")
        server.kill()
        server.data_dir.rename(work / "killed")
        pack(work)
    finally:
        shutil.rmtree(work)
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size} bytes")


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, count, 1, config=config) for name, (count, config) in TOPICS.items()]
    for created in admin.create_topics(topics).values():
        created.result(TIMEOUT_S)


def write_plain(bootstrap: str, first: int, end: int) -> None:
    """In batches of some ten records, so that there are index entries; an idempotent producer."""
    random = Random(first)
    producer = Confluent().producer(bootstrap, enable_idempotence=True, batch_num_messages=10)
    for number in range(first, end):
        headers: list[tuple[str, Any]] = [("number", b"%d" % number), ("null", None)]
        producer.produce(
            "plain",
            random.randbytes(12).hex(),
            b"%d" % (number % 50),
            partition=number % 2,
            timestamp=BASE_MS + 1000 * number,
            headers=headers if number % 10 == 0 else [],
        )
    flush(producer)


def write_codecs(bootstrap: str) -> None:
    for codec in CODECS:
        producer = Confluent().producer(bootstrap, compression_type=codec, linger_ms=100)
        for number in range(30):
            producer.produce(
                "codecs",
                None if number == 9 else f"{codec} record {number} ".encode() * 5,
                None if number % 7 == 0 else b"%d" % number,
                timestamp=BASE_MS + number,
            )
        flush(producer)


def write_transactions(bootstrap: str) -> None:
    producer = Confluent().producer(bootstrap, transactional_id="golden")
    producer.init_transactions(TIMEOUT_S)
    for round_number in range(4):
        producer.begin_transaction()
        for number in range(5):
            producer.produce("txn", b"%d.%d" % (round_number, number), timestamp=BASE_MS + number)
        flush(producer)
        if round_number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
        plain = Confluent().producer(bootstrap)
        plain.produce("txn", b"plain %d" % round_number, timestamp=BASE_MS)
        flush(plain)


def write_compacted(bootstrap: str, directory: Path) -> None:
    """Several rounds on the same keys, the last with tombstones; then wait for the cleaner."""
    for round_number in range(4):
        producer = Confluent().producer(bootstrap)
        start_ms = BASE_MS + 1000 * round_number  # segments roll by the time of their records
        for number in range(40):
            value = None if round_number == 2 and number < 5 else b"%d.%d" % (round_number, number)
            producer.produce("compacted", value, b"key %d" % (number % 20), timestamp=start_ms + number)
        flush(producer)
    deadline = time.monotonic() + 60
    while len(Confluent().read(bootstrap, "compacted")) >= 100 or any(directory.glob("*.cleaned")):
        if time.monotonic() > deadline:
            raise TimeoutError("Kafka's cleaner left the topic alone")
        time.sleep(0.5)


def flush(producer: confluent_kafka.Producer) -> None:
    if left := producer.flush(TIMEOUT_S):
        raise TimeoutError(f"{left} records were not delivered")


def keep_expectation(bootstrap: str, path: Path) -> None:
    records = {}
    for topic, (partitions, _) in TOPICS.items():
        for isolation in ("read_uncommitted", "read_committed"):
            for partition in range(partitions):
                found = Confluent().read(bootstrap, topic, partition=partition, isolation=isolation)
                records[f"{topic}-{partition}/{isolation}"] = [as_json(*entry) for entry in found]
    expected = {
        "cluster_id": CLUSTER_ID,
        "topics": {name: count for name, (count, _) in TOPICS.items()},
        "configs": describe(bootstrap),
        "records": records,
    }
    path.write_text(json.dumps(expected, separators=(",", ":")))


def as_json(offset: int, record: Any) -> list[Any]:
    def encoded(value: bytes | None) -> str | None:
        return None if value is None else value.hex()

    headers = [[name, encoded(value)] for name, value in record.headers]
    return [offset, record.timestamp_ms, encoded(record.key), encoded(record.value), headers]


def describe(bootstrap: str) -> dict[str, dict[str, str]]:
    """The options each topic has of its own, as DescribeConfigs tells them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in TOPICS])
    return {
        resource.name: {
            name: entry.value
            for name, entry in sorted(future.result(TIMEOUT_S).items())
            if name in TOPICS[resource.name][1]
        }
        for resource, future in described.items()
    }


def pack(work: Path) -> None:
    def keep(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        """Nothing about the machine it was made on; no lock files."""
        if entry.name.endswith("/.lock"):
            return None
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for name in ("clean", "killed", "expected-clean.json", "expected-killed.json"):
            archive.add(work / name, name, filter=keep)


if __name__ == "__main__":
    sys.exit(main())
