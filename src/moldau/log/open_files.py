"""How many segments may have their files open at once, over all logs of a process.

A segment opens its files when they are needed and reports here; when there are too many, those not used since
the last look are told to let go (the clock algorithm). Using a segment costs its owner one attribute store,
so that the hot path does not pay for the bound.
"""

from __future__ import annotations

from typing import Protocol

DEFAULT_SEGMENTS_MAX = 256
"""Each takes up to three descriptors: the log, and before Python 3.13 one for each mapped index. That stays
below the usual soft limit of 1024 with some room for connections. A server that raises its soft limit raises
this with it."""


class Holder(Protocol):
    recently_used: bool

    def release_files(self) -> None: ...


class OpenFiles:
    __slots__ = ("_holders", "limit")

    def __init__(self, limit: int = DEFAULT_SEGMENTS_MAX) -> None:
        self.limit = limit
        self._holders: dict[Holder, None] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: Holder) -> None:
        """`holder` has files open. Others may be told to release theirs before this returns."""
        holder.recently_used = True
        holders = self._holders
        holders[holder] = None
        while len(holders) > self.limit:
            oldest = next(iter(holders))
            del holders[oldest]
            if oldest.recently_used and oldest is not holder:
                oldest.recently_used = False
                holders[oldest] = None
            elif oldest is holder:
                # Everyone else was just given a second chance; come back to the first of them.
                holders[oldest] = None
            else:
                oldest.release_files()

    def closed(self, holder: Holder) -> None:
        self._holders.pop(holder, None)
