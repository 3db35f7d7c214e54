"""Clients of other projects take the faults of `moldau.testing` for what a broker of Kafka's would say: they
go on after what passes, and tell what does not."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from confluent_kafka import Consumer

from bench.kafka import java_tool
from moldau.testing.nodes import Node
from tests.support.clients import CLIENTS, Record

pytestmark = pytest.mark.interop

RECORDS = [Record(None, b"a"), Record(b"k", b"b")]


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Any:
    return CLIENTS[request.param]


def test_what_passes_is_tried_again(moldau: Node, client: Any) -> None:
    topic = moldau.topic()
    produce = moldau.fail_next("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2, topic=topic)
    client.write(moldau.bootstrap, topic, RECORDS)
    assert produce.hits == 2
    faults = [
        moldau.fail_next("ListOffsets", error="LEADER_NOT_AVAILABLE", topic=topic),
        moldau.fail_next("Fetch", error="NOT_LEADER_OR_FOLLOWER", topic=topic),
    ]
    read = client.read(moldau.bootstrap, topic)
    assert [record.value for _, record in read] == [b"a", b"b"]
    # librdkafka does not ask where the partition ends: a fetch tells it.
    assert faults[1].hits == 1


def test_what_does_not_pass_is_told(moldau: Node, client: Any) -> None:
    topic = moldau.topic()
    fault = moldau.fail_next("Produce", error="TOPIC_AUTHORIZATION_FAILED", times=100, topic=topic)
    with pytest.raises(Exception, match=r"(?i)authoriz"):
        client.write(moldau.bootstrap, topic, RECORDS)
    assert fault.hits >= 1
    assert moldau.collect(topic) == []


@pytest.mark.parametrize("name", ["confluent-kafka", "aiokafka"])
def test_a_lost_answer_does_not_write_twice(moldau: Node, name: str) -> None:
    topic = moldau.topic()
    fault = moldau.lose_next("Produce", topic=topic)
    CLIENTS[name].write(moldau.bootstrap, topic, RECORDS, idempotent=True)
    assert fault.hits == 1
    assert [record.value for record in moldau.collect(topic)] == [b"a", b"b"]


def test_a_group_finds_its_way_through(moldau: Node) -> None:
    topic = moldau.topic()
    moldau.produce(topic, "a", "b")
    faults = [
        moldau.fail_next("FindCoordinator", error="COORDINATOR_NOT_AVAILABLE"),
        moldau.fail_next("JoinGroup", error="COORDINATOR_LOAD_IN_PROGRESS"),
        moldau.fail_next("SyncGroup", error="NOT_COORDINATOR"),
        moldau.fail_next("OffsetFetch", error="COORDINATOR_LOAD_IN_PROGRESS"),
    ]
    consumer = Consumer(
        {
            "bootstrap.servers": moldau.bootstrap,
            "group.id": moldau.unique("group"),
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found = []
    for _ in range(300):
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value())
        if len(found) == 2:
            break
    consumer.close()
    assert found == [b"a", b"b"]
    assert [fault.hits for fault in faults] == [1, 1, 1, 1]


@pytest.mark.java
@pytest.mark.usefixtures("kafka_classpath")
def test_kafka_s_own_client_goes_on(moldau: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -Xshare:auto")
    topic = moldau.topic()
    moldau.produce(topic, "a", "b")
    faults = [
        moldau.fail_next("FindCoordinator", error="COORDINATOR_NOT_AVAILABLE"),
        moldau.fail_next("Fetch", error="NOT_LEADER_OR_FOLLOWER", times=2),
        moldau.fail_next("Metadata", error="LEADER_NOT_AVAILABLE"),
    ]
    arguments = ["--bootstrap-server", moldau.bootstrap, "--topic", topic]
    reading: subprocess.CompletedProcess[str] = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *arguments,
        "--from-beginning",
        "--max-messages",
        "2",
        "--timeout-ms",
        "30000",
        timeout_s=60,
    )
    assert reading.stdout.split() == ["a", "b"], reading.stderr
    assert [fault.hits for fault in faults] == [1, 2, 1]
