"""What is left of a batch when its log is compacted. Pure: a batch in, the same or a smaller one out, or
none.

Of the records of a key the newest stays, as far as the offset map knows the log. A tombstone (no value), and
a marker that ends a transaction of which nothing is left, stay for delete.retention.ms more: the first
cleaning that meets one writes down when it may go, the delete horizon, in place of the batch's base timestamp
(KIP-534). Records without a key go, and those of aborted transactions.

What stays keeps its offset, and a batch its first and its last offset, whatever goes of it. A batch of which
no record stays is kept empty if it has the last sequence or epoch of a producer that is remembered, or if it
is the last below the end of what is cleaned: a reader can tell from it that the log goes on that far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moldau.log.batch_scan import marker_type
from moldau.log.cleaner.messages import LastBatch
from moldau.log.cleaner.offset_map import OffsetMap, short_keys
from moldau.log.cleaner.transactions import CleanedTransactions
from moldau.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    NO_TIMESTAMP,
    BatchHeader,
)
from moldau.records.builder import assemble_batch
from moldau.records.compression import Codec, compress
from moldau.records.record import read_payload, read_records, read_varint, varint
from moldau.records.scan import Scan, record_starts, scan_records, timestamp_delta
from moldau.wire.errors import ErrorCode, KafkaError

_INT64_MAX = (1 << 63) - 1


def map_batch(map: OffsetMap, header: BatchHeader, batch: memoryview, start_offset: int) -> int:
    """Tell the map what the batch has from `start_offset` on. How many of these records have no key; -1, and
    nothing was told, if the map has no room."""
    count = header.record_count
    if not map.has_room_for(count):
        return -1
    map.latest_offset = max(map.latest_offset, header.last_offset)
    if not count:
        return 0
    scan = scan_records(read_payload(batch), count)
    if not scan.keyless and not scan.tombstones and _is_whole(header) and header.base_offset >= start_offset:
        map.put(short_keys(scan), range(header.base_offset, header.next_offset))
        return 0
    offsets = _offsets(header, batch)
    keyless, tombstones = set(scan.keyless), set(scan.tombstones)
    numbers = [number for number in range(count) if number not in keyless and offsets[number] >= start_offset]
    keys = short_keys(scan)
    map.put(
        [keys[number] for number in numbers],
        [~offsets[number] if number in tombstones else offsets[number] for number in numbers],
    )
    return len(keyless)


def _is_whole(header: BatchHeader) -> bool:
    """Whether no record of the batch was ever taken out, so that each has the offset of its place."""
    return header.record_count == header.last_offset_delta + 1


def _offsets(header: BatchHeader, batch: memoryview) -> Sequence[int]:
    if _is_whole(header):
        return range(header.base_offset, header.next_offset)
    return [record.offset for record in read_records(batch)]


class BatchFilter:
    __slots__ = (
        "_delete_retention_ms",
        "_end_offset",
        "_last_batches",
        "_map",
        "_now_ms",
        "_start_offset",
        "_transactions",
        "records_invalid",
        "records_read",
        "records_retained",
    )

    def __init__(
        self,
        map: OffsetMap,
        transactions: CleanedTransactions,
        last_batches: Mapping[int, LastBatch],
        start_offset: int,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._map = map
        self._transactions = transactions
        self._last_batches = last_batches
        self._start_offset = start_offset  # of the dirty part
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.records_read = 0
        self.records_retained = 0
        self.records_invalid = 0
        """Of those read: they had no key."""

    def retain(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """What stays of the batch, if anything does. Raises KafkaError if it cannot be read."""
        if header.is_control:
            retained = self._retain_control(header, batch)
        elif self._transactions.on_batch(header):
            retained = None
        else:
            retained = self._retain_data(header, batch)
        if retained is None and self._must_stay(header):
            return _emptied(header)
        return retained

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.next_offset == self._end_offset:
            return True
        last = self._last_batches.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _is_over(self, horizon_ms: int | None) -> bool:
        return horizon_ms is not None and horizon_ms <= self._now_ms

    def _retain_control(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        ends_nothing = self._transactions.on_marker(header, marker_type(batch))
        if not header.record_count:
            return None
        self.records_read += header.record_count
        horizon_ms = header.delete_horizon_ms
        if ends_nothing and self._is_over(horizon_ms):
            return None
        self.records_retained += header.record_count
        if not ends_nothing or horizon_ms is not None:
            return batch
        payload = read_payload(batch)
        starts = record_starts(payload, header.record_count)
        return self._rebuilt(header, payload, starts, range(header.record_count), sets_horizon=True) or batch

    def _retain_data(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        if not header.record_count:
            return None
        self.records_read += header.record_count
        if self._start_offset <= header.base_offset <= self._map.latest_offset:
            return self._retain_dirty(header, batch)
        payload = read_payload(batch)
        scan = scan_records(payload, header.record_count)
        numbers: Sequence[int] = range(header.record_count)
        if header.base_offset <= self._map.latest_offset:
            numbers = self._not_superseded(header, batch, scan)
            if scan.keyless:
                self.records_invalid += len(scan.keyless)
                numbers = _without(numbers, scan.keyless)
            if scan.tombstones and self._is_over(header.delete_horizon_ms):
                numbers = _without(numbers, scan.tombstones)
        has_tombstone = bool(scan.tombstones) and not set(scan.tombstones).isdisjoint(numbers)
        return self._retain_numbers(header, batch, payload, scan.starts, numbers, has_tombstone)

    def _not_superseded(self, header: BatchHeader, batch: memoryview, scan: Scan) -> Sequence[int]:
        """The numbers of the records, some or all of them clean, of whose keys the map has nothing newer."""
        keys, newest = short_keys(scan), self._map.offsets
        if newest.keys().isdisjoint(keys):
            return range(len(keys))
        if header.last_offset < self._start_offset:
            return [number for number, key in enumerate(keys) if key not in newest]
        offsets = _offsets(header, batch)
        return [
            number
            for number, key in enumerate(keys)
            if key not in newest or newest[key] in (offsets[number], ~offsets[number])
        ]

    def _retain_dirty(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        """Of a batch that the map knows all of: the map tells what stays of it, not the records."""
        retained: Sequence[int] = self._map.newest_in(header.base_offset, header.last_offset)
        has_tombstone = self._map.has_tombstone(retained)
        if has_tombstone and self._is_over(header.delete_horizon_ms):
            retained = [offset for offset in retained if not self._map.is_tombstone(offset)]
            has_tombstone = False
        if not retained:
            return None
        if len(retained) == header.record_count and not has_tombstone:
            self.records_retained += header.record_count
            return batch
        numbers: Sequence[int]
        if _is_whole(header):
            numbers = [offset - header.base_offset for offset in retained]
        else:
            stays = set(retained)
            numbers = [number for number, offset in enumerate(_offsets(header, batch)) if offset in stays]
        payload = read_payload(batch)
        starts = record_starts(payload, numbers[-1] + 1)
        return self._retain_numbers(header, batch, payload, starts, numbers, has_tombstone)

    def _retain_numbers(
        self,
        header: BatchHeader,
        batch: memoryview,
        payload: bytes,
        starts: list[int],
        numbers: Sequence[int],
        has_tombstone: bool,
    ) -> bytes | memoryview | None:
        self.records_retained += len(numbers)
        if not numbers:
            return None
        sets_horizon = has_tombstone and header.delete_horizon_ms is None
        if len(numbers) == header.record_count and not sets_horizon:
            return batch
        rebuilt = self._rebuilt(header, payload, starts, numbers, sets_horizon=sets_horizon)
        return rebuilt or self._rebuilt(header, payload, starts, numbers, sets_horizon=False)

    def _rebuilt(
        self,
        header: BatchHeader,
        payload: bytes,
        starts: list[int],
        numbers: Sequence[int],
        *,
        sets_horizon: bool,
    ) -> bytes | None:
        """A batch of those of its records. None if their times cannot be told from the horizon on."""
        records = [payload[starts[number] : starts[number + 1]] for number in numbers]
        max_timestamp = header.max_timestamp
        if not header.is_log_append_time:
            deltas = [timestamp_delta(payload, starts[number]) for number in numbers]
            max_timestamp = header.base_timestamp + max(deltas)
        attributes, base_timestamp = header.attributes, header.base_timestamp
        if sets_horizon:
            base_timestamp = self._now_ms + self._delete_retention_ms
            if base_timestamp > _INT64_MAX:
                return None
            shift = header.base_timestamp - base_timestamp
            try:
                records = [_shifted(record, shift) for record in records]
            except OverflowError:
                return None
            attributes |= DELETE_HORIZON_BIT
        return assemble_batch(
            compress(Codec(header.codec), b"".join(records)),
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            attributes=attributes,
            last_offset_delta=header.last_offset_delta,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            record_count=len(records),
        )


def _without(numbers: Sequence[int], others: Sequence[int]) -> list[int]:
    left_out = set(others)
    return [number for number in numbers if number not in left_out]


def _shifted(record: bytes, shift_ms: int) -> bytes:
    """The encoded record with its timestamp told from another base."""
    _, position = read_varint(record, 0)
    delta, end = read_varint(record, position + 1)
    delta += shift_ms
    if not -_INT64_MAX <= delta <= _INT64_MAX:
        raise OverflowError
    body = b"".join((record[position : position + 1], varint(delta), record[end:]))
    return varint(len(body)) + body


def _emptied(header: BatchHeader) -> bytes:
    return assemble_batch(
        b"",
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=header.attributes & ~CODEC_MASK & ~DELETE_HORIZON_BIT,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=0,
    )


def check_is_readable(header: BatchHeader) -> None:
    """A batch of the log that is cleaned: what it says of itself has to be possible."""
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"a batch at {header.base_offset} that says impossible things"
        )
