"""ReadShareGroupState (key 84), version 0: a leader reads the state of its share partitions, and makes itself
known by that."""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.wire.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)


async def handle(context: RequestContext, request: ReadShareGroupStateRequest) -> ReadShareGroupStateResponse:
    return await context.services.share_coordinator.read(request)
