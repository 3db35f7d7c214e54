"""Questions and orders about transactions: to their coordinators, and to the leaders of what they write to.

Answerable for one outcome per transactional id and per partition. A coordinator knows a transaction by its
transactional id; a leader knows of it only that a producer id has one open. What follows from the two
together is for `client/hanging.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moldau.client.admin import gather_all
from moldau.client.cluster import Cluster, Node, TopicPartition
from moldau.client.connection import Connection
from moldau.client.coordinators import Coordinators, KeyType, Outcomes, ask_every_node
from moldau.client.group_description import by_topic
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from moldau.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
_PARTITIONS_MAX = 500  # of one question: a broker may lead very many
# Of the producer that takes an id over to end its transaction, and begins none.
_TIMEOUT_MS = 30_000
_NOT_THERE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """`partitions` are those that have been written to and do not have their markers yet. `start_time_ms` is
    None when no transaction is under way."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """What a replica remembers of a producer. `coordinator_epoch` is None before the first marker,
    `transaction_start` when no transaction is open in the partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    transaction_start: int | None


Producers = dict[TopicPartition, list[ActiveProducer] | KafkaError]


class TransactionAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, KeyType.TRANSACTION)

    # ------------------------------------------------------------ coordinators

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Those of all coordinators, sorted; with `duration_ms` only such as have been under way for longer,
        with `pattern` only ids that it matches as a whole."""
        request = ListTransactionsRequest(
            state_filters=sorted(states),
            producer_id_filters=sorted(producer_ids),
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
        found: dict[str, TransactionListing] = {}

        async def ask(node_id: int, connection: Connection) -> None:
            response = await connection.request(request, ListTransactionsResponse)
            if response.error_code:
                code = error_code(response.error_code)
                refused = code is ErrorCode.INVALID_REGULAR_EXPRESSION
                raise KafkaError(code, repr(pattern) if refused else f"node {node_id}")
            for transaction in response.transaction_states:
                found[transaction.transactional_id] = TransactionListing(
                    transactional_id=transaction.transactional_id,
                    coordinator=node_id,
                    producer_id=transaction.producer_id,
                    state=transaction.transaction_state,
                )

        await ask_every_node(self._cluster, ask)
        return [listing for _, listing in sorted(found.items())]

    async def describe(self, transactional_ids: Iterable[str]) -> Outcomes[TransactionDescription]:
        async def ask(node: Node, ids: list[str]) -> Outcomes[TransactionDescription]:
            response = await self._cluster.ask_node(
                node.node_id,
                DescribeTransactionsRequest(transactional_ids=ids),
                DescribeTransactionsResponse,
            )
            return {each.transactional_id: _description(each, node) for each in response.transaction_states}

        return await self._coordinators.ask(transactional_ids, ask)

    async def force_terminate(self, transactional_id: str) -> None:
        """End what the id has under way, prepared or not, by taking the id over: its transaction is aborted,
        and who had it is fenced."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_TIMEOUT_MS)

        async def ask(connection: Connection) -> None:
            response = await connection.request(request, InitProducerIdResponse)
            if response.error_code:
                raise KafkaError(error_code(response.error_code), f"transactional id {transactional_id!r}")

        await self._coordinators.ask_one(transactional_id, ask)

    # ------------------------------------------------------------ leaders

    async def describe_producers(
        self, places: Iterable[TopicPartition], *, node_id: int | None = None
    ) -> Producers:
        """The producers that each partition's leader remembers, or its replica on node `node_id`."""
        wanted = list(dict.fromkeys(places))
        found: Producers = {}

        async def attempt() -> None:
            by_node: dict[int, list[TopicPartition]] = defaultdict(list)
            for place in wanted:
                if place in found:
                    continue
                try:
                    node = await self._cluster.leader(place) if node_id is None else node_id
                except KafkaError as error:
                    if error.code not in _NOT_THERE:
                        raise
                    found[place] = error
                else:
                    by_node[node].append(place)
            await gather_all(ask(node, those) for node, those in by_node.items())

        async def ask(node: int, those: list[TopicPartition]) -> None:
            passing = None
            for first in range(0, len(those), _PARTITIONS_MAX):
                outcomes = await self._producers_at(node, those[first : first + _PARTITIONS_MAX])
                for place, outcome in outcomes.items():
                    # A replica that was asked for by its node is there, or it is not.
                    if node_id is None and isinstance(outcome, KafkaError) and outcome.code.retriable:
                        passing = outcome
                    else:
                        found[place] = outcome
            if passing is not None:
                raise passing

        await self._cluster.retrying(attempt, topics=sorted({place.topic for place in wanted}))
        return {place: found[place] for place in wanted}

    async def _producers_at(self, node: int, places: Sequence[TopicPartition]) -> Producers:
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name=topic, partition_indexes=list(indexes))
                for topic, indexes in by_topic(places).items()
            ]
        )
        response = await self._cluster.ask_node(node, request, DescribeProducersResponse)
        return {
            place: _producers(partition, place)
            for topic in response.topics
            for partition in topic.partitions
            for place in (TopicPartition(topic.name, partition.partition_index),)
        }

    async def abort(
        self, place: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write the marker that a hanging transaction will not get, without its coordinator's knowing."""
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=place.topic, partition_indexes=[place.partition])],
            coordinator_epoch=coordinator_epoch,
        )

        async def attempt() -> None:
            leader = await self._cluster.leader(place)
            response = await self._cluster.ask_node(
                leader, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse
            )
            codes = [
                partition.error_code
                for result in response.markers
                for topic in result.topics
                for partition in topic.partitions
            ]
            for code in codes:
                if code:
                    raise KafkaError(error_code(code), f"partition {place}, producer id {producer_id}")

        await self._cluster.retrying(attempt, topics=[place.topic], unless=_NOT_THERE)


# ---------------------------------------------------------------- reading answers


def _description(answer: TransactionState, node: Node) -> TransactionDescription | KafkaError:
    name = answer.transactional_id
    if answer.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {name!r}")
    if answer.error_code:
        return KafkaError(error_code(answer.error_code), f"transactional id {name!r}")
    places = (TopicPartition(topic.topic, index) for topic in answer.topics for index in topic.partitions)
    return TransactionDescription(
        transactional_id=name,
        coordinator=node.node_id,
        state=answer.transaction_state,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        timeout_ms=answer.transaction_timeout_ms,
        start_time_ms=_known(answer.transaction_start_time_ms),
        partitions=tuple(sorted(places)),
    )


def _producers(answer: PartitionResponse, place: TopicPartition) -> list[ActiveProducer] | KafkaError:
    if answer.error_code:
        return KafkaError(error_code(answer.error_code), answer.error_message or f"partition {place}")
    producers = [
        ActiveProducer(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.last_timestamp,
            coordinator_epoch=_known(each.coordinator_epoch),
            transaction_start=_known(each.current_txn_start_offset),
        )
        for each in answer.active_producers
    ]
    return sorted(producers, key=lambda producer: producer.producer_id)


def _known(value: int) -> int | None:
    return value if value >= 0 else None
