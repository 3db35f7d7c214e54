from __future__ import annotations

from collections import Counter
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from moldau.groups.assignors.assignment import Subscriber
from moldau.groups.assignors.catalog import offered
from moldau.groups.assignors.range import assign_ranges
from moldau.wire.ids import Uuid

ORDERS, USERS = Uuid(b"o" * 16), Uuid(b"u" * 16)
BOTH = frozenset({ORDERS, USERS})


@given(
    st.dictionaries(st.text(max_size=3), st.frozensets(st.sampled_from([ORDERS, USERS])), min_size=1),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_each_topic_is_cut_into_even_ranges(
    subscriptions: dict[str, frozenset[Uuid]], orders: int, users: int
) -> None:
    counts = {ORDERS: orders, USERS: users}
    members = {member_id: Subscriber(topics=topics) for member_id, topics in subscriptions.items()}
    assigned = assign_ranges(members, counts)
    assert assigned.keys() == members.keys()
    for topic, count in counts.items():
        subscribers = [member_id for member_id, topics in subscriptions.items() if topic in topics]
        ranges = [sorted(assigned[member_id].get(topic, ())) for member_id in subscribers]
        assert sorted(chain.from_iterable(ranges)) == (list(range(count)) if subscribers else [])
        assert not ranges or max(map(len, ranges)) - min(map(len, ranges)) <= 1
        assert all(each == list(range(each[0], each[0] + len(each))) for each in ranges if each)
    assert sum(Counter(topic for each in assigned.values() for topic in each).values()) <= 2 * len(members)


def test_topics_of_one_size_are_cut_at_the_same_places() -> None:
    members = {name: Subscriber(topics=BOTH) for name in ("b", "a")}
    assigned = assign_ranges(members, {ORDERS: 3, USERS: 3})
    assert assigned["a"] == dict.fromkeys(BOTH, frozenset({0, 1}))
    assert assigned["b"] == dict.fromkeys(BOTH, frozenset({2}))


def test_instances_come_first_and_keep_their_place_under_another_member_id() -> None:
    def assigned(first: str, second: str) -> object:
        members = {
            "0": Subscriber(topics=BOTH),
            second: Subscriber(topics=BOTH, instance_id="i2"),
            first: Subscriber(topics=BOTH, instance_id="i1"),
        }
        ranges = assign_ranges(members, {ORDERS: 3, USERS: 3})
        return ranges[first], ranges[second], ranges["0"]

    expected = tuple(dict.fromkeys(BOTH, frozenset({index})) for index in range(3))
    assert assigned("x", "y") == assigned("y", "x") == expected


def test_assignors_are_known_by_name_and_by_class() -> None:
    kafka = "org.apache.kafka.coordinator.group.assignor."
    assert offered(("range", f"{kafka}UniformAssignor", "uniform", "theirs")) == ("range", "uniform")
    assert offered(()) == ("uniform",)
