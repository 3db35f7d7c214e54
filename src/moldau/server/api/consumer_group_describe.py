"""ConsumerGroupDescribe (key 69), versions 0-1: groups of the consumer protocol; v1 kinds of members."""

from __future__ import annotations

from moldau.server.cluster_view import GROUP_OPERATIONS
from moldau.server.consumer_groups import check_enabled
from moldau.server.context import RequestContext
from moldau.server.waiting import result_of
from moldau.wire.errors import KafkaError
from moldau.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


async def handle(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    groups = [await _describe(context, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe(context: RequestContext, group_id: str) -> DescribedGroup:
    try:
        check_enabled(context.services)
        return await result_of(
            context.services.groups.submit(
                group_id, lambda shard, now_ms, waiter: shard.describe_consumer_group(group_id)
            )
        )
    except KafkaError as failure:
        return DescribedGroup(group_id=group_id, error_code=failure.code, error_message=failure.message)
