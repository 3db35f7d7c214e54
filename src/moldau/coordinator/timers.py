"""What is to happen when, for many things that are put off again and again.

A key has at most one deadline. Most deadlines are put off long before they come (each heartbeat does that),
so putting one off only notes the new time: the heap is looked after when the old time comes.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

# The heap keeps the entries of what was cancelled until their time comes, or until it is mostly those.
_STALE_MIN = 1024


class _Deadline(NamedTuple):
    at_ms: int
    queued_ms: int  # when its entry in the heap comes up; never later than `at_ms`
    event: object


class Timers:
    def __init__(self) -> None:
        self._deadlines: dict[Hashable, _Deadline] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._sequence = 0  # what was set first comes first; keys need not be comparable

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._deadlines

    def set(self, key: Hashable, at_ms: int, event: object) -> None:
        """`event` happens at `at_ms`, instead of whatever was set for `key`."""
        known = self._deadlines.get(key)
        if known is not None and known.queued_ms <= at_ms:
            self._deadlines[key] = _Deadline(at_ms, known.queued_ms, event)
            return
        self._deadlines[key] = _Deadline(at_ms, at_ms, event)
        self._push(at_ms, key)

    def cancel(self, key: Hashable) -> None:
        self._deadlines.pop(key, None)
        if len(self._heap) > _STALE_MIN + 2 * len(self._deadlines):
            self._rebuild()

    def clear(self) -> None:
        self._deadlines.clear()
        self._heap.clear()

    def deadline_ms(self, key: Hashable) -> int | None:
        known = self._deadlines.get(key)
        return None if known is None else known.at_ms

    def next_ms(self) -> int | None:
        """When `take_due` is worth another look. What was cancelled or put off may make it too early."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> object | None:
        """The next event whose time has come; it is taken. One at a time, because what it leads to may set
        or cancel others."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            at_ms, _, key = heappop(heap)
            known = self._deadlines.get(key)
            if known is None or known.queued_ms != at_ms:
                continue
            if known.at_ms > now_ms:
                self._deadlines[key] = known._replace(queued_ms=known.at_ms)
                self._push(known.at_ms, key)
                continue
            del self._deadlines[key]
            return known.event
        return None

    def _push(self, at_ms: int, key: Hashable) -> None:
        self._sequence += 1
        heappush(self._heap, (at_ms, self._sequence, key))

    def _rebuild(self) -> None:
        self._heap = [
            (known.queued_ms, number, key) for number, (key, known) in enumerate(self._deadlines.items())
        ]
        self._sequence = len(self._heap)
        heapify(self._heap)
