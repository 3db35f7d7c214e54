"""Which segments of a log have outlived their time. Pure: a list of facts in, a count of leading segments
out.

Segments go from the oldest on and only while each next one may go too. What reaches beyond the high watermark
stays, so that the log start offset cannot pass it, and an empty last segment stays because there must be one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class SegmentFacts(Protocol):
    @property
    def size(self) -> int: ...
    def largest_timestamp(self) -> int: ...


def breached_by_start(next_base_offsets: Sequence[int], log_start_offset: int) -> int:
    """How many segments lie below the log start offset. The last has no next one and never does."""
    count = 0
    for next_base_offset in next_base_offsets[:-1]:
        if next_base_offset > log_start_offset:
            break
        count += 1
    return count


def breached_by_size(
    segments: Sequence[SegmentFacts], end_offsets: Sequence[int], high_watermark: int, retention_bytes: int
) -> int:
    """How many can go so that at least `retention_bytes` remain."""
    excess = sum(segment.size for segment in segments) - retention_bytes
    if retention_bytes < 0 or excess < 0:
        return 0

    def may_go(segment: SegmentFacts) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return _leading(segments, end_offsets, high_watermark, may_go)


def breached_by_time(
    segments: Sequence[SegmentFacts],
    end_offsets: Sequence[int],
    high_watermark: int,
    retention_ms: int,
    now_ms: int,
) -> int:
    """How many have only records older than `retention_ms`."""
    if retention_ms < 0:
        return 0
    return _leading(
        segments,
        end_offsets,
        high_watermark,
        lambda segment: now_ms - segment.largest_timestamp() > retention_ms,
    )


def _leading(
    segments: Sequence[SegmentFacts],
    end_offsets: Sequence[int],
    high_watermark: int,
    may_go: Callable[[SegmentFacts], bool],
) -> int:
    """`end_offsets` says where each segment ends: the base of the next, or the end of the log."""
    count = 0
    last = len(segments) - 1
    for number, (segment, end_offset) in enumerate(zip(segments, end_offsets, strict=True)):
        if high_watermark < end_offset or (number == last and not segment.size) or not may_go(segment):
            break
        count += 1
    return count
