"""From one state of a transaction to the next, for everything that can happen to it.

Each function takes the transaction as it is, and gives what it becomes; a refusal is a KafkaError. The
errors and their order are Kafka's. Where a new producer id may be needed one comes in; without it the
function raises ProducerIdNeeded, and is called again when there is one.

Invariants: what was prepared is completed as it was prepared, by `completed` alone. The epoch of a producer
id never goes back. Whoever shows another epoch than `Transaction.client` changes nothing.

Transactions of version 2 (KIP-890) end with a bump of the epoch, so that what is late cannot be taken for
part of the next one. A producer that did not hear the answer shows the epoch from before the bump, and is
told again; with version 1 it shows the epoch that still is."""

from __future__ import annotations

from collections.abc import Collection

from moldau.txn.transaction import (
    COMPLETED,
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED_MS,
    PREPARED,
    TopicPartition,
    Transaction,
    TransactionState,
    is_epoch_exhausted,
)
from moldau.wire.errors import ErrorCode, KafkaError

_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_PREPARE_COMMIT, _PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT, _COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

Producer = tuple[int, int]
"""A producer id and an epoch of it."""


class ProducerIdNeeded(Exception):
    """What was asked takes a new producer id, and none came along."""


# ------------------------------------------------------------ InitProducerId


def check_expected(transaction: Transaction, expected: Producer | None) -> None:
    """Whoever had an id already may go on with it (KIP-360) unless it is somebody else's by now."""
    if expected is None or transaction.producer_epoch == NO_PRODUCER_EPOCH:
        return
    producer_id, epoch = expected
    is_current = producer_id == transaction.client[0]
    # It may not have heard that it was given another, when the epochs of its own were used up.
    is_previous = producer_id == transaction.previous_producer_id and is_epoch_exhausted(epoch)
    if not (is_current or is_previous):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def initialized(
    known: Transaction | None,
    *,
    expected: Producer | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int | None,
) -> Transaction:
    """A producer begins, and whoever was it before is fenced. Not while a transaction is open."""
    if known is None:
        known = Transaction(_given(new_producer_id))
    assert known.state is _EMPTY or known.state in COMPLETED, known.state
    epoch = known.producer_epoch
    empty = known._replace(
        state=_EMPTY,
        partitions=frozenset(),
        started_ms=NOT_STARTED_MS,
        updated_ms=now_ms,
        timeout_ms=timeout_ms,
        previous_producer_id=known.producer_id,
    )
    if is_epoch_exhausted(epoch) and (expected is None or expected[1] == epoch):
        return empty._replace(
            producer_id=_given(new_producer_id),
            producer_epoch=0,
            last_producer_epoch=NO_PRODUCER_EPOCH if expected is None else epoch,
        )
    if expected is None:
        return empty._replace(producer_epoch=epoch + 1, last_producer_epoch=NO_PRODUCER_EPOCH)
    if epoch == NO_PRODUCER_EPOCH or expected[1] == epoch:
        return empty._replace(producer_epoch=epoch + 1, last_producer_epoch=epoch)
    if expected[1] == known.last_producer_epoch:
        return empty  # it asks again for what it was given
    raise KafkaError(ErrorCode.PRODUCER_FENCED)


def fenced(
    ongoing: Transaction, *, transaction_version: int, now_ms: int, new_producer_id: int | None
) -> Transaction:
    """Nobody who has an epoch that was given out may go on with the transaction: it is aborted. Its
    producer has to begin again."""
    assert ongoing.state is _ONGOING, ongoing.state
    if transaction_version >= EPOCH_PER_TRANSACTION:
        return _prepared(ongoing, _PREPARE_ABORT, transaction_version, now_ms, new_producer_id)
    prepared = ongoing._replace(
        state=_PREPARE_ABORT,
        producer_epoch=min(ongoing.producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=NO_PRODUCER_EPOCH,
        previous_producer_id=ongoing.client[0],
        updated_ms=now_ms,
        client_version=0,
    )
    if ongoing.is_kept:
        return prepared._replace(next_producer_epoch=min(ongoing.next_producer_epoch + 1, EPOCH_MAX))
    return prepared


def kept(
    ongoing: Transaction, *, expected: Producer | None, now_ms: int, new_producer_id: int | None
) -> Transaction:
    """A producer begins, and takes over the open transaction as it is, to decide about it (KIP-939): those
    before it are fenced, while the records and markers of the transaction keep their producer id and epoch.
    So does its timeout, which says whether the transaction may ever be aborted without a decision."""
    assert ongoing.state is _ONGOING, ongoing.state
    if expected is not None and expected != ongoing.client:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    producer_id, epoch = ongoing.client
    changed = ongoing._replace(
        updated_ms=now_ms,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        previous_producer_id=ongoing.producer_id,
    )
    if is_epoch_exhausted(epoch):
        return changed._replace(next_producer_id=_given(new_producer_id), next_producer_epoch=0)
    return changed._replace(next_producer_id=producer_id, next_producer_epoch=epoch + 1)


# ------------------------------------------------------------ partitions


def check_partitions(
    transaction: Transaction, producer: Producer, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Whether a leader may take records of the transaction: what it should tell of each partition."""
    _check_adding(transaction, producer)
    return {
        each: ErrorCode.NONE if each in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for each in partitions
    }


def with_partitions(
    transaction: Transaction,
    producer: Producer,
    partitions: Collection[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
) -> Transaction | None:
    """The transaction with some more partitions, begun if it was not; None if it has them all."""
    _check_adding(transaction, producer)
    is_ongoing = transaction.state is _ONGOING
    if is_ongoing and transaction.partitions.issuperset(partitions):
        return None
    return transaction._replace(
        state=_ONGOING,
        partitions=transaction.partitions.union(partitions),
        started_ms=transaction.started_ms if is_ongoing else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
        previous_producer_id=transaction.producer_id,
    )


def _check_producer(transaction: Transaction, producer: Producer) -> None:
    producer_id, epoch = producer
    client_id, client_epoch = transaction.client
    if producer_id != client_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if epoch != client_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _check_adding(transaction: Transaction, producer: Producer) -> None:
    _check_producer(transaction, producer)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.is_kept:
        # Who took over a transaction may end it only (KIP-939): its records carry another epoch.
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)


# ------------------------------------------------------------ EndTxn


def ended(
    transaction: Transaction,
    producer: Producer,
    *,
    is_committed: bool,
    client_version: int,
    now_ms: int,
    new_producer_id: int | None,
) -> Transaction | None:
    """The decision; None if it was taken and carried out before, and the producer asks again."""
    if client_version >= EPOCH_PER_TRANSACTION:
        return _ended_with_bump(transaction, producer, is_committed, client_version, now_ms, new_producer_id)
    _check_producer(transaction, producer)
    prepare, complete = _outcome(is_committed)
    if transaction.state is _ONGOING:
        return transaction._replace(
            state=prepare, updated_ms=now_ms, client_version=0, previous_producer_id=producer[0]
        )
    if transaction.state is complete:
        return None
    raise _not_to_be_ended(transaction, prepare)


def _ended_with_bump(
    transaction: Transaction,
    producer: Producer,
    is_committed: bool,
    client_version: int,
    now_ms: int,
    new_producer_id: int | None,
) -> Transaction | None:
    state = transaction.state
    producer_id, epoch = producer
    client_id, client_epoch = transaction.client
    # It asks again, and the bump took it to another producer id.
    is_again_with_other_id = (
        producer_id == transaction.previous_producer_id and epoch == EPOCH_MAX - 1 and client_epoch == 0
    )
    is_again = client_epoch == epoch + 1 or is_again_with_other_id
    if producer_id != client_id and not is_again_with_other_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if state in PREPARED:
        is_valid = is_again
    elif state in COMPLETED:
        is_valid = is_again or epoch == client_epoch
    else:
        is_valid = epoch == client_epoch
    if not is_valid:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)

    prepare, complete = _outcome(is_committed)
    if state in COMPLETED and is_again:
        if state is complete:
            return None
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    if state is _ONGOING:
        return _prepared(transaction, prepare, client_version, now_ms, new_producer_id)
    if not is_committed and (state is _EMPTY or state in COMPLETED):
        # It may not know whether its first record has begun a transaction, and aborts to be sure.
        return _prepared(transaction, prepare, client_version, now_ms, new_producer_id)._replace(
            started_ms=now_ms
        )
    raise _not_to_be_ended(transaction, prepare)


def _outcome(is_committed: bool) -> tuple[TransactionState, TransactionState]:
    return (_PREPARE_COMMIT, _COMPLETE_COMMIT) if is_committed else (_PREPARE_ABORT, _COMPLETE_ABORT)


def _not_to_be_ended(transaction: Transaction, prepare: TransactionState) -> KafkaError:
    is_on_its_way = transaction.state is prepare
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS if is_on_its_way else ErrorCode.INVALID_TXN_STATE)


def _prepared(
    transaction: Transaction,
    prepare: TransactionState,
    client_version: int,
    now_ms: int,
    new_producer_id: int | None,
) -> Transaction:
    """Decided, with an epoch for the markers that the records did not have, and one for the producer to go
    on with."""
    client_id, client_epoch = transaction.client
    prepared = transaction._replace(
        state=prepare,
        producer_epoch=min(transaction.producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=client_epoch,
        previous_producer_id=client_id,
        updated_ms=now_ms,
        client_version=client_version,
    )
    if is_epoch_exhausted(client_epoch):
        # Without an epoch beside it, Kafka knows a next id as one that begins at 0.
        return prepared._replace(
            next_producer_id=_given(new_producer_id),
            next_producer_epoch=0 if transaction.is_kept else NO_PRODUCER_EPOCH,
        )
    if transaction.is_kept:
        # Bumped once more: a late EndTxn of its own must not end the next transaction.
        return prepared._replace(next_producer_epoch=client_epoch + 1)
    return prepared


def completed(prepared: Transaction, now_ms: int) -> Transaction:
    """All markers are written."""
    assert prepared.state in PREPARED, prepared.state
    is_bumped = prepared.client_version >= EPOCH_PER_TRANSACTION
    producer_id, epoch = prepared.client
    if not prepared.is_kept and is_bumped and prepared.next_producer_id != NO_PRODUCER_ID:
        producer_id, epoch = prepared.next_producer_id, 0
    return prepared._replace(
        state=_COMPLETE_COMMIT if prepared.state is _PREPARE_COMMIT else _COMPLETE_ABORT,
        producer_id=producer_id,
        producer_epoch=epoch,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_PRODUCER_EPOCH,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def _given(new_producer_id: int | None) -> int:
    if new_producer_id is None:
        raise ProducerIdNeeded
    return new_producer_id
