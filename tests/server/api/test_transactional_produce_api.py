"""Produce with a transactional id: whom a node asks before a transaction begins in a partition, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moldau.wire.errors import ErrorCode as E
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.server.api.test_fetch_api import offsets_of, only, send
from tests.server.api.txn_clients import (
    PRODUCER_ID,
    FakeTransactions,
    marker,
    transactional_batch,
    write_markers,
)
from tests.server.sim_node import SimNode

OLD, NEW = 11, 12
"""Versions of Produce: below and of transaction version 2."""


@pytest.fixture
def topic(node: SimNode) -> SimNode:
    node.create_topic("t", 3)
    return node


def request(
    node: SimNode, *batches: Any, version: int, acks: int = -1, transactional_id: str | None = "id"
) -> ProduceRequest:
    """One batch for each partition; None leaves a partition out."""
    asked = TopicProduceData(
        name="t" if version < 13 else "",
        topic_id=ZERO_UUID if version < 13 else Uuid(node.partition("t").topic_id),
        partition_data=[
            PartitionProduceData(index=index, records=bytes(records))
            for index, records in enumerate(batches)
            if records is not None
        ],
    )
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[asked], transactional_id=transactional_id)


def produce(node: SimNode, *batches: Any, version: int = NEW, wait_s: float = 0, **fields: Any) -> Any:
    """Codes and base offsets, or None if there was no answer."""
    answer = node.send(request(node, *batches, version=version, **fields), version, wait_s=wait_s)
    if answer is None:
        return None
    ((topic),) = answer.responses
    return [(each.error_code, each.base_offset) for each in topic.partition_responses]


@pytest.mark.parametrize("version", [3, OLD, NEW, 13])
def test_the_coordinator_is_asked_once_for_each_partition_of_a_transaction(
    topic: SimNode, version: int
) -> None:
    coordinator = FakeTransactions(topic)
    first = transactional_batch(2)
    assert produce(topic, first, first, version=version) == [(E.NONE, 0), (E.NONE, 0)]
    assert produce(topic, transactional_batch(sequence=2), version=version) == [(E.NONE, 2)]
    asked = {
        "producer": ("id", PRODUCER_ID, 0),
        "partitions": [("t", 0), ("t", 1)],
        "verify_only": version < NEW,
        "version": 1 if version < NEW else 2,
    }
    assert coordinator.asked == [asked]
    assert offsets_of(only(send(topic, 0, isolation_level=1))) == (3, 0, 0)


def test_each_transaction_is_asked_for(topic: SimNode) -> None:
    coordinator = FakeTransactions(topic)
    produce(topic, transactional_batch())
    write_markers(topic, marker({"t": [0]}, epoch=1, transaction_version=2))
    assert produce(topic, transactional_batch(epoch=1)) == [(E.NONE, 2)]
    assert len(coordinator.asked) == 2


def test_a_batch_that_is_there_already_is_told_where(topic: SimNode) -> None:
    """Even if its transaction is over, and nobody knows of it any more."""
    coordinator = FakeTransactions(topic)
    produce(topic, transactional_batch(), version=OLD)
    write_markers(topic, marker({"t": [0]}))
    assert produce(topic, transactional_batch(), version=OLD) == [(E.NONE, 0)]
    coordinator.code = E.INVALID_TXN_STATE
    assert produce(topic, transactional_batch(sequence=1), version=OLD) == [(E.INVALID_TXN_STATE, -1)]


@pytest.mark.parametrize(
    ("code", "told_10", "told_11", "told_12"),
    [
        (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS, E.CONCURRENT_TRANSACTIONS),
        (E.NOT_COORDINATOR, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS),
        (E.COORDINATOR_LOAD_IN_PROGRESS, *[E.NOT_ENOUGH_REPLICAS] * 3),
        (E.PRODUCER_FENCED, *[E.INVALID_PRODUCER_EPOCH] * 3),
        (E.INVALID_PRODUCER_ID_MAPPING, *[E.INVALID_PRODUCER_ID_MAPPING] * 3),
    ],
)
def test_what_the_coordinator_says_is_told_as_the_client_knows_it(
    topic: SimNode, code: E, told_10: E, told_11: E, told_12: E
) -> None:
    FakeTransactions(topic, code)
    for version, told in ((10, told_10), (11, told_11), (12, told_12)):
        assert produce(topic, transactional_batch(), version=version, wait_s=1) == [(told, -1)]
    assert topic.partition("t").log.log_end_offset == 0  # type: ignore[union-attr]


def test_a_last_transaction_that_is_still_being_ended_is_waited_for(topic: SimNode) -> None:
    """Its marker makes void what was asked before it: the node asks again."""
    coordinator = FakeTransactions(topic)
    produce(topic, transactional_batch())
    coordinator.code = E.CONCURRENT_TRANSACTIONS

    async def later() -> None:
        await asyncio.sleep(0.03)
        coordinator.code = E.NONE
        topic.services.txn_markers.write_marker(
            "t",
            0,
            producer_id=PRODUCER_ID,
            producer_epoch=1,
            coordinator_epoch=0,
            is_committed=True,
            transaction_version=2,
        )

    topic.runtime.spawn(later(), "end")
    answer = produce(topic, None, transactional_batch(epoch=1), wait_s=0.2)
    assert answer == [(E.NONE, 0)]
    assert [each["partitions"] for each in coordinator.asked[1:]] == [[("t", 1)]] * 3


def test_an_answer_that_comes_behind_the_marker_lets_nothing_in(topic: SimNode) -> None:
    """The transaction that it was about has ended: another of the same producer may have begun meanwhile, and
    does not know of this partition."""
    coordinator = FakeTransactions(topic, at_once=False)

    async def later() -> None:
        await asyncio.sleep(0.1)
        topic.services.txn_markers.write_marker(
            "t",
            0,
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            coordinator_epoch=0,
            is_committed=False,
            transaction_version=1,
        )
        coordinator.answer()

    topic.runtime.spawn(later(), "end")
    assert produce(topic, transactional_batch(), version=OLD, wait_s=1) == [(E.INVALID_TXN_STATE, -1)]
    log = topic.partition("t").leader_log()
    assert log.last_stable_offset == log.log_end_offset == 1


def test_what_waits_for_the_coordinator_is_kept(topic: SimNode) -> None:
    """The frame is gone by then, and so may be the client."""
    coordinator = FakeTransactions(topic, at_once=False)
    topic.runtime.call_later(0.1, coordinator.answer)
    assert produce(topic, transactional_batch(3), wait_s=1) == [(E.NONE, 0)]
    assert only(send(topic, 0)).records[61:] == bytes(transactional_batch(3))[61:]


def test_of_batches_that_wait_the_first_comes_first(topic: SimNode) -> None:
    """Otherwise it could never be sent again."""
    coordinator = FakeTransactions(topic, E.NOT_COORDINATOR)
    assert produce(topic, transactional_batch(2), version=OLD) == [(E.NOT_ENOUGH_REPLICAS, -1)]
    coordinator.code = E.NONE
    second = transactional_batch(sequence=2)
    assert produce(topic, second, version=OLD) == [(E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    assert produce(topic, transactional_batch(2), version=OLD) == [(E.NONE, 0)]
    assert produce(topic, second, version=OLD) == [(E.NONE, 2)]


def test_a_transaction_of_version_2_begins_with_sequence_0(topic: SimNode) -> None:
    FakeTransactions(topic)
    late = transactional_batch(sequence=5)
    assert produce(topic, late) == [(E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    assert produce(topic, None, late, version=OLD) == [(E.NONE, 0)]


def test_without_verification_only_new_clients_are_asked_about() -> None:
    with SimNode(transaction_partition_verification_enable="false") as node:
        node.create_topic("t", 3)
        coordinator = FakeTransactions(node)
        assert produce(node, transactional_batch(), version=OLD) == [(E.NONE, 0)]
        assert coordinator.asked == []
        assert produce(node, None, transactional_batch(), version=NEW) == [(E.NONE, 0)]
        assert len(coordinator.asked) == 1


def test_a_request_is_of_one_producer(topic: SimNode) -> None:
    FakeTransactions(topic)
    batches = transactional_batch(), transactional_batch(producer_id=8)
    assert produce(topic, *batches) == [(E.INVALID_PRODUCER_ID_MAPPING, -1)] * 2


def test_without_a_transactional_id_there_is_no_transaction(topic: SimNode) -> None:
    """Not even one that is open."""
    FakeTransactions(topic)
    produce(topic, transactional_batch())
    again = transactional_batch(sequence=1)
    assert produce(topic, again, transactional_id=None) == [(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)]


def test_one_partition_may_fail_alone(topic: SimNode) -> None:
    FakeTransactions(topic)
    first = transactional_batch()
    produce(topic, first)
    assert produce(topic, transactional_batch(sequence=7), first) == [
        (E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (E.NONE, 0),
    ]


@pytest.mark.parametrize("at_once", [True, False])
def test_without_acks_there_is_no_answer(topic: SimNode, at_once: bool) -> None:
    coordinator = FakeTransactions(topic, at_once=at_once)
    if not at_once:
        topic.runtime.call_later(0.1, coordinator.answer)
    assert produce(topic, transactional_batch(), acks=0, wait_s=1 if not at_once else 0) is None
    assert topic.partition("t").leader_log().log_end_offset == 1
