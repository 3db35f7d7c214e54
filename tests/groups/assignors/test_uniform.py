from __future__ import annotations

from collections import Counter
from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st

from moldau.groups.assignors.assignment import Assignment, Subscriber
from moldau.groups.assignors.uniform import assign_uniformly
from moldau.wire.ids import Uuid

TOPICS = [Uuid(bytes([number]) * 16) for number in range(5)]


def partitions_of(assignment: Assignment) -> list[tuple[Uuid, int]]:
    return [(topic, partition) for topic, of_topic in assignment.items() for partition in of_topic]


def members(subscriptions: dict[str, frozenset[Uuid]], held: dict[str, Assignment]) -> dict[str, Subscriber]:
    return {
        member_id: Subscriber(topics=topics, assigned=held.get(member_id, {}))
        for member_id, topics in subscriptions.items()
    }


def check_is_complete(
    assigned: dict[str, Assignment], subscriptions: dict[str, frozenset[Uuid]], counts: dict[Uuid, int]
) -> None:
    assert assigned.keys() == subscriptions.keys()
    owners = Counter(place for assignment in assigned.values() for place in partitions_of(assignment))
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert owners == Counter((topic, index) for topic in wanted for index in range(counts[topic]))
    for member_id, assignment in assigned.items():
        assert assignment.keys() <= subscriptions[member_id]
        assert all(assignment.values())


counts_of_topics = st.fixed_dictionaries({topic: st.integers(0, 8) for topic in TOPICS})
names = st.sampled_from([f"m{number}" for number in range(8)])
some_topics = st.frozensets(st.sampled_from(TOPICS))


@given(counts_of_topics, some_topics, st.sets(names), st.sets(names, min_size=1), counts_of_topics)
def test_alike_members_get_alike_and_keep_what_they_can(
    counts: dict[Uuid, int],
    topics: frozenset[Uuid],
    before: set[str],
    after: set[str],
    counts_before: dict[Uuid, int],
) -> None:
    held = assign_uniformly(members(dict.fromkeys(sorted(before), topics), {}), counts_before)
    subscriptions = dict.fromkeys(sorted(after), topics)
    assigned = assign_uniformly(members(subscriptions, held), counts)
    check_is_complete(assigned, subscriptions, counts)
    sizes = {member_id: len(partitions_of(assignment)) for member_id, assignment in assigned.items()}
    assert max(sizes.values()) - min(sizes.values()) <= 1
    # A member loses something it could have kept only for being above its share.
    for member_id, assignment in assigned.items():
        there = {(t, p) for t, p in partitions_of(held.get(member_id, {})) if p < counts[t]}
        lost = there - set(partitions_of(assignment))
        assert not lost or (
            sizes[member_id] == len(there) - len(lost) and sizes[member_id] >= min(sizes.values())
        )
    assert assign_uniformly(members(subscriptions, assigned), counts) == assigned


@given(
    counts_of_topics,
    st.dictionaries(names, some_topics),
    st.dictionaries(names, some_topics, min_size=1),
)
def test_members_of_any_subscription_get_what_is_theirs_and_no_move_would_make_it_fairer(
    counts: dict[Uuid, int], before: dict[str, frozenset[Uuid]], subscriptions: dict[str, frozenset[Uuid]]
) -> None:
    held = assign_uniformly(members(before, {}), counts)
    assigned = assign_uniformly(members(subscriptions, held), counts)
    check_is_complete(assigned, subscriptions, counts)
    sizes = {member_id: len(partitions_of(assignment)) for member_id, assignment in assigned.items()}
    for giver, assignment in assigned.items():
        for topic in assignment:
            takers = [sizes[taker] for taker, topics in subscriptions.items() if topic in topics]
            assert sizes[giver] - min(takers) <= 1
    assert assign_uniformly(members(subscriptions, assigned), counts) == assigned


def test_one_who_joins_takes_only_a_share() -> None:
    counts = {TOPICS[0]: 9}
    alone = frozenset(TOPICS[:1])
    two = assign_uniformly(members({"a": alone, "b": alone}, {}), counts)
    three = assign_uniformly(members({"a": alone, "b": alone, "c": alone}, two), counts)
    assert all(three[member_id][TOPICS[0]] < two[member_id][TOPICS[0]] for member_id in "ab")
    assert [len(partitions_of(three[member_id])) for member_id in "abc"] == [3, 3, 3]


def test_the_one_who_has_more_keeps_what_is_left_over() -> None:
    counts, topics = {TOPICS[0]: 3}, frozenset(TOPICS[:1])
    held: dict[str, Assignment] = {"b": {TOPICS[0]: frozenset({0, 1})}}
    assigned = assign_uniformly(members({"a": topics, "b": topics}, held), counts)
    assert assigned["b"] == held["b"]


def test_what_two_were_given_goes_to_one() -> None:
    topics = frozenset(TOPICS[:1])
    held: dict[str, Assignment] = {name: {TOPICS[0]: frozenset({0, 1})} for name in "ab"}
    assigned = assign_uniformly(members({"a": topics, "b": topics}, held), {TOPICS[0]: 2})
    check_is_complete(assigned, {"a": topics, "b": topics}, {TOPICS[0]: 2})


def test_a_large_group_is_assigned_in_no_time() -> None:
    topics = [Uuid(bytes([0, number]) * 8) for number in range(10)]
    counts = dict.fromkeys(topics, 100)
    everything = {f"m{number}": frozenset(topics) for number in range(50)}
    held = assign_uniformly(members(everything, {}), counts)
    begun_at = perf_counter()
    assign_uniformly(members({**everything, "new": frozenset(topics)}, held), counts)
    assert perf_counter() - begun_at < 0.05
