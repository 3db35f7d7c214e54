"""Reading the files of a data directory for people: which kind a file is, and its items one by one.

Answerable for every kind but segments (`dump_segment`). Files are only read, never repaired, and any bytes
are accepted: what is wrong is raised (CorruptFileError, KafkaError, ProtocolError) or told with the item.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

from moldau.log.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    decode_epochs,
    decode_offsets,
)
from moldau.log.errors import CorruptFileError
from moldau.log.meta_properties import META_PROPERTIES, decode_meta_properties
from moldau.log.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of,
)
from moldau.log.partition_metadata import decode_partition_metadata
from moldau.log.producer_snapshot import decode_snapshot
from moldau.log.transaction_index import TransactionIndex
from moldau.runtime.interfaces import FileSystem
from moldau.wire.ids import uuid_to_string

QUORUM_STATE = "quorum-state"
CHECKPOINT_SUFFIX = ".checkpoint"
SMALL_FILE_BYTES_MAX = 256 << 20  # of files that are read whole; Kafka's own are far smaller

_OFFSET_CHECKPOINTS = frozenset(
    {
        CLEANER_OFFSET_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        RECOVERY_POINT_CHECKPOINT,
        REPLICATION_OFFSET_CHECKPOINT,
    }
)
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class Item(NamedTuple):
    """One thing found in a file: as text, as JSON, and what is wrong with it."""

    text: str
    fields: dict[str, Any]
    problem: str | None = None


class UnknownFile(Exception):
    pass


def read_items(
    files: FileSystem, path: str, *, deep: bool = False, content: bool = False, sanity_check: bool = False
) -> Iterator[Item]:
    """The items of the file. `deep` and `content` matter for segments, `sanity_check` for indexes."""
    if files.is_dir(path):
        raise UnknownFile(f"{path} is a directory")
    if not files.exists(path):
        raise UnknownFile(f"{path} does not exist")
    name = PurePath(path).name
    for fate in (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX):
        name = name.removesuffix(fate)
    if name.endswith((LOG_SUFFIX, CHECKPOINT_SUFFIX)):
        from moldau.cli.dump_segment import segment_items

        return segment_items(files, path, name, deep=deep, content=content)
    if name.endswith(INDEX_SUFFIX):
        return _index_items(files, path, _base_offset(path, name), sanity_check)
    if name.endswith(TIME_INDEX_SUFFIX):
        return _time_index_items(files, path, _base_offset(path, name), sanity_check)
    if name.endswith(TXN_INDEX_SUFFIX):
        return _txn_index_items(files, path, _base_offset(path, name))
    decode = _SMALL_FILES.get(name)
    if name.endswith(SNAPSHOT_SUFFIX):
        decode = _producer_items
    elif name in _OFFSET_CHECKPOINTS:
        decode = _offset_checkpoint_items
    if decode is None:
        raise UnknownFile(f"{path} is not named like a file of a data directory")
    return decode(_read_whole(files, path), path)


def _read_whole(files: FileSystem, path: str) -> bytes:
    if files.file_size(path) > SMALL_FILE_BYTES_MAX:
        raise CorruptFileError(f"{path} is too large for what its name says")
    return files.read_bytes(path)


def _base_offset(path: str, name: str) -> int:
    offset = offset_of(name)
    if offset is None:
        raise CorruptFileError(f"{path} is not named by an offset")
    return offset


# Indexes --------------------------------------------------------------------------------------------------


class IndexEntry(NamedTuple):
    offset: int
    position: int


def _index_items(files: FileSystem, path: str, base_offset: int, sanity_check: bool) -> Iterator[Item]:
    entries = _index_entries(_read_whole(files, path), path, base_offset)
    if not entries:
        yield _verdict(f"{path} is empty.", 0)
        return
    if sanity_check:
        yield _verdict(f"{path} passed sanity check.", len(entries), _index_problem(files, path, entries))
        return
    for entry in entries:
        yield Item(
            f"offset: {entry.offset} position: {entry.position}",
            {"offset": entry.offset, "position": entry.position},
        )
    problem = _index_problem(files, path, entries)
    if problem is not None:
        raise CorruptFileError(f"{path}: {problem}")


def _index_entries(data: bytes, path: str, base_offset: int) -> list[IndexEntry]:
    _check_whole(data, path, _OFFSET_ENTRY.size)
    entries: list[IndexEntry] = []
    for relative, position in _OFFSET_ENTRY.iter_unpack(data):
        # The index of the active segment is longer than its entries, which leaves zeros.
        if relative == 0 and position == 0:
            break
        entries.append(IndexEntry(base_offset + relative, position))
    return entries


def _index_problem(files: FileSystem, path: str, entries: list[IndexEntry]) -> str | None:
    """The first thing that would have the index rebuilt, or that it gets wrong about its segment."""
    previous = IndexEntry(-1, -1)
    for entry in entries:
        if entry.offset <= previous.offset or entry.position <= previous.position:
            return f"offset {entry.offset} at position {entry.position} is not above the entry before it"
        previous = entry
    segment = _segment_of(path)
    if not files.exists(segment):
        return None
    from moldau.cli.dump_segment import header_at

    file = files.open(segment, read_only=True)
    try:
        for entry in entries:
            header = header_at(file, entry.position)
            if header is None:
                return f"offset {entry.offset} points to position {entry.position}, where no batch starts"
            if header.last_offset != entry.offset:
                return f"index offset {entry.offset}, log offset {header.last_offset}"
    finally:
        file.close()
    return None


def _time_index_items(files: FileSystem, path: str, base_offset: int, sanity_check: bool) -> Iterator[Item]:
    data = _read_whole(files, path)
    _check_whole(data, path, _TIME_ENTRY.size)
    entries: list[tuple[int, int]] = []
    for timestamp, relative in _TIME_ENTRY.iter_unpack(data):
        if relative == 0 and entries:
            break
        entries.append((timestamp, base_offset + relative))
    problem = _time_index_problem(files, path, entries, base_offset)
    if sanity_check:
        yield _verdict(f"{path} passed sanity check.", len(entries), problem)
        return
    for timestamp, offset in entries:
        yield Item(f"timestamp: {timestamp} offset: {offset}", {"timestamp": timestamp, "offset": offset})
    if problem is not None:
        raise CorruptFileError(f"{path}: {problem}")


def _time_index_problem(
    files: FileSystem, path: str, entries: list[tuple[int, int]], base_offset: int
) -> str | None:
    previous_timestamp, previous_offset = -(1 << 63), base_offset
    for timestamp, offset in entries:
        if timestamp <= previous_timestamp or offset < previous_offset:
            return f"timestamp {timestamp} at offset {offset} is not above the entry before it"
        previous_timestamp, previous_offset = timestamp, offset
    segment = _segment_of(path)
    # The index of an active segment that has no entries yet is one of zeros.
    if entries == [(0, base_offset)] or not files.exists(segment):
        return None
    return _time_index_mismatch(files, path, segment, entries)


def _time_index_mismatch(
    files: FileSystem, path: str, segment: str, entries: list[tuple[int, int]]
) -> str | None:
    """The first entry that is not the largest timestamp of a batch beside the batch's last offset."""
    from moldau.cli.dump_segment import header_at

    positions = _positions(files, path)
    file = files.open(segment, read_only=True)
    try:
        position = 0
        for timestamp, offset in entries:
            known = bisect_right(positions, offset, key=lambda entry: entry.offset)
            position = max(position, positions[known - 1].position if known else 0)
            header = header_at(file, position)
            while header is not None and header.last_offset < offset:
                position += header.size
                header = header_at(file, position)
            if header is None or header.last_offset != offset:
                return f"time index offset {offset} is not the last offset of a batch"
            if header.max_timestamp != timestamp:
                return f"time index timestamp {timestamp}, log timestamp {header.max_timestamp}"
    finally:
        file.close()
    return None


def _positions(files: FileSystem, path: str) -> list[IndexEntry]:
    """The entries of the offset index beside a time index, which make the way to a batch short."""
    place = PurePath(path)
    index = str(place.with_name(place.name.replace(TIME_INDEX_SUFFIX, INDEX_SUFFIX)))
    if not files.exists(index):
        return []
    entries = _index_entries(_read_whole(files, index), index, _base_offset(index, PurePath(index).name))
    return entries if _index_problem(files, index, entries) is None else []


def _txn_index_items(files: FileSystem, path: str, base_offset: int) -> Iterator[Item]:
    for aborted in TransactionIndex(files, path, base_offset).entries():
        yield _item(
            version=0,
            producerId=aborted.producer_id,
            firstOffset=aborted.first_offset,
            lastOffset=aborted.last_offset,
            lastStableOffset=aborted.last_stable_offset,
        )


def _segment_of(path: str) -> str:
    place = PurePath(path)
    suffix = TIME_INDEX_SUFFIX if TIME_INDEX_SUFFIX in place.name else INDEX_SUFFIX
    return str(place.with_name(place.name.replace(suffix, LOG_SUFFIX)))


def _check_whole(data: bytes, path: str, entry_bytes: int) -> None:
    if len(data) % entry_bytes:
        raise CorruptFileError(f"{path} has {len(data)} bytes, which is no multiple of {entry_bytes}")


def _verdict(text: str, entries: int, problem: str | None = None) -> Item:
    if problem is not None:
        text = problem
    return Item(text, {"entries": entries, "passed": problem is None}, problem)


# Files that are read whole --------------------------------------------------------------------------------


def _producer_items(data: bytes, path: str) -> Iterator[Item]:
    for producer_id, entry in decode_snapshot(data, path).items():
        first_offset = entry.txn_first_offset if entry.txn_first_offset >= 0 else None
        fields: dict[str, Any] = {
            "producerId": producer_id,
            "producerEpoch": entry.epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": first_offset,
            "lastTimestamp": entry.last_timestamp,
        }
        text = (
            f"producerId: {producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: "
            f"{entry.coordinator_epoch} currentTxnFirstOffset: {optional_long(first_offset)} "
            f"lastTimestamp: {entry.last_timestamp} "
        )
        last = entry.batches[-1] if entry.batches else None
        if last is not None:
            batch = {
                "firstSequence": last.first_sequence,
                "lastSequence": last.last_sequence,
                "lastOffset": last.last_offset,
                "offsetDelta": last.offset_delta,
                "timestamp": last.timestamp,
            }
            fields |= batch
            text += _text(batch)
        yield Item(text.rstrip(), fields)


def _offset_checkpoint_items(data: bytes, path: str) -> Iterator[Item]:
    for (topic, partition), offset in decode_offsets(data, path).items():
        yield _item(topic=topic, partition=partition, offset=offset)


def _epoch_items(data: bytes, path: str) -> Iterator[Item]:
    for epoch, start_offset in decode_epochs(data, path):
        yield _item(epoch=epoch, startOffset=start_offset)


def _partition_metadata_items(data: bytes, path: str) -> Iterator[Item]:
    yield _item(topicId=uuid_to_string(decode_partition_metadata(data, path)))


def _meta_properties_items(data: bytes, path: str) -> Iterator[Item]:
    properties = decode_meta_properties(data, path)
    directory_id = properties.directory_id
    yield _item(
        version=properties.version,
        clusterId=properties.cluster_id,
        nodeId=properties.node_id,
        directoryId=None if directory_id is None else uuid_to_string(directory_id),
        **properties.other,
    )


def _quorum_state_items(data: bytes, path: str) -> Iterator[Item]:
    try:
        state = json.loads(data)
    except ValueError as error:
        raise CorruptFileError(f"{path} is not JSON: {error}") from None
    if not isinstance(state, dict) or "leaderEpoch" not in state:
        raise CorruptFileError(f"{path} is not the state of a quorum: it has no leaderEpoch")
    text = " ".join(
        f"{name}: {json.dumps(value) if isinstance(value, list | dict) else value}"
        for name, value in state.items()
    )
    yield Item(text, state)


_SMALL_FILES: dict[str, Callable[[bytes, str], Iterator[Item]]] = {
    LEADER_EPOCH_CHECKPOINT: _epoch_items,
    PARTITION_METADATA: _partition_metadata_items,
    META_PROPERTIES: _meta_properties_items,
    QUORUM_STATE: _quorum_state_items,
}


def optional_long(value: int | None) -> str:
    """As Java prints a number that may not be there."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _item(**fields: Any) -> Item:
    return Item(_text(fields), fields)


def _text(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}: {value}" for name, value in fields.items())
