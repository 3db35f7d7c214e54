"""JoinGroup (key 11), versions 0-9: v1 rebalance timeout, v4 new members get an id first (KIP-394), v5 static
members (KIP-345), v6 flexible, v7 protocol type (KIP-559), v8 reason (KIP-800), v9 a returning leader is told
not to assign (KIP-814)."""

from __future__ import annotations

from moldau.coordinator.decision import Waiter
from moldau.server.context import RequestContext
from moldau.wire.errors import KafkaError
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

_NULL_PROTOCOL_FROM = 7


def handle(context: RequestContext, request: JoinGroupRequest) -> Waiter[JoinGroupResponse]:
    client, version = context.client, context.version
    answer: Waiter[JoinGroupResponse] = Waiter()
    try:
        joined = context.services.groups.submit(
            request.group_id,
            lambda shard, now_ms, waiter: shard.join_group(now_ms, client, request, version, waiter),
        )
    except KafkaError as failure:
        answer.give(_shaped(_refused(request, failure), version))
    else:
        joined.when_done(lambda: answer.give(_shaped(_told(request, joined), version)))
    return answer


def _told(request: JoinGroupRequest, joined: Waiter[JoinGroupResponse]) -> JoinGroupResponse:
    return joined.result() if joined.failure is None else _refused(request, joined.failure)


def _refused(request: JoinGroupRequest, failure: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=failure.code, member_id=request.member_id)


def _shaped(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """Where there is no protocol, older clients read an empty name, newer ones none."""
    if not response.protocol_name:
        response.protocol_name = None if version >= _NULL_PROTOCOL_FROM else ""
    return response
