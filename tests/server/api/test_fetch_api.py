"""Fetch: what an Apache Kafka 4.3 node answered to requests that are not as they should be."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.wire.errors import ErrorCode as E
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tests.server.sim_node import SimNode


@pytest.fixture
def topic(node: SimNode) -> SimNode:
    """Three batches in one partition, from offset 2 on; nothing in the other."""
    node.create_topic("t", 2)
    for _ in range(3):
        node.produce("t", [1, 2])
    node.services.replicas.get("t", 0).log.delete_records_before(2)
    return node


def send(
    node: SimNode,
    *offsets: int,
    version: int = 13,
    name: str = "t",
    epoch: int = -1,
    last_epoch: int = -1,
    partition_bytes: int = 1000,
    wait_s: float = 0,
    **fields: Any,
) -> Any:
    """One offset for each partition."""
    known = node.services.replicas.get(name, 0)
    topic = FetchTopic(
        topic=name if version < 13 else "",
        topic_id=ZERO_UUID if version < 13 else Uuid(known.topic_id if known else b"?" * 16),
        partitions=[
            FetchPartition(
                partition=index,
                fetch_offset=offset,
                current_leader_epoch=epoch,
                last_fetched_epoch=last_epoch,
                partition_max_bytes=partition_bytes,
            )
            for index, offset in enumerate(offsets)
        ],
    )
    request = FetchRequest(
        **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1000, "topics": [topic], **fields}
    )
    return node.send(request, version, wait_s=wait_s)


def only(response: Any) -> PartitionData:
    ((partition,),) = (topic.partitions for topic in response.responses)
    return partition


def offsets_of(partition: PartitionData) -> tuple[int, int, int]:
    return partition.high_watermark, partition.last_stable_offset, partition.log_start_offset


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_is_served(topic: SimNode, version: int) -> None:
    found = only(send(topic, 4, version=version))
    assert found.error_code == E.NONE
    assert offsets_of(found) == (6, 6, 2 if version >= 5 else -1)
    assert found.aborted_transactions is None
    assert found.records


@pytest.mark.parametrize("offset", [0, 1, 7, -1, 2**63 - 1])
@pytest.mark.parametrize("last_epoch", [-1, 0, 5])
def test_an_offset_out_of_range_tells_nothing_else(topic: SimNode, offset: int, last_epoch: int) -> None:
    found = only(send(topic, offset, last_epoch=last_epoch))
    if (offset, last_epoch) in ((7, 0), (2**63 - 1, 0)):
        assert (found.error_code, found.diverging_epoch.end_offset) == (E.NONE, 6)
        return
    assert found.error_code == E.OFFSET_OUT_OF_RANGE
    assert offsets_of(found) == (-1, -1, -1)
    assert found.aborted_transactions is None


@pytest.mark.parametrize(
    ("version", "name", "code"),
    [(12, "other", E.UNKNOWN_TOPIC_OR_PARTITION), (13, "other", E.UNKNOWN_TOPIC_ID)],
)
def test_what_is_unknown_has_no_aborted_transactions(
    topic: SimNode, version: int, name: str, code: E
) -> None:
    found = only(send(topic, 0, version=version, name=name))
    assert (found.error_code, found.aborted_transactions) == (code, [])


@pytest.mark.parametrize("level", [2, -1])
def test_there_are_two_isolation_levels(topic: SimNode, level: int) -> None:
    old = only(send(topic, 4, version=6, isolation_level=level))
    assert (old.error_code, old.records) == (E.UNKNOWN_SERVER_ERROR, b"")
    response = send(topic, 4, version=12, isolation_level=level)
    assert (response.error_code, only(response).error_code) == (E.UNKNOWN_SERVER_ERROR,) * 2
    response = send(topic, 4, version=13, isolation_level=level)
    assert (response.error_code, response.responses) == (E.UNKNOWN_SERVER_ERROR, [])


@pytest.mark.parametrize("sizes", [{"partition_bytes": -1}, {"max_bytes": -1}])
def test_negative_sizes_are_an_error_where_there_is_something_to_read(
    topic: SimNode, sizes: dict[str, int]
) -> None:
    assert only(send(topic, 4, **sizes)).error_code == E.UNKNOWN_SERVER_ERROR
    assert only(send(topic, 6, **sizes)).error_code == E.NONE


def test_an_offset_out_of_range_is_told_though_there_is_no_room_left(topic: SimNode) -> None:
    ((first, second),) = (each.partitions for each in send(topic, 2, 50, max_bytes=10).responses)
    assert (first.error_code, second.error_code) == (E.NONE, E.OFFSET_OUT_OF_RANGE)
    ((first, second),) = (each.partitions for each in send(topic, 2, 0, max_bytes=10).responses)
    assert (first.error_code, offsets_of(second)) == (E.NONE, (0, 0, 0))


def test_who_allows_fewer_bytes_than_it_asks_for_is_not_kept_waiting(topic: SimNode) -> None:
    response = send(topic, 2, min_bytes=500, max_bytes=10, max_wait_ms=60_000)
    assert only(response).records
    assert send(topic, 2, min_bytes=500, max_bytes=1000, max_wait_ms=60_000) is None
    late = send(topic, 2, min_bytes=500, max_bytes=1000, max_wait_ms=500, wait_s=1)
    assert only(late).records


@pytest.mark.parametrize(("version", "leader"), [(12, (-1, -1)), (15, (-1, -1)), (16, (1, 3)), (18, (1, 3))])
def test_the_leader_is_told_to_who_knows_an_older_one(
    topic: SimNode, version: int, leader: tuple[int, int]
) -> None:
    topic.partition("t").become_leader(1, 3, 1, 1)
    found = only(send(topic, 4, version=version, epoch=2))
    assert found.error_code == E.FENCED_LEADER_EPOCH
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == leader


@pytest.mark.parametrize(
    ("version", "code"),
    [(5, E.NOT_LEADER_OR_FOLLOWER), (6, E.KAFKA_STORAGE_ERROR), (18, E.KAFKA_STORAGE_ERROR)],
)
def test_a_failed_directory_is_told_to_who_knows_the_code(topic: SimNode, version: int, code: E) -> None:
    topic.partition("t").log = None
    assert only(send(topic, 4, version=version)).error_code == code


def test_a_session_may_begin_with_nothing(topic: SimNode) -> None:
    begun = send(topic, topics=[], session_id=0, session_epoch=0)
    assert begun.session_id > 0
    response = send(topic, 4, session_id=begun.session_id, session_epoch=1)
    assert (response.error_code, only(response).high_watermark) == (E.NONE, 6)
