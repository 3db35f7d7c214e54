"""The transactions of a broker in memory: what a coordinator and leaders would answer about them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode
from moldau.wire.messages import (
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)
from moldau.wire.schema import Message
from tests.client.fake_broker import FakeBroker

TRANSACTION = 1


@dataclass
class FakeTransaction:
    producer_id: int
    producer_epoch: int = 0
    state: str = "Empty"
    started_ms: int = -1
    partitions: dict[str, list[int]] = field(default_factory=dict)
    timeout_ms: int = 60_000


@dataclass
class FakeProducer:
    producer_id: int
    last_timestamp: int
    transaction_start: int = -1
    producer_epoch: int = 0
    coordinator_epoch: int = -1


class FakeTransactions:
    """Takes over the APIs of transactions of `broker`. `producers` are those of each partition. `passing` are
    codes to be answered first, as by a coordinator or a leader that is not there yet."""

    def __init__(self, broker: FakeBroker, *, node_id: int = 1) -> None:
        self.broker = broker
        self.node_id = node_id
        self.transactions: dict[str, FakeTransaction] = {}
        self.producers: dict[tuple[str, int], list[FakeProducer]] = {}
        self.passing: list[ErrorCode] = []
        for key in (
            ApiKey.FIND_COORDINATOR,
            ApiKey.LIST_TRANSACTIONS,
            ApiKey.DESCRIBE_TRANSACTIONS,
            ApiKey.DESCRIBE_PRODUCERS,
            ApiKey.WRITE_TXN_MARKERS,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.END_TXN,
        ):
            broker.serve(key, getattr(self, f"_{key.name.lower()}"))

    def _code(self) -> ErrorCode:
        return self.passing.pop(0) if self.passing else ErrorCode.NONE

    def _find_coordinator(self, request: find_coordinator.FindCoordinatorRequest) -> Message:
        assert request.key_type == TRANSACTION
        return find_coordinator.FindCoordinatorResponse(
            coordinators=[self.coordinator(key) for key in request.coordinator_keys]
        )

    def coordinator(self, key: str) -> find_coordinator.Coordinator:
        return find_coordinator.Coordinator(
            key=key, node_id=self.node_id, host=self.broker.host, port=self.broker.port, error_message=None
        )

    def _list_transactions(self, request: list_transactions.ListTransactionsRequest) -> Message:
        try:
            pattern = re.compile(request.transactional_id_pattern or ".*")
        except re.error:
            return list_transactions.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        return list_transactions.ListTransactionsResponse(
            error_code=self._code(),
            transaction_states=[
                list_transactions.TransactionState(
                    transactional_id=name, producer_id=each.producer_id, transaction_state=each.state
                )
                for name, each in self.transactions.items()
                if pattern.fullmatch(name)
                and (not request.state_filters or each.state in request.state_filters)
                and (not request.producer_id_filters or each.producer_id in request.producer_id_filters)
                and (request.duration_filter < 0 or each.started_ms >= 0)
            ],
        )

    def _describe_transactions(self, request: describe_transactions.DescribeTransactionsRequest) -> Message:
        return describe_transactions.DescribeTransactionsResponse(
            transaction_states=[self._described(name) for name in request.transactional_ids]
        )

    def _described(self, name: str) -> describe_transactions.TransactionState:
        transaction = self.transactions.get(name)
        code = self._code()
        if transaction is None or code:
            return describe_transactions.TransactionState(
                transactional_id=name, error_code=code or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            )
        return describe_transactions.TransactionState(
            transactional_id=name,
            transaction_state=transaction.state,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_start_time_ms=transaction.started_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            topics=[
                describe_transactions.TopicData(topic=topic, partitions=partitions)
                for topic, partitions in transaction.partitions.items()
            ],
        )

    def _describe_producers(self, request: describe_producers.DescribeProducersRequest) -> Message:
        return describe_producers.DescribeProducersResponse(
            topics=[
                describe_producers.TopicResponse(
                    name=topic.name,
                    partitions=[self._producers(topic.name, index) for index in topic.partition_indexes],
                )
                for topic in request.topics
            ]
        )

    def _producers(self, topic: str, index: int) -> describe_producers.PartitionResponse:
        return describe_producers.PartitionResponse(
            partition_index=index,
            error_code=self._code(),
            active_producers=[
                describe_producers.ProducerState(
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                    last_sequence=5,
                    last_timestamp=each.last_timestamp,
                    coordinator_epoch=each.coordinator_epoch,
                    current_txn_start_offset=each.transaction_start,
                )
                for each in self.producers.get((topic, index), [])
            ],
        )

    def _write_txn_markers(self, request: write_txn_markers.WriteTxnMarkersRequest) -> Message:
        (marker,) = request.markers
        (topic,) = marker.topics
        (index,) = topic.partition_indexes
        code = self._code()
        if not code:
            for producer in self.producers[topic.name, index]:
                if producer.producer_id == marker.producer_id:
                    producer.transaction_start = -1
        partition = write_txn_markers.WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
        return write_txn_markers.WriteTxnMarkersResponse(
            markers=[
                write_txn_markers.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        write_txn_markers.WritableTxnMarkerTopicResult(
                            name=topic.name, partitions=[partition]
                        )
                    ],
                )
            ]
        )

    def _init_producer_id(self, request: init_producer_id.InitProducerIdRequest) -> Any:
        code = self._code()
        if code:
            return init_producer_id.InitProducerIdResponse(error_code=code)
        transaction = self.transactions.setdefault(request.transactional_id or "", FakeTransaction(1000))
        transaction.state, transaction.started_ms, transaction.partitions = "Empty", -1, {}
        transaction.producer_epoch += 2
        return init_producer_id.InitProducerIdResponse(
            producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch
        )

    def _add_partitions_to_txn(self, request: add_partitions_to_txn.AddPartitionsToTxnRequest) -> Message:
        transaction = self._of_producer(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        code = self._code()
        topics = request.v3_and_below_topics
        if not code:
            transaction.state = "Ongoing"
            for topic in topics:
                transaction.partitions.setdefault(topic.name, []).extend(topic.partitions)
        return add_partitions_to_txn.AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=code
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in topics
            ]
        )

    def _end_txn(self, request: end_txn.EndTxnRequest) -> Message:
        transaction = self._of_producer(request.transactional_id, request.producer_id, request.producer_epoch)
        code = self._code()
        if not code:
            transaction.state = "CompleteCommit" if request.committed else "CompleteAbort"
        return end_txn.EndTxnResponse(error_code=code)

    def _of_producer(self, name: str, producer_id: int, producer_epoch: int) -> FakeTransaction:
        transaction = self.transactions[name]
        assert (transaction.producer_id, transaction.producer_epoch) == (producer_id, producer_epoch)
        return transaction
