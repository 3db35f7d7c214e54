"""Stories of groups of the consumer protocol (KIP-848), told to Apache Kafka 4.3 and to Moldau alike: what
each API tells of the group, in each version, is the same all along, and so are the records of it in the end.
"""

from __future__ import annotations

from typing import Any

import pytest

from moldau.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.describe_groups import DescribeGroupsRequest
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.wire.messages.list_groups import ListGroupsRequest
from tests.support.group_stories import (
    PARTITIONS,
    Begin,
    Story,
    Told,
    beat,
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

GROUP = 32  # a kind of resource with configuration
SET = 0
ALL = {"one": list(range(PARTITIONS))}
LEFT, LEFT_FOR_NOW = -1, -2


def describe(story: Story) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=[story.group_id])


def show(story: Story) -> None:
    """All that is told of the group as it is."""
    story.look(describe(story), range(2))
    every = ConsumerGroupDescribeRequest(
        group_ids=[story.group_id, "no group", story.group_id], include_authorized_operations=True
    )
    story.look(every, range(2))
    story.look(DescribeGroupsRequest(groups=[story.group_id]), range(7))


def first(group_id: str, member: str, *topics: str, epoch: int = 0, **fields: Any) -> Told:
    """The heartbeat of a member that comes."""
    asked = {"subscribed_topic_names": list(topics), "rebalance_timeout_ms": 5000, **fields}
    return beat(group_id, member, epoch, owned={}, **asked)


def test_one_member_comes_and_goes(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        show(story)
        story.ask("alice", first(group, "alice", "one"), 1)
        show(story)
        story.ask("alice", beat(group, "alice"), 1)
        story.ask("alice", beat(group, "alice", owned=ALL), 1)
        show(story)
        story.ask("alice", beat(group, "alice", subscribed_topic_names=["one", "two", "nowhere"]), 1)
        story.ask("alice", beat(group, "alice", owned={**ALL, "two": [0, 1, 2]}), 1)
        show(story)
        story.ask("alice", beat(group, "alice", subscribed_topic_names=["two"]), 1)
        show(story)
        story.ask("alice", beat(group, "alice", owned={"two": [0, 1, 2]}), 1)
        show(story)
        story.ask("alice", beat(group, "alice", rack_id="rack", rebalance_timeout_ms=7000), 1)
        story.ask("alice", beat(group, "alice", server_assignor="range"), 1)
        whole = beat(
            group, "alice", rebalance_timeout_ms=7000, subscribed_topic_names=["two"], owned={"two": [1]}
        )
        story.ask("alice", whole, 1)
        show(story)
        story.ask("alice", beat(group, "alice", LEFT), 1)
        show(story)
        story.ask("alice", first(group, "alice", "one"), 1)
        # Once more, as if the answer was lost.
        story.ask("alice", first(group, "alice", "one"), 1)
        story.ask("alice", beat(group, "alice", LEFT), 1)
        story.ask("tool", DeleteGroupsRequest(groups_names=[group]), 2)
        show(story)


def test_a_member_gets_its_id_from_an_older_coordinator(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        story.ask("alice", first(group, "", "one"), 0)
        story.ask("alice", beat(group, "alice", owned=ALL), 0)
        show(story)
        story.ask("alice", first(group, "alice", "one"), 0)
        story.ask("alice", beat(group, "alice", LEFT), 0)


# Which topic the uniform assignor begins with is decided by their ids.
@pytest.mark.parametrize(("assignor", "topics"), [("uniform", ["one"]), ("range", ["one", "two"])])
def test_partitions_go_from_one_member_to_another(begin: Begin, assignor: str, topics: list[str]) -> None:
    with begin() as story:
        group = story.group_id
        everything = {topic: [0, 1, 2] for topic in topics}
        told = first(group, "alice", *topics, server_assignor=assignor)
        before = story.ask("alice", told, 1)["member_epoch"]
        story.ask("alice", beat(group, "alice", owned=everything), 1)
        story.ask("bob", first(group, "bob", *topics, server_assignor=assignor), 1)
        show(story)
        kept = assigned(story.ask("alice", beat(group, "alice"), 1))
        show(story)
        story.ask("bob", beat(group, "bob"), 1)
        story.ask("alice", beat(group, "alice", owned=everything), 1)
        after = story.ask("alice", beat(group, "alice", owned=kept), 1)["member_epoch"]
        show(story)
        # Late answers are told from lies by what the member still has.
        for epoch in (before - 1, before, after):
            for owned in (None, {}, kept, everything, {"one": [7]}):
                story.ask("alice", beat(group, "alice", epoch, owned=owned), 1)
        gained = assigned(story.ask("bob", beat(group, "bob"), 1))
        story.ask("bob", beat(group, "bob", owned=gained), 1)
        show(story)
        story.ask("carol", first(group, "carol", "one", server_assignor=assignor), 1)
        for member in ("alice", "bob"):
            answer = story.ask(member, beat(group, member), 1)
            if answer["assignment"]:
                story.ask(member, beat(group, member, owned=assigned(answer)), 1)
        story.ask("carol", beat(group, "carol"), 1)
        show(story)
        story.ask("alice", beat(group, "alice", LEFT), 1)
        story.ask("bob", beat(group, "bob"), 1)
        story.ask("carol", beat(group, "carol"), 1)
        show(story)


def assigned(answer: Any) -> dict[str, list[int]]:
    """Partitions by topic, of an answer with an assignment."""
    topics = answer["assignment"]["topic_partitions"]
    return {topic["topic_id"].removeprefix("the id of "): topic["partitions"] for topic in topics}


def test_what_is_refused(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        for member in ("", "stranger"):
            for epoch in (-4, -3, LEFT_FOR_NOW, LEFT, 0, 1, 7):
                told = beat(group, member, epoch)
                story.ask_all("stranger", [told], range(2) if member or epoch else [1])
                story.ask_all("stranger", [beat(group, member, epoch, instance_id="desk")], range(2))
        story.ask_all("stranger", [first("", "alice", "one"), first(" ", "alice", "one")], range(2))
        wrong: list[dict[str, Any]] = [
            {"instance_id": ""},
            {"rack_id": ""},
            {"server_assignor": "sticky"},
            {"server_assignor": ""},
            {"rebalance_timeout_ms": -1},
            {"rebalance_timeout_ms": 0},
            {"subscribed_topic_names": None},
        ]
        for fields in wrong:
            story.ask("alice", first(group, f"with {fields}", "one", **fields), 1)
        story.ask("alice", beat(group, "owner", 0, owned=ALL, subscribed_topic_names=["one"]), 1)
        story.ask("alice", first(group, "x", subscribed_topic_names=None, subscribed_topic_regex="("), 1)
        story.ask("alice", first(group, "x", subscribed_topic_names=None, subscribed_topic_regex="(?!o)"), 1)
        epoch = story.ask("alice", first(group, "alice", "one"), 1)["member_epoch"]
        for wrong_epoch in (-3, LEFT_FOR_NOW, epoch - 1, epoch + 1, 99):
            story.ask_all("alice", [beat(group, "alice", wrong_epoch)], range(2))
        story.ask("alice", beat(group, "alice", instance_id="desk"), 1)
        story.ask("alice", beat(group, "stranger", epoch), 1)
        story.ask("alice", beat(group, "alice", server_assignor="sticky"), 1)
        story.ask("alice", beat(group, "alice", subscribed_topic_regex="("), 1)
        show(story)


def test_a_group_holds_as_many_as_it_may(begin: Begin) -> None:
    with begin() as story:
        for number in range(5):
            story.ask("anybody", first(story.group_id, f"member {number}", "nowhere"), 1)
        story.ask("anybody", first(story.group_id, "member 0", "nowhere"), 1)
        show(story)


def test_a_subscription_to_nothing(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        story.ask("alice", first(group, "alice"), 1)
        show(story)
        story.ask("alice", beat(group, "alice", subscribed_topic_names=["nowhere"]), 1)
        story.ask("alice", beat(group, "alice"), 1)
        show(story)


# ---------------------------------------------------------------- static members


def test_a_static_member_that_comes_back(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        desk = {"instance_id": "desk"}
        epoch = story.ask("alice", first(group, "alice", "one", **desk), 1)["member_epoch"]
        story.ask("alice", beat(group, "alice", owned=ALL, **desk), 1)
        story.ask("rival", first(group, "rival", "one", **desk), 1)
        story.ask("alice", beat(group, "alice", epoch), 1)
        show(story)
        story.ask("alice", beat(group, "alice", LEFT_FOR_NOW, **desk), 1)
        show(story)
        story.ask("alice", beat(group, "alice", epoch, **desk), 1)
        story.ask("again", first(group, "again", "one", **desk), 1)
        show(story)
        for wrong in (epoch, LEFT, LEFT_FOR_NOW):
            story.ask("other", beat(group, "alice", wrong, **desk), 1)
            story.ask("other", beat(group, "alice", wrong), 1)
            story.ask("other", beat(group, "again", wrong, instance_id="chair"), 1)
        story.ask("other", commit(group, "alice", epoch, ("one", 0, 1), instance="desk"), 9)
        story.ask("other", commit(group, "again", epoch, ("one", 0, 1), instance="desk"), 9)
        story.ask("again", beat(group, "again", owned=ALL, **desk), 1)
        story.ask("again", beat(group, "again", LEFT_FOR_NOW, **desk), 1)
        # With another subscription than it had.
        story.ask("third", first(group, "third", "two", **desk), 1)
        show(story)
        story.ask("third", beat(group, "third", LEFT, **desk), 1)
        show(story)


def test_a_static_member_is_put_out_by_name(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        story.ask("alice", first(group, "alice", "one", instance_id="desk"), 1)
        story.ask("bob", first(group, "bob", "one"), 1)
        story.ask_all("tool", [leave(group, ("", "chair"), ("stranger", None))], range(3, 6))
        story.ask("tool", leave(group, ("", "desk")), 5)
        show(story)
        story.ask("tool", leave(group, ("bob", None)), 5)
        show(story)


# ---------------------------------------------------------------- patterns


def test_a_pattern_is_a_subscription(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        fields = {"subscribed_topic_names": None, "subscribed_topic_regex": "one|tw."}
        # It is matched while the member waits for its next heartbeat, or already before this is answered.
        story.send("alice", first(group, "alice", **fields), 1)
        epoch = story.answer("alice", "member_epoch assignment")["member_epoch"]
        story.ask_until("alice", beat(group, "alice", epoch), 1, lambda answer: bool(answer.assignment))
        show(story)
        names = {"subscribed_topic_regex": "", "subscribed_topic_names": ["one"]}
        story.ask("alice", beat(group, "alice", epoch + 1, **names), 1)
        show(story)


# ---------------------------------------------------------------- sessions and options


def configure(story: Story, **options: str) -> None:
    configs = [
        AlterableConfig(name=f"consumer.{name.replace('_', '.')}", config_operation=SET, value=value)
        for name, value in options.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=story.group_id, configs=configs)
    story.ask("tool", IncrementalAlterConfigsRequest(resources=[resource]), 1)


def test_a_session_that_ends(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        configure(story, session_timeout_ms="600", heartbeat_interval_ms="150")
        told = first(group, "alice", "one")
        story.ask_until("alice", told, 1, lambda answer: answer.heartbeat_interval_ms == 150)
        story.ask("alice", told, 1)
        story.ask("alice", beat(group, "alice", owned=ALL), 1)
        story.ask_until("onlooker", describe(story), 1, state_is("Empty"))
        show(story)
        story.ask("alice", beat(group, "alice"), 1)


def test_a_member_that_does_not_let_go_is_put_out(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        story.ask("alice", first(group, "alice", "one", rebalance_timeout_ms=500), 1)
        story.ask("alice", beat(group, "alice", owned=ALL), 1)
        story.ask("bob", first(group, "bob", "one"), 1)
        story.ask("alice", beat(group, "alice"), 1)
        story.ask_until("alice", beat(group, "alice"), 1, lambda answer: bool(answer.error_code))
        story.ask("bob", beat(group, "bob"), 1)
        show(story)


# ---------------------------------------------------------------- offsets


def test_offsets_of_members(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        now = story.ask("alice", first(group, "alice", "one"), 1)["member_epoch"]
        for member, epoch in (
            ("alice", now),
            ("alice", now - 1),
            ("alice", now + 1),
            ("stranger", now),
            ("", -1),
            ("alice", -1),
        ):
            places = ("one", 0, 5), ("two", 1, 6)
            story.ask_all("writer", [commit(group, member, epoch, *places)], range(2, 11))
            told = fetch(group, ("one", [0, 1]), member=member, epoch=epoch)
            story.ask_all("reader", [told], range(8, 11))
        story.ask_all("reader", [fetch(group, ("one", [0, 1]))], range(1, 11))
        story.ask("tool", forget(group, ("one", [0]), ("two", [1])), 0)
        story.ask("tool", DeleteGroupsRequest(groups_names=[group]), 2)
        story.ask("alice", beat(group, "alice", LEFT), 1)
        story.ask_all("writer", [commit(group, "", -1, ("one", 0, 5))], range(2, 11))
        story.ask("tool", forget(group, ("one", [0])), 0)
        story.ask("tool", DeleteGroupsRequest(groups_names=[group]), 2)


def test_lists_of_groups(begin: Begin) -> None:
    with begin() as story:
        story.ask("alice", first(story.group_id, "alice", "one"), 1)
        for states in ([], ["Stable"], ["assigning"], ["Reconciling", "empty"]):
            for types in ([], ["consumer"], ["Classic"]):
                story.look(ListGroupsRequest(states_filter=states, types_filter=types), [5])
        story.look(ListGroupsRequest(), range(5))


# ---------------------------------------------------------------- the two protocols


def test_members_of_the_other_protocol_are_refused(begin: Begin) -> None:
    """What they ask for is not what this group is made of."""
    with begin() as story:
        group = story.group_id
        story.ask("alice", first(group, "alice", "one"), 1)
        for version in range(10):
            story.ask("bob", join(group, "stranger", protocols=[("range", subscription("one"))]), version)
            story.ask("bob", join(group, protocols=[("x", b"")], protocol_type="connect"), version)
        story.ask_all("bob", [sync(group, "alice", 1), sync(group, "stranger", 1)], range(6))
        story.ask_all("bob", [heartbeat(group, "alice", 1), heartbeat(group, "stranger", 1)], range(5))
        story.ask_all("bob", [leave(group, ("stranger", None))], range(6))
        show(story)


def test_a_group_without_members_takes_either_protocol(begin: Begin) -> None:
    with begin() as story:
        group = story.group_id
        # Who gets what is decided by ids, in the one order or in the other.
        alice = first(group, "alice", "one", server_assignor="range")
        story.ask("tool", commit(group, "", -1, ("one", 0, 5)), 9)
        story.ask("alice", alice, 1)
        show(story)
        story.ask("alice", beat(group, "alice", LEFT), 1)
        story.ask("bob", join(group, protocols=[("range", subscription("one"))]), 9)
        story.ask("bob", join(group, "bob", protocols=[("range", subscription("one"))]), 9)
        story.look(DescribeGroupsRequest(groups=[group]), range(7))
        story.look(describe(story), [1])
        story.ask("alice", alice, 1)
        story.ask("bob", leave(group, ("bob", None)), 5)
        story.ask("alice", alice, 1)
        show(story)
        story.ask_all("alice", [fetch(group, ("one", [0]))], range(1, 11))
