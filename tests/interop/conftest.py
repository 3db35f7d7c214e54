"""One node for all tests of a worker that do not stop it, and topics that are nobody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients import TIMEOUT_S
from tests.support.consumers import PARTITIONS, Members
from tests.support.group_stories import Begin, Nodes, two_nodes
from tests.support.node import KEEP, MoldauNode, unique_name

GROUP_OPTIONS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "150",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "4",
}
TRANSACTION_OPTIONS = {
    **KEEP,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}
Gather = Callable[[], Members]
"""A group that nobody is in yet, on a topic of its own."""


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MoldauNode]:
    with MoldauNode(tmp_path_factory.mktemp("node") / "data", KEEP) as running:
        yield running


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[MoldauNode]:
    """For tests that stop or crash it."""
    with MoldauNode(tmp_path / "data", KEEP) as running:
        yield running


@pytest.fixture(scope="session")
def group_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MoldauNode]:
    with MoldauNode(tmp_path_factory.mktemp("groups") / "data", GROUP_OPTIONS) as running:
        yield running


@pytest.fixture(scope="session")
def txn_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MoldauNode]:
    with MoldauNode(tmp_path_factory.mktemp("txn") / "data", TRANSACTION_OPTIONS) as running:
        yield running


@pytest.fixture
def own_txn_node(tmp_path: Path) -> Iterator[MoldauNode]:
    """For tests that stop or crash it."""
    with MoldauNode(tmp_path / "data", TRANSACTION_OPTIONS) as running:
        yield running


@pytest.fixture
def gather(group_node: MoldauNode) -> Gather:
    return lambda: gather_on(group_node)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[Nodes]:
    with two_nodes(tmp_path_factory.mktemp("two")) as running:
        yield running


@pytest.fixture
def begin(two: Nodes) -> Begin:
    return two.begin


@pytest.fixture
def new_topic(node: MoldauNode) -> Callable[..., str]:
    def create(partitions: int = 1, **config: str) -> str:
        return create_topic(node, partitions=partitions, **config)

    return create


def create_topic(node: MoldauNode, *, partitions: int = 1, **config: str) -> str:
    """The name of a new topic; underscores in the names of its options stand for dots."""
    name = unique_name()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    named = {option.replace("_", "."): value for option, value in config.items()}
    created = admin.create_topics(
        [NewTopic(name, partitions, 1, config=named)], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S
    )
    created[name].result(TIMEOUT_S)
    return name


def gather_on(node: MoldauNode) -> Members:
    return Members(node.bootstrap, unique_name("group"), create_topic(node, partitions=PARTITIONS))
