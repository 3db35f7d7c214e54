"""Heartbeat (key 12), versions 0-4: v3 static members (KIP-345), v4 flexible."""

from __future__ import annotations

from moldau.coordinator.decision import Waiter
from moldau.server.context import RequestContext
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse | Waiter[HeartbeatResponse]:
    try:
        return context.services.groups.submit(
            request.group_id, lambda shard, now_ms, waiter: shard.heartbeat(now_ms, request)
        )
    except KafkaError as failure:
        if failure.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Sessions begin anew when the group is there: until then nobody is late.
            return HeartbeatResponse()
        return HeartbeatResponse(error_code=failure.code)
