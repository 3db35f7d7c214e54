"""Timers against the obvious way: look at all of them each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.timers import Timers


def due(timers: Timers, now_ms: int) -> list[object]:
    events = []
    while (event := timers.take_due(now_ms)) is not None:
        events.append(event)
    return events


def test_an_event_happens_once_and_not_before_its_time() -> None:
    timers = Timers()
    timers.set("a", 10, "event")
    assert due(timers, 9) == []
    assert due(timers, 10) == ["event"]
    assert due(timers, 99) == []


def test_what_is_put_off_happens_later_and_only_then() -> None:
    timers = Timers()
    timers.set("a", 10, "first")
    timers.set("a", 20, "second")
    assert timers.next_ms() == 10  # worth a look, no more
    assert due(timers, 15) == []
    assert timers.next_ms() == 20
    assert due(timers, 20) == ["second"]


def test_what_is_brought_forward_happens_earlier_and_only_then() -> None:
    timers = Timers()
    timers.set("a", 20, "late")
    timers.set("a", 10, "early")
    assert due(timers, 10) == ["early"]
    assert due(timers, 20) == []


def test_an_event_may_set_and_cancel_others_that_are_due() -> None:
    timers = Timers()
    timers.set("a", 10, "a")
    timers.set("b", 10, "b")
    assert timers.take_due(10) == "a"
    timers.cancel("b")
    timers.set("c", 5, "c")
    assert due(timers, 10) == ["c"]


def test_the_heap_does_not_grow_with_what_was_cancelled() -> None:
    timers = Timers()
    for number in range(100_000):
        timers.set(number, 1_000_000, number)
        timers.cancel(number)
    assert len(timers) == 0
    assert len(timers._heap) < 5000


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("pass"), st.just(0), st.integers(0, 10)),
    ),
    max_size=60,
)


@given(STEPS)
def test_they_go_off_as_a_plain_table_would_have_them(steps: list[tuple[str, int, int]]) -> None:
    timers, table, now_ms = Timers(), dict[int, tuple[int, object]](), 0
    for number, (step, key, amount) in enumerate(steps):
        if step == "set":
            timers.set(key, now_ms + amount, number)
            table[key] = (now_ms + amount, number)
        elif step == "cancel":
            timers.cancel(key)
            table.pop(key, None)
        else:
            now_ms += amount
            expected = sorted(key for key, (at_ms, _) in table.items() if at_ms <= now_ms)
            assert sorted(due(timers, now_ms), key=str) == sorted(
                (table.pop(key)[1] for key in expected), key=str
            )
        assert len(timers) == len(table)
        if table:
            next_ms = timers.next_ms()
            assert next_ms is not None and next_ms <= min(at_ms for at_ms, _ in table.values())
