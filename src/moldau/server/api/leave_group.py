"""LeaveGroup (key 13), versions 0-5: v3 several members at once, by instance id too, v4 flexible, v5
reasons (KIP-800)."""

from __future__ import annotations

from moldau.coordinator.decision import Waiter
from moldau.server.context import RequestContext
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_BATCHES_FROM = 3


def handle(context: RequestContext, request: LeaveGroupRequest) -> Waiter[LeaveGroupResponse]:
    version = context.version
    if version < _BATCHES_FROM:
        request.members = [MemberIdentity(member_id=request.member_id)]
    answer: Waiter[LeaveGroupResponse] = Waiter()
    try:
        left = context.services.groups.submit(
            request.group_id, lambda shard, now_ms, waiter: shard.leave_group(now_ms, request)
        )
    except KafkaError as failure:
        answer.give(_shaped(_refused(request, failure), version))
    else:
        left.when_done(lambda: answer.give(_shaped(_told(request, left), version)))
    return answer


def _told(request: LeaveGroupRequest, left: Waiter[LeaveGroupResponse]) -> LeaveGroupResponse:
    return left.result() if left.failure is None else _refused(request, left.failure)


def _refused(request: LeaveGroupRequest, failure: KafkaError) -> LeaveGroupResponse:
    """There is no such group for any of them, or else something is wrong with the request as a whole."""
    if failure.code is not ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=failure.code)
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=failure.code,
            )
            for member in request.members
        ]
    )


def _shaped(response: LeaveGroupResponse, version: int) -> LeaveGroupResponse:
    """Older clients leave alone, and are told of themselves."""
    if version < _BATCHES_FROM and response.members:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response
