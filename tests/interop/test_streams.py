"""Kafka Streams with exactly_once_v2: repartition topic, state store and changelog, on a Moldau node."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from bench.kafka import REPOSITORY, java_command, streams_classpath
from tests.interop.conftest import TRANSACTION_OPTIONS, create_topic
from tests.support.clients import Confluent, Record
from tests.support.node import MoldauNode, unique_name

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("kafka_classpath"),
]

PROGRAM = REPOSITORY / "tests" / "interop" / "java" / "WordCount.java"
PARTITIONS = 2
WORDS = [f"word-{number}" for number in range(40)]
LINES, WORDS_A_LINE = 1200, 5
WAIT_S = 100


class Counting:
    """The program's process, which is killed and started anew on the same state directory."""

    def __init__(self, node: MoldauNode, directory: Path) -> None:
        self.input = create_topic(node, partitions=PARTITIONS)
        self.output = create_topic(node, partitions=PARTITIONS)
        self._node = node
        self._errors = directory / "word-count.stderr"
        arguments = [node.bootstrap, str(directory / "state"), unique_name("words"), self.input, self.output]
        self._command = java_command(str(PROGRAM), *arguments, classpath=streams_classpath())
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stderr=errors)

    def end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(WAIT_S)

    def changes(self) -> dict[str, list[int]]:
        """By word, what its count was in turn, as a reader of committed records sees it."""
        found: dict[str, list[int]] = defaultdict(list)
        for partition in range(PARTITIONS):
            for _, record in Confluent().read(
                self._node.bootstrap, self.output, partition=partition, isolation="read_committed"
            ):
                assert record.key is not None
                assert record.value is not None
                found[record.key.decode()].append(int.from_bytes(record.value, "big"))
        return found

    def wait(self, condition: Callable[[int], bool]) -> None:
        """Until as many changes are there as it takes."""
        deadline = time.monotonic() + WAIT_S
        while not condition(count := sum(map(len, self.changes().values()))):
            assert self._process is not None
            assert self._process.poll() is None, self._errors.read_text()[-4000:]
            assert time.monotonic() < deadline, f"{count} changes; {self._errors.read_text()[-4000:]}"


@contextmanager
def counting(node: MoldauNode, directory: Path) -> Iterator[Counting]:
    program = Counting(node, directory)
    program.start()
    try:
        yield program
    finally:
        program.end(signal.SIGKILL)


def test_words_are_counted_exactly_once_through_kills(tmp_path: Path):
    random = Random(1)
    lines = [[random.choice(WORDS) for _ in range(WORDS_A_LINE)] for _ in range(LINES)]
    options = {**TRANSACTION_OPTIONS, "group.min.session.timeout.ms": "1000"}
    with MoldauNode(tmp_path / "data", options) as node, counting(node, tmp_path) as program:
        third = LINES // 3
        for part, disturb in enumerate(
            (lambda: program.end(signal.SIGKILL), node.crash_and_restart, lambda: None)
        ):
            before = part * third * WORDS_A_LINE
            batch = [
                Record(None, " ".join(line).encode()) for line in lines[part * third : (part + 1) * third]
            ]
            for partition in range(PARTITIONS):
                Confluent().write(
                    node.bootstrap, program.input, batch[partition::PARTITIONS], partition=partition
                )
            # The disturbance comes while it counts.
            program.wait(lambda count, before=before: count > before)
            disturb()
            if part == 0:
                program.start()
        program.wait(lambda count: count >= LINES * WORDS_A_LINE)
        expected = Counter(word for line in lines for word in line)
        assert program.changes() == {word: list(range(1, count + 1)) for word, count in expected.items()}
