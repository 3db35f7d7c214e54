"""The newest offset of each key in the dirty part of a log, in bounded memory.

A key is remembered with the base offset of the batch that has its newest record: all records of a batch share
that one number, and a batch goes in by two calls of native code. Within that batch the last record with the
key is the newest.

Keys are kept as they are, but for long ones, of which a digest stands in: that has a length which no key kept
as it is has, so the two cannot be taken for each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

ENTRY_BYTES = 128
"""What a key takes at most: its bytes, its place in the dictionary, and room for that to grow."""

_KEY_BYTES_MAX = 32
_DIGEST_BYTES = _KEY_BYTES_MAX + 1


class OffsetMap:
    __slots__ = ("_entries_max", "batches", "latest_offset")

    def __init__(self, bytes_max: int, load_factor: float) -> None:
        self._entries_max = int(bytes_max // ENTRY_BYTES * load_factor)
        self.batches: dict[bytes, int] = {}
        """Key to the base offset of its newest batch. Keys have to be brought to size (`bring_to_size`)."""
        self.latest_offset = -1
        """Up to here the map knows the log."""

    @property
    def utilization(self) -> float:
        return len(self.batches) / max(self._entries_max, 1)

    def has_room_for(self, count: int) -> bool:
        """Whether a batch of `count` records fits. The first always does: there would be no progress."""
        return not self.batches or len(self.batches) + count <= self._entries_max

    def put(self, keys: Iterable[bytes], base_offset: int) -> None:
        self.batches.update(dict.fromkeys(keys, base_offset))


def bring_to_size(keys: list[bytes]) -> list[bytes]:
    """The same list, but for long keys, each of which has become its digest."""
    if keys and len(max(keys, key=len)) > _KEY_BYTES_MAX:
        return [
            key if len(key) <= _KEY_BYTES_MAX else blake2b(key, digest_size=_DIGEST_BYTES).digest()
            for key in keys
        ]
    return keys
