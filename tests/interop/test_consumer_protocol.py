"""librdkafka's consumers in groups of the consumer protocol (KIP-848), and in groups that change theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.node import MoldauNode

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

TIMEOUT_S = 60
OPTIONS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    # So that members are told soon.
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}
RECORDS = 100


@pytest.fixture
def node(tmp_path: Path) -> Iterator[MoldauNode]:
    with MoldauNode(tmp_path / "node", OPTIONS) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for future in admin.create_topics([NewTopic(name, 4, 1) for name in ("eu", "us")]).values():
            future.result()
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for number in range(RECORDS):
            producer.produce(["eu", "us"][number % 2], str(number), partition=number // 2 % 4)
        assert producer.flush(TIMEOUT_S) == 0
        yield node


def consumer(node: MoldauNode, protocol: str, *topics: str, **options: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "group",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    consumer.subscribe(list(topics))
    return consumer


def poll(consumers: Sequence[Consumer], until: Callable[[list[Any]], bool]) -> list[Any]:
    """What they have read by then."""
    read: list[Any] = []
    deadline = monotonic() + TIMEOUT_S
    while not until(read):
        assert monotonic() < deadline, [len(each.assignment()) for each in consumers]
        for each in consumers:
            message = each.poll(0.02)
            if message is not None:
                assert message.error() is None, message.error()
                read.append((message.topic(), message.partition(), message.offset()))
    return read


def have(consumers: Sequence[Consumer], *counts: int) -> Callable[[list[Any]], bool]:
    return lambda read: [len(each.assignment()) for each in consumers] == list(counts)


def group_type(node: MoldauNode) -> str:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    (group,) = admin.list_consumer_groups().result().valid
    return str(group.type.name)


def test_consumers_share_topics_and_hand_over_what_they_have_read(node: MoldauNode) -> None:
    one = consumer(node, "consumer", "^[eu][us]$")
    read = poll([one], lambda read: len(read) == RECORDS)
    assert len(set(read)) == RECORDS
    one.commit(asynchronous=False)
    two = consumer(node, "consumer", "eu", "us")
    assert poll([one, two], have([one, two], 4, 4)) == []
    one.close()
    assert poll([two], have([two], 8)) == []
    two.close()


def test_a_group_changes_its_protocol_under_its_members(node: MoldauNode) -> None:
    classic = consumer(node, "classic", "eu", "us", partition_assignment_strategy="range")
    poll([classic], lambda read: len(read) == RECORDS)
    classic.commit(asynchronous=False)
    assert group_type(node) == "CLASSIC"
    modern = consumer(node, "consumer", "eu", "us")
    both = [classic, modern]
    # Whoever is eager gives up everything at times, and goes on where it has committed.
    assert poll(both, have(both, 4, 4)) == []
    assert group_type(node) == "CONSUMER"
    modern.close()
    poll([classic], have([classic], 8))
    assert group_type(node) == "CLASSIC"
    classic.close()
