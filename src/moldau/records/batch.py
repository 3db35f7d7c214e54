"""The header of a record batch (message format v2), read and stamped in place.

A batch is 61 bytes of header and then its records, which nothing in this module looks at. The CRC covers
everything from the attributes to the end, so the leader can write the base offset and the leader epoch
without touching it; the timestamp type and the maximum timestamp cannot be written so.

No function here copies records. A buffer that does not hold what its header claims is their breach, not ours:
`KafkaError` with CORRUPT_MESSAGE (INVALID_RECORD for the formats before v2, which Kafka stopped accepting),
never another exception.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from moldau.wire.errors import ErrorCode, KafkaError

Buffer: TypeAlias = bytes | bytearray | memoryview
WritableBuffer: TypeAlias = bytearray | memoryview

HEADER = struct.Struct(">qiiBIhiqqqhii")

# Where each field of the header starts.
BASE_OFFSET = 0
LENGTH = 8
LEADER_EPOCH = 12
MAGIC = 16
CRC = 17
ATTRIBUTES = 21
LAST_OFFSET_DELTA = 23
BASE_TIMESTAMP = 27
MAX_TIMESTAMP = 35
PRODUCER_ID = 43
PRODUCER_EPOCH = 51
BASE_SEQUENCE = 53
RECORD_COUNT = 57
HEADER_BYTES = 61

LOG_OVERHEAD = 12
"""The base offset and the length field: what the length field does not count."""

MAGIC_V2 = 2

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD
_LENGTH_MIN_OF_ALL = 14  # of format v0: checksum, magic, attributes, and the sizes of a key and a value
_SEQUENCE_COUNT = 1 << 31
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        """The codec's number as written; 5 to 7 name none (`compression.Codec` has the names)."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.is_log_append_time else TimestampType.CREATE_TIME

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & TIMESTAMP_TYPE_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of a cleaned batch may go; kept in the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequence numbers count through the non-negative int32 and start again at zero."""
    return (sequence + increment) % _SEQUENCE_COUNT


def decrement_sequence(sequence: int, decrement: int) -> int:
    return (sequence - decrement) % _SEQUENCE_COUNT


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. Its records need not be in the buffer, and the CRC is not checked."""
    try:
        header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    except struct.error:
        raise _unreadable(buffer, position) from None
    if header.magic != MAGIC_V2 or header.length < _LENGTH_MIN:
        raise _unreadable(buffer, position)
    return header


def check_crc(buffer: Buffer, header: BatchHeader, position: int = 0) -> None:
    """Raise CORRUPT_MESSAGE unless the batch at `position` is whole and its checksum is right."""
    end = position + header.size
    view = memoryview(buffer)
    if end > len(view):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch has {header.size} bytes, only {len(view) - position} are here",
        )
    computed = crc32c(view[position + ATTRIBUTES : end])
    if computed != header.crc:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record is corrupt (stored crc = {header.crc}, computed crc = {computed})",
        )


def iterate_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch from `position` on, as its position and header.

    Stops at a batch of any format that the buffer holds only in part, which is how a fetch response may end.
    Raises CORRUPT_MESSAGE where no batch can start: an impossible length or an unknown magic.
    """
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = BatchHeader._make(HEADER.unpack_from(buffer, position))
        following = position + header.length + LOG_OVERHEAD
        if header.magic != MAGIC_V2 or header.length < _LENGTH_MIN or following > end:
            break
        yield position, header
        position = following
    if not _is_cut_short(buffer, position, end):
        raise _unreadable(buffer, position)


def _is_cut_short(buffer: Buffer, position: int, end: int) -> bool:
    """Whether what is here may be the start of a batch, and no more than that. In the order of Kafka, for
    which a length that nothing can have is damage before the format is known."""
    if end - position < LOG_OVERHEAD:
        return True
    (length,) = _INT32.unpack_from(buffer, position + LENGTH)
    if length < _LENGTH_MIN_OF_ALL:
        return False
    if end - position <= MAGIC:
        return True
    return buffer[position + MAGIC] <= MAGIC_V2 and position + length + LOG_OVERHEAD > end


def stamp(buffer: WritableBuffer, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Give the batch its place in the log. Both fields lie outside the CRC."""
    _INT64.pack_into(buffer, position + BASE_OFFSET, base_offset)
    _INT32.pack_into(buffer, position + LEADER_EPOCH, leader_epoch)


def stamp_log_append_time(buffer: WritableBuffer, now_ms: int, position: int = 0) -> None:
    """Make `now_ms` the time of every record of the batch; the checksum is computed anew."""
    stamp_max_timestamp(buffer, TimestampType.LOG_APPEND_TIME, now_ms, position)


def stamp_max_timestamp(
    buffer: WritableBuffer, timestamp_type: TimestampType, max_timestamp: int, position: int = 0
) -> None:
    header = parse_header(buffer, position)
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    if attributes == header.attributes and max_timestamp == header.max_timestamp:
        return
    _INT16.pack_into(buffer, position + ATTRIBUTES, attributes)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP, max_timestamp)
    stamp_crc(buffer, header.size, position)


def stamp_crc(buffer: WritableBuffer, size: int, position: int = 0) -> None:
    """Write the checksum of the `size` bytes of a batch at `position`."""
    crc = crc32c(memoryview(buffer)[position + ATTRIBUTES : position + size])
    _UINT32.pack_into(buffer, position + CRC, crc)


def _unreadable(buffer: Buffer, position: int) -> KafkaError:
    available = len(buffer) - position
    if available >= LOG_OVERHEAD and _INT32.unpack_from(buffer, position + LENGTH)[0] < _LENGTH_MIN_OF_ALL:
        return _too_short(buffer, position)
    if available > MAGIC:
        magic = buffer[position + MAGIC]
        if magic < MAGIC_V2:
            return KafkaError(ErrorCode.INVALID_RECORD, f"record format v{magic} is no longer supported")
        if magic > MAGIC_V2:
            return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
        if _INT32.unpack_from(buffer, position + LENGTH)[0] < _LENGTH_MIN:
            return _too_short(buffer, position)
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"a batch header takes {HEADER_BYTES} bytes, only {available} are here"
    )


def _too_short(buffer: Buffer, position: int) -> KafkaError:
    (length,) = _INT32.unpack_from(buffer, position + LENGTH)
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"Record size {length} is less than the minimum of {_LENGTH_MIN}"
    )
