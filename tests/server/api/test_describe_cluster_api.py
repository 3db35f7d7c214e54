"""DescribeCluster and DescribeQuorum, with the answers of Apache Kafka 4.3."""

from __future__ import annotations

from typing import Any

import pytest
from api_cluster import CLUSTER_ID, Broker, broker, directory

from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode as E
from moldau.wire.ids import ZERO_UUID
from moldau.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from moldau.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
    ResponseTopicData,
)


def describe(
    *brokers: Any, version: int = 2, listener: str = "INTERNAL", **fields: Any
) -> DescribeClusterResponse:
    with Broker(*brokers) as node:
        message = DescribeClusterRequest(**fields)
        response: DescribeClusterResponse = node.ask(
            ApiKey.DESCRIBE_CLUSTER, version, message, listener=listener
        )
        return response


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_its_brokers_on_this_listener(version: int) -> None:
    assert describe(broker(1), broker(2), version=version, listener="PLAINTEXT") == DescribeClusterResponse(
        cluster_id=CLUSTER_ID,
        controller_id=1,
        brokers=[DescribeClusterBroker(broker_id=1, host="127.0.0.1", port=9092, rack="r1")],
    )


def test_fenced_brokers_are_told_only_to_those_who_ask() -> None:
    brokers = broker(1), broker(2, fenced=True)
    assert [each.broker_id for each in describe(*brokers).brokers] == [1]
    told = describe(*brokers, include_fenced_brokers=True).brokers
    assert [(each.broker_id, each.is_fenced) for each in told] == [(1, False), (2, True)]


def test_a_controller_that_is_not_in_the_list_is_not_named() -> None:
    response = describe(broker(1, fenced=True), broker(2), listener="PLAINTEXT")
    assert (response.controller_id, response.brokers) == (-1, [])


def test_all_operations_on_the_cluster_are_allowed() -> None:
    response = describe(broker(1), include_cluster_authorized_operations=True)
    assert response.cluster_authorized_operations == 8096


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "code", "message"),
    [
        (
            2,
            E.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        ),
        (0, E.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 0"),
        (-1, E.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type -1"),
    ],
)
def test_this_endpoint_is_that_of_a_broker(version: int, endpoint_type: int, code: E, message: str) -> None:
    assert describe(broker(1), version=version, endpoint_type=endpoint_type) == DescribeClusterResponse(
        error_code=code, error_message=message
    )


# ---------------------------------------------------------------- quorum

METADATA = "__cluster_metadata"


class OneVoter:
    def describe(self) -> DescribeQuorumResponse:
        partition = ResponsePartitionData(
            leader_id=1,
            leader_epoch=3,
            high_watermark=9,
            current_voters=[
                ReplicaState(
                    replica_id=1,
                    replica_directory_id=directory(1),
                    log_end_offset=9,
                    last_fetch_timestamp=7,
                    last_caught_up_timestamp=7,
                )
            ],
        )
        return DescribeQuorumResponse(
            topics=[ResponseTopicData(topic_name=METADATA, partitions=[partition])],
            nodes=[Node(node_id=1, listeners=[Listener(name="CONTROLLER", host="127.0.0.1", port=9093)])],
        )


def quorum(version: int, *topics: tuple[str, list[int]]) -> DescribeQuorumResponse:
    with Broker(broker(1)) as node:
        node.quorum = OneVoter()
        message = DescribeQuorumRequest(
            topics=[
                RequestTopicData(
                    topic_name=name,
                    partitions=[RequestPartitionData(partition_index=index) for index in indexes],
                )
                for name, indexes in topics
            ]
        )
        response: DescribeQuorumResponse = node.ask(ApiKey.DESCRIBE_QUORUM, version, message)
        return response


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_is_described_as_far_as_the_version_goes(version: int) -> None:
    response = quorum(version, (METADATA, [0]))
    partition = response.topics[0].partitions[0]
    voter = partition.current_voters[0]
    assert (partition.error_code, partition.leader_id, partition.high_watermark) == (0, 1, 9)
    assert voter.last_caught_up_timestamp == (7 if version >= 1 else -1)
    assert voter.replica_directory_id == (directory(1) if version >= 2 else ZERO_UUID)
    assert len(response.nodes) == (1 if version >= 2 else 0)


@pytest.mark.parametrize(
    "asked",
    [
        [("t", [0])],
        [(METADATA, [1])],
        [(METADATA, [0, 1])],
        [(METADATA, [0, 0])],
        [(METADATA, [0]), ("t", [0])],
        [(METADATA, [0]), ("t", [])],
        [(METADATA, [])],
        [],
    ],
)
def test_anything_but_the_one_partition_is_unknown_and_makes_it_unknown(
    asked: list[tuple[str, list[int]]],
) -> None:
    response = quorum(2, *asked)
    assert (response.error_code, response.error_message, response.nodes) == (0, "", [])
    assert [(t.topic_name, [p.partition_index for p in t.partitions]) for t in response.topics] == asked
    for topic in response.topics:
        for partition in topic.partitions:
            assert partition.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
            assert partition.error_message == "This server does not host this topic-partition."
