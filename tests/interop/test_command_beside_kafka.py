"""The `moldau` command on Apache Kafka 4.3 and on Moldau: the same output, errors and exit codes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.kafka import KafkaServer
from tests.support.node import COMMAND, KEEP, MoldauNode

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(150),
    pytest.mark.xdist_group("beside kafka"),  # one Kafka is enough
]

LINES = b"k1:v1\nk2:v2\n"
JSON = (
    b'{"key":"k","value":{"base64":"/w=="},"headers":[["a",null],["b","x"]],"timestamp":-1,"partition":3}\n'
    b'{"value":null,"timestamp":7,"partition":3}\n'
)
# What is called, and what it reads.
CALLS: list[tuple[str, bytes]] = [
    ("topic list --json", b""),
    ("topic create orders payments --partitions 3 --config retention.ms=86400000", b""),
    ("topic create orders", b""),
    ("topic create orders --if-not-exists", b""),
    ("topic create not/a/name", b""),
    ("topic create x --config nope=1", b""),
    ("topic create x --replication-factor 3", b""),
    ("topic create x --partitions 2 --replication-factor 1 --validate-only", b""),
    ("topic create a.b a_b", b""),
    ("topic list --exclude-internal", b""),
    ("topic describe nope orders --offsets", b""),
    ("topic describe nope --if-exists --json", b""),
    ("topic describe orders --all-configs --json", b""),
    ("topic alter orders --partitions 4 --config segment.bytes=2000000 --delete-config retention.ms", b""),
    ("topic alter orders --partitions 2", b""),
    ("topic alter orders --config retention.ms=-5", b""),
    ("topic alter nope --config retention.ms=1", b""),
    ("topic alter nope --partitions 3", b""),
    ("topic alter nope --partitions 3 --if-exists", b""),
    ("produce orders --key-separator : --header h=1 --compression zstd", LINES),
    ("produce orders --json", JSON),
    ("produce orders --partition 9", LINES),
    ("produce new --acks 0 --compression lz4", b"made by writing to it\n"),
    ("produce new --acks 1 --compression snappy", b"and again\n"),
    ("topic describe orders --offsets --json", b""),
    ("consume orders --partition 1 --from-beginning --max-messages 2 --key --headers", b""),
    ("consume orders --partition 3 --offset 0 --max-messages 2 --json", b""),
    ("consume orders --partition 3 --timestamp 5 --max-messages 1 --json", b""),
    ("consume orders --partition 3 --offset 5", b""),
    ("consume orders --partition 9", b""),
    ("consume orders --timeout 0.5 --isolation read_committed", b""),
    ("consume new --from-beginning --max-messages 2", b""),
    ("consume nope", b""),
    ("topic delete orders payments nope", b""),
    ("topic delete new a.b nope --if-exists", b""),
    ("topic list", b""),
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path_factory.mktemp("kafka") / "data", properties=KEEP) as running:
        yield running


def answers(bootstrap: str) -> list[tuple[str, int, str, str]]:
    return [(call, *answer(call.split(), content, bootstrap)) for call, content in CALLS]


def answer(call: list[str], content: bytes, bootstrap: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(COMMAND), *call, "--bootstrap", bootstrap],
        input=content,
        capture_output=True,
        timeout=60,
        check=False,
    )
    # Ids of topics are random, and nobody says when the lines were written.
    told = re.sub(r'id [\w-]{22}|"topic_id": "[\w-]{22}"', "an id", done.stdout.decode())
    return done.returncode, told, done.stderr.decode()


def test_the_same_is_told_of_both(kafka: KafkaServer, tmp_path: Path) -> None:
    with MoldauNode(tmp_path / "data", KEEP) as moldau:
        assert answers(moldau.bootstrap) == answers(kafka.bootstrap)


def test_what_is_copied_is_the_same(kafka: KafkaServer, tmp_path: Path) -> None:
    """As the page about migrating has it: the records a program sees are those that were there."""
    reading = ["consume", "copied", "--from-beginning", "--timeout", "1", "--json"]
    with MoldauNode(tmp_path / "data", KEEP) as moldau:
        for bootstrap in (kafka.bootstrap, moldau.bootstrap):
            assert answer(["topic", "create", "copied", "--partitions", "4"], b"", bootstrap)[0] == 0
        assert answer(["produce", "copied", "--json"], JSON, kafka.bootstrap)[0] == 0
        there = answer(reading, b"", kafka.bootstrap)
        assert answer(["produce", "copied", "--json"], there[1].encode(), moldau.bootstrap) == (0, "", "")
        assert answer(reading, b"", moldau.bootstrap) == there
        assert there[1].count("\n") == 2
