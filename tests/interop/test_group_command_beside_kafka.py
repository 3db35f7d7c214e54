"""`moldau group` and Kafka's own tool, on Apache Kafka 4.3 and on Moldau: the same of the same groups."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.kafka import KafkaServer, java_tool
from tests.support.clients import TIMEOUT_S
from tests.support.node import COMMAND, KEEP, MoldauNode

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("beside kafka"),  # one Kafka is enough
]

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LONG = "a-topic-whose-name-is-long"
# One second apart, from this time on, which is 2023-11-14T22:13:20Z.
FIRST_MS = 1_700_000_000_000


class Place(NamedTuple):
    """A cluster, and the members of its groups `live` and `modern`."""

    bootstrap: str
    members: list[Consumer]


@pytest.fixture(autouse=True)
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a tool's time is its start; the better compiler never pays off."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -Xshare:auto")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[list[Place]]:
    """Kafka and Moldau, with the same in both."""
    directory = tmp_path_factory.mktemp("groups")
    options = {**KEEP, "group.initial.rebalance.delay.ms": "0"}
    with (
        KafkaServer(directory / "kafka", properties=KEEP) as kafka,
        MoldauNode(directory / "moldau", options) as moldau,
    ):
        found = [fill(kafka.bootstrap), fill(moldau.bootstrap)]
        yield found
        for place in found:
            for member in place.members:
                member.close()


def fill(bootstrap: str) -> Place:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, count, 1) for name, count in (("orders", 3), ("payments", 1), (LONG, 2))]
    for made in admin.create_topics(topics).values():
        made.result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic, partitions in (("orders", 3), ("payments", 1), (LONG, 1)):
        for number in range(30):
            time_ms = FIRST_MS + number * 1000
            producer.produce(topic, b"%d" % number, partition=number % partitions, timestamp=time_ms)
    assert producer.flush(TIMEOUT_S) == 0
    commit(bootstrap, "idle", {("orders", 0): 3, ("orders", 2): 10, (LONG, 0): 30})
    commit(bootstrap, "other", {("payments", 0): 7})
    # Made by joining, and left.
    join(bootstrap, "gone").close()
    join(bootstrap, "past", "consumer").close()
    members = [join(bootstrap, "live"), join(bootstrap, "modern", "consumer")]
    for member in members:
        member.commit(offsets=[TopicPartition("orders", 1, 4)], asynchronous=False)
    return Place(bootstrap, members)


def consumer(bootstrap: str, group: str, protocol: str = "classic") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": f"client-of-{group}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    by_hand = consumer(bootstrap, group)
    wanted = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
    deadline = monotonic() + TIMEOUT_S
    while True:
        try:
            by_hand.commit(offsets=wanted, asynchronous=False)
            break
        except KafkaException:  # the topic of groups is being made
            assert monotonic() < deadline
    by_hand.close()


def join(bootstrap: str, group: str, protocol: str = "classic") -> Consumer:
    """The only member, which has been assigned everything."""
    member = consumer(bootstrap, group, protocol)
    member.subscribe(["orders"])
    deadline = monotonic() + TIMEOUT_S
    while len(member.assignment()) < 3:
        member.poll(0.05)
        assert monotonic() < deadline, f"{group} was assigned {member.assignment()}"
    member.pause(member.assignment())
    return member


def plain(text: str) -> str:
    """Without what is each cluster's own: its address, and the ids that it gives members."""
    text = re.sub(r"(client-of-\w+-)[0-9a-f-]{36}", r"\1ID", text)
    text = re.sub(r"(?<![\w+/-])[\w+/]{22}(?![\w+/-])", "ID", text)
    return re.sub(r"(127\.0\.0\.1|localhost)(:| *\"port\": |\",\s+\"port\": )\d+", "ADDRESS", text)


def moldau(bootstrap: str, call: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(COMMAND), "group", *call.split(), "--bootstrap", bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, plain(done.stdout), plain(done.stderr)


def kafka_tool(bootstrap: str, call: str) -> str:
    done = java_tool(TOOL, "--bootstrap-server", bootstrap, *call.split(), timeout_s=60)
    return plain(done.stdout)


def on_both(places: list[Place], ask: Callable[[str, str], object], call: str) -> tuple[object, object]:
    """Kafka's outcome, and Moldau's."""
    with ThreadPoolExecutor(2) as pool:
        theirs, ours = pool.map(lambda place: ask(place.bootstrap, call), places)
    return theirs, ours


CALLS = [
    "list",
    "list --state empty --json",
    "list --type consumer",
    "describe",
    "describe live --members",
    "describe live gone modern past --members --verbose",
    "describe --state --verbose",
    "describe idle live modern --json",
    "describe nope idle",
    "lag idle other nope --partitions --json",
    "reset-offsets idle --all-topics --to-earliest",
    "reset-offsets live modern other --topic payments --to-latest",
    "reset-offsets idle --topic nope --to-latest",
    "reset-offsets idle --topic orders --shift-by 1",
    "reset-offsets idle --topic orders:0,2 --shift-by 5 --execute",
    "reset-offsets new --topic payments --to-offset 12 --execute --json",
    "reset-offsets --all-groups --all-topics --to-current --export",
    "describe idle new",
    "delete-offsets idle --topic orders:2",
    "delete-offsets live --topic orders",
    "delete-offsets modern --topic orders",
    "delete-offsets nope --topic orders",
    "delete new live modern nope",
    "describe idle other --json",
    "list",
]


def test_the_same_is_told_and_done(places: list[Place]) -> None:
    for call in CALLS:
        theirs, ours = on_both(places, moldau, call)
        if "lag" in call:  # who reads is told by Moldau alone
            theirs, ours = [(code, out.partition('"clients"')[0], err) for code, out, err in (theirs, ours)]  # type: ignore[misc]
        assert ours == theirs, f"moldau group {call}"


RESETS = [
    "--to-earliest --all-topics",
    "--to-latest --topic orders --topic payments",
    "--to-current --topic orders",
    "--to-offset 99 --topic orders:0,1",
    "--shift-by -2 --all-topics",
    "--to-datetime 2023-11-14T22:13:30.500 --topic orders",
    "--to-datetime 2033-01-01T00:00:00.000+02:00 --topic orders",
    "--by-duration P1D --topic payments",
]


@pytest.mark.parametrize("reset", RESETS)
def test_groups_are_moved_to_where_kafkas_tool_moves_them(places: list[Place], reset: str) -> None:
    tool = f"--reset-offsets --group other --group idle --dry-run --export {reset}"
    theirs, ours = on_both(places, kafka_tool, tool)
    told = lines(theirs)
    assert told and lines(ours) == told
    of_command = on_both(places, moldau, f"reset-offsets other idle --export {reset}")
    assert [lines(out) for _, out, _ in of_command] == [told, told]  # type: ignore[misc]


def lines(text: object) -> list[str]:
    return sorted(
        line for line in str(text).splitlines() if re.fullmatch(r"(\"[^\"]*\"|[\w-]+),.*,\d+", line)
    )


def test_a_plan_of_either_is_read_by_the_other(places: list[Place], tmp_path: Path) -> None:
    of_theirs, of_ours = tmp_path / "theirs.csv", tmp_path / "ours.csv"
    reset = "--all-topics --to-earliest --export"
    of_theirs.write_text(kafka_tool(places[0].bootstrap, f"--reset-offsets --group idle --dry-run {reset}"))
    of_ours.write_text(moldau(places[1].bootstrap, f"reset-offsets idle {reset}")[1])
    assert lines(of_ours.read_text()) == lines(of_theirs.read_text())
    assert f'"{LONG}",0,0' in lines(of_ours.read_text())
    moldau(places[0].bootstrap, f"reset-offsets idle --from-file {of_theirs} --execute")
    kafka_tool(places[1].bootstrap, f"--reset-offsets --group idle --from-file {of_ours} --execute")
    theirs, ours = on_both(places, kafka_tool, "--describe --group idle")
    assert ours == theirs
    assert re.search(rf"idle +{LONG} +0 +0 +30 +30 ", str(ours))


@pytest.mark.parametrize(
    "call",
    [
        "--describe --all-groups",
        "--describe --group live --group modern --members --verbose",
        "--describe --group gone --group past --state --verbose",
        "--delete --group live --group modern --group nope",
    ],
)
def test_kafkas_tool_tells_the_same_of_both(places: list[Place], call: str) -> None:
    theirs, ours = on_both(places, kafka_tool, call)
    assert sorted(str(ours).split("\n")) == sorted(str(theirs).split("\n"))


def test_who_reads_without_a_group_is_told_by_moldau(places: list[Place]) -> None:
    reading = "--from-beginning --max-messages 3"
    for place in places:
        subprocess.run(
            [str(COMMAND), "consume", "payments", *reading.split(), "--bootstrap", place.bootstrap],
            capture_output=True,
            timeout=60,
            check=True,
        )
    theirs, ours = on_both(places, moldau, "lag")
    assert "these brokers do not tell" in theirs[2]  # type: ignore[index]
    told = re.search(r"^moldau +\S+ +- +payments +1 ", ours[1], re.MULTILINE)  # type: ignore[index]
    assert told, ours
