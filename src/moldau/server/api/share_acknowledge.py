"""ShareAcknowledge (key 79), versions 1-2: a member's word on the records that it has; v2 renewal of locks
(KIP-1222)."""

from __future__ import annotations

from moldau.coordinator.decision import Waiter
from moldau.server.context import RequestContext
from moldau.server.share_acknowledging import (
    Acknowledged,
    Leader,
    acknowledge,
    check_member,
    leader_of,
    when_all,
)
from moldau.share.sessions import FINAL_EPOCH
from moldau.wire.ids import Uuid
from moldau.wire.messages import share_acknowledge as wire


def handle(
    context: RequestContext, request: wire.ShareAcknowledgeRequest
) -> Waiter[wire.ShareAcknowledgeResponse]:
    key = check_member(context, request.group_id, request.member_id)
    shares = context.services.share_partitions
    shares.sessions.acknowledge(key, request.share_session_epoch)
    outcomes = acknowledge(
        context,
        key,
        [
            (topic.topic_id, partition.partition_index, partition.acknowledgement_batches)
            for topic in request.topics
            for partition in topic.partitions
        ],
        is_renewal=request.is_renew_ack,
    )
    response: Waiter[wire.ShareAcknowledgeResponse] = Waiter()

    def finish() -> None:
        if request.share_session_epoch == FINAL_EPOCH:
            shares.close_session(key)
        response.give(_response(context, key.group_id, outcomes))

    when_all(outcomes.values(), finish)
    return response


def _response(
    context: RequestContext, group_id: str, outcomes: Acknowledged
) -> wire.ShareAcknowledgeResponse:
    limits = context.services.share_partitions.limits(group_id)
    response = wire.ShareAcknowledgeResponse(acquisition_lock_timeout_ms=limits.lock_duration_ms)
    topics: dict[Uuid, wire.ShareAcknowledgeTopicResponse] = {}
    for (topic_id, index), outcome in outcomes.items():
        data = wire.PartitionData(partition_index=index)
        if outcome.failure is not None:
            data.error_code, data.error_message = outcome.failure.code, outcome.failure.message
            _tell_leader(data, response, leader_of(context, (topic_id, index), outcome.failure))
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = wire.ShareAcknowledgeTopicResponse(topic_id=topic_id)
            response.responses.append(topic)
        topic.partitions.append(data)
    return response


def _tell_leader(
    data: wire.PartitionData, response: wire.ShareAcknowledgeResponse, leader: Leader | None
) -> None:
    if leader is None:
        return
    data.current_leader = wire.LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
    end = leader.endpoint
    if end is not None and all(each.node_id != leader.id for each in response.node_endpoints):
        response.node_endpoints.append(wire.NodeEndpoint(node_id=leader.id, host=end.host, port=end.port))
