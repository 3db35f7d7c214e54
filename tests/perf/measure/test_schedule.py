from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.perf.measure.schedule import Schedule


@given(
    st.integers(0, 1 << 45),
    st.floats(0.01, 5_000_000),
    st.integers(0, 10_000_000),
    st.integers(0, 1_000_000),
)
def test_what_is_due_is_what_was_meant_for_until_now(
    start_us: int, per_second: float, elapsed_us: int, limit: int
) -> None:
    schedule = Schedule(start_us=start_us, per_second=per_second)
    now_us = start_us + elapsed_us
    due = schedule.due(now_us, limit)
    assert due == 0 or schedule.intended_us(due - 1) <= now_us
    assert due == limit or schedule.intended_us(due) > now_us


def test_the_pace_holds_over_time() -> None:
    schedule = Schedule(start_us=5, per_second=3)
    assert [schedule.intended_us(number) for number in (0, 1, 3, 3_000_000)] == [
        5,
        333_338,
        1_000_005,
        1_000_000_000_005,
    ]
    assert schedule.due(4, 10) == 0
    assert schedule.due(5, 10) == 1


def test_without_a_pace_all_is_due() -> None:
    schedule = Schedule(start_us=0, per_second=-1)
    assert schedule.is_open
    assert schedule.due(0, 17) == 17
