"""The aborted transactions of a segment: those whose abort marker it holds, in the order of their markers.

The file exists only where there was one. An entry is 34 bytes: version, producer id, first offset, offset of
the marker, and the last stable offset once the marker was there.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from moldau.log.errors import CorruptFileError
from moldau.runtime.interfaces import FileSystem

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Small, and read in whole when someone asks: read_committed consumers of segments with aborts."""

    __slots__ = ("_entries", "_files", "base_offset", "path")

    def __init__(self, files: FileSystem, path: str, base_offset: int) -> None:
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self._entries: list[AbortedTransaction] | None = None

    def entries(self) -> list[AbortedTransaction]:
        """Raises CorruptFileError if the file is not such an index."""
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def append(self, aborted: AbortedTransaction) -> None:
        entries = self.entries()
        if entries and entries[-1].last_offset >= aborted.last_offset:
            raise CorruptFileError(
                f"the marker at {aborted.last_offset} is not above the last one in {self.path}"
            )
        file = self._files.open(self.path, create=True)
        try:
            file.write_at(_ENTRY.pack(_VERSION, *aborted), len(entries) * _ENTRY.size)
        finally:
            file.close()
        entries.append(aborted)

    def collect(self, first_offset: int, end_offset: int, found: list[AbortedTransaction]) -> bool:
        """Add to `found` what concerns offsets in [first, end). True when later segments cannot add any."""
        for aborted in self.entries():
            if aborted.last_offset >= first_offset and aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                return True
        return False

    def truncate_to(self, offset: int) -> None:
        entries = self.entries()
        kept = [aborted for aborted in entries if aborted.last_offset < offset]
        if len(kept) < len(entries):
            self._entries = kept
            self._cut(len(kept) * _ENTRY.size)

    def reset(self) -> None:
        self._entries = []
        if self._files.exists(self.path):
            self._cut(0)

    def flush(self) -> None:
        if self._entries or self._files.exists(self.path):
            file = self._files.open(self.path)
            file.sync()
            file.close()

    def _cut(self, size: int) -> None:
        file = self._files.open(self.path, create=True)
        file.truncate(size)
        file.close()

    def _read(self) -> list[AbortedTransaction]:
        if not self._files.exists(self.path):
            return []
        data = self._files.read_bytes(self.path)
        entries: list[AbortedTransaction] = []
        previous = self.base_offset - 1
        for version, *fields in _ENTRY.iter_unpack(data[: len(data) - len(data) % _ENTRY.size]):
            aborted = AbortedTransaction(*fields)
            # Markers follow each other. What a power cut tore or left empty does not, and would hide what was
            # committed if it were believed.
            if version > _VERSION or not previous < aborted.last_offset >= aborted.first_offset:
                raise CorruptFileError(f"{self.path} holds an impossible entry: version {version}, {aborted}")
            entries.append(aborted)
            previous = aborted.last_offset
        return entries
