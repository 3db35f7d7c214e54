"""DeleteShareGroupState (key 86), version 0: a group coordinator has states of share partitions forgotten."""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)


async def handle(
    context: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    return await context.services.share_coordinator.delete(request)
