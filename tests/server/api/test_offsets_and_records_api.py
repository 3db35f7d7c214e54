"""OffsetForLeaderEpoch, DeleteRecords and InitProducerId: what an Apache Kafka 4.3 node answered."""

from __future__ import annotations

import pytest

from moldau.wire.errors import ErrorCode as E
from moldau.wire.messages import delete_records, offset_for_leader_epoch
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from tests.server.sim_node import SimNode


def end_of_epoch(
    node: SimNode, leader_epoch: int, current: int = -1, topic: str = "t"
) -> tuple[int, int, int]:
    asked = offset_for_leader_epoch.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=leader_epoch
    )
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        topics=[offset_for_leader_epoch.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )
    (found,) = node.call(request, 4).topics[0].partitions
    return found.error_code, found.leader_epoch, found.end_offset


def delete(node: SimNode, offset: int, topic: str = "t", partition: int = 0) -> tuple[int, int]:
    asked = delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = delete_records.DeleteRecordsRequest(
        timeout_ms=1000, topics=[delete_records.DeleteRecordsTopic(name=topic, partitions=[asked])]
    )
    (result,) = node.call(request, 2).topics[0].partitions
    return result.low_watermark, result.error_code


def init_producer(node: SimNode, **fields: object) -> tuple[int, int, int]:
    request = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **fields})
    response = node.call(request, 5)
    return response.error_code, response.producer_id, response.producer_epoch


def test_tells_where_an_epoch_ends(node: SimNode) -> None:
    node.create_topic("t")
    node.produce("t", [1, 2, 3])
    assert end_of_epoch(node, 0) == (E.NONE, 0, 3)
    assert end_of_epoch(node, 0, current=0) == (E.NONE, 0, 3)
    assert end_of_epoch(node, 1) == (E.NONE, -1, -1)
    assert end_of_epoch(node, -1) == (E.NONE, -1, -1)
    assert end_of_epoch(node, -5) == (E.NONE, -5, 0)
    assert end_of_epoch(node, 0, current=1) == (E.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end_of_epoch(node, 0, current=-2) == (E.FENCED_LEADER_EPOCH, -1, -1)
    assert end_of_epoch(node, 0, topic="other") == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_moves_the_start_of_a_log_forward_only(node: SimNode) -> None:
    node.create_topic("t")
    node.produce("t", list(range(7)))
    out_of_range = (-1, E.OFFSET_OUT_OF_RANGE)
    assert [delete(node, offset) for offset in (8, -2)] == [out_of_range, out_of_range]
    assert [delete(node, offset) for offset in (0, 3, -1, 2)] == [(0, 0), (3, 0), (7, 0), (7, 0)]


def test_deletes_only_where_the_policy_is_to_delete(node: SimNode) -> None:
    node.create_topic("compacted", cleanup_policy="compact")
    node.create_topic("both", cleanup_policy="compact,delete")
    node.create_topic("__consumer_offsets")
    assert delete(node, 0, "compacted") == (-1, E.POLICY_VIOLATION)
    assert delete(node, 0, "both") == (0, E.NONE)
    assert delete(node, 0, "__consumer_offsets") == (-1, E.INVALID_TOPIC_EXCEPTION)
    assert delete(node, 0, "other") == (-1, E.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete(node, 0, "both", partition=9) == (-1, E.UNKNOWN_TOPIC_OR_PARTITION)


def test_what_was_deleted_does_not_come_back_after_a_crash(node: SimNode) -> None:
    node.create_topic("t")
    node.produce("t", list(range(7)))
    log = node.partition("t").log
    assert log is not None
    log.flush(0)
    assert delete(node, 4) == (4, E.NONE)
    node.crash()
    assert delete(node, 0) == (4, E.NONE)


def test_every_producer_gets_an_id_of_its_own(node: SimNode) -> None:
    ids = [init_producer(node) for _ in range(3)]
    assert [(code, epoch) for code, _, epoch in ids] == [(E.NONE, 0)] * 3
    assert len({producer_id for _, producer_id, _ in ids}) == 3
    node.restart()
    assert init_producer(node)[1] > max(producer_id for _, producer_id, _ in ids)


def test_who_has_an_id_and_an_epoch_gets_another(node: SimNode) -> None:
    assert init_producer(node, producer_id=5, producer_epoch=5)[0] == E.NONE
    assert init_producer(node, producer_id=5) == (E.INVALID_REQUEST, -1, -1)
    assert init_producer(node, producer_epoch=5) == (E.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, E.INVALID_REQUEST),
        ({"transactional_id": "x", "transaction_timeout_ms": 0}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": "x", "transaction_timeout_ms": 10**9}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": "x"}, E.NOT_COORDINATOR),
    ],
)
def test_a_transactional_id_without_a_coordinator(node: SimNode, fields: dict[str, object], code: E) -> None:
    assert init_producer(node, **fields) == (code, -1, -1)
