"""Searching for a timestamp inside one batch, for ListOffsets.

Indexes lead to a batch; only from there on must records be decoded, and only those up to the answer.
"""

from __future__ import annotations

from moldau.records.batch import Buffer, parse_header
from moldau.records.compression import DECOMPRESSED_BYTES_MAX
from moldau.records.record import read_records


def find_timestamp(
    batch: Buffer, target_ms: int, start_offset: int = 0, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> tuple[int, int] | None:
    """Timestamp and offset of the first record at or after both `target_ms` and `start_offset`."""
    header = parse_header(batch)
    if header.max_timestamp < target_ms or header.last_offset < start_offset:
        return None
    for record in read_records(batch, max_bytes):
        if record.timestamp >= target_ms and record.offset >= start_offset:
            return record.timestamp, record.offset
    return None


def max_timestamp_offset(batch: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> int | None:
    """Offset of the first record that carries the header's maximum timestamp; None if none does."""
    max_timestamp = parse_header(batch).max_timestamp
    for record in read_records(batch, max_bytes):
        if record.timestamp == max_timestamp:
            return record.offset
    return None
