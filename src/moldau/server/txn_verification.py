"""Does the transaction coordinator know of a transaction whose first batch comes to a partition (KIP-890)?

A batch of a transaction that nobody would ever end holds back all readers of what is committed. So where a
producer has no open transaction in a partition, the coordinator is asked: by clients of transaction version
2 to add the partition, by others to confirm that they have added it. Once the transaction is open in the
partition nobody is asked any more.

The answer is there at once when the coordinator is this broker and has nothing to write first; then no task
and no future takes part. Otherwise the one who asks is called back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol

from moldau.config.broker import BrokerConfig
from moldau.coordinator.decision import Waiter
from moldau.log.producer_state import ONGOING, Verification
from moldau.replica.partition import Partition
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import ErrorCode, KafkaError

Place = tuple[str, int]
"""A topic's name and a partition of it."""


class Transactions(Protocol):
    """The transaction coordinator, as far as leaders of partitions know it."""

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Place],
        *,
        verify_only: bool,
        transaction_version: int,
    ) -> Waiter[Mapping[Place, ErrorCode]]:
        """Raises KafkaError when it is not on this node, or loading."""
        ...


class ClientKind(Enum):
    """What a client knows of transactions, by the version of its request."""

    OLD = 0
    KNOWS_ABORTABLE = 1
    """It knows TRANSACTION_ABORTABLE."""
    ADDS_PARTITIONS = 2
    """Of transaction version 2: it relies on the broker to add partitions to its transactions."""


def producing(version: int) -> ClientKind:
    """By the version of Produce."""
    return ClientKind(min(2, max(0, version - 10)))


def committing(version: int) -> ClientKind:
    """By the version of TxnOffsetCommit."""
    return ClientKind(min(2, max(0, version - 3)))


class Producer(NamedTuple):
    transactional_id: str
    id: int
    epoch: int


class Asked(NamedTuple):
    """A batch that is to be appended; a coordinator's has no sequence, -1."""

    partition: Partition
    first_sequence: int


Verified = dict[Place, Verification | KafkaError]
"""For each partition what is to be shown with its batch, or why it cannot be appended."""


class TxnVerification:
    def __init__(
        self,
        runtime: Runtime,
        config: Callable[[], BrokerConfig],
        transactions: Transactions,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._transactions = transactions

    def verify(
        self, producer: Producer, kind: ClientKind, asked: Sequence[Asked], *, retries: bool
    ) -> Waiter[Verified]:
        """`retries`: wait a little where the producer's last transaction is still being ended, instead of
        having the client send everything again."""
        question = _Question(producer, kind, asked)
        if retries and kind is ClientKind.ADDS_PARTITIONS:
            config = self._config()
            retry_ms = min(
                config.transactions.add_partitions_to_txn_retry_backoff_max_ms,
                config.node.request_timeout_ms,
            )
            question.retry_until = self._runtime.clock.monotonic() + retry_ms / 1000
        self._ask(question)
        return question.result

    def _ask(self, question: _Question) -> None:
        producer = question.producer
        adds = question.kind is ClientKind.ADDS_PARTITIONS
        is_asked_for = adds or self._config().transactions.transaction_partition_verification_enable
        now_ms = self._runtime.clock.now_ms()
        verified: Verified = {}
        question.verified = verified
        places: list[Place] = []
        for partition, first_sequence in question.asked:
            place = partition.topic, partition.index
            try:
                producers = partition.leader_log().producers
                verification = producers.begin_verification(
                    producer.id, producer.epoch, first_sequence, now_ms, supports_epoch_bump=adds
                )
            except KafkaError as failure:
                verified[place] = failure
                continue
            if verification is not None and not is_asked_for:
                verification = producers.trust(producer.id, producer.epoch, now_ms)
            elif verification is not None:
                places.append(place)
            verified[place] = ONGOING if verification is None else verification
        if not places:
            question.result.give(verified)
            return
        try:
            answer = self._transactions.add_partitions(
                producer.transactional_id,
                producer.id,
                producer.epoch,
                places,
                verify_only=not adds,
                transaction_version=2 if adds else 1,
            )
        except KafkaError as failure:
            self._answered(question, dict.fromkeys(places, failure.code))
            return
        answer.when_done(partial(self._on_answer, question, places, answer))

    def _on_answer(
        self, question: _Question, places: Sequence[Place], answer: Waiter[Mapping[Place, ErrorCode]]
    ) -> None:
        if answer.failure is not None:
            self._answered(question, dict.fromkeys(places, answer.failure.code))
        else:
            self._answered(question, answer.result())

    def _answered(self, question: _Question, codes: Mapping[Place, ErrorCode]) -> None:
        clock = self._runtime.clock
        if ErrorCode.CONCURRENT_TRANSACTIONS in codes.values() and clock.monotonic() < question.retry_until:
            # The markers of the last transaction make verifications void: each time a new one is begun.
            backoff_ms = self._config().transactions.add_partitions_to_txn_retry_backoff_ms
            self._runtime.call_later(backoff_ms / 1000, partial(self._ask, question))
            return
        for place, code in codes.items():
            if code:
                question.verified[place] = KafkaError(_as_client_knows(code, question.kind))
        question.result.give(question.verified)


class _Question:
    __slots__ = ("asked", "kind", "producer", "result", "retry_until", "verified")

    def __init__(self, producer: Producer, kind: ClientKind, asked: Sequence[Asked]) -> None:
        self.producer = producer
        self.kind = kind
        self.asked = asked
        self.retry_until = 0.0
        self.verified: Verified = {}
        self.result: Waiter[Verified] = Waiter()


def _as_client_knows(code: ErrorCode, kind: ClientKind) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and kind is ClientKind.OLD:
        return ErrorCode.INVALID_TXN_STATE
    return code


_RETRIABLE = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)


class NotVerified(KafkaError):
    """Because of which a batch is not even tried to be appended."""


def as_producer_is_told(failure: KafkaError, kind: ClientKind) -> NotVerified:
    """What the coordinator says, as an error that producers of any age send a batch again for, or not."""
    code = failure.code
    is_busy = code is ErrorCode.CONCURRENT_TRANSACTIONS and kind is not ClientKind.ADDS_PARTITIONS
    if code in _RETRIABLE or is_busy:
        return NotVerified(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"it is not known whether the partition was added to the transaction: {code.name}",
        )
    return NotVerified(code, failure.message)
