from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from moldau.log.retention import breached_by_size, breached_by_start, breached_by_time


@dataclass
class Facts:
    size: int
    timestamp: int

    def largest_timestamp(self) -> int:
        return self.timestamp


SEGMENTS = [Facts(100, 1000), Facts(100, 2000), Facts(100, 500), Facts(50, 9000)]
ENDS = [10, 20, 30, 40]


def test_time_stops_at_the_first_that_is_young():
    assert breached_by_time(SEGMENTS, ENDS, 40, retention_ms=1000, now_ms=2500) == 1
    assert breached_by_time(SEGMENTS, ENDS, 40, retention_ms=1000, now_ms=3500) == 3
    assert breached_by_time(SEGMENTS, ENDS, 40, retention_ms=1000, now_ms=99_999) == 4
    assert breached_by_time(SEGMENTS, ENDS, 40, retention_ms=-1, now_ms=99_999) == 0


def test_nothing_goes_beyond_the_high_watermark():
    assert breached_by_time(SEGMENTS, ENDS, 25, retention_ms=0, now_ms=99_999) == 2
    assert breached_by_size(SEGMENTS, ENDS, 9, retention_bytes=0) == 0


def test_an_empty_last_segment_stays():
    segments = [*SEGMENTS[:3], Facts(0, 0)]
    assert breached_by_time(segments, ENDS, 40, retention_ms=0, now_ms=99_999) == 3


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.integers(0, 500))
def test_size_keeps_at_least_what_is_asked_for(sizes, retention_bytes):
    segments = [Facts(size, 0) for size in sizes]
    count = breached_by_size(segments, list(range(len(sizes))), 100, retention_bytes)
    kept = sum(sizes[count:])
    assert kept >= retention_bytes or not count
    assert count == len(sizes) or kept - sizes[count] < retention_bytes


def test_unlimited_size():
    assert breached_by_size(SEGMENTS, ENDS, 40, retention_bytes=-1) == 0


def test_segments_below_the_start_offset():
    assert [breached_by_start(ENDS, start) for start in (0, 9, 10, 25, 30, 99)] == [0, 0, 1, 2, 3, 3]
