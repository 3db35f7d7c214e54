"""AlterShareGroupOffsets (key 91), version 0: where a share group without members goes on."""

from __future__ import annotations

from moldau.groups.share.protocol import AlterResult
from moldau.server.context import RequestContext
from moldau.server.share_acknowledging import check_enabled
from moldau.server.share_group_states import initialize
from moldau.server.waiting import result_of
from moldau.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)


async def handle(
    context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    check_enabled(context)
    altered: AlterResult = await result_of(
        context.services.groups.submit(
            request.group_id, lambda shard, now_ms, waiter: shard.share.alter_offsets(now_ms, request)
        )
    )
    if not altered.initialize.topics:
        return altered.response
    begun = await initialize(context.services, altered.initialize)
    failures = {
        (topic.topic_id, partition.partition): partition
        for topic in begun.results
        for partition in topic.partitions
        if partition.error_code
    }
    for topic in altered.response.responses:
        for answer in topic.partitions:
            failed = failures.get((topic.topic_id, answer.partition_index))
            if failed is not None:
                answer.error_code, answer.error_message = failed.error_code, failed.error_message
    return altered.response
