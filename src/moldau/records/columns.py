"""Batches out of columns: values, keys, timestamps and headers, each a sequence of its own.

What `build_columns` makes is what `build_batch` makes of the same records, in a tenth of the time where it
counts: records of one time and without headers. All that a record consists of beside its bytes (its length,
deltas, the lengths of key and value) depends on a few small numbers that recur, so they are looked up rather
than computed, column by column, and everything is joined once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby, repeat
from typing import Any

from moldau.records.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    Buffer,
    stamp_crc,
)
from moldau.records.compression import Codec, compress
from moldau.records.record import Header, encode_record, varint

RECORD_OVERHEAD_MAX = 32
"""The most that a record takes beside its key, value and headers: length 5, attributes 1, deltas 10 and 5,
lengths of key and value 5 each, and 1 for the number of headers."""
HEADER_OVERHEAD = 10

_RUN_MIN = 8
"""Below so many records of one time in a row it is cheaper to encode each by itself."""
_CACHED_MAX = 512
_OFFSETS: list[bytes] = [varint(delta) for delta in range(1024)]
_WIDTH_BOUNDS = (64, 8192, 1 << 20, 1 << 27, 1 << 31)
"""Where the varint of an offset delta gets one byte longer."""


def build_columns(
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None,
    timestamps: Sequence[int],
    headers: Sequence[tuple[Header, ...]] | None = None,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytearray:
    """A batch of at least one record; the columns are of one length."""
    count = len(values)
    parts: list[Any] = [bytes(HEADER_BYTES)]
    base_timestamp = timestamps[0]
    max_timestamp = max(timestamps)
    if max_timestamp == base_timestamp and min(timestamps) == base_timestamp:
        runs = [(base_timestamp, count)]
    else:
        runs = [(timestamp, sum(1 for _ in group)) for timestamp, group in groupby(timestamps)]
    if len(runs) * _RUN_MIN > count and len(runs) > 1:
        _encode_each(parts, values, keys, timestamps, headers)
    else:
        start = 0
        for timestamp, length in runs:
            _encode_run(parts, values, keys, headers, timestamp - base_timestamp, start, start + length)
            start += length
    batch = bytearray().join(parts)
    if codec:
        batch[HEADER_BYTES:] = compress(codec, memoryview(batch)[HEADER_BYTES:].tobytes(), level)
    size = len(batch)
    HEADER.pack_into(
        batch,
        0,
        0,
        size - LOG_OVERHEAD,
        NO_LEADER_EPOCH,
        MAGIC_V2,
        0,
        codec | TRANSACTIONAL_BIT if is_transactional else codec,
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    stamp_crc(batch, size)
    return batch


def headers_size(headers: Iterable[Header]) -> int:
    """The most that the headers of a record take."""
    size = 0
    for name, content in headers:
        size += HEADER_OVERHEAD + 3 * len(name) + len(content or b"")
    return size


def _encode_each(
    parts: list[Any],
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None,
    timestamps: Sequence[int],
    headers: Sequence[tuple[Header, ...]] | None,
) -> None:
    base = timestamps[0]
    for delta, (value, timestamp) in enumerate(zip(values, timestamps, strict=True)):
        key = None if keys is None else keys[delta]
        parts.append(
            encode_record(delta, timestamp - base, key, value, () if headers is None else headers[delta])
        )


def _encode_run(
    parts: list[Any],
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None,
    headers: Sequence[tuple[Header, ...]] | None,
    timestamp_delta: int,
    start: int,
    end: int,
) -> None:
    """The records from `start` to `end`, which have one timestamp, in stretches whose offset deltas take
    equally many bytes: the rest of a record's frame then depends on the lengths of its parts only."""
    _extend_offsets(end)
    time = b"\0" + varint(timestamp_delta)
    for width, bound in enumerate(_WIDTH_BOUNDS, 1):
        stop = min(end, bound)
        if start < stop:
            _encode_stretch(parts, values, keys, headers, time, width, start, stop)
            start = stop


def _extend_offsets(end: int) -> None:
    while len(_OFFSETS) < end:
        _OFFSETS.append(varint(len(_OFFSETS)))


def _encode_stretch(
    parts: list[Any],
    values: Sequence[Buffer | None],
    keys: Sequence[Buffer | None] | None,
    headers: Sequence[tuple[Header, ...]] | None,
    time: bytes,
    width: int,
    start: int,
    stop: int,
) -> None:
    whole = start == 0 and stop == len(values)
    values = values if whole else values[start:stop]
    count = stop - start
    rest: list[Any] | None = None
    tails = _HeaderBytes()
    if headers is not None:
        rest = [tails[each] for each in headers[start:stop]]
    value_sizes = _sizes(values)
    if keys is None and rest is None:
        size = value_sizes[0]
        if value_sizes.count(size) == count:
            columns: list[Any] = [b""] * (2 * count)
            if count > _CACHED_MAX:
                columns[0::2] = _make_prefixes(time, width, size, start, stop)
            else:
                columns[0::2] = _prefixes(time, width, size, start)[:count]
            columns[1::2] = _filled(values)
            parts += columns
            parts.append(b"\0")  # each prefix but the first has this end of the record before it
            return
        heads = _Keyless(time, width)
        columns = [b""] * (5 * count)
        framed: Sequence[Any] = [heads[size] for size in value_sizes]
        columns[0::5], columns[2::5] = zip(*framed, strict=True)
        columns[1::5] = _OFFSETS[start:stop]
        columns[3::5] = _filled(values)
        columns[4::5] = [b"\0"] * count
        parts += columns
        return
    these = [None] * count if keys is None else keys if whole else keys[start:stop]
    tail_sizes = repeat(1, count) if rest is None else map(len, rest)
    frames = _Whole(time, width)
    framed = [frames[sizes] for sizes in zip(_sizes(these), value_sizes, tail_sizes, strict=True)]
    columns = [b""] * (7 * count)
    columns[0::7], columns[2::7], columns[4::7] = zip(*framed, strict=True)
    columns[1::7] = _OFFSETS[start:stop]
    columns[3::7] = _filled(these)
    columns[5::7] = _filled(values)
    columns[6::7] = [b"\0"] * count if rest is None else rest
    parts += columns


def _make_prefixes(time: bytes, width: int, size: int, start: int, stop: int) -> list[bytes]:
    """All that stands before the values of records without key and headers whose values have one size, and
    the end of the record before."""
    head, middle = _Keyless(time, width)[size]
    made = [b"\0" + head + offset + middle for offset in _OFFSETS[start:stop]]
    made[0] = made[0][1:]
    return made


@lru_cache(maxsize=32)
def _prefixes(time: bytes, width: int, size: int, start: int) -> list[bytes]:
    """Batches of such records are much like each other, so what recurs is kept."""
    _extend_offsets(start + _CACHED_MAX)
    return _make_prefixes(time, width, size, start, start + _CACHED_MAX)


def _sizes(column: Sequence[Buffer | None]) -> list[int]:
    if None in column:
        return [-1 if each is None else len(each) for each in column]
    return list(map(len, column))  # type: ignore[arg-type]


def _filled(column: Sequence[Buffer | None]) -> Sequence[Buffer]:
    if None in column:
        return [b"" if each is None else each for each in column]
    return column  # type: ignore[return-value]


class _Keyless(dict[int, tuple[bytes, bytes]]):
    """By the size of the value (-1 is null): what stands before the offset delta, and what behind it."""

    def __init__(self, time: bytes, offset_width: int) -> None:
        self._time = time
        self._fixed = len(time) + offset_width + 2  # there is no key, and there are no headers

    def __missing__(self, size: int) -> tuple[bytes, bytes]:
        length = varint(size)
        body = self._fixed + len(length) + max(size, 0)
        made = self[size] = varint(body) + self._time, b"\x01" + length
        return made


class _Whole(dict[tuple[int, int, int], tuple[bytes, bytes, bytes]]):
    """By the sizes of key, value and headers: what stands before the offset delta, the key and the value."""

    def __init__(self, time: bytes, offset_width: int) -> None:
        self._time = time
        self._fixed = len(time) + offset_width

    def __missing__(self, sizes: tuple[int, int, int]) -> tuple[bytes, bytes, bytes]:
        key, value, headers = sizes
        key_length, value_length = varint(key), varint(value)
        body = self._fixed + len(key_length) + len(value_length) + max(key, 0) + max(value, 0) + headers
        made = self[sizes] = varint(body) + self._time, key_length, value_length
        return made


class _HeaderBytes(dict[tuple[Header, ...], bytes]):
    """Headers as they are written; records that have the same ones, as many do, have them encoded once."""

    def __missing__(self, headers: tuple[Header, ...]) -> bytes:
        out = bytearray(varint(len(headers)))
        for name, content in headers:
            encoded = name.encode("utf-8", "surrogateescape")
            out += varint(len(encoded))
            out += encoded
            if content is None:
                out += varint(-1)
            else:
                out += varint(len(content))
                out += content
        made = self[headers] = bytes(out)
        return made
