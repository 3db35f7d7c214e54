"""Formatting log directories as `kafka-storage format` does: whose they are, and what a cluster starts with.

Every log directory gets `meta.properties`, and the metadata directory `bootstrap.checkpoint`. A quorum that
keeps its voters in its log starts with a snapshot of the empty log that names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from moldau.log.errors import CorruptFileError
from moldau.log.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from moldau.metadata.features import bootstrap_records
from moldau.metadata.framing import MetadataRecord
from moldau.metadata.records import FeatureLevelRecord
from moldau.raft.snapshots import BOOTSTRAP_SNAPSHOT, read_snapshot, snapshot_name, write_snapshot
from moldau.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from moldau.runtime.interfaces import FileSystem
from moldau.wire.ids import Uuid, random_uuid

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
METADATA_LOG = "__cluster_metadata-0"


class FormatError(Exception):
    """The directories cannot be formatted, or do not belong together. Nothing was changed."""


class AlreadyFormatted(FormatError):
    """That one of them has an owner is not known to be a mistake."""


def read_meta_properties(files: FileSystem, directory: str) -> MetaProperties | None:
    """None if the directory is not formatted. Raises CorruptFileError."""
    path = f"{directory}/{META_PROPERTIES}"
    if not files.exists(path):
        return None
    return decode_meta_properties(files.read_bytes(path), path)


def format_directories(
    files: FileSystem,
    directories: Sequence[str],
    *,
    metadata_directory: str,
    cluster_id: str,
    node_id: int,
    random: Random,
    now_ms: int,
    records: Sequence[MetadataRecord] | None = None,
    standalone: VoterEndpoint | None = None,
    ignore_formatted: bool = False,
) -> dict[str, Uuid]:
    """Directory id by directory, of those that were formatted now.

    `records` are what the cluster starts with, by default the features of a new cluster. `standalone` makes a
    quorum that keeps its voters in its log, with this node as the only one, at that endpoint; without it
    voters are those of `controller.quorum.voters`.
    """
    everything = list(dict.fromkeys([*directories, metadata_directory]))
    found = {directory: _formatted(files, directory) for directory in everything}
    for directory, properties in found.items():
        if properties is None:
            continue
        if not ignore_formatted:
            raise AlreadyFormatted(f"Log directory {directory} is already formatted")
        if properties.cluster_id != cluster_id or properties.node_id != node_id:
            raise FormatError(
                f"Log directory {directory} belongs to node {properties.node_id} of cluster "
                f"{properties.cluster_id}, not to node {node_id} of cluster {cluster_id}."
            )
    fresh = {directory: random_uuid(random) for directory, known in found.items() if known is None}
    for directory, directory_id in fresh.items():
        files.make_dirs(directory)
        files.sync_dir(directory.rpartition("/")[0] or "/")
        if directory == metadata_directory:
            _write_bootstrap(files, directory, directory_id, node_id, now_ms, records, standalone)
        # Last: a directory counts as formatted once it says whose it is.
        properties = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id)
        files.write_atomically(f"{directory}/{META_PROPERTIES}", encode_meta_properties(properties))
    return fresh


def read_bootstrap_records(files: FileSystem, metadata_directory: str) -> list[MetadataRecord]:
    """What the metadata log starts with; all of these have one version."""
    path = f"{metadata_directory}/{BOOTSTRAP_CHECKPOINT}"
    if not files.exists(path):
        return bootstrap_records()
    messages = read_snapshot(files, path).messages
    if not any(isinstance(message, FeatureLevelRecord) for message in messages):
        raise CorruptFileError(f"{path}: no feature levels in the bootstrap records")
    return [MetadataRecord(message, 0) for message in messages]


def _formatted(files: FileSystem, directory: str) -> MetaProperties | None:
    try:
        return read_meta_properties(files, directory)
    except CorruptFileError as error:
        raise FormatError(str(error)) from None


def _write_bootstrap(
    files: FileSystem,
    directory: str,
    directory_id: Uuid,
    node_id: int,
    now_ms: int,
    records: Sequence[MetadataRecord] | None,
    standalone: VoterEndpoint | None,
) -> None:
    path = f"{directory}/{BOOTSTRAP_CHECKPOINT}"
    write_snapshot(files, path, bootstrap_records() if records is None else records, epoch=0, now_ms=now_ms)
    if standalone is not None:
        log_directory = f"{directory}/{METADATA_LOG}"
        files.make_dirs(log_directory)
        files.sync_dir(directory)
        voters = VoterSet([Voter(key=ReplicaKey(node_id, directory_id), endpoints=(standalone,))])
        write_snapshot(
            files,
            f"{log_directory}/{snapshot_name(BOOTSTRAP_SNAPSHOT)}",
            (),
            epoch=0,
            now_ms=now_ms,
            last_contained_timestamp_ms=now_ms,
            voters=voters,
        )
