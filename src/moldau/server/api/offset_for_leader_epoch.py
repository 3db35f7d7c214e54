"""OffsetForLeaderEpoch (key 23), versions 2-4: where a leader epoch ends, for readers to find where their log
or their position parts from ours; v3 the asking replica, v4 flexible."""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.server.services import Services
from moldau.wire.errors import KafkaError
from moldau.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_of(context.services, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_of(services: Services, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    try:
        log = services.partition(topic, asked.partition).leader_log(asked.current_leader_epoch)
        answer.leader_epoch, answer.end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    except KafkaError as failure:
        answer.error_code = failure.code
    return answer
