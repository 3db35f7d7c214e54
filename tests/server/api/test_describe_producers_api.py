"""DescribeProducers: who writes to a partition, and in which transaction."""

from __future__ import annotations

from typing import Any

from moldau.wire.errors import ErrorCode as E
from moldau.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.server.api.txn_clients import append, marker, transactional_batch, write_markers
from tests.server.sim_node import SimNode


def describe(node: SimNode, topic: str, *indexes: int) -> list[Any]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[*indexes])])
    ((told),) = node.call(request, 0).topics
    return list(told.partitions)


def test_a_producer_is_told_with_its_open_transaction(node: SimNode) -> None:
    node.create_topic("t", 2)
    node.produce("t", [1, 2])
    append(node, "t", transactional_batch(3, epoch=4))
    append(node, "t", transactional_batch(2, producer_id=8))
    now_ms = node.runtime.clock.now_ms()
    write_markers(node, marker({"t": [0]}, producer_id=8, epoch=1, coordinator_epoch=5))
    first, second = describe(node, "t", 0, 1)
    assert [
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in first.active_producers
    ] == [(7, 4, 2, 1002, -1, 2), (8, 1, -1, now_ms, 5, -1)]
    assert (second.error_code, second.error_message, second.active_producers) == (E.NONE, None, [])


def test_what_is_not_here_is_told(node: SimNode) -> None:
    node.create_topic("t")
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    (missing,) = describe(node, "t", 7)
    assert (missing.error_code, missing.error_message) == (unknown, None)
    (other,) = describe(node, "other", 0)
    assert (other.error_code, other.error_message) == (
        unknown,
        "This server does not host this topic-partition.",
    )
    (invalid,) = describe(node, "a/b", 0)
    assert invalid.error_code == E.INVALID_TOPIC_EXCEPTION and invalid.error_message
