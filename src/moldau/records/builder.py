"""Building batches: from records, and control batches.

What is built from the same records is the same bytes as Kafka's Java client builds, up to the compressor.
Arguments come from our own code, so a wrong one is our bug: ValueError or struct.error, not KafkaError.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from crc32c import crc32c

from moldau.records.batch import (
    ATTRIBUTES,
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Buffer,
    TimestampType,
    stamp_crc,
)
from moldau.records.compression import Codec, compress
from moldau.records.record import Record, encode_record, varint

_NO_VALUE_NO_HEADERS = b"\x01\x00"
# The header in two parts, the second of which is covered by the checksum that the first ends with.
_TO_CRC = Struct(">qiiBI").pack
_AFTER_CRC = Struct(">hiqqqhii").pack


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """A batch of `records`, at least one, which take the offsets from `base_offset` on in their order.

    The records' own offsets are not looked at: a batch that is built has none yet, or is moved.
    """
    if not records:
        raise ValueError("a batch has at least one record")
    base_timestamp = records[0].timestamp
    payload = b"".join(
        [
            encode_record(delta, record.timestamp - base_timestamp, record.key, record.value, record.headers)
            for delta, record in enumerate(records)
        ]
    )
    attributes = int(codec)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if is_control:
        attributes |= CONTROL_BIT
    return assemble_batch(
        compress(codec, payload, level),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )


def build_pairs(
    pairs: Sequence[tuple[Buffer, Buffer | None]],
    timestamp: int,
    *,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytearray:
    """A batch of keys and values, all of one time and without headers: what `build_batch` makes of them, in a
    third of the time. Coordinators write such batches, one for each request that changes something."""
    parts: list[Buffer] = []
    for delta, (key, value) in enumerate(pairs):
        if value is None:
            body = b"".join((b"\0\0", varint(delta), varint(len(key)), key, _NO_VALUE_NO_HEADERS))
        else:
            body = b"".join((b"\0\0", varint(delta), varint(len(key)), key, varint(len(value)), value, b"\0"))
        parts += (varint(len(body)), body)
    count = len(pairs)
    attributes = codec | TRANSACTIONAL_BIT if is_transactional else codec
    after_crc = _AFTER_CRC(
        attributes, count - 1, timestamp, timestamp, producer_id, producer_epoch, base_sequence, count
    )
    if codec:
        parts = [compress(codec, b"".join(parts))]
    covered = b"".join((after_crc, *parts))
    size = len(covered) + ATTRIBUTES
    batch = bytearray(_TO_CRC(0, size - LOG_OVERHEAD, NO_LEADER_EPOCH, MAGIC_V2, crc32c(covered)))
    batch += covered
    return batch


def assemble_batch(
    payload: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytes:
    """A batch around records that are already encoded, and compressed as `attributes` says."""
    size = HEADER_BYTES + len(payload)
    batch = bytearray(size)
    batch[HEADER_BYTES:] = payload
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        size - LOG_OVERHEAD,
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    stamp_crc(batch, size)
    return bytes(batch)
