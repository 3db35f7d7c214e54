from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode
from moldau.wire.messages import metadata
from moldau.wire.schema import Message
from tests.cli.conftest import moldau
from tests.client.fake_broker import FakeBroker
from tests.client.fake_transactions import FakeProducer, FakeTransaction, FakeTransactions

OLD_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
YEAR_9000_MS = 221_845_392_000_000


@pytest.fixture
def transactions(broker: FakeBroker) -> Iterator[FakeTransactions]:
    """Topics `orders` and `payments`, two ids, and a transaction in `orders` that hangs."""
    broker.add_topic("orders", 2)
    broker.add_topic("payments")
    found = FakeTransactions(broker)
    found.transactions = {
        "idle": FakeTransaction(1, 4),
        "billing": FakeTransaction(
            2, state="Ongoing", started_ms=YEAR_9000_MS, partitions={"orders": [1, 0], "payments": [0]}
        ),
    }
    found.producers = {
        ("orders", 0): [FakeProducer(2, OLD_MS, 7, coordinator_epoch=3), FakeProducer(1, OLD_MS)],
        ("orders", 1): [FakeProducer(99, OLD_MS, 12, producer_epoch=5)],
    }
    yield found


# ---------------------------------------------------------------- list


def test_ids_are_listed(transactions: FakeTransactions) -> None:
    assert moldau("transactions", "list").output == (
        "TRANSACTIONAL ID  COORDINATOR  PRODUCER ID  STATE\n"
        "billing                     1            2  Ongoing\n"
        "idle                        1            1  Empty\n"
    )
    (only,) = json.loads(moldau("transactions", "list", "--json", "--state", "ongoing,dead").stdout)
    assert only == {"transactional_id": "billing", "coordinator": 1, "producer_id": 2, "state": "Ongoing"}


def test_filters_go_to_the_brokers(transactions: FakeTransactions) -> None:
    call = [
        "--state",
        "EMPTY",
        "--producer-id",
        "1",
        "--producer-id",
        "7",
        "--duration",
        "5",
        "--pattern",
        "i.*",
    ]
    assert moldau("transactions", "list", *call).output == ""
    (asked,) = transactions.broker.asked(ApiKey.LIST_TRANSACTIONS)
    assert (asked.state_filters, asked.producer_id_filters) == (["Empty"], [1, 7])
    assert (asked.duration_filter, asked.transactional_id_pattern) == (5, "i.*")
    assert moldau("transactions", "list", "--state", "nope").exit_code == 2
    refused = moldau("transactions", "list", "--pattern", "(")
    assert (refused.exit_code, refused.stderr) == (1, "moldau: INVALID_REGULAR_EXPRESSION: '('\n")


def test_an_old_broker_does_not_know_every_filter(transactions: FakeTransactions) -> None:
    transactions.broker.versions_max[ApiKey.LIST_TRANSACTIONS] = 0
    assert moldau("transactions", "list", "--state", "empty").exit_code == 0
    result = moldau("transactions", "list", "--pattern", "i.*")
    assert (result.exit_code, "transactional_id_pattern" in result.stderr) == (1, True)


# ---------------------------------------------------------------- describe


def test_ids_are_described(transactions: FakeTransactions) -> None:
    assert moldau("transactions", "describe").output == (
        "TRANSACTIONAL ID  COORDINATOR  PRODUCER ID  EPOCH  STATE    TIMEOUT MS  STARTED"
        "                   DURATION MS  PARTITIONS\n"
        "billing                     1            2      0  Ongoing       60000  9000-01-01T00:00:00.000Z"
        "            0  orders:0,1;payments:0\n"
        "idle                        1            1      4  Empty         60000  -"
        "                                   -  -\n"
    )


def test_ids_are_described_for_programs(transactions: FakeTransactions) -> None:
    result = moldau("transactions", "describe", "nope", "billing", "--json")
    assert result.exit_code == 1
    assert result.stderr == "moldau: TRANSACTIONAL_ID_NOT_FOUND: there is no transactional id 'nope'\n"
    assert json.loads(result.stdout) == [
        {
            "transactional_id": "billing",
            "coordinator": 1,
            "producer_id": 2,
            "producer_epoch": 0,
            "state": "Ongoing",
            "timeout_ms": 60_000,
            "start_time_ms": YEAR_9000_MS,
            "duration_ms": 0,
            "partitions": {"orders": [0, 1], "payments": [0]},
        }
    ]


# ---------------------------------------------------------------- producers


def test_producers_are_described(transactions: FakeTransactions) -> None:
    result = moldau("transactions", "describe-producers", "--topic", "orders", "--topic", "payments:0,3")
    assert result.exit_code == 1
    assert result.stderr == (
        "moldau: UNKNOWN_TOPIC_OR_PARTITION: topic 'payments' has no partition 3 (it has 1)\n"
    )
    assert result.stdout == (
        "TOPIC   PARTITION  PRODUCER ID  EPOCH  COORDINATOR EPOCH  LAST SEQUENCE"
        "  LAST WRITTEN              TRANSACTION START\n"
        "orders          0            1      0                  -              5"
        "  2023-11-14T22:13:20.000Z                  -\n"
        "orders          0            2      0                  3              5"
        "  2023-11-14T22:13:20.000Z                  7\n"
        "orders          1           99      5                  -              5"
        "  2023-11-14T22:13:20.000Z                 12\n"
    )


def test_open_ones_are_described_for_programs(transactions: FakeTransactions) -> None:
    result = moldau(
        "transactions", "describe-producers", "--topic", "orders:0", "--open", "--broker", "1", "--json"
    )
    assert json.loads(result.stdout) == [
        {
            "topic": "orders",
            "partition": 0,
            "producer_id": 2,
            "producer_epoch": 0,
            "last_sequence": 5,
            "last_timestamp": OLD_MS,
            "coordinator_epoch": 3,
            "transaction_start": 7,
        }
    ]
    assert moldau("transactions", "describe-producers").exit_code == 2
    elsewhere = moldau("transactions", "describe-producers", "--topic", "orders", "--broker", "9")
    assert (elsewhere.exit_code, "node 9 is not in the cluster" in elsewhere.stderr) == (1, True)


def test_any_time_that_a_producer_says_is_shown(transactions: FakeTransactions) -> None:
    transactions.producers = {("payments", 0): [FakeProducer(1, 1 << 62), FakeProducer(2, -1)]}
    shown = moldau("transactions", "describe-producers", "--topic", "payments").stdout.splitlines()
    assert [line.split()[-2] for line in shown[1:]] == [str(1 << 62), "-"]


# ---------------------------------------------------------------- hanging


def test_hanging_transactions_are_found_and_aborted(transactions: FakeTransactions) -> None:
    found = moldau("transactions", "find-hanging")
    assert found.exit_code == 3
    header, line = found.stdout.splitlines()
    assert header == (
        "TOPIC   PARTITION  PRODUCER ID  EPOCH  COORDINATOR EPOCH  TRANSACTION START"
        "  LAST WRITTEN              MINUTES"
    )
    assert line.split()[:7] == ["orders", "1", "99", "5", "-", "12", "2023-11-14T22:13:20.000Z"]
    (as_json,) = json.loads(moldau("transactions", "find-hanging", "--topic", "orders:1", "--json").stdout)
    assert (as_json["topic"], as_json["partition"], as_json["transaction_start"]) == ("orders", 1, 12)

    abort = ["transactions", "abort", "--topic", "orders", "--partition", "1"]
    wrong = moldau(*abort, "--start-offset", "13")
    assert (wrong.exit_code, "no open transaction begins at offset 13" in wrong.stderr) == (1, True)
    assert transactions.broker.asked(ApiKey.WRITE_TXN_MARKERS) == []
    done = moldau(*abort, "--start-offset", "12")
    assert done.output == "aborted the transaction of producer 99 in orders-1\n"
    assert marker(transactions) == (99, 5, 0)
    assert (moldau("transactions", "find-hanging").exit_code, found.stderr) == (0, "")


def marker(transactions: FakeTransactions) -> tuple[Any, ...]:
    (found,) = transactions.broker.asked(ApiKey.WRITE_TXN_MARKERS)[-1].markers
    return found.producer_id, found.producer_epoch, found.coordinator_epoch


def test_nothing_hangs_that_is_young_or_elsewhere(transactions: FakeTransactions) -> None:
    assert moldau("transactions", "find-hanging", "--topic", "orders:0").exit_code == 0
    assert moldau("transactions", "find-hanging", "--topic", "payments", "--json").output == "[]\n"
    minutes = str((1 << 31) - 1)
    assert moldau("transactions", "find-hanging", "--max-transaction-timeout", minutes).exit_code == 0
    assert moldau("transactions", "find-hanging", "--broker", "1").exit_code == 3
    assert moldau("transactions", "find-hanging", "--broker", "2").exit_code == 0


def test_a_partition_without_a_leader_does_not_hide_the_others(transactions: FakeTransactions) -> None:
    def without_a_leader(request: metadata.MetadataRequest) -> Message:
        answer = transactions.broker._metadata(request)
        assert isinstance(answer, metadata.MetadataResponse)
        for topic in answer.topics:
            if topic.name == "payments":
                topic.partitions[0].leader_id = -1
        return answer

    transactions.broker.overrides[ApiKey.METADATA] = without_a_leader
    result = moldau("transactions", "find-hanging")
    assert (result.exit_code, "orders" in result.stdout) == (1, True)
    assert result.stderr == "moldau: LEADER_NOT_AVAILABLE: partition payments-0\n"


def test_a_transaction_is_aborted_by_its_producer(transactions: FakeTransactions) -> None:
    abort = ["transactions", "abort", "--topic", "orders", "--partition", "1", "--producer-id", "99"]
    assert moldau(*abort, "--producer-epoch", "5").exit_code == 2
    assert moldau(*abort, "--start-offset", "12").exit_code == 2
    assert moldau(*abort, "--producer-epoch", "5", "--coordinator-epoch", "8").exit_code == 0
    assert marker(transactions) == (99, 5, 8)
    # So it is told of a producer of which no coordinator has written a marker.
    assert moldau(*abort, "--producer-epoch", "5", "--coordinator-epoch", "-1").exit_code == 0
    assert marker(transactions) == (99, 5, 0)
    assert transactions.broker.asked(ApiKey.DESCRIBE_PRODUCERS) == []
    transactions.passing = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    refused = moldau(*abort, "--producer-epoch", "5", "--coordinator-epoch", "8")
    assert (refused.exit_code, "TRANSACTION_COORDINATOR_FENCED" in refused.stderr) == (1, True)


def test_ids_are_terminated_and_none_comes_to_be_by_it(transactions: FakeTransactions) -> None:
    result = moldau("transactions", "force-terminate", "nope", "billing")
    assert (result.exit_code, result.stdout) == (1, "terminated billing, which was Ongoing\n")
    assert result.stderr == "moldau: TRANSACTIONAL_ID_NOT_FOUND: there is no transactional id 'nope'\n"
    (asked,) = transactions.broker.asked(ApiKey.INIT_PRODUCER_ID)
    assert asked.transactional_id == "billing"
