"""`moldau produce --transactional-id`: all lines are written, or none is."""

from __future__ import annotations

import signal
import subprocess

import pytest

from moldau.records.batch import iterate_headers
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode
from moldau.wire.messages import produce as produce_messages
from tests.cli.test_produce_and_consume_commands import MOLDAU, produce, written
from tests.client.fake_broker import FakeBroker
from tests.client.fake_transactions import FakeTransaction, FakeTransactions


@pytest.fixture
def transactions(broker: FakeBroker) -> FakeTransactions:
    broker.add_topic("a", 3)
    found = FakeTransactions(broker)
    found.transactions["id"] = FakeTransaction(7, 3)
    return found


def test_all_lines_are_one_transaction(broker: FakeBroker, transactions: FakeTransactions) -> None:
    transactions.passing = [ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS]
    result = produce(
        b"1:one\n2:two\n3:three\n4:four\n", "a", "--transactional-id", "id", "--key-separator", ":"
    )
    assert (result.returncode, result.stderr) == (0, b"")
    values = {record.value for index in range(3) for record in written(broker, "a", index)}
    assert values == {b"one", b"two", b"three", b"four"}
    headers = [header for log in broker.topics["a"].logs for _, header in iterate_headers(log)]
    assert {(each.is_transactional, each.producer_id, each.producer_epoch) for each in headers} == {
        (True, 7, 5)
    }
    assert {request.transactional_id for request in broker.asked(ApiKey.PRODUCE)} == {"id"}
    transaction = transactions.transactions["id"]
    assert transaction.state == "CompleteCommit"
    used = [index for index, log in enumerate(broker.topics["a"].logs) if log]
    assert sorted(transaction.partitions["a"]) == used
    # Nothing is written to what has not been added.
    keys = [key for key, _, _ in broker.requests]
    assert keys.index(ApiKey.ADD_PARTITIONS_TO_TXN) < keys.index(ApiKey.PRODUCE)


def test_no_lines_are_no_transaction(broker: FakeBroker, transactions: FakeTransactions) -> None:
    assert produce(b"", "a", "--transactional-id", "id").returncode == 0
    assert broker.asked(ApiKey.END_TXN) == []


def test_a_line_that_is_none_aborts_them_all(broker: FakeBroker, transactions: FakeTransactions) -> None:
    result = produce(b'{"value": "x"}\n{\n', "a", "--transactional-id", "id", "--json")
    assert (result.returncode, result.stderr) == (
        1,
        b"moldau: line 2 is not JSON; the transaction is aborted\n",
    )
    assert transactions.transactions["id"].state == "CompleteAbort"


def test_what_is_refused_aborts_them_all(broker: FakeBroker, transactions: FakeTransactions) -> None:
    def refuse(request: produce_messages.ProduceRequest) -> produce_messages.ProduceResponse:
        (topic,) = request.topic_data
        return produce_messages.ProduceResponse(
            responses=[
                produce_messages.TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        produce_messages.PartitionProduceResponse(
                            index=data.index, error_code=ErrorCode.MESSAGE_TOO_LARGE
                        )
                        for data in topic.partition_data
                    ],
                )
            ]
        )

    broker.overrides[ApiKey.PRODUCE] = refuse
    result = produce(b"x\n", "a", "--transactional-id", "id")
    assert (result.returncode, b"MESSAGE_TOO_LARGE" in result.stderr) == (1, True)
    assert [request.committed for request in broker.asked(ApiKey.END_TXN)] == [False]


def test_whoever_has_been_fenced_is_told(broker: FakeBroker, transactions: FakeTransactions) -> None:
    transactions.passing = [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.PRODUCER_FENCED]
    result = produce(b"x\n", "a", "--transactional-id", "id")
    assert result.returncode == 1
    assert result.stderr == (
        b"moldau: PRODUCER_FENCED: there is a newer producer with the transactional id 'id'\n"
    )


def test_an_interrupt_aborts_them_all(broker: FakeBroker, transactions: FakeTransactions) -> None:
    process = subprocess.Popen(
        [*MOLDAU, "produce", "a", "--transactional-id", "id"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(b"first\n")
    process.stdin.flush()
    while not broker.asked(ApiKey.PRODUCE):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, b"\n")
    assert transactions.transactions["id"].state == "CompleteAbort"


def test_a_transaction_is_acknowledged_by_all(broker: FakeBroker) -> None:
    assert produce(b"x\n", "a", "--transactional-id", "id", "--acks", "1").returncode == 2
