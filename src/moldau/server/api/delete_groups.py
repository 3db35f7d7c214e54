"""DeleteGroups (key 42), versions 0-2: groups without members, with their offsets; v2 flexible."""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.server.share_group_states import delete_all
from moldau.server.waiting import result_of
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    # One that is named twice is deleted once.
    return DeleteGroupsResponse(
        results=[await _delete(context, group_id) for group_id in dict.fromkeys(request.groups_names)]
    )


async def _delete(context: RequestContext, group_id: str) -> DeletableGroupResult:
    try:
        await delete_all(context.services, group_id)
        await result_of(
            context.services.groups.submit_any_id(
                group_id, lambda shard, now_ms, waiter: shard.delete_group(group_id)
            )
        )
    except KafkaError as failure:
        return DeletableGroupResult(group_id=group_id, error_code=failure.code)
    return DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE)
