"""Transactions in one data directory that Moldau and Apache Kafka 4.3 serve in turn: whoever takes over has
the transactional ids as they were, and ends what the other has begun."""

from __future__ import annotations

import re
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from bench.kafka import KafkaServer
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.describe_transactions import DescribeTransactionsRequest
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.list_transactions import ListTransactionsRequest
from tests.interop.test_kafka_directory import take_turns
from tests.interop.test_kafka_tools import dump
from tests.support.beside import TIMEOUT_S, Peer
from tests.support.node import MoldauNode

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(150),
    pytest.mark.usefixtures("kafka_classpath"),
]

OPTIONS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
IDLE, COMMITTED, ABORTED, OPEN = IDS = ("idle", "committed", "aborted", "open")
PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
# What Kafka says of records that it cannot make sense of.
UNREAD = re.compile(r"\] (?:WARN|ERROR|FATAL) .*\((?:kafka|org\.apache\.kafka)\.coordinator\.transaction")

Producers = dict[str, tuple[int, int]]


class Node:
    def __init__(self, running: MoldauNode | KafkaServer, producers: Producers) -> None:
        self._peer = Peer(running.bootstrap, ())
        self._producers = producers

    def close(self) -> None:
        self._peer.close()

    def accept(self, request: Any, version: int) -> Any:
        """The answer, when the node is ready for the request."""
        deadline = monotonic() + TIMEOUT_S
        while (code := _code(answer := self._peer.ask(request, version))) in PASSING:
            assert monotonic() < deadline, answer
        assert not code, answer
        return answer

    def create(self) -> None:
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        self._peer.ask(CreateTopicsRequest(topics=[topic]), 7)
        self._peer.topic_id("t")

    def wait(self) -> None:
        """Until everything is loaded, and what was decided is complete."""
        for each in IDS:
            self.accept(FindCoordinatorRequest(coordinator_keys=[each], key_type=1), 4)
        deadline = monotonic() + TIMEOUT_S
        while not self.is_settled():
            assert monotonic() < deadline

    def is_settled(self) -> bool:
        answer: Any = self._peer.ask(DescribeTransactionsRequest(transactional_ids=list(IDS)), 0)
        # All partitions of the topic are asked for the list, those of none of the ids, too.
        return _code(self._peer.ask(ListTransactionsRequest(), 2)) not in PASSING and not any(
            each.error_code in PASSING or each.transaction_state.startswith("Prepare")
            for each in answer.transaction_states
        )

    def told(self) -> list[Any]:
        """All that it tells of transactions, to the millisecond."""
        answers = [
            self._peer.ask(DescribeTransactionsRequest(transactional_ids=list(IDS)), 0),
            self._peer.ask(ListTransactionsRequest(), 2),
        ]
        return [self._peer.plain(answer) for answer in answers]

    def init(self, each: str) -> None:
        answer = self.accept(InitProducerIdRequest(transactional_id=each, transaction_timeout_ms=600_000), 5)
        self._producers[each] = answer.producer_id, answer.producer_epoch

    def add(self, each: str, *indexes: int) -> None:
        producer_id, epoch = self._producers[each]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=each,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(indexes))],
        )
        self.accept(request, 3)

    def end(self, each: str, version: int, *, commit: bool) -> None:
        producer_id, epoch = self._producers[each]
        request = EndTxnRequest(
            transactional_id=each, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        answer = self.accept(request, version)
        if version >= 5:
            self._producers[each] = answer.producer_id, answer.producer_epoch
            # It did not hear the answer. A decision is not forgotten.
            again = self.accept(request, version)
            assert (again.producer_id, again.producer_epoch) == self._producers[each]


def _code(answer: Any) -> int:
    if hasattr(answer, "coordinators"):
        return int(answer.coordinators[0].error_code)
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        for each in topic.results_by_partition:
            return int(each.partition_error_code)
    return int(answer.error_code)


def go_on(node: Node, step: int) -> None:
    version = 4 + step % 2
    if not step:
        for each in IDS:
            node.init(each)
    else:
        node.end(OPEN, version, commit=step % 3 > 0)
    node.init(IDLE)
    for each in (COMMITTED, ABORTED, OPEN):
        node.add(each, step % 2)
        node.add(each, 0, 1)
    node.end(COMMITTED, version, commit=True)
    node.end(ABORTED, version, commit=False)


def test_whoever_takes_over_has_the_transactions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    producers: Producers = {}
    moldau = MoldauNode(data, OPTIONS)
    told: list[Any] = []

    def lead(running: MoldauNode | KafkaServer, step: int) -> None:
        nonlocal told
        node = Node(running, producers)
        try:
            if not step:
                node.create()
            node.wait()
            if step:
                assert node.told() == told
            go_on(node, step)
            node.wait()
            told = node.told()
        finally:
            node.close()

    def look() -> None:
        dumped = dump(data, "__transaction_state-*/*.log", "--transaction-log-decoder")
        read = re.findall(r'"transactionalId":"(\w+)"}} payload: {"version":"1"', dumped)
        assert {*read} == {*IDS}
        assert len(read) == dumped.count("| offset: ")
        assert "isvalid: false" not in dumped

    take_turns(moldau, lead, look, UNREAD)
