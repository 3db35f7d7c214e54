"""A partition as one share group sees it: what is handed to whom, and what becomes of it.

Between the start offset, below which everything is done with, and the end of what was ever fetched, each
record is available, acquired by a member until its lock ends, acknowledged, or archived: given up. Members
take what is available and acknowledge what they have acquired; what they do not acknowledge in time, or
release, is available again, until it was handed out too often.

What members are told is written down before: `acknowledge` and `release` give a `Change`, whose runs are in
transition until `complete` says whether that is kept. A lock that ends needs no one's leave; it is written
down, too, but does not wait for that.

What comes back after a restart is what was written. Records that were out with members then are not among it,
so they are in no run: fetched again, as if for the first time.

Pure: time is an argument, records are headers of batches, and whoever drives this reads and writes.
Invariant: no record is acquired by two members at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from moldau.records.batch import BatchHeader
from moldau.share.batches import StateBatch, combined
from moldau.share.in_flight import InFlight, RecordState, Run, Transition
from moldau.wire.errors import ErrorCode, KafkaError

# A record that was handed out this often is handed out with fewer others, to find the one that is at fault.
_THROTTLE_FROM_MIN = 2

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
_STATE_AFTER = {
    GAP: RecordState.ARCHIVED,  # there is no record at that offset
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}


class Limits(NamedTuple):
    """The group's options, as they are now."""

    lock_duration_ms: int
    delivery_count_limit: int
    record_locks_max: int
    is_renewal_enabled: bool = True


class Acquired(NamedTuple):
    first: int
    last: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """One type for all of the range, or one for each offset of it."""

    first: int
    last: int
    types: Sequence[int]


class Write(NamedTuple):
    """What is to be written down of a share partition."""

    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]


class Change:
    """Transitions that are kept, or not, together."""

    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches: list[StateBatch] = []


class SharePartition:
    def __init__(
        self, *, start_offset: int, state_epoch: int, leader_epoch: int, batches: Iterable[StateBatch] = ()
    ) -> None:
        """`batches` is what was written of records at or above the start offset, in order."""
        self.start_offset = start_offset
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.in_flight = InFlight()
        for batch in batches:
            if batch.first < start_offset:
                raise ValueError(f"{batch} lies before the start offset {start_offset}")
            state = RecordState(batch.state)
            self.in_flight.add(Run(batch.first, batch.last, state, batch.delivery_count))
        # Nothing below it is to be had; above it there may be.
        self._search_from = start_offset
        # No lock ends before that.
        self.next_deadline_ms: int | None = None
        self._advance()

    # ------------------------------------------------------------ what there is

    @property
    def end_offset(self) -> int:
        """Behind the last record that was ever fetched."""
        return self.in_flight.last_offset + 1 if self.in_flight else self.start_offset

    @property
    def next_fetch_offset(self) -> int:
        """The first record that a member could have."""
        offset = max(self._search_from, self.start_offset)
        for run in self.in_flight.from_offset(offset):
            if run.first > offset or run.is_available:
                break
            offset = run.last + 1
        self._search_from = offset
        return offset

    @property
    def delivery_complete_count(self) -> int:
        """How many records at or above the start offset are done with, counting what is being written."""
        return sum(run.size for run in self.in_flight if run.will_be_done)

    def can_acquire(self, limits: Limits) -> bool:
        """What was fetched before may always be fetched again."""
        end_offset = self.end_offset
        return (
            self.next_fetch_offset != end_offset or end_offset - self.start_offset < limits.record_locks_max
        )

    # ------------------------------------------------------------ acquire

    def acquire(
        self,
        now_ms: int,
        member_id: str,
        fetch_offset: int,
        headers: Sequence[BatchHeader],
        limits: Limits,
        *,
        records_max: int,
        batch_size: int,
        is_record_limit: bool,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> list[Acquired]:
        """What the member gets of batches that were read at `fetch_offset`. `records_max` is kept exactly
        with `is_record_limit`, otherwise up to the end of a batch. `aborted` are the first and last offsets
        of what nobody is to see: it is given up where the member would have got it."""
        if not headers:
            return []
        # What was there when it was fetched before, and is not any more, will not come back.
        self._archive_missing(fetch_offset, headers[0].base_offset)
        first, last = max(headers[0].base_offset, self.start_offset), headers[-1].last_offset
        free = limits.record_locks_max - (self.end_offset - self.start_offset)
        if free <= 0:
            last = min(last, self.end_offset - 1)
            free = self.end_offset - fetch_offset
        acquisition = _Acquisition(
            member_id,
            now_ms + limits.lock_duration_ms,
            limits,
            min(records_max, free),
            max(batch_size, 1),
            is_record_limit,
        )
        if acquisition.left > 0 and first <= last:
            self._acquire(acquisition, first, last, headers)
        if acquisition.acquired:
            self._lock_until(acquisition.deadline_ms)
        return self._without(acquisition, aborted) if aborted else acquisition.acquired

    def _acquire(
        self, acquisition: _Acquisition, first: int, last: int, headers: Sequence[BatchHeader]
    ) -> None:
        position = first
        for run in self.in_flight.overlapping(first, last):
            end = run.last + 1
            if run.first > position:
                self._acquire_new(acquisition, position, run.first - 1, headers)
            if acquisition.left <= 0:
                return
            if run.is_available and not self._acquire_again(acquisition, run, first, last):
                return
            if acquisition.left <= 0:
                return
            position = end
        if position <= last:
            self._acquire_new(acquisition, position, last, headers)

    def _acquire_new(
        self, acquisition: _Acquisition, first: int, last: int, headers: Sequence[BatchHeader]
    ) -> None:
        limit = first + acquisition.left - 1
        if last > limit:
            last = min(last, _end_of_batch(headers, limit))
        start = first
        if acquisition.is_record_limit:
            self._hand_out_new(acquisition, first, min(last, limit), last)
            return
        if last - first + 1 > acquisition.batch_size:
            for header in headers:
                if header.base_offset > last:
                    break
                if header.base_offset - start >= acquisition.batch_size:
                    self._hand_out_new(acquisition, start, header.base_offset - 1, header.base_offset - 1)
                    start = header.base_offset
        self._hand_out_new(acquisition, start, last, last)

    def _hand_out_new(self, acquisition: _Acquisition, first: int, last: int, end: int) -> None:
        """What follows up to the end of the batch is fetched as well, and for whoever comes next."""
        run = Run(first, end, RecordState.ACQUIRED, 1, acquisition.member_id, acquisition.deadline_ms)
        self.in_flight.add(run)
        if last < end:
            self.in_flight.cut(run, last + 1, end).become(RecordState.AVAILABLE, 0)
        acquisition.add(Acquired(first, last, 1), run.batch)

    def _acquire_again(self, acquisition: _Acquisition, run: Run, first: int, last: int) -> bool:
        """False if the member gets no more for now."""
        limit = acquisition.limits.delivery_count_limit
        throttle_from = max(_THROTTLE_FROM_MIN, (limit + 1) // 2)
        is_throttled = run.delivery_count >= throttle_from
        # The last attempt is made with each record alone: one that breaks its consumer takes no other along.
        is_alone = limit > _THROTTLE_FROM_MIN and run.delivery_count == limit - 1
        if (is_throttled or is_alone) and acquisition.acquired:
            return False
        first, last = max(first, run.first), min(last, run.last)
        count_max = last - first + 1
        if acquisition.is_record_limit:
            count_max = min(count_max, acquisition.left)
        if is_throttled:
            count_max = min(count_max, max(1, run.batch_size >> (run.delivery_count - throttle_from + 1)))
        if is_alone:
            count_max = 1
        run = self.in_flight.cut(run, first, first + count_max - 1)
        run.state = RecordState.ACQUIRED
        run.delivery_count += 1
        run.member_id, run.deadline_ms = acquisition.member_id, acquisition.deadline_ms
        acquisition.add(Acquired(run.first, run.last, run.delivery_count), run.batch)
        return not (is_throttled or is_alone)

    def _without(self, acquisition: _Acquisition, aborted: Sequence[tuple[int, int]]) -> list[Acquired]:
        left = acquisition.acquired
        for first, last in aborted:
            for got in left:
                if got.first <= last and got.last >= first:
                    self._archive(max(first, got.first), min(last, got.last))
            left = [part for got in left for part in _cut_out(got, first, last)]
        self._advance()
        return left

    def _archive(self, first: int, last: int) -> None:
        for run in self.in_flight.overlapping(first, last):
            cut = self.in_flight.cut(run, first, last)
            cut.become(RecordState.ARCHIVED, cut.delivery_count)

    def _archive_missing(self, first: int, end: int) -> None:
        """There are no records from `first` to before `end`."""
        if first >= end:
            return
        if not self.in_flight:
            self.start_offset = max(self.start_offset, end)
            return
        position = first
        for run in self.in_flight.overlapping(first, end - 1):
            following = run.last + 1
            if run.first > position:
                self.in_flight.add(Run(position, run.first - 1, RecordState.ARCHIVED, 0))
            if run.is_available:
                cut = self.in_flight.cut(run, first, end - 1)
                cut.become(RecordState.ARCHIVED, cut.delivery_count)
            position = following
        if position < end:
            self.in_flight.add(Run(position, end - 1, RecordState.ARCHIVED, 0))
        self._advance()

    # ------------------------------------------------------------ acknowledge

    def acknowledge(
        self, now_ms: int, member_id: str, acknowledgements: Iterable[Acknowledgement], limits: Limits
    ) -> Change:
        """All of them, or KafkaError and none: but a lock that was renewed stays so."""
        change = Change()
        try:
            for acknowledgement in acknowledgements:
                self._acknowledge(change, now_ms, member_id, acknowledgement, limits)
        except KafkaError:
            self._roll_back(change, now_ms, limits)
            raise
        return change

    def _acknowledge(
        self,
        change: Change,
        now_ms: int,
        member_id: str,
        acknowledgement: Acknowledgement,
        limits: Limits,
    ) -> None:
        if any(each not in _STATE_AFTER and each != RENEW for each in acknowledgement.types):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Invalid acknowledge type: {list(acknowledgement.types)}"
            )
        if acknowledgement.last < self.start_offset:
            return  # given up, or deleted, meanwhile
        self._check_known(acknowledgement)
        for first, last, kind in _ranges(acknowledgement):
            for run in self.in_flight.overlapping(max(first, self.start_offset), last):
                if run.is_hole:
                    continue
                _check_owner(run, member_id)
                run = self.in_flight.cut(run, max(first, self.start_offset), last)
                if kind == RENEW:
                    if not limits.is_renewal_enabled:
                        raise KafkaError(
                            ErrorCode.INVALID_RECORD_STATE,
                            "Renewing acquisition locks is not enabled for the group.",
                        )
                    run.deadline_ms = now_ms + limits.lock_duration_ms
                else:
                    self._begin(change, run, _STATE_AFTER[kind], run.delivery_count, limits)

    def _check_known(self, acknowledgement: Acknowledgement) -> None:
        first = max(acknowledgement.first, self.start_offset)
        if not self.in_flight or (
            first == acknowledgement.first and not self.in_flight.starts_at_or_before(first)
        ):
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        known = self.in_flight.overlapping(self.start_offset, acknowledgement.last)
        if not known or known[-1].last < first:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The first offset in request is past acquired records.",
            )
        if known[-1].last < acknowledgement.last:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            )

    def release(self, member_id: str, limits: Limits) -> Change:
        """The member is gone, and what it had is for others."""
        change = Change()
        for run in self.in_flight:
            if run.state is RecordState.ACQUIRED and run.member_id == member_id and not run.transition:
                self._begin(change, run, RecordState.AVAILABLE, run.delivery_count, limits)
        return change

    def _begin(
        self, change: Change, run: Run, state: RecordState, delivery_count: int, limits: Limits
    ) -> None:
        if state is RecordState.AVAILABLE and delivery_count >= limits.delivery_count_limit:
            state = RecordState.ARCHIVED
        run.transition = Transition(change, state, delivery_count)
        change.batches.append(StateBatch(run.first, run.last, state, delivery_count))

    # ------------------------------------------------------------ locks

    def expire(self, now_ms: int, limits: Limits) -> Write | None:
        """Ends the locks whose time is over; what is to be written of that. A record whose acknowledgement is
        being written keeps its owner until that is known."""
        batches: list[StateBatch] = []
        next_deadline_ms: int | None = None
        for run in self.in_flight:
            if run.state is not RecordState.ACQUIRED:
                continue
            if run.deadline_ms > now_ms:
                if next_deadline_ms is None or run.deadline_ms < next_deadline_ms:
                    next_deadline_ms = run.deadline_ms
            elif run.transition is None:
                self._expire(run, limits)
                batches.append(StateBatch(run.first, run.last, run.state, run.delivery_count))
        self.next_deadline_ms = next_deadline_ms
        if not batches:
            return None
        write = self.to_write(batches)
        self._advance()
        return write

    def _expire(self, run: Run, limits: Limits) -> None:
        is_over = run.delivery_count >= limits.delivery_count_limit
        run.become(RecordState.ARCHIVED if is_over else RecordState.AVAILABLE, run.delivery_count)
        if not is_over:
            self._search_from = min(self._search_from, run.first)

    def _lock_until(self, deadline_ms: int) -> None:
        if self.next_deadline_ms is None or deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms

    # ------------------------------------------------------------ what is written

    def to_write(self, batches: Sequence[StateBatch]) -> Write:
        return Write(
            self.start_offset, self.delivery_complete_count, combined((), batches, self.start_offset)
        )

    def complete(self, change: Change, now_ms: int, limits: Limits, *, is_written: bool) -> None:
        if not is_written:
            self._roll_back(change, now_ms, limits)
            return
        for run in self._of(change):
            transition = run.transition
            assert transition is not None
            run.become(transition.state, transition.delivery_count)
            if transition.state is RecordState.AVAILABLE:
                self._search_from = min(self._search_from, run.first)
        self._advance()

    def on_log_start_offset(self, offset: int) -> None:
        """Records were deleted from the log. It is written down with the next change."""
        if offset > self.start_offset:
            self.start_offset = offset
            self.in_flight.drop_before(offset)
            self._advance()

    def _roll_back(self, change: Change, now_ms: int, limits: Limits) -> None:
        for run in self._of(change):
            run.transition = None
            if run.deadline_ms <= now_ms:
                self._expire(run, limits)
            else:
                self._lock_until(run.deadline_ms)
        self._advance()

    def _of(self, change: Change) -> Iterator[Run]:
        if change.batches:
            first = min(batch.first for batch in change.batches)
            last = max(batch.last for batch in change.batches)
            for run in self.in_flight.overlapping(first, last):
                if run.transition is not None and run.transition.change is change:
                    yield run

    def _advance(self) -> None:
        """The start offset passes what is done with."""
        self.in_flight.join_done()
        for run in self.in_flight:
            if run.first > self.start_offset or not run.is_done:
                break
            self.start_offset = run.last + 1
        self.in_flight.drop_before(self.start_offset)


class _Acquisition:
    """What one member gets in one go."""

    __slots__ = (
        "_batch",
        "acquired",
        "batch_size",
        "deadline_ms",
        "is_record_limit",
        "left",
        "limits",
        "member_id",
    )

    def __init__(
        self,
        member_id: str,
        deadline_ms: int,
        limits: Limits,
        records_max: int,
        batch_size: int,
        is_record_limit: bool,
    ) -> None:
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        self.limits = limits
        self.left = records_max
        self.batch_size = batch_size
        self.is_record_limit = is_record_limit
        self.acquired: list[Acquired] = []
        self._batch: tuple[int, int] | None = None

    def add(self, acquired: Acquired, batch: tuple[int, int]) -> None:
        """Neighbours that came as one batch are told as one, if they were delivered as often."""
        self.left -= acquired.last - acquired.first + 1
        before = self.acquired[-1] if self.acquired else None
        if (
            before is not None
            and self._batch == batch
            and before.last + 1 == acquired.first
            and before.delivery_count == acquired.delivery_count
        ):
            self.acquired[-1] = before._replace(last=acquired.last)
        else:
            self.acquired.append(acquired)
        self._batch = batch


def _cut_out(acquired: Acquired, first: int, last: int) -> Iterator[Acquired]:
    if acquired.last < first or acquired.first > last:
        yield acquired
        return
    if acquired.first < first:
        yield acquired._replace(last=first - 1)
    if acquired.last > last:
        yield acquired._replace(first=last + 1)


def _end_of_batch(headers: Sequence[BatchHeader], offset: int) -> int:
    """The last offset of the batch that holds the offset; between batches, the offset itself."""
    for header in headers:
        if header.base_offset > offset:
            break
        if header.last_offset >= offset:
            return header.last_offset
    return offset


def _check_owner(run: Run, member_id: str) -> None:
    if run.state is not RecordState.ACQUIRED:
        raise KafkaError(
            ErrorCode.INVALID_RECORD_STATE,
            "The batch cannot be acknowledged. The batch is not in the acquired state.",
        )
    if run.member_id != member_id:
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of batch record")
    if run.transition is not None:
        raise KafkaError(
            ErrorCode.INVALID_RECORD_STATE,
            "The record state is invalid. The acknowledgement of delivery could not be completed.",
        )


def _ranges(acknowledgement: Acknowledgement) -> Iterator[tuple[int, int, int]]:
    """First and last offset and type, neighbours of the same type together."""
    first, last, types = acknowledgement
    if len(types) == 1:
        yield first, last, types[0]
        return
    start = first
    for index, kind in enumerate(types):
        if index + 1 == len(types) or types[index + 1] != kind:
            yield start, first + index, kind
            start = first + index + 1
