"""What is dirty, what is due, and which segments become one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_samples import config

from moldau.log.cleaner.dirt import first_dirty_offset, group_segments, measure
from moldau.log.cleaner.messages import Source
from moldau.log.segment import RELATIVE_OFFSET_MAX

NOW_MS = 1_000_000


@dataclass(frozen=True)
class Facts:
    base_offset: int
    size: int
    first_ms: int = 0
    last_ms: int = 0

    def largest_timestamp(self) -> int:
        return self.last_ms

    def load_first_timestamp(self) -> int:
        return self.first_ms


def dirt(segments: list[Facts], first_dirty: int = 0, stable: int = 1 << 40, **options: object):
    bases = [segment.base_offset for segment in segments]
    settings = config(cleanup_policy=("compact",), **options)
    return measure(segments, bases, first_dirty, stable, settings, NOW_MS), settings


TEN_EACH = [Facts(base, 100, base * 1000, (base + 9) * 1000) for base in range(0, 50, 10)]


def test_all_but_the_active_segment_is_dirty_at_first() -> None:
    found, _ = dirt(TEN_EACH)
    assert (found.end_offset, found.clean_bytes, found.dirty_bytes) == (40, 0, 400)
    assert found.ratio == 1.0


def test_what_was_cleaned_is_clean() -> None:
    found, settings = dirt(TEN_EACH, first_dirty=30)
    assert (found.clean_bytes, found.dirty_bytes) == (300, 100)
    assert not found.is_due(settings)
    assert dirt(TEN_EACH, first_dirty=30, min_cleanable_dirty_ratio=0.2)[0].is_due(
        config(min_cleanable_dirty_ratio=0.2)
    )


@pytest.mark.parametrize(("stable", "end"), [(0, 0), (9, 0), (10, 10), (35, 30), (40, 40), (45, 40)])
def test_nothing_above_the_last_stable_offset_is_cleaned(stable: int, end: int) -> None:
    assert dirt(TEN_EACH, stable=stable)[0].end_offset == end


def test_young_records_wait_and_hold_back_what_follows() -> None:
    found, _ = dirt(TEN_EACH, min_compaction_lag_ms=NOW_MS - 15_000)
    assert found.end_offset == 10


def test_old_records_are_due_whatever_the_ratio() -> None:
    options = {"min_cleanable_dirty_ratio": 1.0, "max_compaction_lag_ms": NOW_MS - 12_000}
    found, settings = dirt(TEN_EACH, first_dirty=10, **options)
    assert found.delay_ms == 2000
    assert found.is_due(settings)
    found, settings = dirt(TEN_EACH, first_dirty=20, **options)
    assert found.delay_ms == 0
    assert not found.is_due(settings)


def test_an_empty_log_is_not_due() -> None:
    found, settings = dirt([Facts(0, 0), Facts(5, 0)], min_cleanable_dirty_ratio=0.0)
    assert found.ratio == 0
    assert not found.is_due(settings)


@pytest.mark.parametrize(
    ("cleaned", "first_dirty"), [(-1, 10), (5, 10), (10, 10), (15, 15), (20, 20), (21, 10)]
)
def test_a_checkpoint_outside_the_log_says_nothing(cleaned: int, first_dirty: int) -> None:
    assert first_dirty_offset(cleaned, 10, 20) == first_dirty


SIZES = st.integers(0, 100)


@given(st.lists(st.tuples(st.integers(1, 1 << 30), SIZES, SIZES, SIZES), min_size=1, max_size=20))
def test_groups_are_as_large_as_a_segment_may_be_and_no_larger(spans) -> None:
    sources, base = [], 0
    for span, size, index, times in spans:
        sources.append(Source(base_offset=base, size=size, index_bytes=index, time_index_bytes=times))
        base += span
    counts = group_segments(sources, base, 200, 150)
    assert sum(counts) == len(sources)
    ends = [source.base_offset for source in sources[1:]] + [base]
    groups, start = [], 0
    for count in counts:
        groups.append(range(start, start + count))
        start += count

    def fits(numbers: range) -> bool:
        members = [sources[number] for number in numbers]
        first = members[0].base_offset
        return (
            sum(member.size for member in members) <= 200
            and sum(member.index_bytes for member in members) <= 150
            and sum(member.time_index_bytes for member in members) <= 150
            and all(
                not sources[number].size or ends[number] - 1 - first <= RELATIVE_OFFSET_MAX
                for number in numbers
            )
        )

    assert all(fits(group) for group in groups if len(group) > 1)
    for group, following in pairwise(groups):
        assert not fits(range(group.start, following.start + 1))
