from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from moldau.share.batches import NO_START_OFFSET, StateBatch, combined

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def test_neighbours_in_the_same_state_are_one() -> None:
    assert combined([StateBatch(0, 4, 0, 1)], [StateBatch(5, 9, 0, 1)]) == [StateBatch(0, 9, 0, 1)]


def test_neighbours_in_different_states_stay_apart() -> None:
    batches = [StateBatch(0, 4, 0, 1), StateBatch(5, 9, 0, 2), StateBatch(12, 13, 0, 2)]
    assert combined(batches, []) == batches


def test_what_was_delivered_more_often_counts() -> None:
    assert combined([StateBatch(0, 9, ACKNOWLEDGED, 1)], [StateBatch(3, 5, AVAILABLE, 2)]) == [
        StateBatch(0, 2, ACKNOWLEDGED, 1),
        StateBatch(3, 5, AVAILABLE, 2),
        StateBatch(6, 9, ACKNOWLEDGED, 1),
    ]


def test_what_lies_before_the_start_is_dropped() -> None:
    assert combined([StateBatch(0, 9, 0, 1)], [StateBatch(10, 12, 2, 1)], 5) == [
        StateBatch(5, 9, 0, 1),
        StateBatch(10, 12, 2, 1),
    ]
    assert combined([StateBatch(0, 4, 0, 1)], [], 5) == []


batch_lists = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(0, 8),
        st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
        st.integers(1, 3),
    ).map(lambda drawn: StateBatch(drawn[0], drawn[0] + drawn[1], drawn[2], drawn[3])),
    max_size=8,
)


@given(batch_lists, batch_lists, st.integers(NO_START_OFFSET, 35))
def test_each_offset_has_the_state_that_counts(
    known: list[StateBatch], news: list[StateBatch], start: int
) -> None:
    expected: dict[int, tuple[int, int]] = {}
    for batch in known + news:
        for offset in range(max(batch.first, start), batch.last + 1):
            rank = (batch.delivery_count, batch.state)
            expected[offset] = max(rank, expected.get(offset, rank))
    found = combined(known, news, start)
    assert {
        offset: (batch.delivery_count, batch.state)
        for batch in found
        for offset in range(batch.first, batch.last + 1)
    } == expected
    assert sum(batch.last - batch.first + 1 for batch in found) == len(expected)
    for before, after in pairwise(found):
        assert before.last < after.first
        assert before.last + 1 < after.first or before[2:] != after[2:]
