from __future__ import annotations

from random import Random

import pytest

from moldau.client.consuming.assignors import (
    MemberSubscription,
    assign_cooperatively,
    assign_ranges,
    assign_round_robin,
    assign_sticky,
    assignor_of,
    read_assignment,
    read_subscription,
    remember,
    write_assignment,
    write_subscription,
)
from moldau.client.topology import TopicPartition
from moldau.wire.codec import ProtocolError

P = TopicPartition
ALL = {"range": assign_ranges, "roundrobin": assign_round_robin, "sticky": assign_sticky}


def members(**topics: str) -> dict[str, MemberSubscription]:
    return {name: MemberSubscription(frozenset(those)) for name, those in topics.items()}


def test_ranges_cut_each_topic_for_itself() -> None:
    shares = assign_ranges(members(b="xy", a="xy"), {"x": 3, "y": 3})
    assert shares == {
        "a": [P("x", 0), P("x", 1), P("y", 0), P("y", 1)],
        "b": [P("x", 2), P("y", 2)],
    }


def test_round_robin_goes_on_with_the_next_topic() -> None:
    shares = assign_round_robin(members(a="xy", b="xy"), {"x": 3, "y": 3})
    assert shares == {
        "a": [P("x", 0), P("x", 2), P("y", 1)],
        "b": [P("x", 1), P("y", 0), P("y", 2)],
    }
    shares = assign_round_robin(members(a="y", b="x"), {"x": 2, "y": 2})
    assert shares == {"a": [P("y", 0), P("y", 1)], "b": [P("x", 0), P("x", 1)]}


def test_static_members_come_first_and_by_their_instances() -> None:
    those = members(a="x", b="x")
    those["b"] = those["b"]._replace(instance_id="z")
    assert assign_ranges(those, {"x": 1}) == {"a": [], "b": [P("x", 0)]}


def random_group(random: Random) -> tuple[dict[str, MemberSubscription], dict[str, int]]:
    partitions = {topic: random.randint(1, 8) for topic in "vwxyz"[: random.randint(1, 5)]}
    alike = random.random() < 0.5
    group = {}
    for number in range(random.randint(1, 6)):
        topics = frozenset(partitions) if alike else frozenset(random.sample(sorted(partitions), 1))
        topics |= frozenset(random.sample(sorted(partitions), random.randint(1, len(partitions))))
        group[f"m{number}"] = MemberSubscription(topics)
    return group, partitions


@pytest.mark.parametrize("name", list(ALL))
@pytest.mark.parametrize("seed", range(100))
def test_every_partition_with_a_subscriber_has_one_owner(name: str, seed: int) -> None:
    group, partitions = random_group(Random(seed))
    shares = ALL[name](group, partitions)
    given = [place for places in shares.values() for place in places]
    subscribed = frozenset().union(*(member.topics for member in group.values()))
    assert sorted(given) == sorted(P(t, i) for t in subscribed for i in range(partitions[t]))
    for member_id, places in shares.items():
        assert {place.topic for place in places} <= group[member_id].topics


def owning(
    group: dict[str, MemberSubscription], shares: object, generation_id: int
) -> dict[str, MemberSubscription]:
    return {
        member_id: member._replace(owned=tuple(shares.get(member_id, ())), generation_id=generation_id)  # type: ignore[attr-defined]
        for member_id, member in group.items()
    }


@pytest.mark.parametrize("seed", range(100))
def test_sticky_is_even_and_moves_no_more_than_that_takes(seed: int) -> None:
    random = Random(seed)
    group, partitions = random_group(random)
    group = {name: member._replace(topics=frozenset(partitions)) for name, member in group.items()}
    before = assign_sticky(group, partitions)
    assert max(map(len, before.values())) - min(map(len, before.values())) <= 1
    assert assign_sticky(owning(group, before, 1), partitions) == before
    came = owning(group, before, 1) | {"new": MemberSubscription(frozenset(partitions))}
    after = assign_sticky(came, partitions)
    for member_id, places in before.items():
        assert set(after[member_id]) <= set(places)  # nothing moves between those who were there


@pytest.mark.parametrize("seed", range(100))
def test_cooperatively_nobody_gets_what_another_has(seed: int) -> None:
    random = Random(seed)
    group, partitions = random_group(random)
    shares = assign_cooperatively(group, partitions)
    for generation_id in range(1, 8):
        members_then = owning(group, shares, generation_id)
        if random.random() < 0.4:
            members_then[f"new{generation_id}"] = group[f"new{generation_id}"] = MemberSubscription(
                frozenset(partitions)
            )
        after = assign_cooperatively(members_then, partitions)
        for member_id, places in after.items():
            others = {p for other, m in members_then.items() if other != member_id for p in m.owned}
            assert not others & set(places)
        shares = {
            member_id: sorted(set(shares.get(member_id, ())) & set(places) | set(places))
            for member_id, places in after.items()
        }
    final = assign_cooperatively(owning(group, shares, 9), partitions)
    last = assign_cooperatively(owning(group, final, 10), partitions)
    assert assign_cooperatively(owning(group, last, 11), partitions) == last  # it has come to rest


def test_what_two_claim_in_one_generation_nobody_has() -> None:
    group = members(a="x", b="x")
    group = owning(group, {"a": [P("x", 0)], "b": [P("x", 0)]}, 3)
    shares = assign_sticky(group, {"x": 2})
    assert sorted(len(places) for places in shares.values()) == [1, 1]
    group["a"] = group["a"]._replace(generation_id=4)
    assert assign_sticky(group, {"x": 2})["a"] == [P("x", 0)]


def test_what_members_say_of_themselves_is_read_back() -> None:
    member = MemberSubscription(frozenset("xy"), (P("x", 1), P("y", 0)), 7, "i", "rack", b"data")
    assert read_subscription(write_subscription(member), "i") == member
    assert read_assignment(write_assignment([P("x", 2), P("x", 0)])) == (P("x", 0), P("x", 2))
    assert read_assignment(b"") == ()
    newer = b"\x00\x09" + write_subscription(member)[2:] + b"more"
    assert read_subscription(newer, "i") == member
    for broken in (b"", b"\0", b"\x00\x00\x7f"):
        with pytest.raises(ProtocolError):
            read_subscription(broken)


def test_sticky_tells_what_it_had_though_it_gave_it_back() -> None:
    sticky = assignor_of("sticky")
    assert sticky is not None
    remember(sticky, [P("x", 0)], 5)
    data = sticky.user_data((), 5)
    told = {"b": MemberSubscription(frozenset("x"), user_data=data), "a": MemberSubscription(frozenset("x"))}
    assert sticky.assign(told, {"x": 2}) == {"b": [P("x", 0)], "a": [P("x", 1)]}
    assert assignor_of("unheard-of") is None
