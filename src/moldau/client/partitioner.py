"""Which partition a record goes to when nobody said: as Kafka's Java client decides.

A record with a key goes where the hash of the key says, so that records of one key stay in order, whichever
client wrote them. Records without a key stick to one partition for a while, so that batches fill.
"""

from __future__ import annotations

from random import Random

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with Kafka's seed, as an unsigned number."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ k
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ (hashed >> 13)) * _M & _MASK
    return hashed ^ (hashed >> 15)


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """For one topic: the hash for keys, and for the rest one partition until `switch`."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._sticky: int | None = None

    def partition(self, key: bytes | None, partition_count: int) -> int:
        if key is not None:
            return partition_of_key(key, partition_count)
        if self._sticky is None or self._sticky >= partition_count:
            self._sticky = self._random.randrange(partition_count)
        return self._sticky

    def switch(self, partition_count: int) -> None:
        """Stick to another partition from here on."""
        if partition_count > 1 and self._sticky is not None:
            step = self._random.randrange(1, partition_count)
            self._sticky = (self._sticky + step) % partition_count
