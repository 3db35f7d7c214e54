"""DescribeQuorum (key 55), versions 0-2: v1 when a replica was last heard of, v2 directory ids, nodes and
messages (KIP-853)."""

from __future__ import annotations

from moldau.controller.topic_names import CLUSTER_METADATA_TOPIC
from moldau.server.context import RequestContext
from moldau.wire.errors import ErrorCode
from moldau.wire.ids import ZERO_UUID
from moldau.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ResponsePartitionData,
    ResponseTopicData,
)

_IDENTITIES_FROM = 2


def handle(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Whoever asks for anything but the one partition there is, even besides it, gets nothing at all."""
    asked = [
        (topic.topic_name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if asked == [(CLUSTER_METADATA_TOPIC, 0)] and len(request.topics) == 1:
        return _as_of(context.version, context.services.quorum.describe())
    return DescribeQuorumResponse(
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    ResponsePartitionData(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message="This server does not host this topic-partition.",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _as_of(version: int, response: DescribeQuorumResponse) -> DescribeQuorumResponse:
    """Without what says more than an older client asked for, and what its version could not carry."""
    if version < _IDENTITIES_FROM:
        response.nodes = []
        for topic in response.topics:
            for partition in topic.partitions:
                for replica in (*partition.current_voters, *partition.observers):
                    replica.replica_directory_id = ZERO_UUID
    return response
