"""Groups and their offsets, asked of Apache Kafka 4.3 and of Moldau alike: every code and every field is the
same, in every version and every state of a group, and so are the records that both keep of it.

Each test is a story of one group, told in the same order to both. What Moldau knowingly does otherwise
(docs/compatibility.md) is not asked.
"""

from __future__ import annotations

from typing import Any

import pytest

from moldau.wire.errors import ErrorCode
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.describe_groups import DescribeGroupsRequest
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.list_groups import ListGroupsRequest
from tests.support.group_stories import (
    Begin,
    Story,
    Told,
    commit,
    fetch,
    forget,
    heartbeat,
    join,
    leave,
    state_is,
    subscription,
    sync,
)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(150),
    pytest.mark.xdist_group("beside kafka"),
]

RANGE = ("range", subscription("one"))
ROUND_ROBIN = ("roundrobin", subscription("one"))

# ---------------------------------------------------------------- members


def describe(story: Story, *others: str) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=[story.group_id, *others])


def show(story: Story) -> None:
    """All that is told of the group as it is."""
    story.look(describe(story), range(7))
    every = DescribeGroupsRequest(groups=[story.group_id], include_authorized_operations=True)
    story.look(every, range(3, 7))


def enter(story: Story, member: str, version: int, **options: Any) -> Any:
    """A first JoinGroup that nobody else has to wait for; what it is answered in the end."""
    told = join(story.group_id, **options)
    answer = story.ask(member, told, version)
    if answer["error_code"] == ErrorCode.MEMBER_ID_REQUIRED:
        answer = story.ask(member, join(story.group_id, member, **options), version)
    return answer


def come(story: Story, member: str, version: int = 9, **options: Any) -> None:
    """A first JoinGroup that waits for the others; they are asked to join again."""
    told = join(story.group_id, **options)
    if version >= 4 and options.get("instance") is None:
        story.ask(member, told, version)
        told = join(story.group_id, member, **options)
    story.send(member, told, version)
    story.ask_until("onlooker", describe(story), 4, state_is("PreparingRebalance"))


def stable(story: Story, version: int = 9, **options: Any) -> Any:
    """A group with alice as its only member, with an assignment."""
    answer = enter(story, "alice", version, protocols=[RANGE], **options)
    story.ask("alice", sync(story.group_id, "alice", answer["generation_id"], {"alice": b"all"}), 5)
    return answer


@pytest.mark.parametrize("version", range(10))
def test_the_life_of_a_group(begin: Begin, version: int) -> None:
    with begin() as story:
        group, sync_version = story.group_id, min(version, 5)
        protocols = {"protocols": [RANGE, ROUND_ROBIN]}
        show(story)
        first = enter(story, "alice", version, **protocols)["generation_id"]
        story.ask("alice", heartbeat(group, "alice", first), min(version, 4))
        show(story)
        story.ask("alice", sync(group, "alice", first, {"alice": b"everything"}), sync_version)
        story.ask("alice", heartbeat(group, "alice", first), min(version, 4))
        story.ask("alice", sync(group, "alice", first), sync_version)
        show(story)

        come(story, "bob", version, protocols=[ROUND_ROBIN, RANGE])
        show(story)
        story.ask("alice", heartbeat(group, "alice", first), min(version, 4))
        second = story.ask("alice", join(group, "alice", **protocols), version)["generation_id"]
        story.answer("bob")
        show(story)
        story.send("bob", sync(group, "bob", second, {"bob": b"not mine to say"}), sync_version)
        story.ask("alice", sync(group, "alice", second, {"alice": b"a", "bob": b"b"}), sync_version)
        story.answer("bob")
        show(story)
        # It asks again, as after a connection was lost.
        story.ask("bob", join(group, "bob", protocols=[ROUND_ROBIN, RANGE]), version)
        story.ask("bob", sync(group, "bob", second), sync_version)

        story.ask("alice", leave(group, ("alice", None)), min(version, 5))
        story.ask("bob", heartbeat(group, "bob", second), min(version, 4))
        third = story.ask("bob", join(group, "bob", protocols=[ROUND_ROBIN]), version)["generation_id"]
        story.ask("bob", sync(group, "bob", third, {"bob": b"b"}, protocol_name="roundrobin"), sync_version)
        show(story)
        story.ask("bob", leave(group, ("bob", None)), min(version, 5))
        show(story)
        enter(story, "carol", version, **protocols)
        story.ask("carol", leave(group, ("carol", None)), min(version, 5))
        story.ask("onlooker", DeleteGroupsRequest(groups_names=[group]), 2)
        show(story)


def test_a_leader_that_joins_again_begins_a_rebalance(begin: Begin) -> None:
    with begin() as story:
        stable(story)
        story.ask("alice", join(story.group_id, "alice", protocols=[RANGE]), 9)
        story.ask("alice", sync(story.group_id, "alice", 2), 5)
        show(story)


def test_who_was_given_an_id_is_awaited(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        story.ask("alice", join(group), 9)
        show(story)
        story.ask("alice", heartbeat(group, "alice", 0), 4)
        story.ask("alice", sync(group, "alice", 0), 5)
        story.ask("alice", commit(group, "alice", 0, ("one", 0, 1)), 8)
        story.ask("alice", leave(group, ("alice", None)), 5)
        show(story)
        story.ask("alice", join(group, "alice"), 9)


# ---------------------------------------------------------------- what is refused

COMMITS = range(2, 11)
FETCHES = range(1, 11)


def refused(story: Story, generation: int) -> None:
    """Everything that leaves the group as it is, in every version."""
    group = story.group_id
    for member in ("stranger", "", "alice"):
        for wrong in (generation - 1, generation + 1, -1) if member == "alice" else (generation, -1):
            story.ask_all("beater", [heartbeat(group, member, wrong)], range(5))
            story.ask_all("syncer", [sync(group, member, wrong)], range(6))
            if wrong >= 0:
                story.ask_all("committer", [commit(group, member, wrong, ("one", 0, 1))], COMMITS)
    for instance in ("nobody", ""):
        for member in ("stranger", "alice"):
            story.ask_all("beater", [heartbeat(group, member, generation, instance=instance)], range(3, 5))
            story.ask_all("syncer", [sync(group, member, generation, instance=instance)], range(3, 6))
            told = commit(group, member, generation, ("one", 0, 1), instance=instance)
            story.ask_all("committer", [told], range(7, 11))
            story.ask_all("leaver", [leave(group, (member, instance))], range(3, 6))
    for type_, name in (
        (None, "range"),
        ("consumer", None),
        ("", "range"),
        ("connect", "x"),
        ("consumer", "x"),
    ):
        told = sync(group, "alice", generation, protocol_type=type_, protocol_name=name)
        story.ask("syncer", told, 5)
    story.ask_all("leaver", [leave(group, ("stranger", None)), leave(group, ("", None))], range(6))
    story.ask_all("leaver", [leave(group), leave(group, ("", "nobody"), ("stranger", None))], range(3, 6))
    for options in (
        {"session_ms": 499},
        {"session_ms": 1_800_001},
        {"session_ms": -1},
        {"member": "stranger"},
        {"member": "stranger", "instance": "nobody"},
    ):
        story.ask_all("joiner", [join(group, **options)], range(10))


def test_what_is_refused_where_there_is_no_group(begin: Begin) -> None:
    with begin() as story:
        refused(story, 0)
        for options in ({"protocols": []}, {"protocol_type": ""}):
            story.ask_all("joiner", [join(story.group_id, **options)], range(10))
        show(story)


def test_what_is_refused_in_an_empty_group(begin: Begin) -> None:
    with begin() as story:
        stable(story)
        story.ask("alice", leave(story.group_id, ("alice", None)), 5)
        refused(story, 2)
        show(story)


def test_what_is_refused_while_a_group_is_stable(begin: Begin) -> None:
    with begin() as story:
        stable(story)
        refused(story, 1)
        disagree(story)
        show(story)


def test_what_is_refused_while_members_join(begin: Begin) -> None:
    with begin() as story:
        stable(story)
        come(story, "bob", protocols=[RANGE])
        refused(story, 1)
        disagree(story)
        story.ask_all("alice", [sync(story.group_id, "alice", 1)], range(6))
        story.ask_all("alice", [commit(story.group_id, "alice", 1, ("one", 0, 7))], COMMITS)
        show(story)
        story.give_up("bob")
        story.ask("bob", leave(story.group_id, ("bob", None)), 5)


def test_what_is_refused_while_a_leader_assigns(begin: Begin) -> None:
    with begin() as story:
        enter(story, "alice", 9, protocols=[RANGE])
        refused(story, 1)
        disagree(story)
        story.ask_all("alice", [commit(story.group_id, "alice", 1, ("one", 0, 7))], COMMITS)
        story.ask_all("alice", [heartbeat(story.group_id, "alice", 1)], range(5))
        show(story)
        # It asks again, as after a connection was lost.
        story.ask("alice", join(story.group_id, "alice", protocols=[RANGE]), 9)


def disagree(story: Story) -> None:
    """Joins that do not go with the members that there are."""
    for member in ("", "alice"):
        for options in (
            {"protocols": []},
            {"protocols": [RANGE], "protocol_type": ""},
            {"protocols": [RANGE], "protocol_type": "connect"},
            *([{"protocols": [("sticky", b"")]}] if not member else []),
        ):
            story.ask_all("joiner", [join(story.group_id, member, **options)], range(10))
            if not member:
                told = join(story.group_id, instance="new", **options)
                story.ask_all("joiner", [told], range(5, 10))
    onlooker: list[Told | Any] = [DeleteGroupsRequest(groups_names=[story.group_id])]
    story.ask_all("onlooker", onlooker, range(3))


def test_a_group_without_a_name(begin: Begin) -> None:
    with begin() as story:
        story.ask_all("alice", [join("")], range(10))
        story.ask_all("alice", [sync("", "alice", 1)], range(6))
        story.ask_all("alice", [heartbeat("", "alice", 1)], range(5))
        story.ask_all("alice", [leave("", ("alice", None))], range(6))
        story.ask_all("alice", [DescribeGroupsRequest(groups=[""])], range(7))
        story.ask_all("alice", [DeleteGroupsRequest(groups_names=[""])], range(3))
        story.ask_all("alice", [commit("", "", 1, ("one", 0, 1))], COMMITS)
        story.ask_all("alice", [commit("", "", -1, ("one", 0, 1))], COMMITS)
        story.ask_all("alice", [fetch("", ("one", [0, 1]))], FETCHES)
        story.ask("alice", forget("", ("one", [0])), 0)
        story.ask_all("alice", [DeleteGroupsRequest(groups_names=[""])], range(3))
        story.ask_all("alice", [fetch("", ("one", [0, 1]))], FETCHES)


def test_a_group_holds_as_many_as_it_may(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        # All that is asked of a rebalance that waits has to be asked before its time is over.
        stable(story, rebalance_ms=5000)
        names = [f"member {number}" for number in range(4)]
        for name in names:
            come(story, name, protocols=[RANGE], rebalance_ms=5000)
        for version in range(10):
            story.ask("late", join(group, protocols=[RANGE]), version)
        story.ask("late", join(group, instance="late", protocols=[RANGE]), 9)
        show(story)
        # Who was there before is one too many now. Which of the others leads them is not for anyone to know;
        # at Kafka's they wait for the one who was refused.
        story.ask("alice", join(group, "alice", protocols=[RANGE]), 9)
        for name in names:
            story.answer(name, "leader members")
        for version in range(10):
            story.ask("late", join(group, protocols=[RANGE]), version)
        show(story)


# ---------------------------------------------------------------- static members


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_that_comes_back(begin: Begin, version: int) -> None:
    with begin() as story:
        group = story.group_id
        options: dict[str, Any] = {"instance": "desk", "protocols": [RANGE]}
        story.ask("alice", join(group, **options), version)
        show(story)
        story.ask("alice", sync(group, "alice", 1, {"alice": b"all"}, instance="desk"), 5)
        story.ask_all("alice", [heartbeat(group, "alice", 1, instance="desk")], range(3, 5))
        story.ask_all("alice", [heartbeat(group, "alice", 1)], range(5))
        story.ask("alice", join(group, "alice", **options), version)
        story.ask("alice", sync(group, "alice", 2, {"alice": b"all"}, instance="desk"), 5)
        story.ask("again", join(group, **options), version)
        show(story)
        for member, instance in (("alice", "desk"), ("again", "chair"), ("stranger", "desk"), ("", "desk")):
            story.ask_all("other", [heartbeat(group, member, 2, instance=instance)], range(5))
            story.ask_all("other", [sync(group, member, 2, instance=instance)], range(6))
            story.ask_all("other", [commit(group, member, 2, ("one", 0, 1), instance=instance)], COMMITS)
            if member:
                story.ask("other", join(group, member, instance=instance, protocols=[RANGE]), version)
                story.ask_all("other", [leave(group, (member, instance))], range(3, 6))
        story.ask("again", sync(group, "again", 2, instance="desk"), 5)
        # With another protocol than it had the others have to know.
        story.ask("third", join(group, instance="desk", protocols=[ROUND_ROBIN, RANGE]), version)
        show(story)
        story.ask_all("third", [leave(group, ("third", None))], range(3))
        show(story)
        story.ask("fourth", join(group, **options), version)
        story.ask("other", leave(group, ("", "desk"), ("", "chair"), ("stranger", "desk")), 5)
        show(story)


def test_a_static_member_comes_back_while_others_are_there(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        story.ask("alice", join(group, instance="a", protocols=[RANGE]), 9)
        story.ask("alice", sync(group, "alice", 1, {"alice": b"all"}, instance="a"), 5)
        come(story, "bob", instance="b", protocols=[RANGE])
        # Gone and back before the others have joined: who waited is fenced.
        story.send("bob again", join(group, instance="b", protocols=[RANGE]), 9)
        story.answer("bob")
        story.ask("alice", join(group, "alice", instance="a", protocols=[RANGE]), 9)
        story.answer("bob again")
        show(story)
        # The leader comes back before it has assigned: who waits for that joins again, too.
        story.send("bob again", sync(group, "bob again", 2, instance="b"), 5)
        story.ask_until("onlooker", describe(story), 4, state_is("CompletingRebalance"))
        story.send("alice again", join(group, instance="a", protocols=[RANGE]), 9)
        story.answer("bob again")
        story.send("bob again", join(group, "bob again", instance="b", protocols=[RANGE]), 9)
        story.answer("alice again")
        story.answer("bob again")
        assignments = {"alice again": b"x", "bob again": b"y"}
        story.ask("alice again", sync(group, "alice again", 3, assignments, instance="a"), 5)
        story.ask("bob again", sync(group, "bob again", 3, instance="b"), 5)
        show(story)


# ---------------------------------------------------------------- sessions


def test_a_session_that_ends(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        enter(story, "alice", 9, protocols=[RANGE], session_ms=500)
        story.ask("alice", sync(group, "alice", 1, {"alice": b"all"}), 5)
        story.ask_until("onlooker", describe(story), 4, state_is("Empty"))
        show(story)
        story.ask("alice", heartbeat(group, "alice", 1), 4)
        story.ask("alice", join(group, "alice", protocols=[RANGE]), 9)


def test_a_rebalance_goes_on_without_who_does_not_join(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        enter(story, "alice", 9, protocols=[RANGE], rebalance_ms=2000)
        story.ask("alice", sync(group, "alice", 1, {"alice": b"all"}), 5)
        come(story, "bob", protocols=[RANGE], rebalance_ms=2000)
        story.answer("bob")
        show(story)
        story.ask("alice", heartbeat(group, "alice", 1), 4)
        # Nor does it wait for assignments of a leader that does not assign.
        story.send("bob", sync(group, "nobody", 2), 5)
        story.answer("bob")
        story.ask_until("onlooker", describe(story), 4, state_is("Empty"))
        show(story)


# ---------------------------------------------------------------- offsets


def test_offsets_of_a_consumer_that_assigns_itself(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        nothing = [
            fetch(group, ("one", [0, 1, 77]), ("nowhere", [0])),
            fetch(group),
            fetch(group, ("one", [])),
        ]
        story.ask_all("reader", nothing, FETCHES)
        story.ask_all("reader", [fetch(group, everything=True)], range(2, 11))
        for version in COMMITS:
            for number, told in enumerate(
                (
                    commit(group, "", -1, ("one", 0, version)),
                    commit(group, "", -1, ("one", 1, 10), ("two", 2, 20), metadata="words", leader_epoch=5),
                    commit(group, "", -1, ("one", 2, -1), metadata=None),
                    commit(group, "", -1, ("one", 0, 1), ("one", 77, 2), ("nowhere", 0, 3), ("two", -1, 3)),
                    commit(group, "", -1, ("nowhere", 0, 3)),
                    commit(group, "", -1, ("one", 0, 1), ("two", 0, 1), metadata="x" * 4097),
                    commit(group, "", -1, ("one", 0, 1), metadata="x" * 4096),
                    commit(group, "", -1, ("one", 0, 1), metadata="ü" * 4096),
                    commit(group, "", -1),
                    commit(group, "anybody", -1, ("one", 0, 1)),
                    commit(group, "", -2, ("one", 0, 1)),
                    commit(group, "", -1, ("one", 0, 1), instance="desk"),
                    commit(group, "", 0, ("one", 0, 1)),
                    commit(group, "", -1, ("one", 0, 1), retention_ms=1_000_000),
                    commit(group, "", -1, ("one", 0, -2), retention_ms=-2),
                )
            ):
                story.ask(f"writer {number}", told, version)
        story.ask_all("reader", nothing, FETCHES)
        some = [
            fetch(group, ("one", [2, 0, 1]), ("two", [2])),
            fetch(group, ("one", [0]), require_stable=True),
        ]
        story.ask_all("reader", some, FETCHES)
        story.ask_all("reader", [fetch(group, everything=True)], range(2, 11))
        members = [
            fetch(group, ("one", [0]), member=member, epoch=epoch)
            for member in ("", "x")
            for epoch in (-1, 0, 1)
        ]
        story.ask_all("reader", members, range(8, 11))
        show(story)
        every = [("one", [0, 0, 1, 77]), ("nowhere", [0]), ("two", [2])]
        story.ask("reader", forget(group, *every), 0)
        story.ask("reader", forget(group, *every), 0)
        story.ask("reader", forget(group), 0)
        story.ask_all("reader", some, FETCHES)
        story.ask("reader", DeleteGroupsRequest(groups_names=[group, group, "no group"]), 2)
        story.ask_all("reader", some, FETCHES)
        story.ask("reader", forget(group, ("one", [0]), ("nowhere", [0])), 0)
        show(story)


def test_offsets_of_members(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        stable(story)
        story.ask_all("alice", [commit(group, "alice", 1, ("one", 0, 5), ("two", 1, 6))], COMMITS)
        story.ask_all("tool", [commit(group, "", -1, ("one", 0, 9))], COMMITS)
        story.ask_all("alice", [fetch(group, ("one", [0]), ("two", [1]))], FETCHES)
        story.ask("tool", forget(group, ("one", [0]), ("two", [1])), 0)
        story.ask("tool", DeleteGroupsRequest(groups_names=[group]), 2)
        story.ask_all("alice", [fetch(group, everything=True)], range(2, 11))
        story.ask("alice", leave(group, ("alice", None)), 5)
        story.ask_all("tool", [commit(group, "", -1, ("one", 0, 9))], COMMITS)
        story.ask("tool", forget(group, ("one", [0])), 0)
        story.ask_all("tool", [DeleteGroupsRequest(groups_names=[group, ""])], range(3))


def test_members_of_another_kind_keep_offsets_too(begin: Begin) -> None:
    """As of Kafka Connect: what its members say is not for the coordinator to read."""
    with begin() as story:
        group = story.group_id
        connect: dict[str, Any] = {"protocol_type": "connect", "protocols": [("sessioned", b"\1\2")]}
        enter(story, "alice", 9, **connect)
        told = sync(group, "alice", 1, {"alice": b""}, protocol_type="connect", protocol_name="sessioned")
        story.ask("alice", told, 5)
        show(story)
        story.ask("alice", commit(group, "alice", 1, ("one", 0, 5)), 9)
        story.ask("alice", forget(group, ("one", [0])), 0)
        story.ask("alice", leave(group, ("alice", None)), 5)
        show(story)
        story.ask("alice", forget(group, ("one", [0])), 0)


# ---------------------------------------------------------------- looking around


def test_lists_of_groups(begin: Begin) -> None:
    with begin() as empty, begin() as busy, begin() as offsets:
        stable(empty)
        empty.ask("alice", leave(empty.group_id, ("alice", None)), 5)
        stable(busy)
        offsets.ask("tool", commit(offsets.group_id, "", -1, ("one", 0, 9)), 9)
        offsets.seen |= {empty.group_id, busy.group_id}
        offsets.look(ListGroupsRequest(), range(6))
        for states in (["Stable"], ["stable", "EMPTY"], ["Dead"], ["nothing"], [""], ["PreparingRebalance"]):
            offsets.ask_all("onlooker", [ListGroupsRequest(states_filter=states)], range(4, 6))
            for types in (["classic"], ["Consumer"], ["share"], ["nothing"], ["classic", "consumer"]):
                offsets.ask("onlooker", ListGroupsRequest(states_filter=states, types_filter=types), 5)
                offsets.ask("onlooker", ListGroupsRequest(types_filter=types), 5)
        groups = [busy.group_id, "no group", busy.group_id, empty.group_id, ""]
        offsets.ask_all("onlooker", [DescribeGroupsRequest(groups=groups)], range(7))
        offsets.ask_all("onlooker", [DescribeGroupsRequest(groups=[])], range(7))


SHARE_KEYS = [
    f"{group}:{'A' * 22}:{partition}" for group in ("a", "a:b", "") for partition in ("0", "-1", "x")
]


def test_coordinators(begin: Begin) -> None:
    with begin() as story:
        for kind, key in ((1, "transaction"), (2, SHARE_KEYS[0])):
            asked = FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
            story.ask_until("onlooker", asked, 6, lambda answer: not answer.coordinators[0].error_code)
        for version in range(7):
            for kind in (0, 1, 2, 3, -1) if version else (0,):
                for key in ("group", "", "ü", "a:b", *(SHARE_KEYS if kind == 2 else ())):
                    if version < 4:
                        asked = FindCoordinatorRequest(key=key, key_type=kind)
                    else:
                        asked = FindCoordinatorRequest(coordinator_keys=[key, "other", key], key_type=kind)
                    # Of a bad key in a batch Kafka does not say what is wrong with it.
                    story.ask("onlooker", asked, version, "error_message" if kind == 2 else "")
        story.ask_all("onlooker", [FindCoordinatorRequest(coordinator_keys=[])], range(4, 7))
