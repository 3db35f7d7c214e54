"""Control records: the markers that Kafka itself writes into a log, each in a batch of its own.

The key says which kind (version int16, type int16). The value is the kind's own: that of an end of
transaction marker (version int16, coordinator epoch int32) is read and written here, those of the metadata
quorum are messages of the schema and stay bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from moldau.records.batch import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.wire.errors import ErrorCode, KafkaError

_KEY = struct.Struct(">hh")
_END_TXN_VALUE = struct.Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1
    """A kind of a later release, to be passed over. Never written."""

    @classmethod
    def _missing_(cls, value: object) -> ControlType:
        return cls.UNKNOWN


class ControlRecord(NamedTuple):
    type: ControlType
    value: bytes


class EndTxnMarker(NamedTuple):
    type: ControlType
    coordinator_epoch: int


def control_key(type: ControlType) -> bytes:
    return _KEY.pack(_VERSION, type)


def read_control(record: Record) -> ControlRecord:
    """What a record of a control batch says; INVALID_RECORD when it says nothing."""
    if record.key is None or len(record.key) < _KEY.size:
        raise _invalid("a control record needs a key of at least 4 bytes")
    version, type_id = _KEY.unpack_from(record.key)
    if version < 0:
        raise _invalid(f"a control record of version {version}")
    return ControlRecord(ControlType(type_id), record.value or b"")


def read_end_txn_marker(record: Record) -> EndTxnMarker:
    control = read_control(record)
    if control.type not in (ControlType.ABORT, ControlType.COMMIT):
        raise _invalid(f"{control.type.name} does not end a transaction")
    if len(control.value) < _END_TXN_VALUE.size:
        raise _invalid(f"an end of transaction marker of {len(control.value)} bytes")
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(control.value)
    if version < 0:
        raise _invalid(f"an end of transaction marker of version {version}")
    return EndTxnMarker(control.type, coordinator_epoch)


def build_control_batch(
    controls: Sequence[tuple[ControlType, bytes]],
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    is_transactional: bool = False,
) -> bytes:
    """A control batch; `controls` are the kind and the encoded value of each record."""
    return build_batch(
        [Record(0, timestamp, control_key(type), value) for type, value in controls],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
        is_control=True,
    )


def build_end_txn_batch(
    marker: EndTxnMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    if marker.type not in (ControlType.ABORT, ControlType.COMMIT):
        raise ValueError(f"{marker.type.name} does not end a transaction")
    return build_control_batch(
        [(marker.type, _END_TXN_VALUE.pack(_VERSION, marker.coordinator_epoch))],
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
