"""Columns out of batches: offsets, timestamps, keys, values and headers, each a list of its own.

What `read_columns` reads is what `read_records` reads of the same bytes, without an object for each record.
It takes the same bytes, and refuses the same with the same `KafkaError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from moldau.records.batch import HEADER_BYTES, BatchHeader, Buffer
from moldau.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from moldau.records.record import Header, Record, read_headers, read_records, read_varint

_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class RecordColumns:
    """Records of one partition, side by side. All five lists have one length."""

    __slots__ = ("headers", "keys", "offsets", "timestamps", "values")

    def __init__(
        self,
        offsets: list[int] | None = None,
        timestamps: list[int] | None = None,
        keys: list[bytes | None] | None = None,
        values: list[bytes | None] | None = None,
        headers: list[tuple[Header, ...]] | None = None,
    ) -> None:
        self.offsets: list[int] = [] if offsets is None else offsets
        self.timestamps: list[int] = [] if timestamps is None else timestamps
        self.keys: list[bytes | None] = [] if keys is None else keys
        self.values: list[bytes | None] = [] if values is None else values
        self.headers: list[tuple[Header, ...]] = [] if headers is None else headers

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, start: int, stop: int) -> RecordColumns:
        return RecordColumns(
            self.offsets[start:stop],
            self.timestamps[start:stop],
            self.keys[start:stop],
            self.values[start:stop],
            self.headers[start:stop],
        )

    def extend(self, more: RecordColumns) -> None:
        self.offsets += more.offsets
        self.timestamps += more.timestamps
        self.keys += more.keys
        self.values += more.values
        self.headers += more.headers

    def records(self) -> Iterator[Record]:
        columns = zip(self.offsets, self.timestamps, self.keys, self.values, self.headers, strict=True)
        # As Record._make, without a call in Python for each.
        return map(partial(tuple.__new__, Record), columns)


def read_columns(
    batch: Buffer, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> RecordColumns:
    """The records of the one batch that starts `batch`, whose header has been read; its CRC is not
    checked."""
    count, base_offset = header.record_count, header.base_offset
    if header.size > len(batch) or count <= 0 or base_offset > _INT64_MAX - _INT32_MAX:
        return _read_each(batch, max_bytes)
    data = decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size], max_bytes)
    columns = RecordColumns()
    try:
        is_sound = _read(data, count, header, columns)
    except (IndexError, ValueError):
        is_sound = False
    # The slow way says what is wrong, in the words that everything else has for it.
    return columns if is_sound else _read_each(batch, max_bytes)


def _read_each(batch: Buffer, max_bytes: int) -> RecordColumns:
    columns = RecordColumns()
    for record in read_records(batch, max_bytes):
        columns.offsets.append(record.offset)
        columns.timestamps.append(record.timestamp)
        columns.keys.append(record.key)
        columns.values.append(record.value)
        columns.headers.append(record.headers)
    return columns


def _read(data: bytes, count: int, header: BatchHeader, columns: RecordColumns) -> bool:
    """Whether `count` records fill `data` exactly. Varints of one and two bytes, nearly all of them, are
    decoded in place, and what hardly ever happens is looked at last: a null, a time of its own, headers."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    end = len(data)
    offsets: list[int] = []
    deltas: list[int] = []
    add_offset, add_delta = offsets.append, deltas.append
    add_key, add_value = columns.keys.append, columns.values.append
    headers: list[tuple[Header, ...]] = columns.headers
    position = 0
    for index in range(count):
        size = data[position]
        if size < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            size += (high << 7) - 0x80
            position += 2
        else:
            size, position = read_varint(data, position)
            size <<= 1
        # A length below zero is odd in this form; nothing of the record would end where it has to.
        record_end = position + (size >> 1)

        delta = data[position + 1]
        if delta < 0x80:
            position += 2
            delta = (delta >> 1) ^ -(delta & 1)
        else:
            delta, position = read_varint(data, position + 1)
        add_delta(delta)

        delta = data[position]
        if delta < 0x80:
            position += 1
            delta = (delta >> 1) ^ -(delta & 1)
        elif (high := data[position + 1]) < 0x80:
            position += 2
            delta += (high << 7) - 0x80
            delta = (delta >> 1) ^ -(delta & 1)
        else:
            delta, position = read_varint(data, position)
            if not _INT32_MIN <= delta <= _INT32_MAX:
                return False
        add_offset(delta)

        size = data[position]
        if size == 1:
            position += 1
            add_key(None)
        else:
            if size < 0x80:
                position += 1
                size = (size >> 1) ^ -(size & 1)
            else:
                size, position = read_varint(data, position)
            if size < 0:
                add_key(None)
            else:
                add_key(data[position : position + size])
                position += size

        size = data[position]
        if size < 0x80:
            position += 1
            size = (size >> 1) ^ -(size & 1)
        elif (high := data[position + 1]) < 0x80:
            size += (high << 7) - 0x80
            position += 2
            size = (size >> 1) ^ -(size & 1)
        else:
            size, position = read_varint(data, position)
        if size < 0:
            add_value(None)
        else:
            add_value(data[position : position + size])
            position += size

        if data[position]:
            if not headers and index:
                headers.extend([()] * index)
            those, position = read_headers(data, position, record_end)
            headers.append(those)
        else:
            position += 1
            if headers:
                headers.append(())
        if position != record_end or record_end > end:
            return False
    if position != end:
        return False
    columns.offsets = [base_offset + delta for delta in offsets] if base_offset else offsets
    if header.is_log_append_time:
        columns.timestamps = [header.max_timestamp] * count
    else:
        columns.timestamps = [base_timestamp + delta for delta in deltas]
        if min(columns.timestamps) < _INT64_MIN or max(columns.timestamps) > _INT64_MAX:
            return False
    if not headers:
        columns.headers = [()] * count
    return True
