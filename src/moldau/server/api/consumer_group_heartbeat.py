"""ConsumerGroupHeartbeat (key 68), versions 0-1: the consumer protocol (KIP-848); v1 patterns, and member ids
that members make themselves (KIP-1082)."""

from __future__ import annotations

from moldau.coordinator.decision import Waiter
from moldau.groups.assignors.catalog import offered
from moldau.groups.consumer.request import check_heartbeat
from moldau.server.consumer_groups import check_enabled
from moldau.server.context import RequestContext
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Waiter[ConsumerGroupHeartbeatResponse]:
    services, client = context.services, context.client
    check_enabled(services)
    check_heartbeat(request, context.version, offered(services.config.groups.consumer_assignors))
    return services.groups.submit(
        request.group_id,
        lambda shard, now_ms, waiter: shard.consumer_group_heartbeat(now_ms, client, request),
    )
