"""Transactions of real clients, and what readers of both isolation levels see of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.interop.conftest import create_topic
from tests.support.clients import CLIENTS
from tests.support.node import MoldauNode, unique_name
from tests.support.transactors import TIMEOUT_S, TRANSACTORS, Fenced, Place, Transactor

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

every_client = pytest.mark.parametrize("client", TRANSACTORS)


@contextmanager
def transactor(
    client: str, node: MoldauNode, transactional_id: str, timeout_ms: int = 60_000
) -> Iterator[Transactor]:
    made = TRANSACTORS[client](node.bootstrap, transactional_id, timeout_ms)
    try:
        yield made
    finally:
        made.close()


def values(
    node: MoldauNode, place: Place, *, committed: bool, reader: str = "confluent-kafka"
) -> list[bytes]:
    isolation = "read_committed" if committed else "read_uncommitted"
    found = CLIENTS[reader].read(node.bootstrap, place[0], partition=place[1], isolation=isolation)
    return [record.value or b"" for _, record in found]


def end_offset(node: MoldauNode, place: Place, *, committed: bool) -> int:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(*place): OffsetSpec.latest()}
    (future,) = admin.list_offsets(asked, isolation_level=level).values()
    return int(future.result(TIMEOUT_S).offset)


def committed_offset(node: MoldauNode, group: str, place: Place) -> int:
    """-1001 where there is none."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(*place)])
    (future,) = admin.list_consumer_group_offsets([asked], require_stable=True).values()
    (found,) = future.result(TIMEOUT_S).topic_partitions
    return int(found.offset)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"not so within {TIMEOUT_S} s"


def settle(node: MoldauNode, *places: Place) -> None:
    """Until every transaction has ended: an answered commit is durable, its markers may be on their way."""
    for place in places:
        until(
            lambda place=place: (
                end_offset(node, place, committed=True) == end_offset(node, place, committed=False)
            )
        )


@every_client
def test_a_transaction_is_seen_whole_or_not_at_all(txn_node: MoldauNode, client: str):
    one, other = create_topic(txn_node, partitions=2), create_topic(txn_node)
    places = [(one, 0), (one, 1), (other, 0)]
    with transactor(client, txn_node, unique_name("txn")) as producer:
        for number in range(6):
            producer.begin()
            for place in places:
                for step in range(2):
                    producer.send(place, b"%d.%d" % (number, step))
            if number % 2:
                producer.abort()
            else:
                producer.commit()
    settle(txn_node, *places)
    every = [b"%d.%d" % (number, step) for number in range(6) for step in range(2)]
    visible = [value for value in every if int(value[:1]) % 2 == 0]
    for place in places:
        for reader in CLIENTS:
            assert values(txn_node, place, committed=False, reader=reader) == every, (place, reader)
            assert values(txn_node, place, committed=True, reader=reader) == visible, (place, reader)
        # Six markers are in the log, too.
        assert end_offset(txn_node, place, committed=False) == 12 + 6


@every_client
def test_an_open_transaction_holds_back_readers_of_what_is_committed(txn_node: MoldauNode, client: str):
    place = create_topic(txn_node), 0
    with (
        transactor(client, txn_node, unique_name("slow")) as slow,
        transactor(client, txn_node, unique_name("fast")) as fast,
    ):
        slow.begin()
        slow.send(place, b"first")
        fast.begin()
        fast.send(place, b"second")
        fast.commit()
        until(lambda: end_offset(txn_node, place, committed=False) == 3)
        assert end_offset(txn_node, place, committed=True) == 0
        assert values(txn_node, place, committed=True) == []
        assert values(txn_node, place, committed=False) == [b"first", b"second"]
        slow.commit()
        settle(txn_node, place)
        assert values(txn_node, place, committed=True) == [b"first", b"second"]


@every_client
def test_a_zombie_is_fenced(txn_node: MoldauNode, client: str):
    """Whatever it has under way is aborted by whoever takes its transactional id."""
    place, name = (create_topic(txn_node), 0), unique_name("txn")
    with transactor(client, txn_node, name) as zombie:
        zombie.begin()
        zombie.send(place, b"of the zombie")
        with transactor(client, txn_node, name) as successor:
            successor.begin()
            successor.send(place, b"of the successor")
            with pytest.raises(Fenced):
                zombie.commit()
            successor.commit()
    settle(txn_node, place)
    assert values(txn_node, place, committed=True) == [b"of the successor"]
    assert values(txn_node, place, committed=False) == [b"of the zombie", b"of the successor"]


@every_client
def test_offsets_are_a_part_of_the_transaction(txn_node: MoldauNode, client: str):
    source, place = (create_topic(txn_node), 0), (create_topic(txn_node), 0)
    group = unique_name("group")
    offset = partial(committed_offset, txn_node, group, source)
    with transactor(client, txn_node, unique_name("txn")) as producer:
        for upto, commits, expected in ((3, True, 3), (5, False, 3), (7, True, 7)):
            producer.begin()
            producer.send(place, b"up to %d" % upto)
            producer.send_offsets(group, {source: upto})
            (producer.commit if commits else producer.abort)()
            assert offset() == expected
    settle(txn_node, place)
    assert values(txn_node, place, committed=True) == [b"up to 3", b"up to 7"]


@every_client
def test_what_takes_too_long_is_aborted(txn_node: MoldauNode, client: str):
    place = create_topic(txn_node), 0
    with transactor(client, txn_node, unique_name("txn"), timeout_ms=1000) as producer:
        producer.begin()
        producer.send(place, b"too late")
        until(lambda: end_offset(txn_node, place, committed=True) == 2)
        with pytest.raises(Fenced):
            producer.commit()
    assert values(txn_node, place, committed=True) == []
    assert values(txn_node, place, committed=False) == [b"too late"]


@pytest.mark.parametrize("ending", ["stopped", "killed"])
@every_client
def test_a_transaction_goes_on_after_its_broker_was_away(own_txn_node: MoldauNode, client: str, ending: str):
    one, other = (create_topic(own_txn_node), 0), (create_topic(own_txn_node), 0)
    restart = own_txn_node.restart if ending == "stopped" else own_txn_node.crash_and_restart
    group = unique_name("group")
    with transactor(client, own_txn_node, unique_name("txn")) as producer:
        for number, commits in enumerate((True, False, True)):
            producer.begin()
            producer.send(one, b"before %d" % number)
            # librdkafka may wait for ever for a coordinator whose connection was lost.
            if client != "confluent-kafka":
                producer.send_offsets(group, {one: number})
            restart()
            producer.send(other, b"after %d" % number)
            (producer.commit if commits else producer.abort)()
            if client != "confluent-kafka":
                assert committed_offset(own_txn_node, group, one) == (0, 0, 2)[number]
    restart()
    settle(own_txn_node, one, other)
    assert values(own_txn_node, one, committed=True) == [b"before 0", b"before 2"]
    assert values(own_txn_node, other, committed=True) == [b"after 0", b"after 2"]
    assert values(own_txn_node, one, committed=False) == [b"before %d" % number for number in range(3)]
