"""A transactional id: whose it is, and what its transaction has come to. A value; changes make new ones.

Two pairs of producer id and epoch can be in play. `producer_id` and `producer_epoch` are what the records
of the transaction carry, and its markers. `next_producer_id` is what the producer goes on with when it is
another: because the epochs of the first are used up (KIP-890), or because somebody took over while the
transaction was kept for an outside coordinator to decide (KIP-939), and then with `next_producer_epoch`.

`last_producer_epoch` is not in the log, as in Kafka: a producer that asks again for an epoch it was given
is understood as long as the coordinator lives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum
from typing import NamedTuple

from moldau.coordinator.record import CoordinatorRecord
from moldau.txn.records import PartitionsSchema, TransactionLogKey, TransactionLogValue

NO_PRODUCER_ID = NO_PRODUCER_EPOCH = -1
NOT_STARTED_MS = -1
EPOCH_MAX = (1 << 15) - 1
# What a two-phase transaction has for a timeout: it has none.
NO_TIMEOUT_MS = (1 << 31) - 1
# From this version on each transaction has an epoch of its own.
EPOCH_PER_TRANSACTION = 2

TopicPartition = tuple[str, int]


class TransactionState(IntEnum):
    """Kafka's, with its numbers. The last two are never in a log that is in order: one is a tombstone
    instead, the other what a coordinator may go through on the way to PREPARE_ABORT."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def told_as(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


STATES_BY_NAME = {state.told_as: state for state in TransactionState}
PREPARED = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
COMPLETED = frozenset((TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))


class Transaction(NamedTuple):
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int = 0
    updated_ms: int = NOT_STARTED_MS
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NOT_STARTED_MS
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0

    @property
    def is_kept(self) -> bool:
        """Somebody took the id over, and the transaction with it."""
        return self.next_producer_epoch >= 0

    @property
    def client(self) -> tuple[int, int]:
        """The producer id and epoch that the producer has to show."""
        if self.is_kept:
            return self.next_producer_id, self.next_producer_epoch
        return self.producer_id, self.producer_epoch

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT_MS

    def is_timed_out(self, now_ms: int) -> bool:
        return (
            self.state is TransactionState.ONGOING
            and not self.is_two_phase
            and self.started_ms + self.timeout_ms < now_ms
        )

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        is_idle = self.state is TransactionState.EMPTY or self.state in COMPLETED
        return is_idle and self.updated_ms <= now_ms - expiration_ms


def is_epoch_exhausted(epoch: int) -> bool:
    """The highest is kept back, so that there is always one left to fence a producer with."""
    return epoch >= EPOCH_MAX - 1


# ------------------------------------------------------------ in the log


def record_of(transactional_id: str, transaction: Transaction, version: int) -> CoordinatorRecord:
    is_empty = transaction.state is TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        next_producer_epoch=transaction.next_producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None
        if is_empty
        else [
            PartitionsSchema(topic=topic, partition_ids=indexes)
            for topic, indexes in by_topic(transaction.partitions).items()
        ],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), value, version)


def tombstone_of(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None)


def transaction_in(value: TransactionLogValue) -> Transaction:
    return Transaction(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            (topic.topic, index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        client_version=value.client_transaction_version,
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """In order, so that the same transaction is always told in the same way."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


class Markers(NamedTuple):
    """What has to be written to each partition of a transaction before it is complete. `is_committed` was
    decided when it was recorded, and does not change."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_committed: bool
    transaction_version: int
    partitions: Collection[TopicPartition]


def markers_of(transactional_id: str, prepared: Transaction) -> Markers:
    assert prepared.state in PREPARED, prepared.state
    return Markers(
        transactional_id,
        prepared.producer_id,
        prepared.producer_epoch,
        prepared.state is TransactionState.PREPARE_COMMIT,
        prepared.client_version,
        prepared.partitions,
    )
