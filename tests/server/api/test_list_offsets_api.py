"""Every expectation here is what an Apache Kafka 4.3 node answered to the same request."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.wire.errors import ErrorCode as E
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.server.api.txn_clients import append
from tests.server.sim_node import SimNode

LATEST, EARLIEST, MAX, LOCAL, TIERED, PENDING = range(-1, -7, -1)
NOTHING = (E.NONE, -1, -1, -1)


def ask(
    node: SimNode,
    timestamp: int,
    version: int = 11,
    *,
    topic: str = "t",
    partition: int = 0,
    epoch: int = -1,
    replica_id: int = -1,
    isolation_level: int = 0,
    times: int = 1,
) -> tuple[int, int, int, int]:
    asked = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked] * times)],
    )
    (answered,) = node.call(request, version).topics
    (found,) = answered.partitions
    assert (answered.name, found.partition_index) == (topic, partition)
    return found.error_code, found.timestamp, found.offset, found.leader_epoch


@pytest.fixture
def filled(node: SimNode) -> SimNode:
    node.create_topic("t")
    for timestamps in ([100, 300, 200], [50, 400, 400], [350]):
        node.produce("t", timestamps)
    return node


@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        (LATEST, (E.NONE, -1, 7, 0)),
        (EARLIEST, (E.NONE, -1, 0, 0)),
        (MAX, (E.NONE, 400, 4, 0)),
        (LOCAL, (E.NONE, -1, 0, 0)),
        (TIERED, NOTHING),
        (PENDING, NOTHING),
        (-7, (E.UNSUPPORTED_VERSION, -1, -1, -1)),
        (0, (E.NONE, 100, 0, 0)),
        (101, (E.NONE, 300, 1, 0)),
        (301, (E.NONE, 400, 4, 0)),
        (400, (E.NONE, 400, 4, 0)),
        (401, NOTHING),
    ],
)
def test_looks_up_times_and_ends(filled: SimNode, timestamp: int, answer: tuple[int, ...]) -> None:
    assert ask(filled, timestamp) == answer


def test_an_empty_log_has_ends_and_nothing_between(node: SimNode) -> None:
    node.create_topic("t")
    answers = {timestamp: ask(node, timestamp) for timestamp in (LATEST, EARLIEST, LOCAL, MAX, TIERED, 0)}
    end = (E.NONE, -1, 0, 0)
    assert answers == {LATEST: end, EARLIEST: end, LOCAL: end, MAX: NOTHING, TIERED: NOTHING, 0: NOTHING}


@pytest.mark.parametrize(
    ("timestamp", "first"), [(LATEST, 1), (EARLIEST, 1), (MAX, 7), (LOCAL, 8), (TIERED, 9), (PENDING, 11)]
)
def test_a_special_timestamp_is_for_versions_that_know_it(node: SimNode, timestamp: int, first: int) -> None:
    node.create_topic("t")
    understood = [version for version in range(1, 12) if ask(node, timestamp, version)[0] == E.NONE]
    assert understood == list(range(first, 12))


def test_old_versions_get_no_leader_epoch(filled: SimNode) -> None:
    assert [ask(filled, LATEST, version)[3] for version in (1, 3, 4)] == [-1, -1, 0]


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, E.NONE), (0, E.NONE), (1, E.UNKNOWN_LEADER_EPOCH), (-2, E.FENCED_LEADER_EPOCH)],
)
def test_a_wrong_leader_epoch_is_refused(filled: SimNode, epoch: int, code: E) -> None:
    assert ask(filled, LATEST, epoch=epoch)[0] == code


def test_what_is_not_there_or_asked_twice(filled: SimNode) -> None:
    assert ask(filled, LATEST, topic="other")[0] == E.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(filled, LATEST, partition=9)[0] == E.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(filled, LATEST, times=2)[0] == E.INVALID_REQUEST
    assert ask(filled, LATEST, isolation_level=2)[0] == E.UNKNOWN_SERVER_ERROR


def test_only_who_debugs_is_answered_by_a_follower(filled: SimNode) -> None:
    filled.partition("t").resign(2, 5)
    assert ask(filled, LATEST)[0] == E.NOT_LEADER_OR_FOLLOWER
    assert ask(filled, LATEST, replica_id=-2) == (E.NONE, -1, 7, 5)


@settings(max_examples=25)
@given(
    batches=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=6),
    wanted=st.integers(0, 55),
)
def test_a_time_is_found_as_by_looking_at_every_record(batches: list[list[int]], wanted: int) -> None:
    with SimNode() as node:
        node.create_topic("t")
        for timestamps in batches:
            node.produce("t", timestamps)
        times = [timestamp for timestamps in batches for timestamp in timestamps]
        first = next(((time, offset) for offset, time in enumerate(times) if time >= wanted), None)
        assert ask(node, wanted) == (NOTHING if first is None else (E.NONE, *first, 0))
        newest = max(times)
        assert ask(node, MAX) == (E.NONE, newest, times.index(newest), 0)


def test_times_in_an_open_transaction_are_for_who_reads_everything(filled: SimNode) -> None:
    batch = build_batch(
        [Record(0, 500, b"key", b"")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    append(filled, "t", batch)
    for timestamp in (450, MAX):
        assert ask(filled, timestamp) == (E.NONE, 500, 7, 0)
        assert ask(filled, timestamp, isolation_level=1) == NOTHING
    assert ask(filled, 350, isolation_level=1) == (E.NONE, 400, 4, 0)
