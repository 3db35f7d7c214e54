"""Kafka's own tools at work with groups of a Moldau node. What `kafka-consumer-groups` tells of them is also
compared with what it tells of Kafka's, in test_group_command_beside_kafka.py."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.interop.conftest import Gather
from tests.interop.test_groups import CONSUMER
from tests.interop.test_kafka_tools import TOOLS, tool
from tests.support.consumers import PARTITIONS, write

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("kafka_classpath"),
]

GROUPS_TOOL = TOOLS + "consumer.group.ConsumerGroupCommand"


@pytest.mark.parametrize("settings", [{}, CONSUMER], ids=["classic", "consumer"])
def test_a_group_is_looked_after(gather: Gather, settings: dict[str, Any]) -> None:
    with gather() as members:
        bootstrap, group_id, topic = members.settings[:3]
        write(members, 60)
        member = members.join("confluent-kafka", **settings)
        members.wait_delivered(60)

        def ask(*arguments: str, code: int = 0) -> str:
            return tool(GROUPS_TOOL, "--bootstrap-server", bootstrap, *arguments, code=code)

        kind = settings.get("protocol", "classic")
        listed = ask("--list", "--state", "stable", "--type", kind)
        assert any(line.split() == [group_id, kind.capitalize(), "Stable"] for line in listed.splitlines())
        state = ask("--describe", "--group", group_id, "--state")
        assert re.search(rf"^{group_id} .* Stable +1$", state, re.MULTILINE)
        described = ask("--describe", "--group", group_id, "--members", "--verbose")
        assert f"{topic}:{','.join(map(str, range(PARTITIONS)))}" in described
        member.leave()
        reset = [
            "--group",
            group_id,
            "--reset-offsets",
            "--topic",
            f"{topic}:0",
            "--to-offset",
            "3",
            "--execute",
        ]
        assert [group_id, topic, "0", "3"] in [line.split() for line in ask(*reset).splitlines()]
        offsets = [line.split() for line in ask("--describe", "--group", group_id, "--offsets").splitlines()]
        assert [group_id, topic, "0", "3", "10", "7", "-", "-", "-"] in offsets
        assert [group_id, topic, "1", "10", "10", "0", "-", "-", "-"] in offsets
        ask("--group", group_id, "--delete-offsets", "--topic", f"{topic}:1")
        offsets = [line.split() for line in ask("--describe", "--group", group_id, "--offsets").splitlines()]
        assert [line[2] for line in offsets if line[:2] == [group_id, topic]] == ["0", "2", "3", "4", "5"]
        assert "successful" in ask("--delete", "--group", group_id)
        assert group_id not in ask("--list")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_consumer_goes_on_where_its_group_is(gather: Gather, protocol: str) -> None:
    members = gather()
    bootstrap, group_id, topic = members.settings[:3]
    command = ["--bootstrap-server", bootstrap, "--group", group_id, "--topic", topic, "--max-messages", "30"]
    command += ["--command-property", f"group.protocol={protocol}"]
    command += ["--command-property", "auto.offset.reset=earliest", "--timeout-ms", "20000"]
    got = []
    write(members, 60)
    for _ in range(2):
        printed = tool(TOOLS + "consumer.ConsoleConsumer", *command)
        got += [line for line in printed.splitlines() if line.isdigit()]
    assert sorted(got, key=int) == [str(number) for number in range(60)]
