"""DeleteShareGroupOffsets (key 92), version 0: a share group without members forgets topics."""

from __future__ import annotations

from moldau.groups.share.protocol import DeleteOffsetsResult
from moldau.server.context import RequestContext
from moldau.server.share_acknowledging import check_enabled
from moldau.server.share_group_states import delete
from moldau.server.waiting import result_of
from moldau.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


async def handle(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    check_enabled(context)
    groups, group_id = context.services.groups, request.group_id
    begun: DeleteOffsetsResult = await result_of(
        groups.submit(group_id, lambda shard, now_ms, waiter: shard.share.delete_offsets(request))
    )
    names = context.services.image().topic_names
    deleted, responses = [], list(begun.failed)
    for topic in await delete(context.services, begun.delete):
        failed = next((each for each in topic.partitions if each.error_code), None)
        answer = DeleteShareGroupOffsetsResponseTopic(
            topic_name=names.get(topic.topic_id, ""), topic_id=topic.topic_id
        )
        if failed is None:
            deleted.append(topic.topic_id)
        else:
            answer.error_code, answer.error_message = failed.error_code, failed.error_message
        responses.append(answer)
    if deleted:
        await result_of(
            groups.submit(
                group_id, lambda shard, now_ms, waiter: shard.share.on_offsets_deleted(group_id, deleted)
            )
        )
    return DeleteShareGroupOffsetsResponse(responses=responses)
