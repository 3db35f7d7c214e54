"""OffsetDelete (key 47), version 0: takes offsets away from a group that does not consume their topics."""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.server.waiting import result_of
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    unknown = _take_out_unknown(context, request)
    response = await result_of(
        context.services.groups.submit(
            request.group_id, lambda shard, now_ms, waiter: shard.delete_offsets(request)
        )
    )
    topics = {topic.name: topic for topic in unknown}
    for topic in response.topics:
        known = topics.setdefault(topic.name, topic)
        if known is not topic:
            known.partitions += topic.partitions
    return OffsetDeleteResponse(topics=list(topics.values()))


def _take_out_unknown(
    context: RequestContext, request: OffsetDeleteRequest
) -> list[OffsetDeleteResponseTopic]:
    """Leaves in the request the partitions that there are; tells of the others."""
    image = context.services.image()
    kept, unknown = [], []
    for topic in request.topics:
        known = image.topics.get(topic.name)
        there = (
            [] if known is None else [p for p in topic.partitions if p.partition_index in known.partitions]
        )
        missing = [p for p in topic.partitions if p not in there]
        if missing:
            unknown.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(
                            partition_index=each.partition_index,
                            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        )
                        for each in missing
                    ],
                )
            )
        if there:
            kept.append(OffsetDeleteRequestTopic(name=topic.name, partitions=there))
    request.topics = kept
    return unknown
