"""Who a producer is to its partitions: its id and epoch, and how many records each partition has of it.

A broker takes a batch only if its sequence follows the last one, drops what it has already, and refuses what
leaves a gap. Answerable for numbering batches, for which of them are under way, and for what to do when a
broker's numbers and ours part: wait for the batches before, number anew under the next epoch (KIP-360), or
give up. Rules as in Kafka's Java producer.

Invariants: batches of a partition are numbered in their order, without gaps, within an epoch. What was sent
keeps its number as long as the epoch lasts. While it is unknown whether a batch that was given up was
written, its partition gets nothing new.
"""

from __future__ import annotations

from moldau.client.producing.batch import ProducerBatch
from moldau.wire.errors import ErrorCode

_SEQUENCES = 1 << 31
_EPOCH_MAX = (1 << 15) - 1
NO_ID = -1


class Sequences:
    """What one partition knows of the producer, as far as the producer knows."""

    __slots__ = (
        "in_flight",
        "last_acked",
        "last_acked_offset",
        "next",
        "producer_epoch",
        "producer_id",
        "unresolved",
    )

    def __init__(self) -> None:
        self.producer_id = NO_ID
        self.producer_epoch = NO_ID
        self.next = 0
        self.last_acked = -1
        self.last_acked_offset = -1
        self.in_flight: list[
            ProducerBatch
        ] = []  # numbered and not yet over, in order; some wait to be repeated
        self.unresolved: int | None = None  # the sequence after a batch of which nobody knows

    def is_next(self, sequence: int) -> bool:
        return sequence == (self.last_acked + 1) % _SEQUENCES

    def add(self, batch: ProducerBatch) -> None:
        position = len(self.in_flight)
        while position and self.in_flight[position - 1].order > batch.order:
            position -= 1
        self.in_flight.insert(position, batch)

    def remove(self, batch: ProducerBatch) -> None:
        if batch in self.in_flight:
            self.in_flight.remove(batch)

    def restart(self, producer_id: int, producer_epoch: int) -> None:
        """Number from zero again, what is under way included."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.next, self.last_acked = 0, -1
        self.unresolved = None
        for batch in self.in_flight:
            batch.number(producer_id, producer_epoch, self.next)
            batch.sequence_was_reset = True
            self.next = (self.next + batch.record_count) % _SEQUENCES


class Identity:
    def __init__(self, *, is_transactional: bool) -> None:
        self.is_transactional = is_transactional
        self.producer_id = NO_ID
        self.producer_epoch = NO_ID
        self._to_restart: dict[Sequences, tuple[int, ...]] = {}  # from which batch on
        self._unresolved: dict[Sequences, None] = {}

    @property
    def is_known(self) -> bool:
        return self.producer_id != NO_ID

    def become(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._restart_requested()

    def is_stale(self, sequences: Sequences) -> bool:
        return sequences.producer_id != self.producer_id or sequences.producer_epoch != self.producer_epoch

    # Before a batch is sent -------------------------------------------------------------------------------

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether the first batch of a queue may leave."""
        sequences = batch.queue.sequences
        if not self.is_known:
            return False
        if not batch.has_sequence:
            if sequences.in_flight and (
                # The new epoch begins when the old one is over.
                self.is_stale(sequences)
                # Brokers that know nothing of a producer take any number from it: the first batch goes alone,
                # or one behind it could be taken in its place. Kafka's producer leaves that to luck.
                or sequences.last_acked_offset < 0
                # Two nodes that were sent batches of one partition take them in any order.
                or sequences.in_flight[-1].sent_to != batch.queue.leader
            ):
                return False
            return sequences.unresolved is None and sequences not in self._to_restart
        # One that is repeated waits for those before it: order is worth more than company.
        return not sequences.in_flight or sequences.in_flight[0] is batch

    def assign(self, batch: ProducerBatch) -> None:
        """Number a batch that leaves for the first time."""
        sequences = batch.queue.sequences
        if self.is_stale(sequences) and not sequences.in_flight:
            sequences.restart(self.producer_id, self.producer_epoch)
        batch.is_transactional = self.is_transactional
        batch.number(self.producer_id, self.producer_epoch, sequences.next)
        sequences.next = (sequences.next + batch.record_count) % _SEQUENCES
        sequences.add(batch)

    # After an answer --------------------------------------------------------------------------------------

    def on_completed(self, batch: ProducerBatch, base_offset: int) -> None:
        sequences = batch.queue.sequences
        if not self._is_of_this_time(batch):
            sequences.remove(batch)
            return
        if (
            batch.last_sequence > sequences.last_acked
            or sequences.last_acked - batch.last_sequence > _SEQUENCES // 2
        ):
            sequences.last_acked = batch.last_sequence
        last_offset = max(base_offset, 0) + batch.record_count - 1
        sequences.last_acked_offset = max(sequences.last_acked_offset, last_offset)
        sequences.remove(batch)

    def may_retry(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int) -> bool:
        sequences = batch.queue.sequences
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            # The broker has forgotten the producer. -1: it cannot tell where its log begins just now.
            if log_start_offset == -1 or batch.sequence_was_reset:
                return True
            if sequences.last_acked_offset < log_start_offset:
                # With the records that it knew the producer by. A transaction can go on from zero.
                if self.is_transactional:
                    sequences.restart(self.producer_id, self.producer_epoch)
                else:
                    self._request_bump(sequences, batch)
                return True
            if not self.is_transactional:
                self._request_bump(sequences, batch)
                return True
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if sequences.unresolved is None and (
                batch.sequence_was_reset or not sequences.is_next(batch.base_sequence)
            ):
                return True  # one before it failed: it follows that one
            if not self.is_transactional:
                # There is a gap where none should be, unless the fate of the batch before is still open.
                if sequences.unresolved is None or sequences.unresolved == batch.base_sequence:
                    self._request_bump(sequences, batch)
                return True
        return code.retriable

    def on_failed(self, batch: ProducerBatch, code: ErrorCode, *, may_be_written: bool) -> None:
        """A batch is over, in failure. If it was certainly not written, what follows it closes ranks. If it
        may have been, those behind it show by being taken whether it was, and have to keep their numbers."""
        sequences = batch.queue.sequences
        sequences.remove(batch)
        if not batch.has_sequence or not self._is_of_this_time(batch):
            return
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self.is_transactional:
            self._request_bump(sequences, batch)
        elif code is ErrorCode.UNKNOWN_PRODUCER_ID:
            sequences.restart(self.producer_id, self.producer_epoch)
            self._unresolved.pop(sequences, None)
        elif may_be_written:
            following = (batch.last_sequence + 1) % _SEQUENCES
            sequences.unresolved = max(following, sequences.unresolved or 0)
            self._unresolved[sequences] = None
        elif self.is_transactional:
            self._close_ranks(sequences, batch)
        else:
            self._request_bump(sequences, batch)

    def resolve(self) -> bool:
        """See what has become of batches whose fate was open; False if a transaction cannot go on."""
        for sequences in list(self._unresolved):
            if sequences.unresolved is None:
                del self._unresolved[sequences]
            elif not sequences.in_flight:
                sequences.unresolved = None
                del self._unresolved[sequences]
                if sequences.is_next(sequences.next):
                    continue  # what came behind was taken, hence it was, too
                if self.is_transactional:
                    return False
                self._request_bump(sequences)
        return True

    def bump_if_needed(self) -> None:
        """The next epoch, for a producer that nobody else gives one. At the last one it asks for another id.

        What is numbered anew must not have been written. That holds for what follows a batch that was not,
        but not for those before it: they get to their ends first, under the numbers they have.
        """
        if self.is_transactional or not any(map(self._may_restart, self._to_restart)):
            return
        if self.producer_epoch >= _EPOCH_MAX:
            self.producer_id = self.producer_epoch = NO_ID
        elif self.is_known:
            self.producer_epoch += 1
            self._restart_requested()

    def forget_unresolved(self) -> None:
        """A new epoch from the coordinator: nothing of the old one matters."""
        for sequences in self._unresolved:
            sequences.unresolved = None
        self._unresolved.clear()

    def _may_restart(self, sequences: Sequences) -> bool:
        return not sequences.in_flight or sequences.in_flight[0].order >= self._to_restart[sequences]

    def _restart_requested(self) -> None:
        for sequences in [each for each in self._to_restart if self._may_restart(each)]:
            sequences.restart(self.producer_id, self.producer_epoch)
            del self._to_restart[sequences]
            self._unresolved.pop(sequences, None)

    def _is_of_this_time(self, batch: ProducerBatch) -> bool:
        sequences = batch.queue.sequences
        return batch.producer_id == sequences.producer_id and batch.producer_epoch == sequences.producer_epoch

    def _request_bump(self, sequences: Sequences, batch: ProducerBatch | None = None) -> None:
        order = () if batch is None else batch.order
        known = self._to_restart.get(sequences)
        self._to_restart[sequences] = order if known is None else min(known, order)

    def _close_ranks(self, sequences: Sequences, failed: ProducerBatch) -> None:
        for batch in sequences.in_flight:
            if batch.order > failed.order:
                batch.number(
                    batch.producer_id,
                    batch.producer_epoch,
                    (batch.base_sequence - failed.record_count) % _SEQUENCES,
                )
                batch.sequence_was_reset = True
        sequences.next = (sequences.next - failed.record_count) % _SEQUENCES
