"""SyncGroup (key 14), versions 0-5: members get what their leader, whose request it is too, has assigned; v3
static members, v4 flexible, v5 protocol type and name."""

from __future__ import annotations

from moldau.coordinator.decision import Waiter
from moldau.server.context import RequestContext
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_REQUIRED_FROM = 5


def handle(context: RequestContext, request: SyncGroupRequest) -> Waiter[SyncGroupResponse]:
    if context.version >= _PROTOCOL_REQUIRED_FROM and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return context.services.groups.submit(
        request.group_id, lambda shard, now_ms, waiter: shard.sync_group(now_ms, request, waiter)
    )
