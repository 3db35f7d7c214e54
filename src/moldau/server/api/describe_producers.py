"""DescribeProducers (key 61), version 0: who writes to a partition, and since which offset in a transaction.

What `kafka-transactions.sh describe-producers` and `find-hanging` look at."""

from __future__ import annotations

from moldau.controller.topic_names import check_topic_name
from moldau.log.producer_state import ProducerEntry
from moldau.server.context import RequestContext
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_described(context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _described(context: RequestContext, topic: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(topic)
        producers = context.services.partition(topic, index).leader_log().producers.producers
    except KafkaError as failure:
        return PartitionResponse(
            partition_index=index,
            error_code=failure.code,
            error_message=failure.message,
            active_producers=[],
        )
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[_state(producer_id, entry) for producer_id, entry in producers.items()],
    )


def _state(producer_id: int, entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first_offset,
    )
