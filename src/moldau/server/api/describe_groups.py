"""DescribeGroups (key 15), versions 0-6: classic groups with their members; v3 operations, v4 static members,
v5 flexible, v6 says what is not there (KIP-1043)."""

from __future__ import annotations

from moldau.server.cluster_view import GROUP_OPERATIONS
from moldau.server.context import RequestContext
from moldau.server.waiting import result_of
from moldau.wire.errors import KafkaError
from moldau.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


async def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = [await _describe(context, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


async def _describe(context: RequestContext, group_id: str) -> DescribedGroup:
    version = context.version
    try:
        return await result_of(
            context.services.groups.submit_any_id(
                group_id, lambda shard, now_ms, waiter: shard.describe_group(group_id, version)
            )
        )
    except KafkaError as failure:
        return DescribedGroup(group_id=group_id, error_code=failure.code)
