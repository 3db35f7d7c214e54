"""One partition of `__transaction_state`: the transactional ids that hash to it.

A transaction ends in two steps. The decision is a record, and with it committed nothing can change it. Then
markers go to the partitions, by whoever carries out what a shard says (`Decision.sends`), and when all are
written comes the record that completes it. What was decided and not completed is found again by
`on_loaded`.

A state is visible as soon as it is written, and told when it is committed. So where Kafka, between the two,
asks a second request to come again (CONCURRENT_TRANSACTIONS), here it is answered after the first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from moldau.coordinator.decision import NOTHING, Decision, Waiter
from moldau.coordinator.record import CoordinatorRecord
from moldau.coordinator.timers import Timers
from moldau.txn import transitions
from moldau.txn.environment import TxnEnvironment
from moldau.txn.records import RECORD_TYPES
from moldau.txn.transaction import (
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    PREPARED,
    TopicPartition,
    Transaction,
    TransactionState,
    markers_of,
    record_of,
    tombstone_of,
    transaction_in,
)
from moldau.txn.transitions import Producer
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

PartitionErrors = Mapping[TopicPartition, ErrorCode]


class LookForTimedOut(NamedTuple):
    """Time to look for transactions that are open for too long."""


class LookForExpired(NamedTuple):
    """Time to look for transactional ids that nobody uses."""


class TimedOut(NamedTuple):
    """A transaction that is to be aborted. That may take a new producer id, which a shard cannot get."""

    transactional_id: str


class TransactionShard:
    record_types = RECORD_TYPES

    def __init__(self, index: int, environment: TxnEnvironment) -> None:
        self.index = index
        self.timers = Timers()
        self.applied_offset = 0
        self._environment = environment
        self._transactions: dict[str, Transaction] = {}
        # Of those above, by what has to be done for them.
        self._ongoing: set[str] = set()
        self._prepared: set[str] = set()
        # What was decided last, with what its record does not say.
        self._decided: tuple[str, Transaction] | None = None

    def transaction(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        return iter(self._transactions.items())

    @property
    def ongoing_count(self) -> int:
        return len(self._ongoing)

    @property
    def prepared_count(self) -> int:
        return len(self._prepared)

    # ------------------------------------------------------------ requests

    def init_producer_id(
        self, now_ms: int, request: InitProducerIdRequest, new_producer_id: int | None
    ) -> Decision[InitProducerIdResponse]:
        """Raises KafkaError and ProducerIdNeeded. The request was found to be a sound one."""
        transactional_id = request.transactional_id
        assert transactional_id, "others need no coordinator"
        expected = (
            None if request.producer_id == NO_PRODUCER_ID else (request.producer_id, request.producer_epoch)
        )
        known = self._transactions.get(transactional_id)
        if known is not None:
            transitions.check_expected(known, expected)
            if known.state in PREPARED:
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            if known.state is TransactionState.ONGOING:
                if request.keep_prepared_txn:
                    return self._keep(now_ms, transactional_id, known, expected, new_producer_id)
                return self._fence(
                    now_ms,
                    transactional_id,
                    known,
                    new_producer_id,
                    # It asks again, and with the next epoch then: this one may be known to those it fences.
                    reply=InitProducerIdResponse(
                        error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=NO_PRODUCER_EPOCH
                    ),
                )
        initialized = transitions.initialized(
            known,
            expected=expected,
            timeout_ms=NO_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms,
            now_ms=now_ms,
            new_producer_id=new_producer_id,
        )
        return Decision(
            records=[self._changed(transactional_id, initialized)],
            reply=InitProducerIdResponse(
                producer_id=initialized.producer_id, producer_epoch=initialized.producer_epoch
            ),
        )

    def _keep(
        self,
        now_ms: int,
        transactional_id: str,
        ongoing: Transaction,
        expected: Producer | None,
        new_producer_id: int | None,
    ) -> Decision[InitProducerIdResponse]:
        self._check_recordable(EPOCH_PER_TRANSACTION)
        kept = transitions.kept(ongoing, expected=expected, now_ms=now_ms, new_producer_id=new_producer_id)
        return Decision(
            records=[self._changed(transactional_id, kept)],
            reply=InitProducerIdResponse(
                producer_id=kept.next_producer_id,
                producer_epoch=kept.next_producer_epoch,
                ongoing_txn_producer_id=kept.producer_id,
                ongoing_txn_producer_epoch=kept.producer_epoch,
            ),
        )

    def add_partitions(
        self,
        now_ms: int,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
        client_version: int,
    ) -> Decision[PartitionErrors]:
        """Raises KafkaError."""
        known = self._known(transactional_id)
        if verify_only:
            return Decision(reply=transitions.check_partitions(known, producer, partitions))
        with_partitions = transitions.with_partitions(
            known, producer, partitions, client_version=client_version, now_ms=now_ms
        )
        reply = dict.fromkeys(partitions, ErrorCode.NONE)
        if with_partitions is None:
            return Decision(reply=reply)
        self._check_recordable(client_version)
        return Decision(records=[self._changed(transactional_id, with_partitions)], reply=reply)

    def end(
        self, now_ms: int, request: EndTxnRequest, client_version: int, new_producer_id: int | None
    ) -> Decision[EndTxnResponse]:
        """Raises KafkaError and ProducerIdNeeded."""
        transactional_id = request.transactional_id
        known = self._known(transactional_id)
        prepared = transitions.ended(
            known,
            (request.producer_id, request.producer_epoch),
            is_committed=request.committed,
            client_version=client_version,
            now_ms=now_ms,
            new_producer_id=new_producer_id,
        )
        if prepared is None:
            return Decision(reply=_ended(known))
        self._check_recordable(client_version)
        return self._prepare(transactional_id, prepared, _ended(transitions.completed(prepared, now_ms)))

    def complete(
        self, now_ms: int, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> Decision[bool]:
        """All markers of a transaction are written: the one that was decided with that producer id and
        epoch."""
        prepared = self._transactions.get(transactional_id)
        if (
            prepared is None
            or prepared.state not in PREPARED
            or (prepared.producer_id, prepared.producer_epoch) != (producer_id, producer_epoch)
        ):
            return Decision(reply=False)
        completed = transitions.completed(prepared, now_ms)
        return Decision(records=[self._changed(transactional_id, completed)], reply=True)

    def abort_timed_out(
        self, now_ms: int, transactional_id: str, new_producer_id: int | None
    ) -> Decision[bool]:
        """Raises ProducerIdNeeded. If it has ended meanwhile, nothing is to be done."""
        known = self._transactions.get(transactional_id)
        if known is None or not known.is_timed_out(now_ms):
            return Decision(reply=False)
        return self._fence(now_ms, transactional_id, known, new_producer_id, reply=True)

    def _fence(
        self,
        now_ms: int,
        transactional_id: str,
        ongoing: Transaction,
        new_producer_id: int | None,
        reply: Any,
    ) -> Decision[Any]:
        prepared = transitions.fenced(
            ongoing,
            transaction_version=self._environment.transaction_version,
            now_ms=now_ms,
            new_producer_id=new_producer_id,
        )
        return self._prepare(transactional_id, prepared, reply)

    def _prepare(self, transactional_id: str, prepared: Transaction, reply: Any) -> Decision[Any]:
        return Decision(
            records=[self._changed(transactional_id, prepared)],
            reply=reply,
            sends=[markers_of(transactional_id, prepared)],
        )

    def _known(self, transactional_id: str) -> Transaction:
        known = self._transactions.get(transactional_id)
        if known is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return known

    def _changed(self, transactional_id: str, transaction: Transaction) -> CoordinatorRecord:
        self._decided = transactional_id, transaction
        return record_of(transactional_id, transaction, self._record_version)

    def _check_recordable(self, client_version: int) -> None:
        """Version 0 of the records has no place for the producer id or epoch that comes next."""
        if client_version >= EPOCH_PER_TRANSACTION and self._record_version < 1:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    @property
    def _record_version(self) -> int:
        return min(self._environment.transaction_version, 1)

    # ------------------------------------------------------------ time

    def _look_for_timed_out(self, now_ms: int, event: LookForTimedOut) -> Decision[Any]:
        interval_ms = self._environment.options.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self.timers.set(LookForTimedOut, now_ms + interval_ms, event)
        return Decision(
            sends=[
                TimedOut(transactional_id)
                for transactional_id in sorted(self._ongoing)
                if self._transactions[transactional_id].is_timed_out(now_ms)
            ]
        )

    def _look_for_expired(self, now_ms: int, event: LookForExpired) -> Decision[Any]:
        options = self._environment.options
        interval_ms = options.transaction_remove_expired_transaction_cleanup_interval_ms
        self.timers.set(LookForExpired, now_ms + interval_ms, event)
        return Decision(
            records=[
                tombstone_of(transactional_id)
                for transactional_id, transaction in self._transactions.items()
                if transaction.is_expired(now_ms, options.transactional_id_expiration_ms)
            ],
            is_atomic=False,
        )

    # ------------------------------------------------------------ the coordinator's

    def apply(self, record: CoordinatorRecord, producer_id: int) -> None:
        # The types of the records' fields are those of their declarations.
        key: Any = record.key
        value: Any = record.value
        transactional_id: str = key.transactional_id
        self._ongoing.discard(transactional_id)
        self._prepared.discard(transactional_id)
        if value is None:
            self._transactions.pop(transactional_id, None)
            return
        transaction = transaction_in(value)
        decided, self._decided = self._decided, None
        if decided is not None and decided[0] == transactional_id:
            transaction = decided[1]
        self._transactions[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            self._ongoing.add(transactional_id)
        elif transaction.state in PREPARED:
            self._prepared.add(transactional_id)

    def apply_marker(self, producer_id: int, *, is_committed: bool) -> None:
        pass

    def on_loaded(self, now_ms: int) -> Decision[Any]:
        """What was decided and not completed goes on."""
        options = self._environment.options
        self.timers.set(
            LookForTimedOut,
            now_ms + options.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            LookForTimedOut(),
        )
        self.timers.set(
            LookForExpired,
            now_ms + options.transaction_remove_expired_transaction_cleanup_interval_ms,
            LookForExpired(),
        )
        return Decision(
            sends=[
                markers_of(transactional_id, self._transactions[transactional_id])
                for transactional_id in sorted(self._prepared)
            ]
        )

    def on_timer(self, now_ms: int, event: Any) -> Decision[Any]:
        if isinstance(event, LookForTimedOut):
            return self._look_for_timed_out(now_ms, event)
        if isinstance(event, LookForExpired):
            return self._look_for_expired(now_ms, event)
        return NOTHING

    def on_unloaded(self) -> Sequence[Waiter[Any]]:
        self.timers.clear()
        return ()


def _ended(transaction: Transaction) -> EndTxnResponse:
    return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
