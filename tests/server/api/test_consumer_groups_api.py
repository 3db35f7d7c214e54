"""Groups of the consumer protocol, and their life across restarts, on a simulated node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.server.sim_node import SimNode

OPTIONS = {"offsets_topic_num_partitions": "1", "offsets_topic_replication_factor": "1"}
GROUP_RESOURCE, SET = 32, 0


def ready(**options: str) -> SimNode:
    node = SimNode(**OPTIONS, **options)
    node.create_topic("t", partitions=2)
    node.call(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
    node.simulation.advance(1)
    return node


@pytest.fixture
def node() -> Iterator[SimNode]:
    with ready() as node:
        yield node


def beat(node: SimNode, epoch: int, version: int = 1, **fields: Any) -> Any:
    fields = {"group_id": "g", "member_id": "m", **fields}
    if epoch == 0:
        fields = {
            "subscribed_topic_names": ["t"],
            "rebalance_timeout_ms": 1000,
            "topic_partitions": [],
        } | fields
    return node.call(ConsumerGroupHeartbeatRequest(member_epoch=epoch, **fields), version)


def describe(node: SimNode, *group_ids: str, operations: bool = False) -> list[Any]:
    request = ConsumerGroupDescribeRequest(
        group_ids=list(group_ids), include_authorized_operations=operations
    )
    return list(node.call(request, 1).groups)


def test_a_member_joins_and_is_described(node: SimNode) -> None:
    joined = beat(node, 0)
    (topic,) = joined.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (node.services.image().topics["t"].topic_id, [0, 1])
    (group, none) = describe(node, "g", "none", operations=True)
    assert (group.group_state, group.assignor_name) == ("Stable", "uniform")
    assert [(each.member_id, each.client_id, each.client_host) for each in group.members] == [
        ("m", "client", "/localhost")
    ]
    assert group.authorized_operations > 0
    assert (none.error_code, none.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")


def test_a_group_outlives_its_node(node: SimNode) -> None:
    epoch = beat(node, 0).member_epoch
    node.restart()
    node.simulation.advance(1)
    assert beat(node, epoch).error_code == 0
    (group,) = describe(node, "g")
    assert group.group_state == "Stable"


def test_a_topic_that_grows_is_handed_out(node: SimNode) -> None:
    epoch = beat(node, 0).member_epoch
    grown = CreatePartitionsTopic(name="t", count=3, assignments=None)
    node.call(CreatePartitionsRequest(topics=[grown], timeout_ms=1000), 3)
    node.simulation.advance(2)
    assert beat(node, epoch).assignment.topic_partitions[0].partitions == [0, 1, 2]


def test_options_may_be_set_on_a_group(node: SimNode) -> None:
    option = AlterableConfig(name="consumer.heartbeat.interval.ms", config_operation=SET, value="7000")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g", configs=[option])
    node.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert beat(node, 0).heartbeat_interval_ms == 7000


def test_a_silent_member_is_taken_out(node: SimNode) -> None:
    beat(node, 0)
    node.simulation.advance(46)
    (group,) = describe(node, "g")
    assert (group.group_state, group.members) == ("Empty", [])


def test_requests_that_are_wrong_are_refused(node: SimNode) -> None:
    for fields, message in (
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
    ):
        with pytest.raises(KafkaError) as caught:
            beat(node, 0, **fields)
        assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, message)


def test_the_protocol_may_be_turned_off() -> None:
    with ready(group_coordinator_rebalance_protocols="classic") as node:
        with pytest.raises(KafkaError) as caught:
            beat(node, 0)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        (group,) = describe(node, "g")
        assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
