"""The newest offset of each key in the dirty part of a log, in bounded memory.

A batch goes in by one call of native code. Once the map is complete, its offsets, sorted, are the records of
the dirty part that stay: for those it takes no second look at any key. Clean records, which all lie below, go
if the map has their key.

Keys are kept as they are, but for long ones, of which a digest stands in: that has a length which no key kept
as it is has, so the two cannot be taken for each other.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from hashlib import blake2b

from moldau.records.scan import SHORT_KEY_BYTES, Scan

ENTRY_BYTES = 160
"""What a key takes: its bytes, its offset twice, its place in the dictionary, and room for that to grow. Less
where keys are as short as most are, a third more for the longest that are kept."""

_DIGEST_BYTES = SHORT_KEY_BYTES + 1


class OffsetMap:
    __slots__ = ("_entries_max", "_newest", "_tombstones", "latest_offset", "offsets")

    def __init__(self, bytes_max: int, load_factor: float) -> None:
        self._entries_max = int(bytes_max // ENTRY_BYTES * load_factor)
        self.offsets: dict[bytes, int] = {}
        """By key (`short_keys`), the newest offset; of a tombstone its complement, which is negative."""
        self.latest_offset = -1
        """Up to here the map knows the log."""
        self._newest = array("q")
        self._tombstones: frozenset[int] = frozenset()

    @property
    def utilization(self) -> float:
        return len(self.offsets) / max(self._entries_max, 1)

    def has_room_for(self, count: int) -> bool:
        """Whether a batch of `count` records fits. The first always does: there would be no progress."""
        return not self.offsets or len(self.offsets) + count <= self._entries_max

    def put(self, keys: Iterable[bytes], offsets: Iterable[int]) -> None:
        self.offsets.update(zip(keys, offsets, strict=True))

    def complete(self) -> None:
        """Nothing is put any more; from here on `newest_in` answers."""
        tombstones = [~offset for offset in self.offsets.values() if offset < 0]
        newest = [offset for offset in self.offsets.values() if offset >= 0]
        self._newest = array("q", sorted(newest + tombstones))
        self._tombstones = frozenset(tombstones)

    def newest_in(self, first_offset: int, last_offset: int) -> array[int]:
        """The offsets from first to last that are the newest of their keys."""
        newest = self._newest
        start = bisect_left(newest, first_offset)
        return newest[start : bisect_left(newest, last_offset + 1, start)]

    def has_tombstone(self, offsets: Iterable[int]) -> bool:
        """Whether one of those that are the newest of their keys is a tombstone."""
        return bool(self._tombstones) and not self._tombstones.isdisjoint(offsets)

    def is_tombstone(self, offset: int) -> bool:
        return offset in self._tombstones


def short_keys(scan: Scan) -> list[bytes]:
    """The keys of a batch, in the place of each long one its digest."""
    if not scan.has_long_keys:
        return scan.keys
    return [
        key if len(key) <= SHORT_KEY_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
        for key in scan.keys
    ]
