"""OffsetCommit (key 8), versions 2-10: v2-4 a retention of one's own, v6 leader epochs, v7 static members, v8
flexible, v9 members of consumer groups, v10 topic ids.

What the cluster does not have is refused here, the rest is the coordinator's to say; its error, if it has one
for the request, is that of each partition that it was asked about.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.coordinator.decision import Waiter
from moldau.groups.offset_commit import NO_RETENTION, OffsetCommit, OffsetToCommit
from moldau.metadata.image import TopicImage
from moldau.net.connection import PENDING, Connection, Reply, Signal
from moldau.server.context import RequestContext
from moldau.server.services import Services
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.wire.offset_commit import TOPIC_IDS_FROM, read_usual_commit, write_usual_answer

_Known = tuple[TopicImage, list[OffsetCommitRequestPartition]]


def handle_usual(
    services: Services,
    connection: Connection,
    version: int,
    correlation_id: int,
    frame: bytes,
    position: int,
) -> Reply | Signal | None:
    """Offsets of partitions that there are."""
    asked = read_usual_commit(version, frame, position)
    if asked is None:
        return None
    group_id, generation, member_id, instance_id, topics = asked
    image = services.controller.image
    offsets: list[OffsetToCommit] = []
    for topic, of_topic in topics:
        known = image.topics.get(topic) if isinstance(topic, str) else image.topic_by_id(Uuid(topic))
        if known is None:
            return None
        name, topic_id, partitions = known.name, known.topic_id, known.partitions
        for index, offset, leader_epoch, metadata in of_topic:
            if index not in partitions:
                return None
            offsets.append((name, topic_id, index, offset, leader_epoch, metadata))
    commit = OffsetCommit(group_id, generation, member_id, instance_id, NO_RETENTION, version, offsets)
    committed = _submit(services, commit)
    if committed.is_done:
        return write_usual_answer(correlation_id, topics, _codes(committed, commit))
    committed.when_done(
        lambda: connection.reply(write_usual_answer(correlation_id, topics, _codes(committed, commit)))
    )
    return PENDING


def handle(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Waiter[OffsetCommitResponse]:
    known, refused = _resolve(context, request)
    if not known:
        return OffsetCommitResponse(topics=refused)
    commit = OffsetCommit(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        request.retention_time_ms,
        context.version,
        [
            (
                topic.name,
                topic.topic_id,
                each.partition_index,
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata or "",
            )
            for topic, partitions in known
            for each in partitions
        ],
    )
    committed = _submit(context.services, commit)
    if committed.is_done:
        return _response(commit, _codes(committed, commit), refused)
    answer: Waiter[OffsetCommitResponse] = Waiter()
    committed.when_done(lambda: answer.give(_response(commit, _codes(committed, commit), refused)))
    return answer


def _submit(services: Services, commit: OffsetCommit) -> Waiter[Sequence[ErrorCode]]:
    try:
        return services.groups.submit_any_id(
            commit.group_id, lambda shard, now_ms, _: shard.commit_offsets(now_ms, commit)
        )
    except KafkaError as failure:
        refused: Waiter[Sequence[ErrorCode]] = Waiter()
        refused.fail(failure)
        return refused


def _codes(committed: Waiter[Sequence[ErrorCode]], commit: OffsetCommit) -> Sequence[ErrorCode]:
    """Of each offset, in their order."""
    if committed.failure is not None:
        return [committed.failure.code] * len(commit.offsets)
    return committed.result()


def _resolve(
    context: RequestContext, request: OffsetCommitRequest
) -> tuple[list[_Known], list[OffsetCommitResponseTopic]]:
    """What there is, with both its name and its id; and what is told of the rest."""
    image = context.services.image()
    by_id = context.version >= TOPIC_IDS_FROM
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    known: list[_Known] = []
    refused: list[OffsetCommitResponseTopic] = []
    for asked in request.topics:
        topic = image.topic_by_id(asked.topic_id) if by_id else image.topics.get(asked.name)
        if topic is None:
            refused.append(_failed(asked, unknown, asked.partitions))
            continue
        there = [each for each in asked.partitions if each.partition_index in topic.partitions]
        if there:
            known.append((topic, there))
        if len(there) < len(asked.partitions):
            missing = [each for each in asked.partitions if each.partition_index not in topic.partitions]
            asked.name, asked.topic_id = topic.name, topic.topic_id
            refused.append(_failed(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing))
    return known, refused


def _failed(
    topic: OffsetCommitRequestTopic, code: ErrorCode, partitions: Sequence[OffsetCommitRequestPartition]
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )


def _response(
    commit: OffsetCommit, codes: Sequence[ErrorCode], refused: list[OffsetCommitResponseTopic]
) -> OffsetCommitResponse:
    topics: dict[tuple[str, Uuid], OffsetCommitResponseTopic] = {}
    for topic in refused:
        known = topics.setdefault((topic.name, topic.topic_id), topic)
        if known is not topic:
            known.partitions += topic.partitions
    for (name, topic_id, index, *_), code in zip(commit.offsets, codes, strict=True):
        told = topics.get((name, topic_id))
        if told is None:
            told = OffsetCommitResponseTopic(name=name, topic_id=topic_id)
            topics[name, topic_id] = told
        told.partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=code))
    return OffsetCommitResponse(topics=list(topics.values()))
