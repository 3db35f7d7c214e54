"""What a partition remembers of its producers: idempotence, open transactions, the last stable offset.

Takes batch headers in and knows no files. A leader asks `check` before it writes a batch, which refuses what
is out of sequence and recognises what it has already (the last five batches of a producer), and tells
`append` after the write. A follower, and a log being replayed, only tell: what the leader accepted is so.

Transactions: the first transactional batch of a producer opens one, its marker closes it. Until the marker is
replicated (below the high watermark) the transaction holds back the last stable offset.

Which transactions there are is known to a coordinator, not here. Before a batch may open one, whoever appends
it begins a `Verification`, asks, and shows it with the batch. It is void once the transaction has a batch or
a marker: an answer that comes late lets nothing in that no marker would ever end.
Invariant: `end_offset` is the offset up to which the log is reflected here.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from moldau.wire.errors import ErrorCode, KafkaError

BATCHES_RETAINED = 5

NO_EPOCH = -1
NO_OFFSET = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_COORDINATOR_EPOCH = -1

_SEQUENCE_MASK = 0x7FFFFFFF
_NO_BOUND = _SEQUENCE_MASK


class BatchMetadata(NamedTuple):
    """A batch of the log, as needed to recognise it when it comes again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & _SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerEntry:
    """One producer, as last seen. Only `ProducerState` changes it."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "next_sequence",
        "txn_first_offset",
    )

    def __init__(
        self,
        epoch: int = NO_EPOCH,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: int = NO_TIMESTAMP,
        txn_first_offset: int = NO_OFFSET,
        last_batch: BatchMetadata | None = None,
    ) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.txn_first_offset = txn_first_offset
        self.batches: deque[BatchMetadata] = deque((last_batch,) if last_batch else (), BATCHES_RETAINED)
        self.next_sequence = (self.last_sequence + 1) & _SEQUENCE_MASK

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1].offset_delta if self.batches else 0

    def set_epoch(self, epoch: int) -> None:
        """Sequences belong to an epoch: a new one starts with none."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.next_sequence = 0


class Verification:
    """A question to the coordinator, about a producer without an open transaction here. It stands for all
    batches that wait for the answer. Of these the one with the lowest sequence has to come first: if another
    did, that one could never be sent again."""

    __slots__ = ("epoch", "lowest_sequence", "supports_epoch_bump", "timestamp")

    def __init__(
        self,
        epoch: int = NO_EPOCH,
        lowest_sequence: int = NO_SEQUENCE,
        timestamp: int = NO_TIMESTAMP,
        supports_epoch_bump: bool = False,
    ) -> None:
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        self.timestamp = timestamp
        self.supports_epoch_bump = supports_epoch_bump

    def also_for(self, epoch: int, first_sequence: int) -> None:
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, first_sequence
        elif epoch == self.epoch and first_sequence < self.lowest_sequence:
            self.lowest_sequence = first_sequence


ONGOING = Verification()
"""Shown with a batch of a transaction that was open when it was looked at: it opens none."""


class ProducerState:
    __slots__ = ("_ongoing", "end_offset", "name", "producers", "unreplicated", "verifications")

    def __init__(self, name: str, end_offset: int = 0) -> None:
        """`name` is the partition's, for messages."""
        self.name = name
        self.end_offset = end_offset
        self.producers: dict[int, ProducerEntry] = {}
        # First offset of each transaction to its producer; first offset to the offset of its marker, until
        # the high watermark has passed that.
        self._ongoing: dict[int, int] = {}
        self.unreplicated: dict[int, int] = {}
        self.verifications: dict[int, Verification] = {}  # by producer

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch

    def begin_verification(
        self, producer_id: int, epoch: int, first_sequence: int, now_ms: int, *, supports_epoch_bump: bool
    ) -> Verification | None:
        """To be shown with a batch if the coordinator knows of its transaction; None if that is open already.
        Raises KafkaError if the epoch is over. `supports_epoch_bump`: of transaction version 2, where a
        transaction begins with sequence 0 unless the producer is known."""
        entry = self.producers.get(producer_id)
        if entry is not None:
            if epoch < entry.epoch:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"Epoch of producer {producer_id} in {self.name} is {epoch}, which is smaller than the "
                    f"last seen epoch {entry.epoch}",
                )
            if entry.txn_first_offset >= 0 and epoch == entry.epoch:
                return None
        verification = self.verifications.get(producer_id)
        if verification is None:
            verification = self.verifications[producer_id] = Verification(
                epoch, first_sequence, now_ms, supports_epoch_bump
            )
        else:
            verification.also_for(epoch, first_sequence)
        return verification

    def trust(self, producer_id: int, epoch: int, now_ms: int) -> Verification:
        """As `begin_verification`, where nobody is to be asked: there is no order to be kept."""
        verification = self.verifications[producer_id] = Verification(epoch, _NO_BOUND, now_ms)
        return verification

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        transactional: bool,
        offset: int,
    ) -> BatchMetadata | None:
        """May a client append this batch at `offset`? The batch it repeats, if it does, in which case nothing
        is to be written; otherwise None, or the error."""
        entry = self.producers.get(producer_id)
        if entry is None:
            # Forgotten (expired, or its records were deleted) or new: it may begin with any sequence.
            return None
        if epoch == entry.epoch:
            if first_sequence == entry.next_sequence and (transactional or entry.txn_first_offset < 0):
                return None
            for batch in entry.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
            if first_sequence != entry.next_sequence and epoch != NO_EPOCH:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {producer_id} at offset {offset} in "
                    f"partition "
                    f"{self.name}: {first_sequence} (incoming seq. number), {entry.last_sequence} "
                    "(current end sequence number)",
                )
        else:
            self._check_epoch(producer_id, entry, epoch, offset)
            if first_sequence != 0 and entry.epoch != NO_EPOCH:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {producer_id} at offset "
                    f"{offset} in partition "
                    f"{self.name}: {epoch} (request epoch), {first_sequence} (seq. number), {entry.epoch} "
                    "(current producer epoch)",
                )
        self._check_in_transaction(producer_id, entry, transactional, offset)
        return None

    def check_with_verification(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        transactional: bool,
        offset: int,
        verification: Verification,
    ) -> BatchMetadata | None:
        """As `check`, for a batch of a producer with a transactional id. What is here already needs no
        verification."""
        entry = self.producers.get(producer_id)
        if entry is not None and entry.txn_first_offset >= 0 and epoch == entry.epoch:
            return self.check(producer_id, epoch, first_sequence, last_sequence, transactional, offset)
        for batch in entry.batches if entry is not None and epoch == entry.epoch else ():
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        if entry is not None:
            self._check_epoch(producer_id, entry, epoch, offset)
        if transactional:
            self._check_verified(producer_id, verification, offset)
        pending = self.verifications.get(producer_id)
        if pending is not None:
            is_new = entry is None or not entry.batches
            lowest_sequence = 0 if pending.supports_epoch_bump and is_new else pending.lowest_sequence
            if first_sequence > lowest_sequence:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {producer_id} at offset {offset} in "
                    f"partition {self.name}: {first_sequence} (incoming seq. number), {lowest_sequence} "
                    "(the one that the transaction begins with)",
                )
        return self.check(producer_id, epoch, first_sequence, last_sequence, transactional, offset)

    def check_coordinator_batch(
        self,
        producer_id: int,
        epoch: int,
        transactional: bool,
        offset: int,
        verification: Verification | None,
    ) -> None:
        """May a coordinator append this batch on behalf of a producer? Its batches have no sequence
        numbers."""
        entry = self.producers.get(producer_id)
        if entry is not None:
            self._check_epoch(producer_id, entry, epoch, offset)
        if transactional and not self.is_in_transaction(producer_id, epoch):
            self._check_verified(producer_id, verification, offset)
        if entry is not None:
            self._check_in_transaction(producer_id, entry, transactional, offset)

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int, offset: int
    ) -> None:
        """May a transaction coordinator append this marker?

        From transaction version 2 on each transaction has an epoch of its own, and its marker the next one: a
        marker that is not above the producer's epoch belongs to an earlier transaction. One that repeats the
        last marker ends nothing, and is let in.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        is_of_open_transaction = epoch == entry.epoch and entry.txn_first_offset >= 0
        if transaction_version >= 2 and is_of_open_transaction:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"The marker of producer {producer_id} at offset {offset} in {self.name} has the epoch "
                f"{epoch} of the transaction itself, and not the next one",
            )
        self._check_epoch(producer_id, entry, epoch, offset)
        if entry.coordinator_epoch > coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {producer_id} at offset {offset} in "
                f"partition {self.name}: "
                f"{coordinator_epoch} (zombie), {entry.coordinator_epoch} (current)",
            )

    def append(
        self,
        producer_id: int,
        epoch: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        """The batch is in the log."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(epoch)
        elif entry.epoch != epoch:
            entry.set_epoch(epoch)
        entry.batches.append(BatchMetadata(last_sequence, last_offset, last_offset - first_offset, timestamp))
        entry.next_sequence = (last_sequence + 1) & _SEQUENCE_MASK
        entry.last_timestamp = timestamp
        if transactional:
            if self.verifications:
                self.verifications.pop(producer_id, None)
            if entry.txn_first_offset < 0:
                entry.txn_first_offset = first_offset
                self._ongoing[first_offset] = producer_id

    def append_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, aborted: bool
    ) -> CompletedTransaction | None:
        """The marker is in the log. The transaction it ends; None if that wrote nothing to this partition."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(epoch)
        entry.set_epoch(epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        self.verifications.pop(producer_id, None)
        first_offset, entry.txn_first_offset = entry.txn_first_offset, NO_OFFSET
        if first_offset < 0:
            return None
        return CompletedTransaction(producer_id, first_offset, offset, aborted)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """The last stable offset once this transaction is complete: what its entry in the transaction index
        says."""
        others = (
            first for first, producer_id in self._ongoing.items() if producer_id != completed.producer_id
        )
        return next(others, completed.last_offset + 1)

    def complete(self, completed: CompletedTransaction) -> None:
        """The transaction waits for its marker to be replicated."""
        self._ongoing.pop(completed.first_offset, None)
        self.unreplicated[completed.first_offset] = completed.last_offset

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is open, or whose marker is not replicated."""
        # Transactions open in the order of their offsets, and so does the dict; they complete in any order.
        ongoing = next(iter(self._ongoing), None)
        if not self.unreplicated:
            return ongoing
        unreplicated = min(self.unreplicated)
        return unreplicated if ongoing is None or unreplicated < ongoing else ongoing

    @property
    def has_transactions(self) -> bool:
        return bool(self._ongoing or self.unreplicated)

    def on_high_watermark(self, high_watermark: int) -> None:
        self.unreplicated = {
            first: marker for first, marker in self.unreplicated.items() if marker >= high_watermark
        }

    def oldest_transaction_timestamp(self) -> int:
        """When the producer of the oldest open transaction was last heard of; -1 without one."""
        producer_id = next(iter(self._ongoing.values()), None)
        entry = None if producer_id is None else self.producers.get(producer_id)
        return NO_TIMESTAMP if entry is None else entry.last_timestamp

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without an open transaction that were silent for that long. How many there
        were."""
        expired = [
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.txn_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        self.verifications = {
            producer_id: verification
            for producer_id, verification in self.verifications.items()
            if now_ms - verification.timestamp < expiration_ms
        }
        return len(expired)

    def load(self, producers: dict[int, ProducerEntry], end_offset: int) -> None:
        """Become what a snapshot at `end_offset` says."""
        self.producers = producers
        self.end_offset = end_offset
        open_transactions = sorted(
            (entry.txn_first_offset, producer_id)
            for producer_id, entry in producers.items()
            if entry.txn_first_offset >= 0
        )
        self._ongoing = dict(open_transactions)
        self.unreplicated = {}
        self.verifications = {}

    def reset(self, end_offset: int) -> None:
        self.load({}, end_offset)

    def _check_epoch(self, producer_id: int, entry: ProducerEntry, epoch: int, offset: int) -> None:
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} at offset {offset} in {self.name} is {epoch}, which "
                f"is smaller than "
                f"the last seen epoch {entry.epoch}",
            )

    def _check_verified(self, producer_id: int, verification: Verification | None, offset: int) -> None:
        if verification is None or self.verifications.get(producer_id) is not verification:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"The batch of producer {producer_id} at offset {offset} in partition {self.name} belongs to "
                "no ongoing transaction",
            )

    def _check_in_transaction(
        self, producer_id: int, entry: ProducerEntry, transactional: bool, offset: int
    ) -> None:
        if entry.txn_first_offset >= 0 and not transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {producer_id} at offset {offset} in "
                f"partition {self.name}",
            )
