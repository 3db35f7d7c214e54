"""What a broken disk, a full disk and a damaged file look like to the rest of the broker.

All of them are KAFKA_STORAGE_ERROR to a client. A `LogDirError` is final for its directory: the driver takes
that directory offline. A full disk is not: the operation failed, nothing was acknowledged, and the next may
succeed.
"""

from __future__ import annotations

import errno

from moldau.wire.errors import ErrorCode, KafkaError

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Of the process, not of the disk: the next attempt may succeed, and the directory is as good as before."""


class LogDirError(KafkaError):
    """The log directory can no longer be trusted. `directory` names it, `cause` says why."""

    def __init__(self, directory: str, cause: BaseException) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {directory} failed: {cause}")
        self.directory = directory
        self.cause = cause


class DiskFullError(KafkaError):
    """The volume of `directory` has no room. Everything is as it was before the operation."""

    def __init__(self, directory: str, cause: OSError) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"no space in log directory {directory}: {cause}")
        self.directory = directory
        self.cause = cause


class NotOneBatch(KafkaError):
    """What a client sent for a partition is not one record batch: it never got as far as the log."""


class NotInTransaction(KafkaError):
    """A transactional batch of a transaction that nobody vouches for."""

    def __init__(self, partition: str) -> None:
        super().__init__(
            ErrorCode.INVALID_TXN_STATE, f"the batch for {partition} belongs to no ongoing transaction"
        )


class CorruptFileError(Exception):
    """A file does not hold what its format promises. Whoever reads it knows how to do without."""


def is_disk_full(error: OSError) -> bool:
    return error.errno in _DISK_FULL


def is_final(error: OSError) -> bool:
    """Whether the directory can no longer be trusted; otherwise the next attempt may succeed."""
    return error.errno not in _DISK_FULL and error.errno not in _OUT_OF_RESOURCES


def storage_error(directory: str, error: OSError) -> KafkaError:
    """The exception to raise for `error` from a file below `directory`."""
    if is_disk_full(error):
        return DiskFullError(directory, error)
    if error.errno in _OUT_OF_RESOURCES:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot use log directory {directory}: {error}")
    return LogDirError(directory, error)
