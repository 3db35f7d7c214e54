"""A file of fixed-size entries behind a shared mapping: what the offset index and the time index are made of.

A file being appended to is longer than its entries, as Kafka's: `segment.index.bytes`, sparse, trimmed when
its segment is rolled or closed. How many entries there are is known in memory only, hence after a crash the
index of an unflushed segment is built anew.

A store through a mapping into a sparse file on a full disk kills the process (SIGBUS). So a stretch of the
file is first written with zeros by an ordinary write, which can fail politely, and only then stored to.

The mapping is made when first needed and may be dropped at any time (`release`); it is never closed under the
feet of a flush that runs in another thread, which holds its own reference.
"""

from __future__ import annotations

from typing import Any, ClassVar

from moldau.runtime.interfaces import FileSystem, Mapping

_RESERVE_BYTES = 4096
_NOTHING = memoryview(b"")


class IndexFile:
    __slots__ = (
        "_files",
        "_last",
        "_mapped_bytes",
        "_mapping",
        "_reserved",
        "_writable_bytes",
        "base_offset",
        "capacity",
        "entries",
        "path",
        "view",
    )

    ENTRY_BYTES: ClassVar[int]

    def __init__(self, files: FileSystem, path: str, base_offset: int, bytes_max: int, size: int) -> None:
        """`size` is that of the file as it is: all of it is taken to be entries."""
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self.capacity = bytes_max // self.ENTRY_BYTES
        self.entries = size // self.ENTRY_BYTES
        self.view = _NOTHING
        self._mapping: Mapping | None = None
        self._mapped_bytes = 0
        self._reserved = size
        self._writable_bytes = 0  # both reserved and mapped
        # What an append has to know of the last entry, once it does: every batch of a producer that fills its
        # batches brings an entry.
        self._last: Any = None

    @property
    def is_full(self) -> bool:
        return self.entries >= self.capacity

    @property
    def used_bytes(self) -> int:
        return self.entries * self.ENTRY_BYTES

    @property
    def mapping(self) -> Mapping | None:
        return self._mapping

    def map_for_reading(self) -> memoryview:
        """A view that holds all entries."""
        if self.used_bytes > self._mapped_bytes:
            self._map(self.used_bytes)
        return self.view

    def slot_for_append(self) -> int:
        """The position in `view` to store the next entry at. Raises OSError if the disk has no room for
        it."""
        position = self.entries * self.ENTRY_BYTES
        end = position + self.ENTRY_BYTES
        if end > self._writable_bytes:
            if end > self._reserved:
                self._reserve(end)
            if end > self._mapped_bytes:
                self._map(max(self.capacity * self.ENTRY_BYTES, end))
            self._writable_bytes = min(self._reserved, self._mapped_bytes)
        return position

    def truncate_entries(self, count: int) -> None:
        self.entries = min(self.entries, count)
        self._last = None

    def release(self) -> None:
        """Give the mapping back to the system. The entries stay."""
        self._mapping = None
        self._mapped_bytes = self._writable_bytes = 0
        self.view = _NOTHING

    def trim(self) -> None:
        """Make the file as long as its entries."""
        self.release()
        file = self._files.open(self.path, create=True)
        if file.size() != self.used_bytes:
            file.truncate(self.used_bytes)
        file.close()
        self._reserved = self.used_bytes

    def flush(self) -> None:
        """Make the entries durable."""
        if self._mapping is not None:
            self._mapping.flush()
        file = self._files.open(self.path, create=True)
        file.sync()
        file.close()

    def _reserve(self, end: int) -> None:
        count = max(
            min(_RESERVE_BYTES, self.capacity * self.ENTRY_BYTES - self._reserved), end - self._reserved
        )
        file = self._files.open(self.path, create=True)
        try:
            file.write_at(bytes(count), self._reserved)
        finally:
            file.close()
        self._reserved += count

    def _map(self, size: int) -> None:
        file = self._files.open(self.path, create=True)
        try:
            self._mapping = file.map(size)
        finally:
            file.close()
        self.view = self._mapping.view
        self._mapped_bytes = size
