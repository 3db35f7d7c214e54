"""The records inside a batch: decoding, and the bytes of one record.

A record is a varint length and then attributes (unused), timestamp delta, offset delta, key, value and
headers, the numbers as zigzag varints. Nothing here needs more than the batch's own bytes.

`read_records` takes any bytes: it yields records or raises `KafkaError`. Structure that contradicts itself is
INVALID_RECORD, data that does not decompress is CORRUPT_MESSAGE, and data that decompresses to more than the
limit is MESSAGE_TOO_LARGE.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from moldau.records.batch import HEADER_BYTES, Buffer, parse_header
from moldau.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from moldau.wire.errors import ErrorCode, KafkaError

Header: TypeAlias = tuple[str, bytes | None]

_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class Record(NamedTuple):
    """`headers` keep their order and may repeat a key.

    A header key that is not UTF-8 is kept with surrogate escapes, so that it is written as it was read.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def read_records(batch: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of the one batch that starts `batch`; bytes after its end are not looked at.

    The batch is decompressed in this call, to `max_bytes` at most; its CRC is not checked.
    """
    header = parse_header(batch)
    if header.size > len(batch):
        raise _invalid(f"the batch has {header.size} bytes, only {len(batch)} are here")
    if header.record_count < 0:
        raise _invalid(f"Found invalid record count {header.record_count}")
    if header.base_offset > _INT64_MAX - _INT32_MAX:
        raise _invalid(f"base offset {header.base_offset} leaves no room for records")
    if header.record_count == 0:
        return iter(())
    data = decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size], max_bytes)
    append_time = header.max_timestamp if header.is_log_append_time else None
    return _read(data, header.record_count, header.base_offset, header.base_timestamp, append_time)


def read_payload(batch: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The encoded records of a batch, decompressed but not decoded."""
    header = parse_header(batch)
    if header.size > len(batch):
        raise _invalid(f"the batch has {header.size} bytes, only {len(batch)} are here")
    return decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size], max_bytes)


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: tuple[Header, ...] = (),
) -> bytes:
    parts: list[Buffer] = [b"\x00", varint(timestamp_delta), varint(offset_delta)]
    for field in (key, value):
        if field is None:
            parts.append(_NULL)
        else:
            parts += (varint(len(field)), field)
    parts.append(varint(len(headers)))
    for name, content in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        parts += (varint(len(encoded)), encoded)
        if content is None:
            parts.append(_NULL)
        else:
            parts += (varint(len(content)), content)
    body = b"".join(parts)
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    """An int64 as a zigzag varint."""
    if -64 <= number < 64:
        return _SMALL[number]
    if 0 < number < 8192:
        return bytes((number << 1 & 0x7F | 0x80, number >> 6))
    return _encode_varint(number)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The zigzag varint at `position`, an int64, and the position after it.

    Raises IndexError when the data ends inside it, ValueError when it runs past 64 bits.
    """
    byte = data[position]
    position += 1
    number = byte & 0x7F
    shift = 7
    while byte & 0x80:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError("varint is too long")
    if number >> 64:
        raise ValueError("varint is too long")
    return (number >> 1) ^ -(number & 1), position


def _read(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Iterator[Record]:
    """Decode `count` records that fill `data` exactly.

    Single-byte varints, nearly all of them, are decoded in place: a call for each would double the time.
    """
    position, end = 0, len(data)
    try:
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                size, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                size, position = read_varint(data, position)
            record_end = position + size
            if size < 0 or record_end > end:
                raise ValueError(f"a record of {size} bytes where {end - position} are left")

            position += 1  # attributes, which mean nothing yet
            byte = data[position]
            if byte < 0x80:
                timestamp, position = base_timestamp + ((byte >> 1) ^ -(byte & 1)), position + 1
            else:
                delta, position = read_varint(data, position)
                timestamp = base_timestamp + delta
            if append_time is not None:
                timestamp = append_time
            elif not _INT64_MIN <= timestamp <= _INT64_MAX:
                raise ValueError("a timestamp beyond 64 bits")

            byte = data[position]
            if byte < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                offset_delta, position = read_varint(data, position)
                if not _INT32_MIN <= offset_delta <= _INT32_MAX:
                    raise ValueError("an offset delta beyond 32 bits")

            byte = data[position]
            if byte < 0x80:
                size, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                size, position = read_varint(data, position)
            if size < 0:
                key = None
            else:
                key = data[position : position + size]
                position += size

            byte = data[position]
            if byte < 0x80:
                size, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                size, position = read_varint(data, position)
            if size < 0:
                value = None
            else:
                value = data[position : position + size]
                position += size

            headers: tuple[Header, ...] = ()
            if data[position]:
                headers, position = read_headers(data, position, record_end)
            else:
                position += 1
            # Also what catches a key or value that ran past the record: nothing was yielded of it yet.
            if position != record_end:
                raise ValueError("a record that does not end where its length says")
            yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    except (IndexError, ValueError) as error:
        raise _invalid(f"Found invalid record structure: {error}") from None
    if position != end:
        raise _invalid("Incorrect declared batch size, records still remaining in file")


def read_headers(data: bytes, position: int, record_end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= record_end - position:
        raise ValueError(f"invalid number of record headers {count}")
    headers: list[Header] = []
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0:
            raise ValueError(f"invalid negative header key size {size}")
        name = data[position : position + size].decode("utf-8", "surrogateescape")
        position += size
        size, position = read_varint(data, position)
        content = None
        if size >= 0:
            content = data[position : position + size]
            position += size
        headers.append((name, content))
    return tuple(headers), position


def _encode_varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


# Indexed by the number itself: the negative ones count from the end.
_SMALL = [_encode_varint(number) for number in (*range(64), *range(-64, 0))]
_NULL = _encode_varint(-1)
