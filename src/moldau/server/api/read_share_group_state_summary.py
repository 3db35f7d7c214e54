"""ReadShareGroupStateSummary (key 87), versions 0-1: how far groups have come, without what lies in between;
v1 counts what is done with (KIP-1226)."""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)


async def handle(
    context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    return await context.services.share_coordinator.summarize(request)
