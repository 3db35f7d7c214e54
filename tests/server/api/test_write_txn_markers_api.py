"""WriteTxnMarkers: what the leaders of partitions do when a transaction ends."""

from __future__ import annotations

import asyncio

import pytest

from moldau.records.control import ControlType, read_end_txn_marker
from moldau.records.record import read_records
from moldau.wire.errors import ErrorCode as E
from tests.server.api.test_fetch_api import offsets_of, only, send
from tests.server.api.txn_clients import PRODUCER_ID, append, marker, transactional_batch, write_markers
from tests.server.sim_node import SimNode


@pytest.fixture
def open_transaction(node: SimNode) -> SimNode:
    """A transaction with a batch of two records in the first of two partitions."""
    node.create_topic("t", 2)
    append(node, "t", transactional_batch(2))
    return node


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_marker_decides(open_transaction: SimNode, version: int, is_committed: bool) -> None:
    node = open_transaction
    before = only(send(node, 0, isolation_level=1))
    assert (offsets_of(before), before.records, before.aborted_transactions) == ((2, 0, 0), b"", [])
    codes = write_markers(node, marker({"t": [0, 1]}, is_committed=is_committed), version=version)
    assert codes == {(PRODUCER_ID, "t", 0): 0, (PRODUCER_ID, "t", 1): 0}
    after = only(send(node, 0, isolation_level=1))
    assert offsets_of(after) == (3, 3, 0)
    assert [(each.producer_id, each.first_offset) for each in after.aborted_transactions] == (
        [] if is_committed else [(PRODUCER_ID, 0)]
    )


def test_a_marker_is_a_control_batch_with_the_epoch_of_its_coordinator(open_transaction: SimNode) -> None:
    write_markers(open_transaction, marker({"t": [0]}, is_committed=False, coordinator_epoch=5, epoch=3))
    records = only(send(open_transaction, 2)).records
    (record,) = read_records(records)
    assert read_end_txn_marker(record) == (ControlType.ABORT, 5)
    assert record.timestamp == open_transaction.runtime.clock.now_ms()


def test_what_cannot_be_written_is_told_partition_by_partition(open_transaction: SimNode) -> None:
    codes = write_markers(open_transaction, marker({"t": [0, 7], "unknown": [0]}))
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {(7, "t", 0): 0, (7, "t", 7): unknown, (7, "unknown", 0): unknown}


def test_old_epochs_are_fenced(open_transaction: SimNode) -> None:
    append(open_transaction, "t", transactional_batch(2, epoch=4, producer_id=8))
    place = (8, "t", 0)
    old = marker({"t": [0]}, producer_id=8, epoch=3)
    assert write_markers(open_transaction, old) == {place: E.INVALID_PRODUCER_EPOCH}
    same = marker({"t": [0]}, producer_id=8, epoch=4, transaction_version=2)
    assert write_markers(open_transaction, same) == {place: E.INVALID_PRODUCER_EPOCH}
    next_one = marker({"t": [0]}, producer_id=8, epoch=5, transaction_version=2, coordinator_epoch=2)
    assert write_markers(open_transaction, next_one) == {place: E.NONE}
    zombie = marker({"t": [0]}, producer_id=8, epoch=5, coordinator_epoch=1)
    assert write_markers(open_transaction, zombie) == {place: E.TRANSACTION_COORDINATOR_FENCED}


def test_several_markers_of_one_producer_have_one_result(open_transaction: SimNode) -> None:
    codes = write_markers(open_transaction, marker({"t": [0]}), marker({"t": [1]}), marker({}, producer_id=9))
    assert codes == {(7, "t", 0): 0, (7, "t", 1): 0}


def test_who_reads_what_is_committed_waits_for_the_marker(open_transaction: SimNode) -> None:
    """Not for more of the transaction, which it may not see."""
    node = open_transaction

    async def later() -> None:
        await asyncio.sleep(1)
        append(node, "t", transactional_batch(2, sequence=2, size=2000))
        await asyncio.sleep(1)
        write_marker(node)

    node.runtime.spawn(later(), "write")
    found = only(send(node, 0, isolation_level=1, max_wait_ms=5000, min_bytes=1000, wait_s=2.5))
    assert offsets_of(found) == (5, 5, 0)


def write_marker(node: SimNode) -> None:
    node.services.txn_markers.write_marker(
        "t",
        0,
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        coordinator_epoch=0,
        is_committed=True,
        transaction_version=0,
    )
