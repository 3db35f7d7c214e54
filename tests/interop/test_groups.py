"""Groups of real clients: their members share partitions, come and go, crash and come back, and together get
every record at least once.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.interop.conftest import GROUP_OPTIONS, Gather, gather_on
from tests.support.beside import Peer
from tests.support.clients import TIMEOUT_S
from tests.support.consumers import LIBRARIES, PARTITIONS, Member, Members, Writer, write
from tests.support.node import MoldauNode

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90)]

COOPERATIVE = {"assignor": "cooperative-sticky"}
CONSUMER = {"protocol": "consumer"}


class Committed:
    """How far a group has come, as the node tells it. It never goes back. Also a context manager."""

    def __init__(self, members: Members) -> None:
        self._peer = Peer(members.settings.bootstrap, ())
        topics = [
            OffsetFetchRequestTopics(name=members.settings.topic, partition_indexes=list(range(PARTITIONS)))
        ]
        group = OffsetFetchRequestGroup(group_id=members.settings.group_id, topics=topics)
        self._request = OffsetFetchRequest(groups=[group])
        self.offsets = dict.fromkeys(range(PARTITIONS), -1)

    def __enter__(self) -> Committed:
        return self

    def __exit__(self, *_: object) -> None:
        self._peer.close()

    def look(self) -> int:
        """All offsets together; 0 while there is no answer."""
        try:
            answer: Any = self._peer.ask(self._request, 9)
        except OSError:
            return 0
        if isinstance(answer, str) or answer.groups[0].error_code:
            return 0
        for each in answer.groups[0].topics[0].partitions:
            before = self.offsets[each.partition_index]
            assert each.committed_offset >= before, f"{each} after {before}"
            self.offsets[each.partition_index] = each.committed_offset
        return sum(offset for offset in self.offsets.values() if offset > 0)


# ---------------------------------------------------------------- sharing


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_members_of_different_clients_share_a_group(gather: Gather, assignor: str) -> None:
    with gather() as members:
        write(members, 600)
        joined: list[Member] = []
        for library in LIBRARIES:
            joined.append(members.join(library, assignor=assignor))
            members.wait_shared(joined)
        least = PARTITIONS // len(LIBRARIES)
        assert {len(member.partitions) for member in joined} <= {least, least + 1}
        members.wait_delivered(600)
        while joined:
            joined.pop(0).leave()
            if joined:
                members.wait_shared(joined)


@pytest.mark.java
@pytest.mark.usefixtures("kafka_classpath")
@pytest.mark.parametrize(
    ("assignor", "libraries"),
    [
        ("range", LIBRARIES),
        ("roundrobin", LIBRARIES),
        ("cooperative-sticky", ["confluent-kafka", "kafka-python", "moldau"]),
    ],
)
def test_kafkas_own_client_is_a_member_like_the_others(
    gather: Gather, assignor: str, libraries: Sequence[str]
) -> None:
    with gather() as members:
        write(members, 600)
        joined: list[Member] = []
        for library in ("java", *libraries):
            joined.append(members.join(library, assignor=assignor))
            members.wait_shared(joined)
        members.wait_delivered(600)
        joined.pop(0).leave()
        members.wait_shared(joined)


@pytest.mark.parametrize(
    ("first", "second", "settings"),
    [
        pytest.param("java", "confluent-kafka", COOPERATIVE, marks=pytest.mark.java),
        pytest.param("confluent-kafka", "java", CONSUMER, marks=pytest.mark.java),
        ("confluent-kafka", "kafka-python", COOPERATIVE),
        ("confluent-kafka", "moldau", COOPERATIVE),
        ("moldau", "kafka-python", COOPERATIVE),
        ("confluent-kafka", "confluent-kafka", CONSUMER),
        ("confluent-kafka", "moldau", CONSUMER),
        ("moldau", "moldau", CONSUMER),
    ],
)
def test_who_stays_keeps_what_it_does_not_give_away(
    gather: Gather, first: str, second: str, settings: dict[str, Any]
) -> None:
    with gather() as members:
        write(members, 600)
        stayed = members.join(first, **settings)
        members.wait_shared([stayed])
        came = members.join(second, **settings)
        members.wait_shared([stayed, came])
        kept = stayed.partitions
        since = stayed.history.index(frozenset(range(PARTITIONS)))
        assert all(kept <= had for had in stayed.history[since:])
        members.wait_delivered(600)
        came.leave()
        members.wait_shared([stayed])
        assert all(kept <= had for had in stayed.history[since:])


STATIC: list[tuple[str, dict[str, Any]]] = [(library, {}) for library in LIBRARIES]


@pytest.mark.parametrize(("library", "settings"), [*STATIC, ("confluent-kafka", CONSUMER)])
def test_a_static_member_that_bounces_disturbs_nobody(
    gather: Gather, library: str, settings: dict[str, Any]
) -> None:
    with gather() as members:
        write(members, 60)
        other = members.join("confluent-kafka", instance_id="stays", **settings)
        bounced = members.join(library, instance_id="bounces", **settings)
        members.wait_shared([other, bounced])
        had, history = bounced.partitions, list(other.history)
        for _ in range(3):
            bounced.leave()
            bounced = members.join(library, instance_id="bounces", **settings)
            members.wait_shared([other, bounced])
            assert bounced.partitions == had
        write(members, 600)
        members.wait_delivered(600)
        assert other.history == history


# ---------------------------------------------------------------- crashes of members

CONSUMER_PROCESS = """
import sys, confluent_kafka
bootstrap, group_id, topic, protocol = sys.argv[1:]
config = {"bootstrap.servers": bootstrap, "group.id": group_id, "auto.offset.reset": "earliest",
          "enable.auto.commit": False, "group.protocol": protocol, "fetch.wait.max.ms": 50}
if protocol == "classic":
    config |= {"session.timeout.ms": 1000, "heartbeat.interval.ms": 150}
consumer = confluent_kafka.Consumer(config)
consumer.subscribe([topic])
uncommitted = 0
while True:
    for message in consumer.consume(20, 0.05):
        if message.error() is None:
            print(message.value().decode(), flush=True)
            uncommitted += 1
    if uncommitted > 50:
        consumer.commit(asynchronous=False)
        uncommitted = 0
"""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_that_is_killed_goes_on_from_its_last_commit(gather: Gather, protocol: str) -> None:
    with gather() as members:
        settings = members.settings
        configure(settings.bootstrap, settings.group_id)
        write(members, 2000)
        command = [sys.executable, "-c", CONSUMER_PROCESS, settings.bootstrap]
        process = subprocess.Popen(
            [*command, settings.group_id, settings.topic, protocol], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        printed = [process.stdout.readline().strip() for _ in range(700)]
        process.send_signal(signal.SIGKILL)
        printed += process.stdout.read().split(b"\n")[:-1]
        process.wait()
        process.stdout.close()
        with Committed(members) as committed:
            done = committed.look()
            assert 0 < done < 2000
            next_one = members.join("confluent-kafka", protocol=protocol, session_ms=1000)
            members.wait_shared([next_one])
            members.wait_for(lambda: committed.look() == 2000, "all of it is committed")
        got = [each.value for each in next_one.got]
        assert len(got) == len(set(got)) == 2000 - done
        assert {*printed, *got} == {b"%d" % number for number in range(2000)}


def configure(bootstrap: str, group_id: str) -> None:
    """Sessions of members of the consumer protocol are the group's, not the member's."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    change = ConfigEntry("consumer.session.timeout.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group_id, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


# ---------------------------------------------------------------- under load

MIXES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "classic": [(library, {}) for library in LIBRARIES],
    "cooperative": [("confluent-kafka", COOPERATIVE), ("kafka-python", COOPERATIVE)],
    "consumer": [("confluent-kafka", CONSUMER)],
    "java": [("java", CONSUMER), ("confluent-kafka", CONSUMER)],
}
ALL_MIXES = [pytest.param(mix, marks=pytest.mark.java) if mix == "java" else mix for mix in MIXES]


@pytest.mark.parametrize("mix", ALL_MIXES)
def test_members_come_and_go_while_records_arrive(gather: Gather, mix: str) -> None:
    with gather() as members, Committed(members) as committed:
        with Writer(members) as writer:
            joined: list[Member] = []
            for step in range(8):
                if step in (2, 5, 6):
                    joined.pop(0).leave()
                else:
                    library, settings = MIXES[mix][step % len(MIXES[mix])]
                    joined.append(members.join(library, **settings))
                members.wait_shared(joined)
                goal = committed.look() + 100
                members.wait_for(lambda goal=goal: committed.look() >= goal, "the group goes on")
        members.wait_delivered(writer.sent)
        members.wait_for(lambda: committed.look() == writer.sent, "all of it is committed")


@pytest.mark.parametrize("bridge", ["confluent-kafka", pytest.param("java", marks=pytest.mark.java)])
def test_a_group_changes_its_protocol_while_it_goes_on(gather: Gather, bridge: str) -> None:
    """One member after another is replaced, until all are of the consumer protocol; and back again."""

    def go_on() -> None:
        goal = committed.look() + 60
        members.wait_for(lambda: committed.look() >= goal, "the group goes on")

    with gather() as members, Committed(members) as committed:
        with Writer(members) as writer:
            joined = [members.join(library) for library in LIBRARIES]
            members.wait_shared(joined)
            for settings in (CONSUMER, {}):
                for library in (bridge, *["confluent-kafka"] * (len(LIBRARIES) - 1)):
                    joined.append(members.join(library, **settings))
                    members.wait_shared(joined)
                    go_on()
                    joined.pop(0).leave()
                    members.wait_shared(joined)
                    go_on()
                assert kind_of(members) == settings.get("protocol", "classic")
        members.wait_delivered(writer.sent)
        members.wait_for(lambda: committed.look() == writer.sent, "all of it is committed")


def kind_of(members: Members) -> str:
    admin = AdminClient({"bootstrap.servers": members.settings.bootstrap})
    listed = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S).valid
    (kind,) = (group.type for group in listed if group.group_id == members.settings.group_id)
    return str(kind.name).lower()


# ---------------------------------------------------------------- restarts of the node

ENDINGS: dict[str, Callable[[MoldauNode], None]] = {
    "stopped": MoldauNode.restart,
    "killed": MoldauNode.crash_and_restart,
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "mix",
    [
        "classic",
        "cooperative",
        "consumer",
        pytest.param("java", marks=[pytest.mark.java, pytest.mark.slow]),
    ],
)
def test_a_group_goes_on_when_its_node_comes_back(tmp_path: Path, ending: str, mix: str) -> None:
    with (
        MoldauNode(tmp_path / "data", GROUP_OPTIONS) as node,
        gather_on(node) as members,
        Committed(members) as committed,
    ):
        with Writer(members) as writer:
            joined = [members.join(library, **settings) for library, settings in (MIXES[mix] * 2)[:3]]
            members.wait_shared(joined)
            for _ in range(2):
                goal = committed.look() + 100
                members.wait_for(lambda goal=goal: committed.look() >= goal, "the group goes on")
                ENDINGS[ending](node)
                members.wait_for(lambda: committed.look() > 0, "offsets are there")
        members.wait_shared(joined)
        members.wait_delivered(writer.sent)
        members.wait_for(lambda: committed.look() == writer.sent, "all of it is committed")
