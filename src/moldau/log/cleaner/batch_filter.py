"""What is left of a batch when its log is compacted. Pure: a batch in, the same or a smaller one out, or none.

Of the records of a key the newest stays, as far as the offset map knows the log. A tombstone (no value), and a
marker that ends a transaction of which nothing is left, stay for delete.retention.ms more: the first cleaning
that meets one writes down when it may go, the delete horizon, in place of the batch's base timestamp (KIP-534).
Records without a key go, and those of aborted transactions.

What stays keeps its offset, and a batch its first and its last offset, whatever goes of it. A batch of which no
record stays is kept empty if it has the last sequence or epoch of a producer that is remembered, or if it is the
last below the end of what is cleaned: a reader can tell from it that the log goes on that far.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moldau.log.batch_scan import marker_type
from moldau.log.cleaner.offset_map import OffsetMap, bring_to_size
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
from moldau.records.scan import Scan, scan_records, timestamp_delta
from moldau.wire.errors import ErrorCode, KafkaError

_INT64_MAX = (1 << 63) - 1
_NOT_THERE = -1


class LastBatch(NamedTuple):
    """Of a producer: the last offset of its last batch of records, or -1 and the epoch of its last marker."""

    last_data_offset: int
    epoch: int


def map_batch(map: OffsetMap, header: BatchHeader, batch: memoryview, start_offset: int) -> bool:
    """Tell the map what the batch has from `start_offset` on. False, and nothing told, if it has no room."""
    if not map.has_room_for(header.record_count):
        return False
    if header.record_count:
        if header.base_offset >= start_offset:
            scan = scan_records(read_payload(batch), header.record_count)
            keys = scan.keys
            if scan.keyless:
                skipped = set(scan.keyless)
                keys = [key for number, key in enumerate(keys) if number not in skipped]
        else:
            keys = [
                record.key
                for record in read_records(batch)
                if record.key is not None and record.offset >= start_offset
            ]
        map.put(bring_to_size(keys), header.base_offset)
    map.latest_offset = max(map.latest_offset, header.last_offset)
    return True


class BatchFilter:
    __slots__ = (
        "_delete_retention_ms",
        "_end_offset",
        "_last_batches",
        "_map",
        "_now_ms",
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
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._map = map
        self._transactions = transactions
        self._last_batches = last_batches
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
        scan = scan_records(payload, header.record_count)
        return self._rebuilt(header, payload, scan, range(header.record_count), sets_horizon=True) or batch

    def _retain_data(self, header: BatchHeader, batch: memoryview) -> bytes | memoryview | None:
        count = header.record_count
        if not count:
            return None
        payload = read_payload(batch)
        scan = scan_records(payload, count)
        self.records_read += count
        horizon_ms = header.delete_horizon_ms
        numbers: list[int] | range
        if header.base_offset > self._map.latest_offset:
            numbers = range(count)
        else:
            numbers = self._newest(header.base_offset, scan)
            if scan.keyless:
                self.records_invalid += len(scan.keyless)
                keyless = set(scan.keyless)
                numbers = [number for number in numbers if number not in keyless]
            if scan.tombstones and self._is_over(horizon_ms):
                tombstones = set(scan.tombstones)
                numbers = [number for number in numbers if number not in tombstones]
        self.records_retained += len(numbers)
        if not numbers:
            return None
        sets_horizon = (
            bool(scan.tombstones) and horizon_ms is None and not set(scan.tombstones).isdisjoint(numbers)
        )
        if len(numbers) == count and not sets_horizon:
            return batch
        rebuilt = self._rebuilt(header, payload, scan, numbers, sets_horizon=sets_horizon)
        return rebuilt or self._rebuilt(header, payload, scan, numbers, sets_horizon=False)

    def _newest(self, base_offset: int, scan: Scan) -> list[int] | range:
        """The numbers of the records that are not older than what the map has of their keys."""
        keys = bring_to_size(scan.keys)
        newest_batch = self._map.batches.get
        found = [newest_batch(key, _NOT_THERE) for key in keys]
        latest = max(found)
        if latest < base_offset:
            return range(len(keys))
        if latest == base_offset or base_offset in found:
            last = dict(zip(keys, range(len(keys)), strict=True))
            return [
                number
                for number, batch_offset in enumerate(found)
                if batch_offset < base_offset
                or (batch_offset == base_offset and last[keys[number]] == number)
            ]
        return [number for number, batch_offset in enumerate(found) if batch_offset < base_offset]

    def _rebuilt(
        self,
        header: BatchHeader,
        payload: bytes,
        scan: Scan,
        numbers: list[int] | range,
        *,
        sets_horizon: bool,
    ) -> bytes | None:
        """A batch of those of its records. None if their times cannot be told from the horizon on."""
        starts = scan.starts
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
