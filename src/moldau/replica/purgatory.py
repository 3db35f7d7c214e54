"""Where fetches wait until there is enough to read, the wait is over, or the client is gone.

A parked fetch counts the bytes appended to its partitions instead of reading them again on every append.
What it waited for has happened at most once; the work of completing it is done on the next turn of the
loop, so that the producer's response goes first and appends of one turn are answered together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.replica.partition import Partition
from moldau.runtime.interfaces import Runtime


class DelayedFetch:
    __slots__ = (
        "_complete",
        "_missing_bytes",
        "_partitions",
        "_purgatory",
        "_timer",
        "_woken",
        "read_committed",
    )

    def __init__(
        self,
        purgatory: Purgatory,
        partitions: Sequence[Partition],
        missing_bytes: int,
        wait_s: float,
        complete: Callable[[], None],
        read_committed: bool,
    ) -> None:
        self.read_committed = read_committed
        self._purgatory = purgatory
        self._partitions = partitions
        self._missing_bytes = missing_bytes
        self._complete = complete
        self._woken = False
        self._timer = purgatory.runtime.call_later(wait_s, self._expire)
        for partition in partitions:
            partition.wait(self)

    def on_append(self, appended_bytes: int) -> None:
        self._missing_bytes -= appended_bytes
        if self._missing_bytes <= 0:
            self.on_gone()

    def on_gone(self) -> None:
        if not self._woken:
            self._woken = True
            self._purgatory.runtime.call_soon(self._finish)

    def cancel(self) -> None:
        """The client is gone."""
        self._woken = True
        self._leave()

    def _expire(self) -> None:
        if not self._woken:
            self._woken = True
            self._purgatory.expired_total += 1
            self._finish()

    def _finish(self) -> None:
        if self._leave():
            self._complete()

    def _leave(self) -> bool:
        if self not in self._purgatory.delayed:
            return False
        del self._purgatory.delayed[self]
        self._timer.cancel()
        for partition in self._partitions:
            partition.stop_waiting(self)
        return True


class Purgatory:
    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.delayed: dict[DelayedFetch, None] = {}  # in order of arrival, which a set would not keep
        self.expired_total = 0

    def park(
        self,
        partitions: Sequence[Partition],
        missing_bytes: int,
        wait_s: float,
        complete: Callable[[], None],
        *,
        read_committed: bool,
    ) -> DelayedFetch:
        delayed = DelayedFetch(self, partitions, missing_bytes, wait_s, complete, read_committed)
        self.delayed[delayed] = None
        return delayed

    def release_all(self) -> None:
        """Answers everyone with what there is: the node is going down."""
        for delayed in list(self.delayed):
            delayed.on_gone()
