"""Batches of the metadata log and its snapshots: metadata records, or control records of the quorum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from moldau.metadata.framing import MetadataRecord, decode_record, encode_record
from moldau.records.batch import Buffer, check_crc, iterate_headers
from moldau.records.builder import build_batch
from moldau.records.control import ControlType, build_control_batch, read_control
from moldau.records.record import Record, read_records
from moldau.wire.codec import decode, encode
from moldau.wire.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from moldau.wire.schema import Message

BATCH_RECORDS_MAX = 10_000
BATCH_BYTES_MAX = 7 << 20
"""A batch is closed at these sizes, since Kafka reads up to 8 MiB of one. A decision of a user's request,
which has to be in the log whole or not at all, stays below them."""

_CONTROL_MESSAGES: dict[ControlType, type[Message]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_CONTROL_TYPES = {message: type for type, message in _CONTROL_MESSAGES.items()}
# All of them have one version that Kafka 4.3 writes.
_CONTROL_VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataBatch:
    """`messages` are metadata records, or of a control batch the quorum's own."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    is_control: bool
    messages: list[Message]
    size: int


def build_metadata_batches(
    records: Iterable[MetadataRecord], *, base_offset: int, epoch: int, timestamp_ms: int
) -> Iterator[bytes]:
    held: list[Record] = []
    held_bytes = 0
    for message, version in records:
        value = encode_record(message, version)
        if held and (len(held) == BATCH_RECORDS_MAX or held_bytes + len(value) > BATCH_BYTES_MAX):
            yield build_batch(held, base_offset=base_offset, leader_epoch=epoch)
            base_offset += len(held)
            held, held_bytes = [], 0
        held.append(Record(0, timestamp_ms, None, value))
        held_bytes += len(value)
    if held:
        yield build_batch(held, base_offset=base_offset, leader_epoch=epoch)


def build_quorum_batch(
    messages: Sequence[Message], *, base_offset: int, epoch: int, timestamp_ms: int
) -> bytes:
    """A control batch of the quorum's own messages."""
    controls = [
        (_CONTROL_TYPES[type(message)], bytes(encode(message, _CONTROL_VERSION))) for message in messages
    ]
    return build_control_batch(controls, timestamp=timestamp_ms, base_offset=base_offset, leader_epoch=epoch)


def read_batches(buffer: Buffer) -> Iterator[MetadataBatch]:
    """Each whole batch. Raises KafkaError or ProtocolError for what is none, or holds what is no record."""
    view = memoryview(buffer)
    for position, header in iterate_headers(view):
        check_crc(view, header, position)
        records = read_records(view[position : position + header.size])
        if header.is_control:
            messages = [message for record in records if (message := _control(record)) is not None]
        else:
            messages = [decode_record(record.value or b"").message for record in records]
        yield MetadataBatch(
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            epoch=header.leader_epoch,
            timestamp_ms=header.max_timestamp,
            is_control=header.is_control,
            messages=messages,
            size=header.size,
        )


def _control(record: Record) -> Message | None:
    """None for kinds that a later release invented: control records may be passed over."""
    control = read_control(record)
    declared = _CONTROL_MESSAGES.get(control.type)
    if declared is None:
        return None
    message, _ = decode(declared, _CONTROL_VERSION, control.value)
    return message
