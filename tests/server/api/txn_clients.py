"""A transactional producer, as far as the leaders of partitions see it: without its coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moldau.coordinator.decision import Waiter
from moldau.log.producer_state import ONGOING
from moldau.records.batch import Buffer, parse_header
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.server.txn_verification import TxnVerification
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.server.sim_node import SimNode

PRODUCER_ID = 7


def transactional_batch(
    count: int = 1,
    *,
    sequence: int = 0,
    epoch: int = 0,
    producer_id: int = PRODUCER_ID,
    size: int = 10,
    timestamp: int = 1_000,
) -> memoryview:
    records = [Record(0, timestamp + number, b"key", bytes(size)) for number in range(count)]
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


class FakeTransactions:
    """A coordinator that answers with `code`, at once or when a test says so."""

    def __init__(self, node: SimNode, code: ErrorCode = ErrorCode.NONE, *, at_once: bool = True) -> None:
        self.code = code
        self.at_once = at_once
        self.asked: list[dict[str, Any]] = []
        self.unanswered: list[tuple[Waiter[Any], Sequence[tuple[str, int]]]] = []
        node.services.txn_verification = TxnVerification(node.runtime, lambda: node.services.config, self)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        verify_only: bool,
        transaction_version: int,
    ) -> Waiter[Mapping[tuple[str, int], ErrorCode]]:
        self.asked.append(
            {
                "producer": (transactional_id, producer_id, producer_epoch),
                "partitions": [*partitions],
                "verify_only": verify_only,
                "version": transaction_version,
            }
        )
        if self.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            raise KafkaError(self.code)
        waiter: Waiter[Mapping[tuple[str, int], ErrorCode]] = Waiter()
        self.unanswered.append((waiter, partitions))
        if self.at_once:
            self.answer()
        return waiter

    def answer(self) -> None:
        waiter, partitions = self.unanswered.pop(0)
        waiter.give(dict.fromkeys(partitions, self.code))


def append(node: SimNode, topic: str, batch: Buffer, index: int = 0) -> int:
    """Write a transactional batch without asking anybody; its base offset."""
    partition, now_ms = node.partition(topic, index), node.runtime.clock.now_ms()
    log = partition.leader_log()
    header = parse_header(batch)
    verification = ONGOING
    if not log.producers.is_in_transaction(header.producer_id, header.producer_epoch):
        verification = log.producers.trust(header.producer_id, header.producer_epoch, now_ms)
    records = memoryview(bytearray(batch))
    return partition.append_transactional(records, -1, now_ms, verification).base_offset


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
