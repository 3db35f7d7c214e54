"""ShareGroupDescribe (key 77), version 1: share groups with their members and assignments."""

from __future__ import annotations

from moldau.server.cluster_view import GROUP_OPERATIONS
from moldau.server.context import RequestContext
from moldau.server.share_acknowledging import check_enabled
from moldau.server.waiting import result_of
from moldau.wire.errors import KafkaError
from moldau.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


async def handle(context: RequestContext, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    groups = [await _describe(context, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return ShareGroupDescribeResponse(groups=groups)


async def _describe(context: RequestContext, group_id: str) -> DescribedGroup:
    try:
        check_enabled(context)
        return await result_of(
            context.services.groups.submit(
                group_id, lambda shard, now_ms, waiter: shard.share.describe(group_id)
            )
        )
    except KafkaError as failure:
        return DescribedGroup(group_id=group_id, error_code=failure.code, error_message=failure.message)
