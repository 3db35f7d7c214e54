"""Hanging transactions: open in a partition, and with no coordinator that will ever end them.

As long as one is open nobody who reads committed records gets beyond its first, and compaction stops there.
It can come of a produce that reached the partition after its transaction had ended.

The rule is that of Kafka's tool. A transaction is suspect when the last record of its producer is older than
any transaction may be, and hanging unless its coordinator knows that the partition belongs to it. What is
found is looked at once more, since it may have ended between the questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from moldau.client.cluster import TopicPartition
from moldau.client.transaction_admin import (
    ActiveProducer,
    Producers,
    TransactionAdmin,
    TransactionDescription,
)
from moldau.wire.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    place: TopicPartition
    producer: ActiveProducer

    @property
    def start_offset(self) -> int:
        assert self.producer.transaction_start is not None
        return self.producer.transaction_start


async def find_hanging(
    transactions: TransactionAdmin,
    places: Iterable[TopicPartition],
    *,
    now_ms: int,
    timeout_ms: int,
    node_id: int | None = None,
) -> tuple[list[OpenTransaction], dict[TopicPartition, KafkaError]]:
    """The hanging ones of these partitions, and of which partitions it could not be found out."""
    told = await transactions.describe_producers(places, node_id=node_id)
    failures = {place: each for place, each in told.items() if isinstance(each, KafkaError)}
    suspects = [
        each for each in open_transactions(told) if now_ms - each.producer.last_timestamp > timeout_ms
    ]
    if not suspects:
        return [], failures
    listed = await transactions.list_transactions(
        producer_ids={suspect.producer.producer_id for suspect in suspects}
    )
    described: dict[str, TransactionDescription] = {}
    for name, outcome in (await transactions.describe(each.transactional_id for each in listed)).items():
        if isinstance(outcome, TransactionDescription):
            described[name] = outcome
        elif outcome.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise outcome
    expected = {each.producer_id: described.get(each.transactional_id) for each in listed}
    found = hanging(suspects, expected)
    if not found:
        return [], failures
    again = await transactions.describe_producers({each.place for each in found}, node_id=node_id)
    still_open = {
        (each.place, each.producer.producer_id, each.start_offset) for each in open_transactions(again)
    }
    return [
        each for each in found if (each.place, each.producer.producer_id, each.start_offset) in still_open
    ], failures


def open_transactions(told: Producers) -> list[OpenTransaction]:
    return [
        OpenTransaction(place=place, producer=producer)
        for place, outcome in sorted(told.items(), key=lambda item: item[0])
        if not isinstance(outcome, KafkaError)
        for producer in outcome
        if producer.transaction_start is not None
    ]


def hanging(
    suspects: Sequence[OpenTransaction], expected: Mapping[int, TransactionDescription | None]
) -> list[OpenTransaction]:
    """`expected` is what a coordinator says of each producer id that it knows."""

    def will_end(suspect: OpenTransaction) -> bool:
        description = expected.get(suspect.producer.producer_id)
        return description is not None and suspect.place in description.partitions

    return [suspect for suspect in suspects if not will_end(suspect)]
