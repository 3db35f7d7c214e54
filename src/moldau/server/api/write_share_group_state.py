"""WriteShareGroupState (key 85), versions 0-1: a leader writes what members did; v1 counts what is done with
(KIP-1226)."""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.wire.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)


async def handle(
    context: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    return await context.services.share_coordinator.write(request)
