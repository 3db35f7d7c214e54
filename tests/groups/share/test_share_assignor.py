from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.groups.share.assignor import assign
from moldau.wire.ids import Uuid

A, B, C = (Uuid(bytes(15) + bytes([number])) for number in (201, 202, 203))


def test_partitions_are_shared_when_there_are_more_members() -> None:
    members = {f"m{number}": frozenset({A}) for number in range(4)}
    assert assign(members, {}, {A: frozenset({0, 1})}) == {
        "m0": {A: frozenset({0})},
        "m1": {A: frozenset({0})},
        "m2": {A: frozenset({1})},
        "m3": {A: frozenset({1})},
    }


def test_members_keep_what_they_have_when_another_joins() -> None:
    before = assign({"a": frozenset({A})}, {}, {A: frozenset(range(4))})
    after = assign(dict.fromkeys("ab", frozenset({A})), before, {A: frozenset(range(4))})
    assert before == {"a": {A: frozenset(range(4))}}
    assert len(after["a"][A]) == len(after["b"][A]) == 2
    assert not after["a"][A] & after["b"][A]


def test_what_may_not_be_assigned_any_more_is_taken_away() -> None:
    assert assign({"a": frozenset({A})}, {"a": {A: frozenset({0, 1}), B: frozenset({0})}}, {}) == {"a": {}}


def test_members_that_subscribe_to_different_topics_share_each_topic() -> None:
    found = assign(
        {"a": frozenset({A}), "b": frozenset({A, B})}, {}, {A: frozenset({0}), B: frozenset({0, 1})}
    )
    assert found == {"a": {A: frozenset({0})}, "b": {A: frozenset({0}), B: frozenset({0, 1})}}


topics = st.sets(st.sampled_from([A, B, C]), max_size=3).map(frozenset)
partition_sets = st.dictionaries(
    st.sampled_from([A, B, C]), st.sets(st.integers(0, 5), min_size=1).map(frozenset)
)


@given(
    subscriptions=st.dictionaries(st.sampled_from("abcdefgh"), topics, max_size=8),
    current=st.dictionaries(st.sampled_from("abcdefgh"), partition_sets, max_size=8),
    assignable=partition_sets,
)
def test_each_partition_has_someone_and_nobody_much_more_than_another(
    subscriptions: dict[str, frozenset[Uuid]],
    current: dict[str, dict[Uuid, frozenset[int]]],
    assignable: dict[Uuid, frozenset[int]],
) -> None:
    found = assign(subscriptions, current, assignable)
    assert found.keys() == subscriptions.keys()
    for member, assignment in found.items():
        for topic, partitions in assignment.items():
            assert topic in subscriptions[member]
            assert partitions and partitions <= assignable[topic]
    for topic, partitions in assignable.items():
        subscribers = [member for member in subscriptions if topic in subscriptions[member]]
        for partition in partitions if subscribers else ():
            owners = [member for member in subscribers if partition in found[member].get(topic, ())]
            assert owners
    if len(set(subscriptions.values())) == 1:
        counts = [sum(map(len, assignment.values())) for assignment in found.values()]
        assert max(counts) - min(counts) <= 2
    assert assign(subscriptions, found, assignable) == found
