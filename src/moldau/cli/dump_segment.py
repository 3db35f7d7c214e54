"""Segments and snapshots for people: batches and their records, control records too.

A segment is read batch by batch, so that its size does not matter. A batch whose checksum is wrong is shown
and told of; where no batch can start, reading ends with an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moldau.cli.dump_files import Item, optional_long
from moldau.cli.dump_records import (
    METADATA_TOPIC,
    Decoder,
    compact,
    decoder_of,
    header_name,
    printable,
    struct_json,
)
from moldau.log.errors import CorruptFileError
from moldau.log.names import LOG_SUFFIX, offset_of, parse_log_dir_name
from moldau.records.batch import (
    HEADER_BYTES,
    NO_SEQUENCE,
    BatchHeader,
    check_crc,
    increment_sequence,
    parse_header,
)
from moldau.records.control import ControlType, read_control, read_end_txn_marker
from moldau.records.record import Record, read_records
from moldau.runtime.interfaces import File, FileSystem
from moldau.wire.codec import ProtocolError, UnsupportedFieldError, decode
from moldau.wire.errors import KafkaError
from moldau.wire.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from moldau.wire.schema import Message

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_CONTROL_MESSAGES: dict[ControlType, tuple[str, type[Message]]] = {
    ControlType.LEADER_CHANGE: ("LeaderChange:", LeaderChangeMessage),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", SnapshotHeaderRecord),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", SnapshotFooterRecord),
    ControlType.KRAFT_VERSION: ("KRaftVersion", KRaftVersionRecord),
    ControlType.KRAFT_VOTERS: ("KRaftVoters", VotersRecord),
}


def segment_items(files: FileSystem, path: str, name: str, *, deep: bool, content: bool) -> Iterator[Item]:
    """`name` is that of the file without what says that it is on its way out."""
    show: Decoder | None = None
    if content:
        # What is no segment is a snapshot of the cluster's metadata.
        show = decoder_of(_topic_of(path) if name.endswith(LOG_SUFFIX) else METADATA_TOPIC)
    yield _title(path, name)
    file = files.open(path, read_only=True)
    try:
        size = file.size()
        position = 0
        while position < size:
            header = header_at(file, position)
            if header is None or header.size > size - position:
                raise CorruptFileError(
                    f"{path}: {size - position} bytes from position {position} on are no whole batch"
                )
            batch = file.read_at(header.size, position)
            yield _batch_item(batch, header, position, deep, show)
            position += header.size
    finally:
        file.close()


def header_at(file: File, position: int) -> BatchHeader | None:
    """The header of the batch at `position`; None where none can be."""
    try:
        return parse_header(file.read_at(HEADER_BYTES, position)) if position >= 0 else None
    except KafkaError:
        return None


def _topic_of(path: str) -> str | None:
    directory = parse_log_dir_name(Path(path).absolute().parent.name)
    return directory.topic if directory is not None else None


def _title(path: str, name: str) -> Item:
    if name.endswith(LOG_SUFFIX):
        offset = offset_of(name)
        if offset is None:
            raise CorruptFileError(f"{path} is not named by an offset")
        return Item(f"Log starting offset: {offset}", {"startOffset": offset})
    if name == BOOTSTRAP_CHECKPOINT:
        return Item("KRaft bootstrap snapshot", {"bootstrap": True})
    end_offset, dash, epoch = name.partition(".")[0].partition("-")
    if not (dash and end_offset.isdecimal() and epoch.isdecimal()):
        raise CorruptFileError(f"{path} is not named by an offset and an epoch")
    return Item(
        f"Snapshot end offset: {int(end_offset)}, epoch: {int(epoch)}",
        {"endOffset": int(end_offset), "epoch": int(epoch)},
    )


def _batch_item(
    batch: bytes, header: BatchHeader, position: int, deep: bool, content: Decoder | None
) -> Item:
    problem = None
    try:
        check_crc(batch, header)
    except KafkaError as error:
        problem = f"batch at position {position}: {error.message}"
    time = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    fields: dict[str, Any] = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.delete_horizon_ms,
        "position": position,
        time: header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": _CODECS[header.codec] if header.codec < len(_CODECS) else header.codec,
        "crc": header.crc,
        "isvalid": problem is None,
    }
    shown = {
        **fields,
        "isTransactional": _java(header.is_transactional),
        "isControl": _java(header.is_control),
        "deleteHorizonMs": optional_long(header.delete_horizon_ms),
        "isvalid": _java(problem is None),
    }
    lines = [" ".join(f"{name}: {value}" for name, value in shown.items())]
    if deep:
        records: list[dict[str, Any]] = []
        try:
            for number, record in enumerate(read_records(batch)):
                line, its_fields = _record(record, number, header, time, content)
                lines.append(line)
                records.append(its_fields)
        except (KafkaError, ProtocolError, UnsupportedFieldError) as error:
            problem = problem or f"batch at position {position}: {error}"
        fields["records"] = records
    return Item("\n".join(lines), fields, problem)


def _record(
    record: Record, number: int, header: BatchHeader, time: str, content: Decoder | None
) -> tuple[str, dict[str, Any]]:
    sequence = NO_SEQUENCE
    if header.base_sequence != NO_SEQUENCE:
        sequence = increment_sequence(header.base_sequence, number)
    fields: dict[str, Any] = {
        "offset": record.offset,
        time: record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": sequence,
        "headerKeys": [header_name(name) for name, _ in record.headers],
    }
    shown = {**fields, "headerKeys": f"[{','.join(map(printable, fields['headerKeys']))}]"}
    line = "| " + " ".join(f"{name}: {value}" for name, value in shown.items())
    if header.is_control:
        text, control = _control(record)
        return f"{line} {text}", {**fields, "control": control}
    if content is None:
        return line, fields
    text, its_content = content(record)
    return f"{line} {text}" if text else line, {**fields, **its_content}


def _control(record: Record) -> tuple[str, dict[str, Any]]:
    control = read_control(record)
    if control.type in (ControlType.ABORT, ControlType.COMMIT):
        epoch = read_end_txn_marker(record).coordinator_epoch
        text = f"endTxnMarker: {control.type.name} coordinatorEpoch: {epoch}"
        return text, {"type": control.type.name, "coordinatorEpoch": epoch}
    known = _CONTROL_MESSAGES.get(control.type)
    if known is None:
        return f"controlType: {control.type.name}", {"type": control.type.name}
    title, declared = known
    version = _control_version(declared, control.value)
    message, _ = decode(declared, version, control.value)
    data = struct_json(message, version)
    return f"{title} {compact(data)}", {"type": control.type.name, "data": data}


def _control_version(declared: type[Message], value: bytes) -> int:
    """These messages begin with their version."""
    version = int.from_bytes(value[:2], "big", signed=True)
    if len(value) < 2 or version not in declared.VERSIONS:
        raise ProtocolError(f"unknown version {version} of {declared.__name__}")
    return version


def _java(value: bool) -> str:
    return "true" if value else "false"
