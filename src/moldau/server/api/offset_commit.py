"""OffsetCommit (key 8), versions 2-10: v2-4 a retention of one's own, v6 leader epochs, v7 static members, v8
flexible, v9 members of consumer groups, v10 topic ids.

What the cluster does not have is refused here, the rest is the coordinator's to say; its error, if it has one
for the request, is that of each partition.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.coordinator.decision import Waiter
from moldau.server.context import RequestContext
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_TOPIC_IDS_FROM = 10


def handle(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Waiter[OffsetCommitResponse]:
    asked = request.topics
    refused = _take_out_unknown(context, request)
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    version = context.version
    try:
        committed = context.services.groups.submit_any_id(
            request.group_id,
            lambda shard, now_ms, waiter: shard.commit_offsets(now_ms, request, version),
        )
    except KafkaError as failure:
        return _all_failed(asked, failure)
    if not refused and committed.answer is not None:
        return committed.answer
    answer: Waiter[OffsetCommitResponse] = Waiter()
    committed.when_done(lambda: answer.give(_response(committed, refused, asked)))
    return answer


def _response(
    committed: Waiter[OffsetCommitResponse],
    refused: list[OffsetCommitResponseTopic],
    asked: Sequence[OffsetCommitRequestTopic],
) -> OffsetCommitResponse:
    if committed.failure is not None:
        return _all_failed(asked, committed.failure)
    topics = {(topic.name, topic.topic_id): topic for topic in refused}
    for topic in committed.result().topics:
        known = topics.setdefault((topic.name, topic.topic_id), topic)
        if known is not topic:
            known.partitions += topic.partitions
    return OffsetCommitResponse(topics=list(topics.values()))


def _all_failed(asked: Sequence[OffsetCommitRequestTopic], failure: KafkaError) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            _failed(topic, failure.code, [each.partition_index for each in topic.partitions])
            for topic in asked
        ]
    )


def _failed(
    topic: OffsetCommitRequestTopic, code: ErrorCode, indexes: Sequence[int]
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=index, error_code=code) for index in indexes
        ],
    )


def _take_out_unknown(
    context: RequestContext, request: OffsetCommitRequest
) -> list[OffsetCommitResponseTopic]:
    """Leaves in the request what there is, with both its name and its id; tells of the rest."""
    image = context.services.image()
    by_id = context.version >= _TOPIC_IDS_FROM
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused: list[OffsetCommitResponseTopic] = []
    kept: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        known = image.topic_by_id(topic.topic_id) if by_id else image.topics.get(topic.name)
        if known is None:
            refused.append(_failed(topic, unknown, [each.partition_index for each in topic.partitions]))
            continue
        topic.name, topic.topic_id = known.name, known.topic_id
        partitions = known.partitions
        missing = [
            each.partition_index for each in topic.partitions if each.partition_index not in partitions
        ]
        if not missing:
            kept.append(topic)
            continue
        refused.append(_failed(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing))
        there = [each for each in topic.partitions if each.partition_index in partitions]
        if there:
            kept.append(OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=there))
    request.topics = kept
    return refused
