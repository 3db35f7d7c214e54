"""Runs of records of a share partition in one state, as they are written down, and what they make together.

What is written is what has changed. Put together, the later word counts: it is the one with more deliveries,
and with as many, the one whose state is further on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

NO_START_OFFSET = -1


class StateBatch(NamedTuple):
    """`state` is Kafka's number of it."""

    first: int
    last: int
    state: int
    delivery_count: int

    @property
    def _rank(self) -> tuple[int, int]:
        return self.delivery_count, self.state


def combined(
    known: Iterable[StateBatch], news: Iterable[StateBatch], start_offset: int = NO_START_OFFSET
) -> list[StateBatch]:
    """At or above the start offset, in order, without overlaps; neighbours in the same state are one."""
    batches = sorted(_from(start_offset, chain(known, news)))
    joined: list[StateBatch] = []
    for batch in _apart(batches):
        if joined and joined[-1].last + 1 == batch.first and joined[-1]._rank == batch._rank:
            joined[-1] = joined[-1]._replace(last=batch.last)
        else:
            joined.append(batch)
    return joined


def _from(start_offset: int, batches: Iterable[StateBatch]) -> Iterator[StateBatch]:
    for batch in batches:
        if batch.first >= start_offset:
            yield batch
        elif batch.last >= start_offset:
            yield batch._replace(first=start_offset)


def _apart(batches: list[StateBatch]) -> Iterator[StateBatch]:
    """Of batches that overlap, at each offset the one that counts."""
    index, position = 0, 0
    open_batches: list[StateBatch] = []
    while index < len(batches) or open_batches:
        if not open_batches:
            position = batches[index].first
        while index < len(batches) and batches[index].first <= position:
            open_batches.append(batches[index])
            index += 1
        end = min(batch.last for batch in open_batches)
        if index < len(batches):
            end = min(end, batches[index].first - 1)
        best = max(open_batches, key=lambda batch: batch._rank)
        yield StateBatch(position, end, best.state, best.delivery_count)
        position = end + 1
        open_batches = [batch for batch in open_batches if batch.last >= position]
