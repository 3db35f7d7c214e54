"""Names of files and directories inside a log directory.

`topic-partition` holds a log; a suffix after `topic-partition.<32 hex>` marks one that is being deleted
(`-delete`), moved to another directory (`-future`), or that no one asked for (`-stray`). Inside, files are
named by the offset they start at, in twenty digits.
"""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import NamedTuple

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

PARTITION_METADATA = "partition.metadata"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"

_NAME_MAX = 255


class Fate(Enum):
    """What the directory of a log is for."""

    CURRENT = ""
    DELETE = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


class LogDirName(NamedTuple):
    topic: str
    partition: int
    fate: Fate


def offset_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The offset a file is named by; None if it is not such a file."""
    digits, dot, _ = name.partition(".")
    return int(digits) if dot and digits.isascii() and digits.isdigit() else None


def log_dir_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_dir_name(topic: str, partition: int, fate: Fate, random: Random) -> str:
    """A fresh name for a log with that fate. A topic too long for the file system is cut, since these names
    are only looked at by people; but not for `-future`, which has to be found again."""
    tail = f"-{partition}.{random.getrandbits(128):032x}{fate.value}"
    return (topic if fate is Fate.FUTURE else topic[: _NAME_MAX - len(tail)]) + tail


def parse_log_dir_name(name: str) -> LogDirName | None:
    """What a directory of that name holds; None if it is not the directory of a log."""
    fate = next(
        (fate for fate in (Fate.DELETE, Fate.FUTURE, Fate.STRAY) if name.endswith(fate.value)), Fate.CURRENT
    )
    if fate is not Fate.CURRENT:
        name, dot, unique = name[: -len(fate.value)].rpartition(".")
        if not dot or not unique:
            return None
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return LogDirName(topic, int(partition), fate)
