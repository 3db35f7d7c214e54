"""How dirty a log is, whether it is to be cleaned, and which of its segments become one. Pure.

A log is a clean part, which was cleaned before, a dirty part, and an end that may not be cleaned yet: the
active segment, what is not decided for good (above the last stable offset), and what is younger than
min.compaction.lag.ms. The share of the dirty part in both is what min.cleanable.dirty.ratio is about.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from moldau.config.topic import TopicConfig
from moldau.log.segment import RELATIVE_OFFSET_MAX


class SegmentFacts(Protocol):
    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    def largest_timestamp(self) -> int: ...
    def load_first_timestamp(self) -> int: ...


class Dirt(NamedTuple):
    first_dirty_offset: int
    end_offset: int
    """Where the first segment begins that may not be cleaned."""
    clean_bytes: int
    dirty_bytes: int
    delay_ms: int
    """For how long it has been overdue by max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: TopicConfig) -> bool:
        if not self.dirty_bytes:
            return False
        return self.delay_ms > 0 or self.ratio > config.min_cleanable_dirty_ratio


def first_dirty_offset(cleaned_offset: int, log_start_offset: int, log_end_offset: int) -> int:
    """Where the dirty part begins, if everything below `cleaned_offset` was cleaned. An offset that is not in
    the log any more says nothing of it."""
    if log_start_offset <= cleaned_offset <= log_end_offset:
        return cleaned_offset
    return log_start_offset


def measure(
    segments: Sequence[SegmentFacts],
    bases: Sequence[int],
    first_dirty: int,
    last_stable_offset: int,
    config: TopicConfig,
    now_ms: int,
) -> Dirt:
    """`segments` are all of the log, with the active one last; `bases` their base offsets."""
    active = len(segments) - 1
    dirty = max(bisect_right(bases, first_dirty) - 1, 0)
    end = active
    if last_stable_offset < bases[active]:
        end = max(bisect_right(bases, last_stable_offset) - 1, 0)
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        for number in range(dirty, end):
            if segments[number].largest_timestamp() > youngest_ms:
                end = number
                break
    clean_bytes = sum(segment.size for segment in segments[: bisect_left(bases, first_dirty)])
    dirty_bytes = sum(segment.size for segment in segments[dirty:end])
    return Dirt(
        first_dirty,
        max(bases[end], first_dirty) if end < active else bases[active],
        clean_bytes,
        dirty_bytes,
        _delay_ms(segments[dirty:active], config.max_compaction_lag_ms, now_ms),
    )


def _delay_ms(dirty: Sequence[SegmentFacts], max_lag_ms: int, now_ms: int) -> int:
    if max_lag_ms >= now_ms:
        return 0
    # Where the first batch has no time, nothing is known of its age.
    firsts = (segment.load_first_timestamp() for segment in dirty)
    oldest = min((first for first in firsts if first > 0), default=now_ms)
    return max(now_ms - max_lag_ms - oldest, 0)


class SourceFacts(Protocol):
    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def index_bytes(self) -> int: ...
    @property
    def time_index_bytes(self) -> int: ...


def group_segments(
    sources: Sequence[SourceFacts], end_offset: int, bytes_max: int, index_bytes_max: int
) -> list[int]:
    """How many neighbours become one segment each, so that none of them can be larger than a segment, or its
    indexes, may be. `end_offset` is above all of `sources`."""
    counts: list[int] = []
    size = index_bytes = time_index_bytes = base_offset = 0
    for number, source in enumerate(sources):
        following = sources[number + 1].base_offset if number + 1 < len(sources) else end_offset
        size += source.size
        index_bytes += source.index_bytes
        time_index_bytes += source.time_index_bytes
        if (
            not counts
            or size > bytes_max
            or index_bytes > index_bytes_max
            or time_index_bytes > index_bytes_max
            or (source.size and following - 1 - base_offset > RELATIVE_OFFSET_MAX)
        ):
            counts.append(0)
            size, index_bytes, time_index_bytes = source.size, source.index_bytes, source.time_index_bytes
            base_offset = source.base_offset
        counts[-1] += 1
    return counts
