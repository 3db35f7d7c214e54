"""What a client raises, by what its caller can do about it (Kafka's groups of KIP-1050).

Every error is a `KafkaError` with Kafka's code. The class says the rest:

- `RetriableError`: it may pass; what failed may be tried again. `RefreshRetriableError`: after asking the
  cluster anew, which the client does by itself.
- `AbortableError`: the transaction can only be aborted; the producer lives on.
- `FatalError`: this client has to be closed. `FencedError`: because another one has taken its place.
- `InvalidConfigurationError`: trying again will not help before somebody changes something.
- `CommitFailedError`: offsets were not committed, since the group has gone on without this member.
- `RecordError`: this record, or this batch, was refused, and others may be taken.
"""

from __future__ import annotations

from moldau.wire.errors import ErrorCode, KafkaError


class RetriableError(KafkaError):
    """It may pass; what failed may be tried again."""


class RefreshRetriableError(RetriableError):
    """It may pass when the client has learnt anew who leads or coordinates."""


class DeliveryTimeoutError(RetriableError):
    """A record was not acknowledged within `delivery.timeout.ms`. It may have been written."""


class BlockedTooLongError(RetriableError):
    """A call waited for `max.block.ms`: for room in the buffer, for metadata, or for a coordinator."""


class AbortableError(KafkaError):
    """The transaction has to be aborted. The producer can begin the next one then."""


class FatalError(KafkaError):
    """This client cannot go on, and has to be closed."""


class FencedError(FatalError):
    """Another one with the same name has taken over: a transactional id, or a group instance id."""


class InvalidConfigurationError(KafkaError):
    """It is not allowed, or not possible here. Somebody has to change that first."""


class CommitFailedError(KafkaError):
    """Offsets were not committed: the group has gone on, and their partitions may be somebody else's."""


class RecordError(KafkaError):
    """A record, or the batch it was in, was refused."""


class ClosedError(KafkaError):
    """The client was closed before it was done."""

    @classmethod
    def because(cls, message: str) -> ClosedError:
        return cls(ErrorCode.UNKNOWN_SERVER_ERROR, message)  # Kafka has no code for it

    def __str__(self) -> str:
        return self.message or ""


_REFRESH = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
"""Codes that say that what the client knows of the cluster is old (Kafka's InvalidMetadataException)."""

_CLASSES: dict[ErrorCode, type[KafkaError]] = {
    **dict.fromkeys(_REFRESH, RefreshRetriableError),
    ErrorCode.TRANSACTION_ABORTABLE: AbortableError,
    ErrorCode.PRODUCER_FENCED: FencedError,
    ErrorCode.INVALID_PRODUCER_EPOCH: AbortableError,
    ErrorCode.INVALID_TXN_STATE: FatalError,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: FatalError,
    ErrorCode.UNKNOWN_PRODUCER_ID: AbortableError,
    ErrorCode.FENCED_INSTANCE_ID: FencedError,
    ErrorCode.ILLEGAL_GENERATION: CommitFailedError,
    ErrorCode.UNKNOWN_MEMBER_ID: CommitFailedError,
    ErrorCode.REBALANCE_IN_PROGRESS: CommitFailedError,
    ErrorCode.STALE_MEMBER_EPOCH: CommitFailedError,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: RecordError,
    ErrorCode.MESSAGE_TOO_LARGE: RecordError,
    ErrorCode.RECORD_LIST_TOO_LARGE: RecordError,
    ErrorCode.INVALID_RECORD: RecordError,
    ErrorCode.INVALID_TIMESTAMP: RecordError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: InvalidConfigurationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: InvalidConfigurationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: InvalidConfigurationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: InvalidConfigurationError,
    ErrorCode.SASL_AUTHENTICATION_FAILED: InvalidConfigurationError,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: InvalidConfigurationError,
    ErrorCode.UNSUPPORTED_VERSION: InvalidConfigurationError,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: InvalidConfigurationError,
    ErrorCode.INVALID_TOPIC_EXCEPTION: InvalidConfigurationError,
    ErrorCode.INVALID_REQUIRED_ACKS: InvalidConfigurationError,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: InvalidConfigurationError,
    ErrorCode.POLICY_VIOLATION: InvalidConfigurationError,
}


def error_of(code: ErrorCode, message: str | None = None) -> KafkaError:
    """The error for a code, of the class that says what can be done about it."""
    known = _CLASSES.get(code)
    if known is None:
        known = RetriableError if code.retriable else KafkaError
    return known(code, message)


def metadata_is_stale(code: ErrorCode) -> bool:
    """Whether the code says that the client should ask the cluster anew before it tries again."""
    return code in _REFRESH
