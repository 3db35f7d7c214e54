"""Kafka's text checkpoints: a version line, a count line, and that many entries.

`replication-offset-checkpoint`, `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint` and
`cleaner-offset-checkpoint` of a log directory have entries `topic partition offset`; the
`leader-epoch-checkpoint` of a log has `epoch start-offset`. They are replaced as a whole and so are never
half-written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from moldau.log.errors import CorruptFileError
from moldau.runtime.interfaces import FileSystem

REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"

_VERSION = "0"

TopicPartition: TypeAlias = tuple[str, int]


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return _encode(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    offsets = {}
    for line in _decode(data, path):
        try:
            topic, partition, offset = line.split()
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise CorruptFileError(f"malformed line in checkpoint file {path}: {line!r}") from None
    return offsets


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    return _encode(f"{epoch} {start_offset}" for epoch, start_offset in epochs)


def decode_epochs(data: bytes, path: str) -> list[tuple[int, int]]:
    epochs = []
    for line in _decode(data, path):
        try:
            epoch, start_offset = line.split()
            epochs.append((int(epoch), int(start_offset)))
        except ValueError:
            raise CorruptFileError(f"malformed line in checkpoint file {path}: {line!r}") from None
    return epochs


def read_offsets(files: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Empty if there is no such file; CorruptFileError if it cannot be read as a checkpoint."""
    return decode_offsets(files.read_bytes(path), path) if files.exists(path) else {}


def _encode(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def _decode(data: bytes, path: str) -> list[str]:
    try:
        version, count, *lines = data.decode().splitlines()
    except ValueError:
        raise CorruptFileError(f"checkpoint file {path} has no header") from None
    if version.strip() != _VERSION:
        raise CorruptFileError(f"unrecognized version of the checkpoint file {path}: {version[:20]!r}")
    if not (count.isascii() and count.isdigit()) or int(count) != len(lines):
        raise CorruptFileError(
            f"checkpoint file {path} announces {count[:20]!r} entries, {len(lines)} are there"
        )
    return lines
