"""An immutable mapping whose next version costs as much as the change, not as the map.

The cluster image holds one entry for each topic, so copying a dict for each change would make a change
cost as much as the cluster is large. Here entries lie in buckets of about the square root of their number: a
changed version copies the list of buckets and the few buckets that are touched, and shares the rest.

Iteration order depends on the entries and on their history, never on Python's per-process string hash: the
same history gives the same order in every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar, overload
from zlib import crc32

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_BUCKET_ENTRIES_MIN = 64


class PersistentMap(Mapping[K, V]):
    __slots__ = ("_buckets", "_count")

    _buckets: list[dict[K, V]]
    _count: int

    def __init__(self, entries: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._buckets = [dict(entries)]
        self._count = len(self._buckets[0])
        if self._count > _BUCKET_ENTRIES_MIN:
            self._buckets = _spread(self._buckets, self._count)

    def __getitem__(self, key: K) -> V:
        buckets = self._buckets
        return buckets[_bucket_index(key, len(buckets))][key]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        # Not the mapping's own, which asks `__getitem__` and catches what it raises.
        buckets = self._buckets
        return buckets[_bucket_index(key, len(buckets))].get(key, default)

    def __contains__(self, key: object) -> bool:
        buckets = self._buckets
        return key in buckets[_bucket_index(key, len(buckets))]

    def __iter__(self) -> Iterator[K]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)!r})"

    def edit(self) -> MapEdit[K, V]:
        """A draft of the next version; this one does not change."""
        return MapEdit(self)

    def with_item(self, key: K, value: V) -> PersistentMap[K, V]:
        draft = self.edit()
        draft[key] = value
        return draft.finish()


class MapEdit(Generic[K, V]):
    """The next version of a map while it is being written. Not to be used after `finish`."""

    __slots__ = ("_base", "_buckets", "_count", "_owned")

    def __init__(self, base: PersistentMap[K, V]) -> None:
        self._base = base
        self._buckets: list[dict[K, V]] | None = None
        self._count = len(base)
        self._owned: set[int] = set()

    def get(self, key: K) -> V | None:
        buckets = self._base._buckets if self._buckets is None else self._buckets
        return buckets[_bucket_index(key, len(buckets))].get(key)

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def __setitem__(self, key: K, value: V) -> None:
        bucket = self._own_bucket(key)
        self._count -= len(bucket)
        bucket[key] = value
        self._count += len(bucket)

    def pop(self, key: K) -> V | None:
        if self.get(key) is None:
            return None
        self._count -= 1
        return self._own_bucket(key).pop(key)

    def finish(self) -> PersistentMap[K, V]:
        if self._buckets is None:
            return self._base
        buckets = self._buckets
        # Twice too many entries for the buckets, or four times too few: rare enough to be paid for by the
        # changes that led there.
        fitting = _bucket_count(self._count)
        if fitting > len(buckets) or fitting * 4 < len(buckets):
            buckets = _spread(buckets, self._count)
        finished: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
        finished._buckets = buckets
        finished._count = self._count
        return finished

    def _own_bucket(self, key: K) -> dict[K, V]:
        if self._buckets is None:
            self._buckets = list(self._base._buckets)
        index = _bucket_index(key, len(self._buckets))
        if index not in self._owned:
            self._owned.add(index)
            self._buckets[index] = dict(self._buckets[index])
        return self._buckets[index]


def stable_hash(key: Any) -> int:
    """The same in every process, unlike `hash` of a string."""
    if isinstance(key, str):
        return crc32(key.encode())
    if isinstance(key, bytes):
        return crc32(key)
    if isinstance(key, int):
        return key & 0x7FFFFFFF
    return crc32(repr(key).encode())


def _bucket_index(key: Any, buckets: int) -> int:
    return stable_hash(key) & (buckets - 1) if buckets > 1 else 0


def _bucket_count(entries: int) -> int:
    """A power of two near the square root of `entries`; one bucket while they are few."""
    count = 1
    if entries > _BUCKET_ENTRIES_MIN:
        while entries > 2 * count * count:
            count *= 2
    return count


def _spread(buckets: list[dict[K, V]], entries: int) -> list[dict[K, V]]:
    count = _bucket_count(entries)
    spread: list[dict[K, V]] = [{} for _ in range(count)]
    for bucket in buckets:
        for key, value in bucket.items():
            spread[_bucket_index(key, count)][key] = value
    return spread
