"""A transaction as its producer sees it: taking its id over, adding partitions, and the end.

It speaks transaction version 1, which all brokers do: a partition is added before anything is written to it,
and the epoch stays the same until somebody else takes the id over.
"""

from __future__ import annotations

from collections.abc import Collection

from moldau.client.cluster import Cluster, TopicPartition
from moldau.client.connection import Connection, error_code
from moldau.client.coordinators import Coordinators, KeyType
from moldau.client.group_description import by_topic
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

# The last versions of clients that add partitions themselves.
PRODUCE_VERSION_MAX = 11
_ADD_PARTITIONS_VERSION_MAX = 3
_END_VERSION_MAX = 4


class Transaction:
    def __init__(self, cluster: Cluster, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self.transactional_id = transactional_id
        self._coordinators = Coordinators(cluster, KeyType.TRANSACTION)
        self._timeout_ms = timeout_ms
        self._producer: tuple[int, int] | None = None
        self._added: set[TopicPartition] = set()

    async def identity(self) -> tuple[int, int]:
        """Producer id and epoch. Asked for the first time, whoever had the id before is fenced."""
        if self._producer is None:
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms
            )

            async def ask(connection: Connection) -> tuple[int, int]:
                response = await connection.request(request, InitProducerIdResponse)
                self._check(response.error_code)
                return response.producer_id, response.producer_epoch

            self._producer = await self._coordinators.ask_one(self.transactional_id, ask)
        return self._producer

    async def add(self, places: Collection[TopicPartition]) -> None:
        """Before anything is written to these partitions."""
        new = set(places) - self._added
        if not new:
            return
        producer_id, producer_epoch = await self.identity()
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))
                for topic, indexes in by_topic(new).items()
            ],
        )

        async def ask(connection: Connection) -> None:
            version = connection.version_of(ApiKey.ADD_PARTITIONS_TO_TXN, _ADD_PARTITIONS_VERSION_MAX)
            response = await connection.request(request, AddPartitionsToTxnResponse, version=version)
            codes = {
                partition.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            }
            # One that is refused keeps the others out: theirs says nothing but that.
            for code in sorted(codes - {ErrorCode.OPERATION_NOT_ATTEMPTED}):
                self._check(code)

        await self._coordinators.ask_one(self.transactional_id, ask)
        self._added |= new

    async def end(self, *, committed: bool) -> None:
        """Nothing happens if nothing was added."""
        if not self._added:
            return
        producer_id, producer_epoch = await self.identity()
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=committed,
        )

        async def ask(connection: Connection) -> None:
            version = connection.version_of(ApiKey.END_TXN, _END_VERSION_MAX)
            response = await connection.request(request, EndTxnResponse, version=version)
            self._check(response.error_code)

        await self._coordinators.ask_one(self.transactional_id, ask)
        self._added.clear()

    def _check(self, code: int) -> None:
        if code:
            raise KafkaError(error_code(code), f"transactional id {self.transactional_id!r}")
