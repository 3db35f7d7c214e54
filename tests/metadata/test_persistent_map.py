"""The persistent map against a dict, and its versions against each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.metadata.persistent_map import PersistentMap

CHANGES = st.lists(
    st.tuples(st.integers(0, 400).map(lambda number: f"topic-{number}"), st.none() | st.integers()),
    max_size=300,
)


@given(st.lists(CHANGES, max_size=6))
def test_every_version_is_what_a_dict_would_be_and_stays_so(
    batches: list[list[tuple[str, int | None]]],
) -> None:
    versions: list[tuple[PersistentMap[str, int], dict[str, int]]] = [(PersistentMap(), {})]
    for batch in batches:
        current, expected = versions[-1]
        draft, copy = current.edit(), dict(expected)
        for key, value in batch:
            if value is None:
                assert draft.pop(key) == copy.pop(key, None)
            else:
                draft[key] = copy[key] = value
            assert draft.get(key) == copy.get(key)
        versions.append((draft.finish(), copy))
    for version, expected in versions:
        assert dict(version) == expected
        assert len(version) == len(expected)
        assert all(version.get(f"topic-{number}") == expected.get(f"topic-{number}") for number in range(401))


def test_a_change_shares_what_it_does_not_touch() -> None:
    base = PersistentMap((number, number) for number in range(100_000))
    changed = base.with_item(7, -7)
    shared = sum(1 for one, other in zip(base._buckets, changed._buckets, strict=True) if one is other)
    assert (base[7], changed[7]) == (7, -7)
    assert shared == len(base._buckets) - 1
    assert max(len(bucket) for bucket in base._buckets) < 1000


def test_nothing_to_change_is_the_same_map() -> None:
    base = PersistentMap({"a": 1})
    draft = base.edit()
    assert draft.pop("b") is None
    assert draft.finish() is base


def test_a_map_that_shrinks_gives_its_buckets_back() -> None:
    draft = PersistentMap((number, number) for number in range(50_000)).edit()
    for number in range(49_990):
        draft.pop(number)
    shrunk = draft.finish()
    assert len(shrunk._buckets) == 1
    assert dict(shrunk) == {number: number for number in range(49_990, 50_000)}
