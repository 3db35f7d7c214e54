"""DescribeTopicPartitions (key 75), version 0: topics page by page, with eligible leader replicas (KIP-966).

Topics come in the order of their names. A page ends after so many partitions, with a cursor to the first one
that is missing; a topic that does not exist takes no room on it.
"""

from __future__ import annotations

from moldau.controller.topic_names import INTERNAL_TOPICS
from moldau.metadata.image import PartitionImage
from moldau.server.api.metadata import unknown_topic_code
from moldau.server.cluster_view import TOPIC_OPERATIONS, ClusterView
from moldau.server.context import RequestContext
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)


def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    view = ClusterView.of(context)
    everything = not request.topics
    named = view.image.topics if everything else {topic.name for topic in request.topics}
    first_name, first_index = "", 0
    if request.cursor is not None:
        first_name, first_index = request.cursor.topic_name, request.cursor.partition_index
        if first_index < 0 or not (everything or first_name in named):
            return _respond_failed(request)

    limit = context.services.config.node.max_request_partition_size_limit
    room = max(1, min(limit, request.response_partition_limit))
    response = DescribeTopicPartitionsResponse()
    for name in sorted(name for name in named if name >= first_name):
        if room == 0:
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=0)
            break
        topic = view.image.topics.get(name)
        if topic is None:
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=unknown_topic_code(name),
                    name=name,
                    is_internal=name in INTERNAL_TOPICS,
                    topic_authorized_operations=TOPIC_OPERATIONS,
                )
            )
            continue
        start = first_index if name == first_name else 0
        end = min(len(topic.partitions), start + room)
        partitions = [_partition(view, index, topic.partitions[index]) for index in range(start, end)]
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=partitions,
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        if end < len(topic.partitions):
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=end)
            break
        room -= len(partitions)
    return response


def _respond_failed(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """Its only error codes are those of topics."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
            for topic in request.topics
        ]
    )


def _partition(
    view: ClusterView, index: int, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=view.leader_id(partition),
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=view.offline_replicas(partition),
    )
