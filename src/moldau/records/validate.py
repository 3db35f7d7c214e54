"""What a broker asks of a batch that a client sends, and its recompression.

The header is always asked. The records are decoded only where the answer needs them, which `RecordRules`
knows; a topic with default settings and an honest clock never comes to that.

A broken structure is a plain `KafkaError`. Well-formed records that break a rule are `InvalidRecords`, which
says which ones: the whole batch is refused, and the response names each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from moldau.records.batch import CODEC_MASK, NO_TIMESTAMP, BatchHeader, Buffer, TimestampType, parse_header
from moldau.records.builder import assemble_batch
from moldau.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress
from moldau.records.record import Record, read_payload, read_records
from moldau.wire.errors import ErrorCode, KafkaError

_INT64_MAX = (1 << 63) - 1
RECORD_BYTES_MIN = 7
"""Size, attributes, deltas of time and offset, sizes of key and value, number of headers: a byte each."""


class RecordError(NamedTuple):
    """`batch_index` is the record's index in the batch, under the name it has in the produce response."""

    batch_index: int
    message: str


class InvalidRecords(KafkaError):
    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRules:
    """A topic's `cleanup.policy`, `message.timestamp.type` and `message.timestamp.{before,after}.max.ms`."""

    is_compacted: bool = False
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = _INT64_MAX
    timestamp_after_max_ms: int = _INT64_MAX

    def need_records(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the header alone cannot clear the batch: its records must be looked at."""
        if self.is_compacted or header.is_log_append_time:
            return True
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return False
        # The header has no minimum, so any bound on the past needs the records.
        return (
            self.timestamp_before_max_ms != _INT64_MAX
            or header.max_timestamp - now_ms > self.timestamp_after_max_ms
        )


def validate_header(header: BatchHeader) -> None:
    """Raise INVALID_RECORD for a header that no client may send."""
    if header.base_offset != 0:
        raise _invalid(f"The base offset of a produced batch is 0, not {header.base_offset}")
    if header.record_count <= 0:
        raise _invalid(f"Invalid record count {header.record_count}")
    if header.last_offset_delta != header.record_count - 1:
        raise _invalid(
            f"Last offset delta {header.last_offset_delta} contradicts record count {header.record_count}"
        )
    if header.is_control:
        raise _invalid("Clients are not allowed to write control records")
    if header.has_producer_id and header.base_sequence < 0:
        raise _invalid(f"Invalid sequence number {header.base_sequence} of producer {header.producer_id}")
    if header.codec > Codec.ZSTD:
        # Nothing that Kafka foresees, and it says so.
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type {header.codec}")


def validate_record_count(batch: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> None:
    """Raise INVALID_RECORD for a batch that has no room for as many records as it says it holds: a hundred
    bytes must not claim a thousand million offsets. What it does hold is not looked at."""
    header = parse_header(batch)
    payload_bytes = len(read_payload(batch, max_bytes))
    if payload_bytes < header.record_count * RECORD_BYTES_MIN:
        raise _invalid(f"There are no {header.record_count} records in {payload_bytes} bytes")


def validate_records(
    batch: Buffer, rules: RecordRules, now_ms: int, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> int:
    """Decode the batch and hold every record against `rules`.

    Returns the largest timestamp among them, which is what the header's should be.
    """
    header = parse_header(batch)
    base_offset = header.base_offset
    checks_timestamps = rules.timestamp_type is TimestampType.CREATE_TIME
    earliest = now_ms - rules.timestamp_before_max_ms
    latest = now_ms + rules.timestamp_after_max_ms
    max_timestamp = NO_TIMESTAMP
    code = ErrorCode.INVALID_RECORD
    errors: list[RecordError] = []
    for index, record in enumerate(read_records(batch, max_bytes)):
        timestamp = record.timestamp
        if record.offset != base_offset + index:
            raise _invalid(f"Record {index} of the batch has offset delta {record.offset - base_offset}")
        if rules.is_compacted and record.key is None:
            errors.append(RecordError(index, "A compacted topic accepts no record without a key"))
        elif checks_timestamps and timestamp != NO_TIMESTAMP:
            if not earliest <= timestamp <= latest:
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append(RecordError(index, _out_of_range(record, earliest, latest)))
            elif timestamp > max_timestamp:
                max_timestamp = timestamp
        elif header.is_log_append_time:
            # As in Kafka only where the time is the broker's, or missing; elsewhere the type is put right.
            code = ErrorCode.INVALID_TIMESTAMP
            errors.append(RecordError(index, "A producer must not set the type LogAppendTime"))
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
    if errors:
        reason = "an invalid timestamp" if code is ErrorCode.INVALID_TIMESTAMP else "a broken rule"
        raise InvalidRecords(code, f"{len(errors)} records were rejected for {reason}", errors)
    return max_timestamp


def recompress(
    batch: Buffer, codec: Codec, level: int | None = None, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The same batch under another codec: every other field is kept, the records are not decoded."""
    header = parse_header(batch)
    return assemble_batch(
        compress(codec, read_payload(batch, max_bytes), level),
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=header.attributes & ~CODEC_MASK | codec,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )


def _out_of_range(record: Record, earliest: int, latest: int) -> str:
    return f"Timestamp {record.timestamp} is out of range [{earliest}, {latest}]"


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
