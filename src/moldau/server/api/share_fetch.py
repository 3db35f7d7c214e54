"""ShareFetch (key 78), versions 1-2: records for a member of a share group, and its word on those that it has
(KIP-932); v2 exact limits (KIP-1206) and renewal of locks (KIP-1222).

Acknowledgements come first: what is released with a fetch may be what it gets. A request that renews locks
fetches nothing, so that its answer does not come when they have ended again.
"""

from __future__ import annotations

from moldau.coordinator.decision import Waiter
from moldau.server.context import RequestContext
from moldau.server.share_acknowledging import (
    Acknowledged,
    Leader,
    Outcome,
    acknowledge,
    check_member,
    leader_of,
    new_session_key,
    when_all,
)
from moldau.server.share_fetch import Fetched, Result, ShareFetch, ShareFetchLimits
from moldau.share.sessions import FINAL_EPOCH, ShareContext, TopicPartition
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid
from moldau.wire.messages import share_fetch as wire

_RENEWAL_FROM = 2
_RECORD_LIMIT = 1


def handle(context: RequestContext, request: wire.ShareFetchRequest) -> Waiter[wire.ShareFetchResponse]:
    key = check_member(context, request.group_id, request.member_id)
    is_renewal = context.version >= _RENEWAL_FROM and request.is_renew_ack
    if is_renewal:
        _check_renewal(request)
    shares = context.services.share_partitions
    has_acknowledgements = any(
        partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions
    )
    response: Waiter[wire.ShareFetchResponse] = Waiter()
    try:
        session = shares.sessions.open(
            key,
            request.share_session_epoch,
            [
                (topic.topic_id, partition.partition_index)
                for topic in request.topics
                for partition in topic.partitions
            ],
            [
                (topic.topic_id, index)
                for topic in request.forgotten_topics_data
                for index in topic.partitions
            ],
            context.connection,
            has_acknowledgements=has_acknowledgements,
            slots=context.services.config.share_groups.max_share_sessions,
        )
    except KafkaError as failure:
        if failure.code != ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            raise
        # A client asks again at once, so it is told when its fetch would have been over.
        context.services.runtime.call_later(request.max_wait_ms / 1000, response.fail, failure)
        return response
    new_session_key(context, key)
    outcomes: Acknowledged = {}
    if has_acknowledgements:
        outcomes = acknowledge(
            context,
            key,
            [
                (topic.topic_id, partition.partition_index, partition.acknowledgement_batches)
                for topic in request.topics
                for partition in topic.partitions
            ],
            is_renewal=is_renewal,
        )
    fetched: Waiter[Result] = Waiter()
    if is_renewal or not session.partitions:
        fetched.give({})
    else:
        fetch = ShareFetch(context.services.runtime, shares, key, _limits(context, request))
        fetched = fetch.begin(session.in_turn())
        if not fetched.is_done:
            context.connection.on_closed = fetch.cancel

    def finish() -> None:
        if request.share_session_epoch == FINAL_EPOCH:
            shares.close_session(key)
        response.give(_response(context, key.group_id, session, fetched.result(), outcomes))

    when_all([fetched, *outcomes.values()], finish)
    return response


def _check_renewal(request: wire.ShareFetchRequest) -> None:
    if request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _limits(context: RequestContext, request: wire.ShareFetchRequest) -> ShareFetchLimits:
    max_bytes = max(0, min(request.max_bytes, context.services.fetch_max_bytes))
    return ShareFetchLimits(
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        records_max=max(0, request.max_records),
        batch_size=request.batch_size,
        is_record_limit=request.share_acquire_mode == _RECORD_LIMIT,
    )


def _response(
    context: RequestContext,
    group_id: str,
    session: ShareContext,
    fetched: Result,
    outcomes: Acknowledged,
) -> wire.ShareFetchResponse:
    limits = context.services.share_partitions.limits(group_id)
    response = wire.ShareFetchResponse(acquisition_lock_timeout_ms=limits.lock_duration_ms)
    topics: dict[Uuid, wire.ShareFetchableTopicResponse] = {}

    def add(topic_partition: TopicPartition, data: wire.PartitionData) -> None:
        topic_id, _ = topic_partition
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = wire.ShareFetchableTopicResponse(topic_id=topic_id)
            response.responses.append(topic)
        topic.partitions.append(data)

    left = dict(outcomes)
    for topic_partition, each in fetched.items():
        data = _partition_data(topic_partition, each)
        is_told = session.is_told(topic_partition, error_code=data.error_code, has_records=bool(each.records))
        outcome = left.pop(topic_partition, None)
        if outcome is not None:
            _tell(data, outcome)
        if is_told or outcome is not None:
            if each.failure is not None:
                _tell_leader(data, response, leader_of(context, topic_partition, each.failure))
            add(topic_partition, data)
    for topic_partition, outcome in left.items():
        data = wire.PartitionData(partition_index=topic_partition[1], records=b"")
        _tell(data, outcome)
        add(topic_partition, data)
    return response


def _partition_data(topic_partition: TopicPartition, fetched: Fetched) -> wire.PartitionData:
    return wire.PartitionData(
        partition_index=topic_partition[1],
        error_code=0 if fetched.failure is None else fetched.failure.code,
        records=fetched.records,
        acquired_records=[
            wire.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in fetched.acquired
        ],
    )


def _tell(data: wire.PartitionData, outcome: Outcome) -> None:
    if outcome.failure is not None:
        data.acknowledge_error_code = outcome.failure.code
        data.acknowledge_error_message = outcome.failure.message


def _tell_leader(data: wire.PartitionData, response: wire.ShareFetchResponse, leader: Leader | None) -> None:
    if leader is None:
        return
    data.current_leader = wire.LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
    end = leader.endpoint
    if end is not None and all(each.node_id != leader.id for each in response.node_endpoints):
        response.node_endpoints.append(wire.NodeEndpoint(node_id=leader.id, host=end.host, port=end.port))
