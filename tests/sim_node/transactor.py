"""A small transactional producer that speaks the wire, in either version of transactions, and tells of it.

It repeats what may be repeated until it is answered: the same bytes for a produce, the same epoch for an end.
Whatever else it hears ends it, as a real client's fatal error does; a successor then begins anew. One batch
of a partition is in flight at a time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar

from moldau.client.cluster import Cluster
from moldau.client.connection import error_code
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from moldau.wire.schema import Message
from tests.chaos.history import (
    Aborted,
    Committed,
    Committing,
    Event,
    Initialized,
    Place,
    Position,
    SendingOffsets,
    Stored,
    Writing,
)

R = TypeVar("R", bound=Message)
Tell = Callable[..., None]
"""Takes the kind of an event and its fields."""

TIMEOUT_MS = 8000
ASKED_FOR_S_MAX = 60
PASSING = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.KAFKA_STORAGE_ERROR})


class Transactor:
    """`version` is that of transactions: the second one's clients name no partitions, and have an epoch for
    each transaction."""

    def __init__(
        self, cluster: Cluster, random: Random, tell: Tell, *, name: str, transactional_id: str, version: int
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._random = random
        self._tell = tell
        self._transactional_id = transactional_id
        self._version = version
        self._producer_id = self._epoch = -1
        self._sequences: dict[Place, int] = defaultdict(int)
        self._added: set[Place] = set()
        self.transaction = ""
        self._count = 0

    async def initialize(self) -> None:
        since = asyncio.get_running_loop().time()
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=TIMEOUT_MS
        )
        answer = await self._ask(request, InitProducerIdResponse, 5, lambda answer: answer.error_code)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._tell(Initialized, transactional_id=self._transactional_id, since=since)

    def begin(self) -> None:
        self.transaction = f"{self.name}:{self._count}"
        self._count += 1
        self._added.clear()

    async def write(
        self, place: Place, values: list[str], sources: Mapping[str, Position] | None = None
    ) -> None:
        """The values as one batch."""
        for value in values:
            source = (sources or {}).get(value)
            self._tell(Writing, transaction=self.transaction, place=place, value=value, source=source)
        if self._version == 1 and place not in self._added:
            await self._add(place)
        batch = build_batch(
            [Record(index, 1_700_000_000_000, None, value.encode()) for index, value in enumerate(values)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[place],
            is_transactional=True,
        )
        self._sequences[place] += len(values)
        partition = PartitionProduceData(index=place.partition, records=batch)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=place.topic, partition_data=[partition])],
        )
        answer = await self._ask(
            request,
            ProduceResponse,
            12 if self._version == 2 else 11,
            lambda answer: answer.responses[0].partition_responses[0].error_code,
        )
        base_offset = answer.responses[0].partition_responses[0].base_offset
        if base_offset >= 0:  # of what was there already it may not be known
            for index, value in enumerate(values):
                self._tell(Stored, position=Position(*place, base_offset + index), value=value)

    async def send_offsets(self, group: str, ends: Mapping[Place, int]) -> None:
        """For one topic."""
        offsets = tuple(Position(*place, offset) for place, offset in ends.items())
        self._tell(SendingOffsets, transaction=self.transaction, group=group, offsets=offsets)
        if self._version == 1:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=group,
            )
            await self._ask(adding, AddOffsetsToTxnResponse, 3, lambda answer: answer.error_code)
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=offset.topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=offset.partition,
                            committed_offset=offset.offset,
                            committed_metadata="",
                        )
                    ],
                )
                for offset in offsets
            ],
        )
        await self._ask(
            request,
            TxnOffsetCommitResponse,
            5 if self._version == 2 else 4,
            lambda answer: answer.topics[0].partitions[0].error_code,
        )

    async def commit(self) -> None:
        self._tell(Committing, transaction=self.transaction, transactional_id=self._transactional_id)
        await self._end(committed=True)
        self._tell(Committed, transaction=self.transaction)

    async def abort(self) -> None:
        await self._end(committed=False)
        self._tell(Aborted, transaction=self.transaction)

    async def _add(self, place: Place) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place.topic, partitions=[place.partition])],
        )
        await self._ask(
            request,
            AddPartitionsToTxnResponse,
            3,
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        )
        self._added.add(place)

    async def _end(self, *, committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=committed,
        )
        version = 5 if self._version == 2 else 4
        answer = await self._ask(request, EndTxnResponse, version, lambda answer: answer.error_code)
        if self._version == 2:
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()

    async def _ask(
        self, request: Message, response: type[R], version: int, code_of: Callable[[Any], int]
    ) -> R:
        async with asyncio.timeout(ASKED_FOR_S_MAX):
            while True:
                try:
                    connection = await self._cluster.connection_to_any()
                    answer = await connection.request(request, response, version=version)
                    code = error_code(code_of(answer))
                    if code is ErrorCode.NONE:
                        return answer
                except KafkaError as error:
                    code = error.code
                if not (code.retriable or code in PASSING):
                    raise KafkaError(code, f"{self.name}: {type(request).__name__}")
                await asyncio.sleep(self._random.uniform(0.01, 0.2))


def teller(history: list[Event], by: str) -> Tell:
    """Who tells events of one life into a history, at the time of the running loop."""

    def tell(kind: Callable[..., Event], **fields: Any) -> None:
        history.append(kind(at=asyncio.get_running_loop().time(), by=by, **fields))

    return tell
