"""ShareGroupHeartbeat (key 76), version 1: members of share groups join, stay and leave (KIP-932).

Partitions that nobody of the group has had yet need a state before they are assigned. It is asked for behind
the answer: members come again for their partitions.
"""

from __future__ import annotations

from moldau.coordinator.decision import Waiter
from moldau.groups.share.protocol import HeartbeatResult, check_heartbeat
from moldau.server.context import RequestContext
from moldau.server.share_acknowledging import check_enabled, check_member_id
from moldau.server.share_group_states import initialize
from moldau.wire.errors import KafkaError
from moldau.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


def handle(
    context: RequestContext, request: ShareGroupHeartbeatRequest
) -> Waiter[ShareGroupHeartbeatResponse]:
    check_enabled(context)
    check_member_id(request.member_id)
    check_heartbeat(request)
    services, client = context.services, context.client
    decided = services.groups.submit(
        request.group_id, lambda shard, now_ms, waiter: shard.share.heartbeat(now_ms, client, request)
    )
    response: Waiter[ShareGroupHeartbeatResponse] = Waiter()

    def answer() -> None:
        try:
            result: HeartbeatResult = decided.result()
        except KafkaError as failure:
            response.fail(failure)
            return
        response.give(result.response)
        if result.initialize is not None:
            work = initialize(services, result.initialize)
            services.runtime.spawn(work, f"share states of {request.group_id}")

    decided.when_done(answer)
    return response
