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

_UNKNOWN = "This server does not host this topic-partition."  # of topics, not of partitions, as in Kafka


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
    message: str | None = None
    try:
        check_topic_name(topic)
        if topic not in context.services.image().topics:
            message = _UNKNOWN
        # Whoever leads: a follower knows the same of producers.
        producers = context.services.partition(topic, index).local_log().producers.producers
    except KafkaError as failure:
        if failure.code is ErrorCode.INVALID_TOPIC_EXCEPTION:
            message = failure.message
        return PartitionResponse(
            partition_index=index, error_code=failure.code, error_message=message, active_producers=[]
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
