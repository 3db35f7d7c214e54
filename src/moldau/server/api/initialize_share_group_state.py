"""InitializeShareGroupState (key 83), version 0: a group coordinator has states of share partitions begun."""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)


async def handle(
    context: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    return await context.services.share_coordinator.initialize(request)
