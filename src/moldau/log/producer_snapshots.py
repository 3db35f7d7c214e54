"""The producer snapshots of a log: which there are, writing one, and letting them go.

One is written wherever a segment begins and where the log is closed, so that a recovery replays no more than
what it reads anyway. They are an economy: a lost or torn one (its checksum tells) only makes the replay
longer.
"""

from __future__ import annotations

from collections.abc import Mapping

from moldau.log.errors import is_disk_full
from moldau.log.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, offset_name
from moldau.log.producer_snapshot import encode_snapshot
from moldau.log.producer_state import ProducerEntry
from moldau.runtime.interfaces import FileSystem


class ProducerSnapshots:
    __slots__ = ("_files", "directory", "offsets")

    def __init__(self, files: FileSystem, directory: str, offsets: list[int]) -> None:
        self._files = files
        self.directory = directory
        self.offsets = offsets
        """Ascending."""

    def path(self, offset: int) -> str:
        return f"{self.directory}/{offset_name(offset, SNAPSHOT_SUFFIX)}"

    def take(self, offset: int, producers: Mapping[int, ProducerEntry]) -> bool:
        """Write one, unless there is one at that offset or beyond. It is not synced. On a full disk there is
        none. Whether there is a new one."""
        if not offset or (self.offsets and self.offsets[-1] >= offset):
            return False
        file = self._files.open(self.path(offset), create=True)
        try:
            file.truncate(0)
            file.write_at(encode_snapshot(producers), 0)
        except OSError as error:
            if not is_disk_full(error):
                raise
            return False
        finally:
            file.close()
        self.offsets.append(offset)
        return True

    def mark_deleted(self, offset: int) -> list[str]:
        """Rename the one at `offset` to `.deleted`; its new path, if it is there."""
        if offset not in self.offsets:
            return []
        self.offsets.remove(offset)
        path = self.path(offset)
        if not self._files.exists(path):
            return []
        self._files.rename(path, path + DELETED_SUFFIX)
        return [path + DELETED_SUFFIX]

    def remove_above(self, offset: int) -> None:
        """The log ends at `offset`: later ones tell of what is not there."""
        for stale in [taken for taken in self.offsets if taken > offset]:
            self.offsets.remove(stale)
            if self._files.exists(self.path(stale)):
                self._files.remove(self.path(stale))

    def paths_above(self, offset: int) -> list[str]:
        return [self.path(taken) for taken in self.offsets if taken > offset]
