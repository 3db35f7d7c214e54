"""Snapshots of the metadata log: `<end offset>-<epoch>.checkpoint`, control header and footer around records.

A snapshot stands for the log up to its end offset. It is written beside its name and renamed when it is whole
and durable, so a `.checkpoint` is never half-written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.log.errors import CorruptFileError
from moldau.metadata.framing import MetadataRecord
from moldau.raft.batches import build_metadata_batches, build_quorum_batch, read_batches
from moldau.raft.voters import KRAFT_VERSION_STATIC, VoterSet, voter_set, voters_record
from moldau.records.batch import HEADER_BYTES, parse_header
from moldau.runtime.interfaces import File, FileSystem
from moldau.wire.codec import ProtocolError
from moldau.wire.errors import KafkaError
from moldau.wire.messages.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from moldau.wire.schema import Message

CHECKPOINT_SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
DELETED_SUFFIX = ".checkpoint.deleted"

_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint\Z")


class SnapshotId(NamedTuple):
    """`end_offset` is the first offset that it does not contain, `epoch` that of the last it does."""

    end_offset: int
    epoch: int


BOOTSTRAP_SNAPSHOT = SnapshotId(0, 0)
"""Holds no log at all, but the first voters of a quorum that keeps its voters in the log."""


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """What was read from one. `messages` are its metadata records."""

    timestamp_ms: int = 0
    kraft_version: int = KRAFT_VERSION_STATIC
    voters: VoterSet | None = None
    messages: list[Message] = field(default_factory=list)


def snapshot_name(id: SnapshotId) -> str:
    return f"{id.end_offset:020d}-{id.epoch:010d}{CHECKPOINT_SUFFIX}"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    match = _NAME.match(name)
    return SnapshotId(int(match[1]), int(match[2])) if match else None


def list_snapshots(files: FileSystem, directory: str) -> list[SnapshotId]:
    """Oldest first."""
    ids = (parse_snapshot_name(name) for name in files.list_dir(directory))
    return sorted(id for id in ids if id is not None)


def write_snapshot(
    files: FileSystem,
    path: str,
    records: Iterable[MetadataRecord],
    *,
    epoch: int,
    now_ms: int,
    last_contained_timestamp_ms: int = 0,
    voters: VoterSet | None = None,
) -> int:
    """Write the file, durably and whole; how many bytes it has. `voters` for a quorum that keeps them."""
    part = path.removesuffix(CHECKPOINT_SUFFIX) + PART_SUFFIX
    file = files.open(part, create=True)
    try:
        file.truncate(0)
        size = _write(file, _batches(records, epoch, now_ms, last_contained_timestamp_ms, voters))
        file.sync()
    except OSError:
        # The next has another name: on a full disk, what this one took would be missing for good.
        with suppress(OSError):
            files.remove(part)
        raise
    finally:
        file.close()
    files.rename(part, path)
    files.sync_dir(path.rpartition("/")[0] or ".")
    return size


def read_snapshot(files: FileSystem, path: str) -> Snapshot:
    """Raises CorruptFileError if it is not one, from header to footer."""
    snapshot, has_footer = Snapshot(), False
    try:
        data = files.read_bytes(path)
        for batch in read_batches(data):
            if not batch.is_control:
                snapshot.messages += batch.messages
                continue
            for message in batch.messages:
                match message:
                    case SnapshotHeaderRecord():
                        snapshot.timestamp_ms = message.last_contained_log_timestamp
                    case KRaftVersionRecord():
                        snapshot.kraft_version = message.k_raft_version
                    case VotersRecord():
                        snapshot.voters = voter_set(message)
                    case SnapshotFooterRecord():
                        has_footer = True
                    case _:
                        pass
    except (KafkaError, ProtocolError) as error:
        raise CorruptFileError(f"{path}: {error}") from None
    if not has_footer:
        raise CorruptFileError(f"{path}: the snapshot does not end with a footer")
    return snapshot


def _batches(
    records: Iterable[MetadataRecord],
    epoch: int,
    now_ms: int,
    last_contained_timestamp_ms: int,
    voters: VoterSet | None,
) -> Iterator[bytes]:
    """Offsets inside a snapshot count from 0 and mean nothing outside."""
    header: list[Message] = [SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_timestamp_ms)]
    if voters is not None:
        header += [KRaftVersionRecord(k_raft_version=1), voters_record(voters)]
    yield build_quorum_batch(header, base_offset=0, epoch=epoch, timestamp_ms=now_ms)
    offset = len(header)
    for batch in build_metadata_batches(records, base_offset=offset, epoch=epoch, timestamp_ms=now_ms):
        offset = parse_header(batch[:HEADER_BYTES]).next_offset
        yield batch
    yield build_quorum_batch([SnapshotFooterRecord()], base_offset=offset, epoch=epoch, timestamp_ms=now_ms)


def _write(file: File, batches: Iterable[bytes]) -> int:
    position = 0
    for batch in batches:
        file.write_at(batch, position)
        position += len(batch)
    return position
