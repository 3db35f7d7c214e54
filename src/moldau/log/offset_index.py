"""The sparse offset index of a segment: every so many bytes, the last offset of a batch and where that batch
starts.

Offsets are stored relative to the base offset of the segment, four bytes; positions take the other four.
Invariant: both grow strictly from entry to entry.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import NamedTuple

from moldau.log.errors import CorruptFileError
from moldau.log.index_file import IndexFile

_ENTRY = struct.Struct(">ii")
_pack = _ENTRY.pack_into
_OFFSET = struct.Struct(">i").unpack_from


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class OffsetIndex(IndexFile):
    __slots__ = ()

    ENTRY_BYTES = 8

    def append(self, offset: int, position: int) -> None:
        """Raises OSError if the disk is full; CorruptFileError if the offset does not grow."""
        last = self._last
        if last is None:
            last = self.last_entry().offset if self.entries else self.base_offset - 1
        if offset <= last:
            raise CorruptFileError(f"offset {offset} is not above the last one in {self.path}")
        slot = self.slot_for_append()
        _pack(self.view, slot, offset - self.base_offset, position)
        self.entries += 1
        self._last = offset

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or below `offset`; the start of the segment if there is none."""
        count = self._count_up_to(offset)
        return self.entry(count - 1) if count else OffsetPosition(self.base_offset, 0)

    def entry(self, number: int) -> OffsetPosition:
        relative, position = _ENTRY.unpack_from(self.map_for_reading(), number * 8)
        return OffsetPosition(self.base_offset + relative, position)

    def last_entry(self) -> OffsetPosition:
        return self.entry(self.entries - 1) if self.entries else OffsetPosition(self.base_offset, 0)

    def first_at_or_after(self, position: int) -> OffsetPosition | None:
        """The first entry whose batch starts there or later."""
        number = bisect_left(range(self.entries), position, key=lambda number: self.entry(number).position)
        return self.entry(number) if number < self.entries else None

    def truncate_to(self, offset: int) -> None:
        """Forget the entries at or above `offset`."""
        self.truncate_entries(self._count_up_to(offset - 1))

    def keep_below(self, offset: int, end_position: int) -> None:
        """Of a file that is longer than its entries keep those below `offset`, which are known to be there:
        up to the first that is not below it and the end of the batches, or cannot follow the one before."""
        count, last_relative, last_position = 0, -1, 0
        limit = offset - self.base_offset
        if self.entries:
            for relative, position in _ENTRY.iter_unpack(self.map_for_reading()[: self.used_bytes]):
                if not (last_relative < relative < limit and last_position < position < end_position):
                    break
                count, last_relative, last_position = count + 1, relative, position
        self.truncate_entries(count)
        self.trim()

    def _count_up_to(self, offset: int) -> int:
        low, high = 0, self.entries
        if not high:
            return 0
        relative = offset - self.base_offset
        view = self.map_for_reading()
        # The end is where readers are: look there first.
        if _OFFSET(view, (high - 1) * 8)[0] <= relative:
            return high
        while low < high:
            middle = (low + high) >> 1
            if _OFFSET(view, middle * 8)[0] <= relative:
                low = middle + 1
            else:
                high = middle
        return low
