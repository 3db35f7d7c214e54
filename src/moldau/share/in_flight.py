"""The records of a share partition that are out with members, or were and are not done with, as runs.

A run is of neighbouring offsets of which everything is the same: state, delivery count, owner, lock. Whole
batches are handed out and mostly acknowledged whole, so there are few runs; a member that tells each of its
records' fate by itself splits them. An offset between two runs is not in flight: nobody has fetched it yet.

Invariant: runs are in order and do not overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from enum import IntEnum
from operator import attrgetter

NO_MEMBER = ""


class RecordState(IntEnum):
    """Kafka's numbers, as they are kept in `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        return self is RecordState.ACKNOWLEDGED or self is RecordState.ARCHIVED


class Transition:
    """Where a run is on its way to, while that is written down. Runs of one change share its `change`."""

    __slots__ = ("change", "delivery_count", "state")

    def __init__(self, change: object, state: RecordState, delivery_count: int) -> None:
        self.change = change
        self.state = state
        self.delivery_count = delivery_count


class Run:
    __slots__ = (
        "batch",
        "deadline_ms",
        "delivery_count",
        "first",
        "last",
        "member_id",
        "state",
        "transition",
    )

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        delivery_count: int,
        member_id: str = NO_MEMBER,
        deadline_ms: int = 0,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.deadline_ms = deadline_ms  # of its lock, while it is acquired
        self.batch = first, last  # that it came as, which splitting does not change
        self.transition: Transition | None = None

    def __repr__(self) -> str:
        return f"Run({self.first}-{self.last}, {self.state.name}, {self.delivery_count})"

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def batch_size(self) -> int:
        first, last = self.batch
        return last - first + 1

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.transition is None

    @property
    def is_hole(self) -> bool:
        """There are no records at these offsets, and nobody was told that there were."""
        return self.state is RecordState.ARCHIVED and not self.delivery_count

    @property
    def is_done(self) -> bool:
        """In a terminal state for good."""
        return self.state.is_terminal and self.transition is None

    @property
    def will_be_done(self) -> bool:
        """In a terminal state if what is being written down is."""
        state = self.state if self.transition is None else self.transition.state
        return state.is_terminal

    def become(self, state: RecordState, delivery_count: int) -> None:
        """A state in which it has no owner."""
        self.state, self.delivery_count = state, delivery_count
        self.member_id, self.deadline_ms, self.transition = NO_MEMBER, 0, None


_first = attrgetter("first")


class InFlight:
    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __bool__(self) -> bool:
        return bool(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def last_offset(self) -> int:
        return self._runs[-1].last

    def starts_at_or_before(self, offset: int) -> bool:
        return bool(self._runs) and self._runs[0].first <= offset

    def add(self, run: Run) -> None:
        """Where no run is yet."""
        self._runs.insert(bisect_right(self._runs, run.first, key=_first), run)

    def overlapping(self, first: int, last: int) -> list[Run]:
        """The runs with an offset in that range; the first and the last of them may reach beyond it."""
        return self._runs[self._index_of(first) : bisect_right(self._runs, last, key=_first)]

    def from_offset(self, offset: int) -> Iterator[Run]:
        """The run that holds the offset, if there is one, and those after it."""
        for index in range(self._index_of(offset), len(self._runs)):
            yield self._runs[index]

    def cut(self, run: Run, first: int, last: int) -> Run:
        """The part of a run that lies in the range, as a run of its own."""
        if run.first < first:
            run = self._split(run, first)
        if run.last > last:
            self._split(run, last + 1)
        return run

    def drop_before(self, offset: int) -> None:
        index = self._index_of(offset)
        if index < len(self._runs) and self._runs[index].first < offset:
            self._split(self._runs[index], offset)
            index += 1
        del self._runs[:index]

    def join_done(self) -> None:
        """Neighbours that are done with are one run: nothing tells them apart but that some are holes."""
        joined: list[Run] = []
        for run in self._runs:
            before = joined[-1] if joined else None
            if (
                before is not None
                and before.last + 1 == run.first
                and before.is_done
                and run.is_done
                and before.is_hole == run.is_hole
            ):
                before.last = run.last
            else:
                joined.append(run)
        self._runs = joined

    def clear(self) -> None:
        self._runs.clear()

    def _index_of(self, offset: int) -> int:
        """Of the run that holds the offset, or else of the first one after it."""
        index = bisect_right(self._runs, offset, key=_first)
        return index - 1 if index and self._runs[index - 1].last >= offset else index

    def _split(self, run: Run, offset: int) -> Run:
        """What is from `offset` on becomes a run of its own, which is returned."""
        rest = Run(offset, run.last, run.state, run.delivery_count, run.member_id, run.deadline_ms)
        rest.batch, rest.transition = run.batch, run.transition
        run.last = offset - 1
        self._runs.insert(bisect_right(self._runs, run.first, key=_first), rest)
        return rest
