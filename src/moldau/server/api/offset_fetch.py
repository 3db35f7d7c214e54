"""OffsetFetch (key 9), versions 1-10: v2 all topics, v5 leader epochs, v6 flexible, v7 only what no open
transaction is about to change, v8 several groups, v9 members of consumer groups, v10 topic ids."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from moldau.coordinator.decision import Waiter
from moldau.server.context import RequestContext
from moldau.server.waiting import settled
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_NO_OFFSET = -1
_GROUPS_FROM = 8
_TOPIC_IDS_FROM = 10
_ERROR_CODE_FROM = 2


class _Fetch(NamedTuple):
    group: OffsetFetchRequestGroup
    unknown: list[OffsetFetchResponseTopics]
    answer: Waiter[OffsetFetchResponseGroup]


def handle(
    context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """At once, unless there are offsets that are not committed yet: no task for what nearly all ask."""
    fetches = [_begin(context, group, request.require_stable) for group in _asked(context.version, request)]
    if all(fetch.answer.is_done for fetch in fetches):
        return _response(context.version, fetches)
    return _when_done(context.version, fetches)


def _asked(version: int, request: OffsetFetchRequest) -> Sequence[OffsetFetchRequestGroup]:
    if version >= _GROUPS_FROM:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return (OffsetFetchRequestGroup(group_id=request.group_id, topics=topics),)


def _begin(context: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool) -> _Fetch:
    unknown = _name_topics(context, group) if context.version >= _TOPIC_IDS_FROM else []
    try:
        answer = context.services.groups.submit_any_id(
            group.group_id,
            lambda shard, now_ms, waiter: shard.fetch_offsets(group, require_stable=require_stable),
        )
    except KafkaError as failure:
        answer = Waiter()
        answer.fail(failure)
    return _Fetch(group, unknown, answer)


async def _when_done(version: int, fetches: Sequence[_Fetch]) -> OffsetFetchResponse:
    for fetch in fetches:
        await settled(fetch.answer)
    return _response(version, fetches)


def _response(version: int, fetches: Sequence[_Fetch]) -> OffsetFetchResponse:
    if version >= _GROUPS_FROM:
        return OffsetFetchResponse(groups=[_told(fetch) for fetch in fetches])
    (fetch,) = fetches
    return _of_one_group(version, fetch.group, _told(fetch))


def _told(fetch: _Fetch) -> OffsetFetchResponseGroup:
    if fetch.answer.failure is not None:
        return OffsetFetchResponseGroup(group_id=fetch.group.group_id, error_code=fetch.answer.failure.code)
    response = fetch.answer.result()
    response.topics += fetch.unknown
    return response


def _name_topics(context: RequestContext, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Leaves in the request the topics whose ids are known, with their names; tells of the others."""
    if group.topics is None:
        return []
    image = context.services.image()
    known, unknown = [], []
    for topic in group.topics:
        found = image.topic_by_id(topic.topic_id)
        if found is not None:
            topic.name = found.name
            known.append(topic)
            continue
        unknown.append(
            OffsetFetchResponseTopics(
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=_NO_OFFSET,
                        metadata="",
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    )
                    for index in topic.partition_indexes
                ],
            )
        )
    group.topics = known
    return unknown


def _of_one_group(
    version: int, asked: OffsetFetchRequestGroup, group: OffsetFetchResponseGroup
) -> OffsetFetchResponse:
    """As told to those who know of one group in a request."""
    if group.error_code and version < _ERROR_CODE_FROM:
        # There is no place for it but the partitions.
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index,
                            committed_offset=_NO_OFFSET,
                            metadata="",
                            error_code=group.error_code,
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in asked.topics or ()
            ]
        )
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
