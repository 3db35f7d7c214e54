"""Transactions of Kafka's own Java clients and tools, in both versions, and what the dump tool says."""

from __future__ import annotations

import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from bench.kafka import java_command, java_tool
from moldau.records.batch import iterate_headers
from tests.interop.conftest import TRANSACTION_OPTIONS, create_topic
from tests.interop.test_transactions import end_offset, settle, transactor, until, values
from tests.support.clients import Confluent, Record
from tests.support.node import MoldauNode, unique_name
from tests.support.transactions import UNVERIFIED, hang

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(200),
    pytest.mark.usefixtures("kafka_classpath"),
]

TOOLS = "org.apache.kafka.tools."
TRANSACTIONS = TOOLS + "TransactionsCommand"
TOOL_TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a tool's time is its start; the better compiler never pays off."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -Xshare:auto")


def tool(name: str, *arguments: str) -> str:
    done = java_tool(name, *arguments, timeout_s=TOOL_TIMEOUT_S)
    assert done.returncode == 0, f"{name} {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout


def rows(table: str) -> list[dict[str, str]]:
    """What `kafka-transactions` prints: a line of names, and lines of values."""
    names, *lines = (re.split(r"\s*\t\s*", line.strip()) for line in table.splitlines() if line.strip())
    return [dict(zip(names, line, strict=True)) for line in lines]


def test_transactions_are_listed_described_and_aborted(txn_node: MoldauNode):
    topic, name = create_topic(txn_node, partitions=2), unique_name("txn")
    at = ["--bootstrap-server", txn_node.bootstrap]
    with transactor("confluent-kafka", txn_node, name) as producer:
        producer.begin()
        producer.send((topic, 0), b"one")
        producer.send((topic, 1), b"two")
        (listed,) = (row for row in rows(tool(TRANSACTIONS, *at, "list")) if row["TransactionalId"] == name)
        assert (listed["Coordinator"], listed["TransactionState"]) == ("1", "Ongoing")
        (described,) = rows(tool(TRANSACTIONS, *at, "describe", "--transactional-id", name))
        assert described["ProducerId"] == listed["ProducerId"]
        assert described["TransactionState"] == "Ongoing"
        assert described["TransactionTimeoutMs"] == "60000"
        assert sorted(described["TopicPartitions"].split(",")) == [f"{topic}-0", f"{topic}-1"]
        asked = ["describe-producers", "--topic", topic, "--partition", "0"]
        (active,) = rows(tool(TRANSACTIONS, *at, *asked))
        assert active["ProducerId"] == listed["ProducerId"]
        assert active["CurrentTransactionStartOffset"] == "0"
        assert active["LastSequence"] == "0"
        # Old enough to be looked for, and known to its coordinator: it does not hang.
        hanging = ["find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"]
        assert topic not in tool(TRANSACTIONS, *at, *hanging)
        tool(TRANSACTIONS, *at, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        until(lambda: end_offset(txn_node, (topic, 0), committed=True) == 2)
        assert end_offset(txn_node, (topic, 1), committed=True) == 0
        (active,) = rows(tool(TRANSACTIONS, *at, *asked))
        assert active["CurrentTransactionStartOffset"] == "None"


def test_a_hanging_transaction_is_found_and_aborted(tmp_path: Path):
    """One that its coordinator knows nothing of, as old producers and brokers could leave it behind."""
    with MoldauNode(tmp_path / "data", {**TRANSACTION_OPTIONS, **UNVERIFIED}) as node:
        topic = create_topic(node)
        at = ["--bootstrap-server", node.bootstrap]
        with transactor("kafka-python", node, unique_name("txn")):
            pass  # so that there is a coordinator
        hang(node.bootstrap, topic, 0, producer_id=1000, timestamp=1_700_000_000_000)
        assert end_offset(node, (topic, 0), committed=True) == 0
        find = ["find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"]
        (found,) = rows(tool(TRANSACTIONS, *at, *find))
        assert (found["Topic"], found["Partition"], found["StartOffset"]) == (topic, "0", "0")
        assert found["ProducerId"] == "1000"
        tool(TRANSACTIONS, *at, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        assert end_offset(node, (topic, 0), committed=True) == 3
        assert rows(tool(TRANSACTIONS, *at, *find)) == []


class Copier:
    """Kafka's TransactionalMessageCopier: copies a partition in transactions, and aborts some of them."""

    def __init__(self, node: MoldauNode, source: str, target: str, transactional_id: str, group: str) -> None:
        self._command = java_command(
            TOOLS + "TransactionalMessageCopier",
            *("--broker-list", node.bootstrap, "--input-topic", source, "--input-partition", "0"),
            *("--output-topic", target, "--transactional-id", transactional_id, "--consumer-group", group),
            *("--transaction-size", "5", "--enable-random-aborts", "--use-group-metadata"),
            # It asks where the group is before it takes its transactional id, and so waits for what another
            # that was killed has left open.
            *("--transaction-timeout", "3000"),
        )
        self.process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def wait(self) -> bytes:
        """What it complains of, when it did not come to its end."""
        _, errors = self.process.communicate(timeout=TOOL_TIMEOUT_S)
        return errors[-4000:] if self.process.returncode else b""

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def __enter__(self) -> Copier:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("version", [1, 2])
def test_a_java_client_copies_exactly_once(own_txn_node: MoldauNode, version: int):
    """Killed in the middle, it is followed by another with the same transactional id; then the node is."""
    if version == 1:
        at = ["--bootstrap-server", own_txn_node.bootstrap]
        tool(TOOLS + "FeatureCommand", *at, "downgrade", "--feature", "transaction.version=1")
    source, target = create_topic(own_txn_node), create_topic(own_txn_node)
    names = source, target, unique_name("copier"), unique_name("group")
    written = [b"%d" % number for number in range(8000)]
    Confluent().write(own_txn_node.bootstrap, source, [Record(None, value) for value in written])
    copied = partial(end_offset, own_txn_node, (target, 0), committed=True)
    with Copier(own_txn_node, *names) as first:
        until(lambda: copied() > 200 or first.has_ended)
    before = copied()
    with Copier(own_txn_node, *names) as second:
        until(lambda: copied() > before + 200 or second.has_ended)
        own_txn_node.crash_and_restart()
        complaint = second.wait()
    if complaint:
        # It need not live through that; what it left is gone on with.
        with Copier(own_txn_node, *names) as third:
            complaint = third.wait()
        assert not complaint, complaint
    settle(own_txn_node, (target, 0))
    assert values(own_txn_node, (target, 0), committed=True) == written
    # Some were aborted, and are there.
    assert len(values(own_txn_node, (target, 0), committed=False)) > len(written)
    # In the second version each transaction has an epoch of its own.
    segment = own_txn_node.data_dir / f"{target}-0" / f"{0:020d}.log"
    data = memoryview(segment.read_bytes())
    epochs = {(header.producer_id, header.producer_epoch) for _, header in iterate_headers(data)}
    assert len(epochs) > 50 if version == 2 else len(epochs) < 20


def test_the_console_consumer_reads_by_isolation_level(txn_node: MoldauNode):
    topic = create_topic(txn_node)
    with transactor("kafka-python", txn_node, unique_name("txn")) as producer:
        for value, commits in ((b"first", True), (b"aborted", False), (b"second", True)):
            producer.begin()
            producer.send((topic, 0), value)
            (producer.commit if commits else producer.abort)()
    settle(txn_node, (topic, 0))
    for level, expected in (
        ("read_committed", ["first", "second"]),
        ("read_uncommitted", ["first", "aborted", "second"]),
    ):
        printed = tool(
            TOOLS + "consumer.ConsoleConsumer",
            *("--bootstrap-server", txn_node.bootstrap, "--topic", topic, "--from-beginning"),
            *("--isolation-level", level, "--max-messages", str(len(expected)), "--timeout-ms", "40000"),
        )
        assert printed.splitlines() == expected


def test_the_dump_tool_reads_what_transactions_leave(own_txn_node: MoldauNode):
    topic, group = create_topic(own_txn_node), unique_name("group")
    with transactor("kafka-python", own_txn_node, "dumped") as producer:
        for value, commits in ((b"first", True), (b"aborted", False), (b"second", True)):
            producer.begin()
            producer.send((topic, 0), value)
            producer.send_offsets(group, {(topic, 0): 1})
            (producer.commit if commits else producer.abort)()
    settle(own_txn_node, (topic, 0))
    data = own_txn_node.data_dir
    own_txn_node.stop()
    own_txn_node.start()
    dumped = dump(data, f"{topic}-0/*.log", "--print-data-log")
    assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: \d+", dumped) == ["COMMIT", "ABORT", "COMMIT"]
    dumped += dump(data, "__transaction_state-*/*.log", "--transaction-log-decoder")
    # Complete, by a commit (4) or by an abort (5).
    assert re.findall(r'"transactionalId":"dumped".*"transactionStatus":([45])', dumped) == ["4", "5", "4"]
    dumped += dump(data, "__consumer_offsets-*/*.log", "--offsets-decoder")
    assert len(re.findall(r"endTxnMarker: (\w+)", dumped)) == 6
    dumped += dump(data, f"{topic}-0/*.txnindex")
    assert re.search(r"version: 0 producerId: \d+ firstOffset: 2 lastOffset: 3 lastStableOffset: 4", dumped)
    dumped += dump(data, f"{topic}-0/*.snapshot")
    assert re.search(
        r"producerId: \d+ producerEpoch: \d+ coordinatorEpoch: 0 currentTxnFirstOffset: OptionalLong.empty ",
        dumped,
    )
    assert not re.search("isvalid: false|Could not|Exception", dumped)


def dump(directory: Path, pattern: str, *arguments: str) -> str:
    """What DumpLogSegments says of all files of a pattern; there is at least one."""
    files = sorted(str(path) for path in directory.glob(pattern))
    assert files, f"no {pattern} in {directory}"
    return tool(TOOLS + "DumpLogSegments", "--files", ",".join(files), *arguments)
