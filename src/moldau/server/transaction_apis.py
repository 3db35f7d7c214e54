"""What the requests of transactional producers have in common: errors that old clients do not know, and how a
client's transactions are to be taken by the version it asks in."""

from __future__ import annotations

from moldau.wire.errors import ErrorCode, KafkaError

# What clients of KIP-890 part 2 ask with; before, each transaction has the epoch of the one before it.
_VERSION_OF_NEW_CLIENTS, _VERSION_OF_OLD_CLIENTS = 2, 0


def told_code(failure: KafkaError, version: int, *, fenced_from: int) -> ErrorCode:
    """Before `fenced_from`, the API had no PRODUCER_FENCED."""
    if failure.code == ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return failure.code


def client_transaction_version(version: int, *, bumps_from: int) -> int:
    return _VERSION_OF_NEW_CLIENTS if version >= bumps_from else _VERSION_OF_OLD_CLIENTS
