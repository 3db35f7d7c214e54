"""Kafka's share consumer and its tool for share groups against a node."""

from __future__ import annotations

import re

import pytest

from bench.kafka import java_tool
from tests.interop.conftest import create_topic
from tests.support.clients import Confluent, Record
from tests.support.node import MoldauNode, unique_name

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("kafka_classpath"),
]

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


@pytest.fixture(autouse=True)
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a tool's time is its start; the better compiler never pays off."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -Xshare:auto")


def tool(name: str, node: MoldauNode, *arguments: str) -> str:
    done = java_tool(name, "--bootstrap-server", node.bootstrap, *arguments, timeout_s=60)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, f"{name} {' '.join(arguments)}: code {done.returncode}\n{printed}"
    return printed


def consumed(node: MoldauNode, topic: str, group: str, count: int, *arguments: str) -> list[str]:
    printed = tool(
        CONSUMER,
        node,
        *("--topic", topic, "--group", group, "--max-messages", str(count), "--timeout-ms", "20000"),
        *arguments,
    )
    return sorted(line for line in printed.splitlines() if line.startswith("value-"))


def produce(node: MoldauNode, topic: str, values: range) -> list[str]:
    texts = [f"value-{number:03}" for number in values]
    Confluent().write(node.bootstrap, topic, [Record(None, text.encode()) for text in texts])
    return texts


def start_at_the_beginning(node: MoldauNode, group: str) -> None:
    tool(
        "kafka.admin.ConfigCommand",
        node,
        *("--alter", "--entity-type", "groups", "--entity-name", group),
        *("--add-config", "share.auto.offset.reset=earliest"),
    )


def state_of(node: MoldauNode, group: str) -> dict[int, tuple[str, str]]:
    """By partition: start offset and lag."""
    printed = tool(GROUPS, node, "--describe", "--group", group)
    found = re.findall(rf"^{group}\s+\S+\s+(\d+)\s+(\S+)\s+(\S+)\s*$", printed, re.MULTILINE)
    return {int(partition): (start, lag) for partition, start, lag in found}


def test_records_are_consumed_once_by_a_group_that_comes_back(node: MoldauNode) -> None:
    topic, group = create_topic(node, partitions=2), unique_name("share")
    start_at_the_beginning(node, group)
    first = produce(node, topic, range(30))
    assert consumed(node, topic, group, 30) == first
    second = produce(node, topic, range(30, 40))
    assert consumed(node, topic, group, 10) == second
    assert {lag for _, lag in state_of(node, group).values()} <= {"0", "-"}


def test_rejected_records_are_gone_and_released_ones_come_again(node: MoldauNode) -> None:
    topic, group = create_topic(node), unique_name("share")
    start_at_the_beginning(node, group)
    values = produce(node, topic, range(5))
    assert consumed(node, topic, group, 5, "--release") == values
    assert consumed(node, topic, group, 5, "--reject") == values
    more = produce(node, topic, range(5, 8))
    assert consumed(node, topic, group, 3) == more


def test_offsets_are_shown_reset_and_deleted_and_groups_deleted(node: MoldauNode) -> None:
    topic, group = create_topic(node), unique_name("share")
    start_at_the_beginning(node, group)
    values = produce(node, topic, range(6))
    consumed(node, topic, group, 6)
    assert state_of(node, group) == {0: ("0", "0")}
    tool(GROUPS, node, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    assert state_of(node, group) == {0: ("0", "6")}
    assert consumed(node, topic, group, 6) == values
    assert "Successful" in tool(GROUPS, node, "--delete-offsets", "--group", group, "--topic", topic)
    assert state_of(node, group) == {}
    assert "successful" in tool(GROUPS, node, "--delete", "--group", group)
    assert group not in tool(GROUPS, node, "--list")
