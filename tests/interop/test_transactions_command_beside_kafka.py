"""`moldau transactions` and Kafka's own tool, asked about the same transactions: they tell the same."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer

from bench.kafka import KafkaServer, java_tool
from tests.support.node import COMMAND, KEEP
from tests.support.transactions import UNVERIFIED, begin, create_topics, hang, producer

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("beside kafka"),  # one Kafka is enough
]

TOOL = "org.apache.kafka.tools.TransactionsCommand"
OLD_MS = 1_700_000_000_000


class Place(NamedTuple):
    bootstrap: str
    ongoing: Producer
    """That of the id `ongoing`, which has written to orders-0 and orders-2."""


@pytest.fixture(autouse=True)
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a tool's time is its start; the better compiler never pays off."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -Xshare:auto")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("transactions")
    options = {**KEEP, **UNVERIFIED, "transaction.state.log.num.partitions": "3"}
    with KafkaServer(directory / "kafka", properties=options) as kafka:
        yield fill(kafka.bootstrap)


def fill(bootstrap: str) -> Place:
    create_topics(bootstrap, orders=3, payments=1)
    committed = producer(bootstrap, "committed")
    begin(committed, [("orders", 0), ("payments", 0)])
    committed.commit_transaction()
    aborted = producer(bootstrap, "aborted")
    begin(aborted, [("orders", 1)])
    aborted.abort_transaction()
    producer(bootstrap, "empty")
    ongoing = producer(bootstrap, "ongoing")
    begin(ongoing, [("orders", 0), ("orders", 2)])
    return Place(bootstrap, ongoing)


def moldau(place: Place, *call: str) -> tuple[int, Any]:
    done = subprocess.run(
        [str(COMMAND), "transactions", *call, "--json", "--bootstrap", place.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    return done.returncode, json.loads(done.stdout)


def kafka_tool(place: Place, *call: str) -> list[dict[str, str]]:
    """The rows of what it prints, by its headings."""
    done = java_tool(TOOL, "--bootstrap-server", place.bootstrap, *call, timeout_s=60)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("\t")] for line in done.stdout.splitlines()]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]] if rows else []


def told(value: Any) -> str:
    return "None" if value is None else str(value)


def listed(place: Place, *call: str) -> list[dict[str, str]]:
    return [
        {
            "TransactionalId": each["transactional_id"],
            "Coordinator": str(each["coordinator"]),
            "ProducerId": str(each["producer_id"]),
            "TransactionState": each["state"],
            "": "",
        }
        for each in moldau(place, "list", *call)[1]
    ]


def test_the_same_ids_are_listed(place: Place) -> None:
    theirs = kafka_tool(place, "list")
    assert {row["TransactionState"] for row in theirs} >= {
        "CompleteCommit",
        "CompleteAbort",
        "Empty",
        "Ongoing",
    }
    assert listed(place) == sorted(theirs, key=lambda row: row["TransactionalId"])
    pattern = "co.*d"
    theirs = kafka_tool(place, "list", "--transactional-id-pattern", pattern, "--duration-filter", "0")
    assert listed(place, "--pattern", pattern, "--duration", "0") == theirs
    assert [row["TransactionalId"] for row in theirs] == ["committed"]


def test_the_same_is_told_of_an_id(place: Place) -> None:
    for name in ("ongoing", "empty"):
        (theirs,) = kafka_tool(place, "describe", "--transactional-id", name)
        _, (ours,) = moldau(place, "describe", name)
        places = [f"{topic}-{index}" for topic, indexes in ours["partitions"].items() for index in indexes]
        assert sorted(filter(None, theirs.pop("TopicPartitions").split(","))) == places
        duration = theirs.pop("TransactionDurationMs")
        assert (duration == "None") == (ours["duration_ms"] is None)
        assert theirs == {
            "CoordinatorId": str(ours["coordinator"]),
            "TransactionalId": name,
            "ProducerId": str(ours["producer_id"]),
            "ProducerEpoch": str(ours["producer_epoch"]),
            "TransactionState": ours["state"],
            "TransactionTimeoutMs": str(ours["timeout_ms"]),
            "CurrentTransactionStartTimeMs": told(ours["start_time_ms"]),
            "": "",
        }


def described_producers(place: Place, index: int) -> list[dict[str, str]]:
    return [
        {
            "ProducerId": str(each["producer_id"]),
            "ProducerEpoch": str(each["producer_epoch"]),
            "LatestCoordinatorEpoch": told(
                -1 if each["coordinator_epoch"] is None else each["coordinator_epoch"]
            ),
            "LastSequence": str(each["last_sequence"]),
            "LastTimestamp": str(each["last_timestamp"]),
            "CurrentTransactionStartOffset": told(each["transaction_start"]),
            "": "",
        }
        for each in moldau(place, "describe-producers", "--topic", f"orders:{index}")[1]
    ]


def test_the_same_producers_are_described(place: Place) -> None:
    for index in range(2):
        theirs = kafka_tool(place, "describe-producers", "--topic", "orders", "--partition", str(index))
        assert described_producers(place, index) == sorted(theirs, key=lambda row: int(row["ProducerId"]))


def consumed(place: Place, isolation: str) -> list[tuple[int, int]]:
    """Partition and offset of each record of `orders`."""
    done = subprocess.run(
        [
            *(str(COMMAND), "consume", "orders", "--bootstrap", place.bootstrap, "--from-beginning"),
            *("--timeout", "1", "--json", "--isolation-level", isolation),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    records = map(json.loads, done.stdout.splitlines())
    return sorted((record["partition"], record["offset"]) for record in records)


def test_only_what_is_committed_is_consumed_as_such(place: Place) -> None:
    committed = [(0, 0), (0, 1), (0, 2)]
    assert consumed(place, "read_committed") == committed
    unsettled = [(0, 4), (0, 5), (0, 6), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert consumed(place, "read_uncommitted") == committed + unsettled


def test_lines_are_written_in_a_transaction(place: Place) -> None:
    call = ["produce", "payments", "--transactional-id", "lines", "--bootstrap", place.bootstrap, "--json"]
    for lines, code in ((b'{"value": "a"}\n{"value": "b"}\n', 0), (b'{"value": "c"}\nd\n', 1)):
        done = subprocess.run(
            [str(COMMAND), *call], input=lines, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stderr
    reading = ["consume", "payments", "--bootstrap", place.bootstrap, "--offset", "4", "--timeout", "1"]
    read = subprocess.run(
        [str(COMMAND), *reading, "--isolation-level", "read_committed"],
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert read.stdout == b"a\nb\n"


def test_the_same_hangs_and_is_aborted_by_either(place: Place) -> None:
    search = ("find-hanging", "--topic", "orders")
    assert (moldau(place, *search), kafka_tool(place, *search)) == ((0, []), [])
    for producer_id in (4242, 4243):
        hang(place.bootstrap, "orders", 1, producer_id=producer_id, timestamp=OLD_MS)
    code, ours = moldau(place, *search)
    theirs = kafka_tool(place, *search)
    assert code == 3
    assert [(each["producer_id"], each["partition"], each["transaction_start"]) for each in ours] == [
        (int(row["ProducerId"]), int(row["Partition"]), int(row["StartOffset"]))
        for row in sorted(theirs, key=lambda row: int(row["ProducerId"]))
    ]
    assert [each["producer_id"] for each in ours] == [4242, 4243]
    assert moldau(place, "find-hanging", "--broker", "1")[1] == ours
    assert moldau(place, "find-hanging")[1] == ours
    # One is ended by the command, the other by Kafka's tool.
    by_place = ("abort", "--topic", "orders", "--partition", "1", "--start-offset")
    subprocess.run(
        [
            *(str(COMMAND), "transactions", *by_place, str(ours[0]["transaction_start"])),
            *("--bootstrap", place.bootstrap),
        ],
        check=True,
        timeout=60,
    )
    assert [each["producer_id"] for each in moldau(place, *search)[1]] == [4243]
    kafka_tool(place, *by_place, str(ours[1]["transaction_start"]))
    assert moldau(place, *search) == (0, [])
    assert described_producers(place, 1)[-1]["CurrentTransactionStartOffset"] == "None"


def test_what_is_terminated_is_aborted_and_fenced(place: Place) -> None:
    terminate = [str(COMMAND), "transactions", "force-terminate", "ongoing", "--bootstrap", place.bootstrap]
    done = subprocess.run(terminate, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "terminated ongoing, which was Ongoing\n"
    _, (described,) = moldau(place, "describe", "ongoing")
    assert (described["state"], described["partitions"]) == ("Empty", {})
    assert moldau(place, "describe-producers", "--topic", "orders", "--open") == (0, [])
    with pytest.raises(KafkaException) as fenced:
        place.ongoing.commit_transaction()
    assert fenced.value.args[0].fatal()
    # An id that is left in the same state by Kafka's tool.
    other = producer(place.bootstrap, "other")
    begin(other, [("orders", 0)])
    kafka_tool(place, "forceTerminateTransaction", "--transactionalId", "other")
    _, (theirs,) = moldau(place, "describe", "other")
    assert {key: theirs[key] for key in ("state", "timeout_ms", "producer_epoch")} == {
        key: described[key] for key in ("state", "timeout_ms", "producer_epoch")
    }
