"""What is left to do before a decided transaction is complete: the partitions that have no marker yet.

A leader says of each marker how it went. Kafka's coordinator stops for good where a leader knows of a newer
epoch of the producer, which leaves the transaction decided and never complete; here that partition is done,
as nothing of the transaction can be open there."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto

from moldau.txn.transaction import Markers, TopicPartition
from moldau.wire.errors import ErrorCode

_BACKOFF_MIN_MS, _BACKOFF_MAX_MS = 20, 1000


class Verdict(Enum):
    DONE = auto()
    """Nothing is left to do in the partition."""
    AGAIN = auto()
    FENCED = auto()
    """There is a newer coordinator, and everything about the transaction is its concern."""


_VERDICTS = {
    ErrorCode.NONE: Verdict.DONE,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.DONE,
    # Where no transactional record can be, none is open.
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Verdict.DONE,
    ErrorCode.UNSUPPORTED_VERSION: Verdict.DONE,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Verdict.FENCED,
}


def verdict_on(code: ErrorCode) -> Verdict:
    """Anything else may pass: another leader, a disk with room, more replicas in sync."""
    return _VERDICTS.get(code, Verdict.AGAIN)


class Marking:
    """One decided transaction, as long as `left` has partitions in it."""

    __slots__ = ("_failures", "coordinator_epoch", "failed", "left", "markers", "untried")

    def __init__(self, markers: Markers, coordinator_epoch: int) -> None:
        self.markers = markers
        self.coordinator_epoch = coordinator_epoch
        # In order, so that the same transaction is always ended in the same way.
        self.left: dict[TopicPartition, None] = dict.fromkeys(sorted(markers.partitions))
        # Of those, in this attempt: where nothing was heard yet, and what was heard, with one example each.
        self.untried = deque(self.left)
        self.failed: dict[ErrorCode, TopicPartition] = {}
        self._failures = 0

    def on_code(self, partition: TopicPartition, code: ErrorCode) -> Verdict:
        """What a leader has said."""
        verdict = verdict_on(code)
        if verdict is Verdict.DONE:
            self.left.pop(partition, None)
        elif verdict is Verdict.AGAIN:
            self.failed[code] = partition
        return verdict

    def begin_again(self) -> int:
        """Another attempt where this one has failed; after how many milliseconds."""
        self.untried.extend(self.left)
        self.failed.clear()
        return self.next_backoff_ms()

    def next_backoff_ms(self) -> int:
        self._failures += 1
        return min(_BACKOFF_MIN_MS << min(self._failures - 1, 10), _BACKOFF_MAX_MS)
