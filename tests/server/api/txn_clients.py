"""A transactional producer, as far as the leaders of partitions see it: without its coordinator."""

from __future__ import annotations

from typing import Any

from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.server.sim_node import SimNode

PRODUCER_ID = 7


def transactional_batch(
    count: int = 1, *, sequence: int = 0, epoch: int = 0, producer_id: int = PRODUCER_ID, size: int = 10
) -> memoryview:
    records = [Record(0, 1_000 + number, b"key", bytes(size)) for number in range(count)]
    return memoryview(
        bytearray(
            build_batch(
                records,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
        )
    )


def marker(
    partitions: dict[str, list[int]],
    *,
    is_committed: bool = True,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    producer_id: int = PRODUCER_ID,
    transaction_version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=is_committed,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=[*each]) for name, each in partitions.items()
        ],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )


def write_markers(node: SimNode, *markers: WritableTxnMarker, version: int = 2) -> dict[Any, int]:
    """The codes by producer, topic and partition."""
    response = node.call(WriteTxnMarkersRequest(markers=list(markers)), version)
    return {
        (result.producer_id, topic.name, each.partition_index): each.error_code
        for result in response.markers
        for topic in result.topics
        for each in topic.partitions
    }
