"""Groups in one data directory that Moldau and Apache Kafka 4.3 serve in turn: whoever takes over has the
members where they were, who go on as if nothing had happened, and the offsets."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from bench.kafka import KafkaServer
from moldau.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.describe_groups import DescribeGroupsRequest
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.list_groups import ListGroupsRequest
from tests.interop.test_kafka_directory import take_turns
from tests.interop.test_kafka_tools import dump
from tests.support.beside import TIMEOUT_S, Peer
from tests.support.group_stories import (
    Teller,
    Told,
    beat,
    commit,
    fetch,
    heartbeat,
    join,
    subscription,
    sync,
)
from tests.support.node import MoldauNode

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(150),
    pytest.mark.usefixtures("kafka_classpath"),
]

CLASSIC, CONSUMER, SIMPLE, GONE = GROUPS = ("classic", "consumer", "simple", "gone")
MINUTE_MS = 60_000
# What Kafka says of records that it cannot make sense of.
UNREAD = re.compile(r"\] (?:WARN|ERROR|FATAL) .*\(org\.apache\.kafka\.coordinator")
RANGE = {"protocols": [("range", subscription("one"))], "session_ms": MINUTE_MS}


class Node:
    """One that runs, and what the members of its groups say to it. They keep their ids from node to node."""

    def __init__(
        self, running: MoldauNode | KafkaServer, ids: dict[str, str], epochs: dict[str, int]
    ) -> None:
        self._peer = Peer(running.bootstrap, ())
        self._teller = Teller(self._peer, ids, {}, epochs)

    def close(self) -> None:
        self._peer.close()

    def ask(self, told: Told | Any, version: int) -> Any:
        request = told(self._teller, version) if callable(told) else told
        return self._peer.ask(request, version)

    def accept(self, told: Told, version: int, member: str = "") -> Any:
        """As `ask`, for what is in order. Whatever the node tells the member of itself is remembered."""
        answer = self.ask(told, version)
        assert not getattr(answer, "error_code", 0), answer
        if member:
            self._teller.ids[member] = answer.member_id
            self._teller.epochs[answer.member_id] = getattr(answer, "member_epoch", 0)
        return answer

    def wait(self, request: Any, version: int, is_so: Callable[[Any], bool]) -> None:
        deadline = monotonic() + TIMEOUT_S
        while not is_so(answer := self.ask(request, version)):
            assert monotonic() < deadline, answer

    def wait_coordinator(self) -> None:
        for group in GROUPS:
            request = FindCoordinatorRequest(coordinator_keys=[group])
            self.wait(request, 4, lambda answer: not answer.coordinators[0].error_code)
            describe = DescribeGroupsRequest(groups=[group])
            self.wait(describe, 5, lambda answer: not answer.groups[0].error_code)
        # All partitions of the groups' topic are asked for the list, those of no group, too.
        self.wait(ListGroupsRequest(), 5, lambda answer: not answer.error_code)

    def told(self) -> list[Any]:
        """All that it tells of groups."""
        for name in ("one", "two"):
            self._peer.topic_id(name)
        answers = [
            self.ask(ListGroupsRequest(), 5),
            self.ask(DescribeGroupsRequest(groups=list(GROUPS)), 6),
            self.ask(ConsumerGroupDescribeRequest(group_ids=list(GROUPS)), 1),
            *(self.ask(fetch(group, everything=True), 9) for group in GROUPS),
        ]
        return [self._peer.plain(answer) for answer in answers]


def begin(node: Node) -> None:
    topics = [CreatableTopic(name=name, num_partitions=4, replication_factor=1) for name in ("one", "two")]
    node.ask(CreateTopicsRequest(topics=topics), 7)
    node.wait_coordinator()
    asked = node.ask(join(CLASSIC, **RANGE), 9)
    node.accept(join(CLASSIC, asked.member_id, **RANGE), 9, "alice")
    node.accept(sync(CLASSIC, "alice", 1, {"alice": b"all of it"}), 5)
    node.accept(beat(CONSUMER, "bob", 0, owned={}, **subscribed("one")), 1, "bob")
    node.accept(beat(CONSUMER, "bob", owned={"one": [0, 1, 2, 3]}), 1, "bob")
    node.accept(
        beat(CONSUMER, "carol", 0, owned={}, instance_id="desk", **subscribed("one", "two")), 1, "carol"
    )
    for number, group in enumerate((SIMPLE, GONE)):
        node.accept(commit(group, "", -1, ("one", 0, 10 + number), ("two", 3, 20), metadata="words"), 9)
    node.ask(DeleteGroupsRequest(groups_names=[GONE]), 2)


def subscribed(*topics: str) -> dict[str, Any]:
    return {"subscribed_topic_names": list(topics), "rebalance_timeout_ms": MINUTE_MS}


def go_on(node: Node, step: int) -> None:
    """Whoever is there goes on in the generation or the epoch that it was in, and things change a little."""
    generation = 1 + 2 * step
    node.accept(heartbeat(CLASSIC, "alice", generation), 4)
    node.accept(commit(CLASSIC, "alice", generation, ("one", 1, 100 + step)), 9)
    # Its leader joins again, which begins a generation; and once more.
    for number in (1, 2):
        joined = node.accept(join(CLASSIC, "alice", **RANGE), 9)
        assert joined.generation_id == generation + number
        node.accept(sync(CLASSIC, "alice", generation + number, {"alice": b"step %d" % step}), 5)
    for member, fields in (("bob", {}), ("carol", {"instance_id": "desk"})):
        node.accept(beat(CONSUMER, member, **fields), 1, member)
    node.accept(beat(CONSUMER, "bob", server_assignor=("range", "uniform")[step % 2]), 1, "bob")
    guest = f"guest {step}"
    node.accept(beat(CONSUMER, guest, 0, owned={}, **subscribed("two")), 1, guest)
    if step:
        node.accept(beat(CONSUMER, f"guest {step - 1}", -1), 1)
    node.accept(commit(SIMPLE, "", -1, ("one", 2, 1000 + step)), 9)
    node.accept(commit(f"new {step}", "", -1, ("one", 2, step)), 9)


def test_whoever_takes_over_has_the_groups(tmp_path: Path) -> None:
    data = tmp_path / "data"
    ids: dict[str, str] = {}
    epochs: dict[str, int] = {}
    moldau = MoldauNode(data, {"group.initial.rebalance.delay.ms": "0"})
    told: list[Any] = []

    def lead(running: MoldauNode | KafkaServer, step: int) -> None:
        nonlocal told
        with ExitStack() as stack:
            node = Node(running, ids, epochs)
            stack.callback(node.close)
            if not told:
                begin(node)
            else:
                node.wait_coordinator()
                assert node.told() == told
            go_on(node, step)
            told = node.told()

    def look() -> None:
        check_dump(dump(data, "__consumer_offsets-*/*.log", "--offsets-decoder"))

    take_turns(moldau, lead, look, UNREAD)


def check_dump(dumped: str) -> None:
    """Kafka's tool makes something of each record: offsets, classic groups, all of consumer groups."""
    lines = [line for line in dumped.splitlines() if line.startswith("| offset: ")]
    read = [
        re.search(r'key: {"type":"(\d+)".* payload: (?:{"version":"\d"|<DELETE>)', line) for line in lines
    ]
    assert {found.group(1) if found else line for found, line in zip(read, lines, strict=True)} == {
        *("1", "2", "3", "5", "6", "7", "8")
    }
    assert "isvalid: false" not in dumped
