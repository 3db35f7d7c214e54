"""The `.snapshot` file of a log: its producers up to the offset the file is named by.

Version (int16), CRC32-C of everything after it, and an array of entries. Of the batches of a producer only
the last is kept. An open transaction is kept by its first offset; one that is complete is not.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from crc32c import crc32c

from moldau.log.errors import CorruptFileError
from moldau.log.producer_state import BatchMetadata, ProducerEntry

_HEADER = struct.Struct(">hIi")
_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1
_CRC_START = 2
_ENTRIES_START = 6


def encode_snapshot(producers: Mapping[int, ProducerEntry]) -> bytearray:
    data = bytearray(_HEADER.pack(_VERSION, 0, len(producers)))
    for producer_id, entry in producers.items():
        data += _ENTRY.pack(
            producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
    _CRC.pack_into(data, _CRC_START, crc32c(memoryview(data)[_ENTRIES_START:]))
    return data


def decode_snapshot(data: bytes, path: str) -> dict[int, ProducerEntry]:
    """Raises CorruptFileError if these are not the bytes that were written."""
    if len(data) < _HEADER.size:
        raise CorruptFileError(f"producer snapshot {path} has only {len(data)} bytes")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptFileError(f"producer snapshot {path} has unknown version {version}")
    if crc32c(memoryview(data)[_ENTRIES_START:]) != crc:
        raise CorruptFileError(f"producer snapshot {path} is corrupt: its CRC does not match")
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptFileError(f"producer snapshot {path} announces {count} producers in {len(data)} bytes")
    producers = {}
    for fields in _ENTRY.iter_unpack(memoryview(data)[_HEADER.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
        last_batch = BatchMetadata(sequence, offset, delta, timestamp) if offset >= 0 else None
        producers[producer_id] = ProducerEntry(
            epoch, coordinator_epoch, timestamp, max(txn_first_offset, -1), last_batch
        )
    return producers
