"""Which partition a record goes to when nobody said: as Kafka's Java client decides.

A record with a key goes where the hash of the key says, so that records of one key stay in order, whichever
client wrote them. Records without a key stick to one partition until about a batch has gone there, and then
to another: at random, and the less often the longer a partition's queue is (KIP-794), so that a slow broker
does not hold up what others could take.

A partitioner of the user's is a callable `(topic, key, partition_count) -> partition`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from random import Random
from struct import unpack_from
from typing import Protocol, TypeAlias

Partitioner: TypeAlias = Callable[[str, bytes | None, int], int]

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C
_KEYS_REMEMBERED = 1 << 16


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with Kafka's seed, as an unsigned number."""
    length = len(data)
    hashed = _SEED ^ length
    words = length >> 2
    for word in unpack_from(f"<{words}I", data):
        k = word * _M & _MASK
        hashed = (hashed * _M & _MASK) ^ ((k ^ (k >> 24)) * _M & _MASK)
    if length & 3:
        hashed = (hashed ^ int.from_bytes(data[words << 2 :], "little")) * _M & _MASK
    hashed = (hashed ^ (hashed >> 13)) * _M & _MASK
    return hashed ^ (hashed >> 15)


@lru_cache(maxsize=_KEYS_REMEMBERED)
def partition_of_key(key: bytes, partition_count: int) -> int:
    """Remembered, since keys come again, and hashing is most of what a record with a key costs."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class Sized(Protocol):
    @property
    def size(self) -> int: ...


class StickyPartitioner:
    """For records of one topic that have no key: one partition until enough has gone there."""

    __slots__ = ("_batch", "_produced", "_random", "_switch_bytes", "partition")

    def __init__(self, random: Random, switch_bytes: int) -> None:
        self._random = random
        self._switch_bytes = max(switch_bytes, 1)
        self._produced = 0
        self._batch: Sized | None = None  # which is not counted yet
        self.partition = -1  # none yet

    def on_batch(self, batch: Sized, *, is_complete: bool) -> bool:
        """A batch was begun, or is full: whether it is time for another partition. Best when one is full; if
        they do not get full, because they leave early, after as much as two of them would hold."""
        if batch is not self._batch:
            if self._batch is not None:
                self._produced += self._batch.size
            self._batch = batch
        if is_complete:
            self._produced += batch.size
            self._batch = None
        return self._produced >= self._switch_bytes and (
            is_complete or self._produced >= 2 * self._switch_bytes
        )

    def switch(self, candidates: Sequence[int], queue_lengths: Sequence[int] | None) -> None:
        """Go to one of `candidates`; the longer its queue beside the others', the less likely."""
        self._produced = 0
        self._batch = None
        if queue_lengths is None or len(set(queue_lengths)) < 2:
            self.partition = candidates[self._random.randrange(len(candidates))]
            return
        longest = max(queue_lengths) + 1
        shares = list(accumulate(longest - length for length in queue_lengths))
        self.partition = candidates[bisect_right(shares, self._random.randrange(shares[-1]))]


class RoundRobin:
    """A partitioner that goes through the partitions of each topic in turn, whatever the key."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:
        following = self._next.get(topic, 0)
        self._next[topic] = following + 1
        return following % partition_count
