"""Where each record of a batch is and what its key is, without decoding the rest: what compaction needs.

Compaction looks at every record of a log twice, so this is the loop its speed depends on. `read_records` is
the one to use everywhere else.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.records.record import read_varint
from moldau.wire.errors import ErrorCode, KafkaError

_NULL = 1
"""The length -1, as a varint."""


SHORT_KEY_BYTES = 63
"""As much as a length of one byte can say."""


class Scan(NamedTuple):
    keys: list[bytes]
    """Of each record, in order; empty where there is no key (`keyless` says which those are)."""
    starts: list[int]
    """Where each record begins, and last of all where the last one ends."""
    keyless: list[int]
    """The numbers of the records without a key."""
    tombstones: list[int]
    """The numbers of the records without a value."""
    has_long_keys: bool
    """Whether any key is longer than SHORT_KEY_BYTES."""


def scan_records(data: bytes, count: int) -> Scan:
    """The `count` records that fill `data` exactly; INVALID_RECORD if they do not.

    Varints of one byte, and sizes of two, are decoded in place: nearly all are.
    """
    keys: list[bytes] = []
    starts: list[int] = []
    keyless: list[int] = []
    tombstones: list[int] = []
    add_key, add_start = keys.append, starts.append
    has_long_keys = False
    position = 0
    try:
        for number in range(count):
            add_start(position)
            size = data[position]
            position += 1
            if size >= 0x80:
                byte = data[position]
                if byte < 0x80:
                    size = size & 0x7F | byte << 7
                    position += 1
                else:
                    size, position = _length(data, position - 1)
            end = position + (size >> 1)
            if size & 1:
                raise ValueError("a record of negative size")
            position += 1  # attributes, which mean nothing yet
            while data[position] >= 0x80:  # the timestamp
                position += 1
            position += 1
            while data[position] >= 0x80:  # the offset
                position += 1
            position += 1
            size = data[position]
            position += 1
            if size >= 0x80:
                size, position = _length(data, position - 1)
                has_long_keys = True
            if size & 1:
                keyless.append(number)
                add_key(b"")
            else:
                key_end = position + (size >> 1)
                add_key(data[position:key_end])
                position = key_end
            if data[position] == _NULL:
                tombstones.append(number)
            if position >= end:
                raise ValueError("a key reaches beyond its record")
            position = end
        if position != len(data):
            raise ValueError(f"{count} records take {position} of {len(data)} bytes")
    except (IndexError, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"the records are not what they say: {error}") from None
    add_start(position)
    return Scan(keys, starts, keyless, tombstones, has_long_keys)


def record_starts(data: bytes, count: int) -> list[int]:
    """Where each of the first `count` records begins, and last of all where the last of them ends: of records
    that `scan_records` has found sound."""
    starts: list[int] = []
    add_start = starts.append
    position = 0
    for _ in range(count):
        add_start(position)
        size = data[position]
        if size < 0x80:
            position += (size >> 1) + 1
            continue
        byte = data[position + 1]
        if byte < 0x80:
            position += ((size & 0x7F | byte << 7) >> 1) + 2
        else:
            size, position = read_varint(data, position)
            position += size
    add_start(position)
    return starts


def timestamp_delta(data: bytes, start: int) -> int:
    """Of the record that begins at `start`, which `scan_records` has found sound."""
    while data[start] >= 0x80:
        start += 1
    byte = data[start + 2]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1)
    return read_varint(data, start + 2)[0]


def _length(data: bytes, position: int) -> tuple[int, int]:
    """A length of several bytes, still in zigzag as those of one byte are."""
    length, position = read_varint(data, position)
    return (length << 1) ^ (length >> 63), position
