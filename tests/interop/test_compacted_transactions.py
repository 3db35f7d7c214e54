"""Transactions on a compacted topic that is cleaned: what readers of both isolation levels find, and what
Kafka's dump tool says of the cleaned segments."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from bench.kafka import java_tool
from tests.interop.conftest import TRANSACTION_OPTIONS, create_topic
from tests.interop.test_transactions import end_offset, settle, transactor, until
from tests.support.clients import CLIENTS, Confluent, Record
from tests.support.node import MoldauNode, unique_name

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

OPTIONS = {**TRANSACTION_OPTIONS, "log.cleaner.backoff.ms": "100"}
KEYS = 20


def roll() -> Record:
    """Of the present: the segment that its predecessors are in is closed, and can be cleaned."""
    return Record(b"roll", b"", (), int(time.time() * 1000))


def written(node: MoldauNode, topic: str) -> dict[bytes, bytes]:
    """What the keys of the topic were committed to be."""
    random = Random(5)
    latest: dict[bytes, bytes] = {}
    count = 0
    for client in CLIENTS:
        with transactor(client, node, unique_name("txn")) as producer:
            for _ in range(20):
                commits = random.random() < 0.6
                producer.begin()
                for _ in range(random.randint(1, 5)):
                    key, value = b"key %d" % random.randrange(KEYS), f"{client} {count}".encode()
                    producer.send((topic, 0), value, key)
                    count += 1
                    if commits:
                        latest[key] = value
                (producer.commit if commits else producer.abort)()
    return latest


class Cleaned(NamedTuple):
    node: MoldauNode
    topic: str
    latest: dict[bytes, bytes]
    end: int

    def read(self, client: str, isolation: str) -> list[tuple[bytes | None, bytes | None]]:
        found = CLIENTS[client].read(self.node.bootstrap, self.topic, isolation=isolation)
        return [(record.key, record.value) for offset, record in found if offset < self.end]


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cleaned]:
    with MoldauNode(tmp_path_factory.mktemp("cleaned") / "data", OPTIONS) as node:
        topic = create_topic(
            node, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="100"
        )
        latest = written(node, topic)
        settle(node, (topic, 0))
        made = Cleaned(node, topic, latest, end_offset(node, (topic, 0), committed=True))

        def is_clean() -> bool:
            Confluent().write(node.bootstrap, topic, [roll()])
            keys = [key for key, _ in made.read("confluent-kafka", "read_uncommitted")]
            return len(keys) == len(set(keys))

        until(is_clean)
        yield made


def test_a_compacted_topic_keeps_the_latest_that_was_committed(cleaned: Cleaned):
    def check() -> None:
        for client in CLIENTS:
            # No aborted record is left for a reader of everything either.
            for isolation in ("read_committed", "read_uncommitted"):
                assert dict(cleaned.read(client, isolation)) == cleaned.latest, (client, isolation)

    check()
    cleaned.node.crash_and_restart()
    check()


@pytest.mark.java
@pytest.mark.usefixtures("kafka_classpath")
def test_the_dump_tool_reads_cleaned_segments(cleaned: Cleaned):
    directory = cleaned.node.data_dir / f"{cleaned.topic}-0"
    segment = directory / f"{0:020d}.log"
    dumped = dump(segment, "--print-data-log")
    assert not re.search("isvalid: false|Could not|Exception|not valid", dumped)
    assert "endTxnMarker: " in dumped
    found = dict(re.findall(r"key: (key \d+) payload: (.*)", dumped))
    assert found == {key.decode(): value.decode() for key, value in cleaned.latest.items()}
    for index in (segment.with_suffix(".index"), segment.with_suffix(".timeindex")):
        assert re.search("passed sanity check|is empty", dump(index, "--index-sanity-check"))


def dump(path: Path, *arguments: str) -> str:
    done = java_tool("org.apache.kafka.tools.DumpLogSegments", "--files", str(path), *arguments, timeout_s=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
