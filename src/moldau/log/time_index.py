"""The sparse time index of a segment: the largest timestamp so far, and the last offset of the batch that has
it.

An entry says that no batch up to that offset has a larger timestamp. Eight bytes of timestamp, four of offset
relative to the segment's base. Invariant: timestamps grow strictly from entry to entry, offsets do not fall.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from moldau.log.errors import CorruptFileError
from moldau.log.index_file import IndexFile
from moldau.runtime.interfaces import FileSystem

_ENTRY = struct.Struct(">qi")
_TIMESTAMP = struct.Struct(">q").unpack_from
_OFFSET = struct.Struct(">i").unpack_from


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    __slots__ = ()

    ENTRY_BYTES = 12

    @property
    def is_full(self) -> bool:
        """One slot is kept for the entry that closes the segment."""
        return self.entries >= self.capacity - 1

    def append(self, timestamp: int, offset: int) -> None:
        """Enter a new largest timestamp; one that is not larger than the last is no news."""
        last_timestamp, last_offset = self._last or self.last_entry()
        if timestamp <= last_timestamp:
            return
        if offset < last_offset:
            raise CorruptFileError(f"offset {offset} is below the last one in {self.path}")
        slot = self.slot_for_append()
        _ENTRY.pack_into(self.view, slot, timestamp, offset - self.base_offset)
        self.entries += 1
        self._last = timestamp, offset

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry at or below `timestamp`; (-1, base offset) if there is none."""
        low, high = 0, self.entries
        view = self.map_for_reading()
        while low < high:
            middle = (low + high) >> 1
            if _TIMESTAMP(view, middle * 12)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1) if low else TimestampOffset(-1, self.base_offset)

    def entry(self, number: int) -> TimestampOffset:
        timestamp, relative = _ENTRY.unpack_from(self.map_for_reading(), number * 12)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def last_entry(self) -> TimestampOffset:
        return self.entry(self.entries - 1) if self.entries else TimestampOffset(-1, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Forget the entries whose offset is at or above `offset`."""
        low, high = 0, self.entries
        view = self.map_for_reading()
        relative = offset - self.base_offset
        while low < high:
            middle = (low + high) >> 1
            if _OFFSET(view, middle * 12 + 8)[0] < relative:
                low = middle + 1
            else:
                high = middle
        self.truncate_entries(low)

    def keep_below(self, offset: int) -> None:
        """Of a file that is longer than its entries keep those below `offset`: they are known to be there."""
        count, last_timestamp, last_relative = 0, -1, 0
        limit = offset - self.base_offset
        if self.entries:
            for timestamp, relative in _ENTRY.iter_unpack(self.map_for_reading()[: self.used_bytes]):
                if not (last_timestamp < timestamp and last_relative <= relative < limit):
                    break
                count, last_timestamp, last_relative = count + 1, timestamp, relative
        self.truncate_entries(count)
        self.trim()


def read_last_entry(files: FileSystem, path: str, base_offset: int, size: int) -> TimestampOffset:
    """The last entry of a closed time index, without mapping it."""
    entries = size // TimeIndex.ENTRY_BYTES
    if not entries:
        return TimestampOffset(-1, base_offset)
    file = files.open(path, read_only=True)
    data = file.read_at(TimeIndex.ENTRY_BYTES, (entries - 1) * TimeIndex.ENTRY_BYTES)
    file.close()
    timestamp, relative = _ENTRY.unpack(data)
    return TimestampOffset(timestamp, base_offset + relative)
