"""FindCoordinator (key 10), versions 0-6: v1 kinds of coordinators, v3 flexible, v4 several at once, v6 those
of share groups.

Whoever asks first brings the coordinator's topic into being, and asks again.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.coordinator.placement import partition_of
from moldau.server.cluster_view import ClusterView
from moldau.server.context import RequestContext
from moldau.server.topic_creation import create_in_background
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import uuid_from_string
from moldau.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_SHARE = 2
_TOPICS = {0: "__consumer_offsets", 1: "__transaction_state", _SHARE: "__share_group_state"}

_BATCHED_FROM = 4
_SHARE_FROM = 6


class _Found(NamedTuple):
    node_id: int
    host: str
    port: int


def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.version >= _BATCHED_FROM:
        return FindCoordinatorResponse(
            coordinators=[_coordinator(context, request.key_type, key) for key in request.coordinator_keys]
        )
    found = _coordinator(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or ErrorCode(found.error_code).name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(context: RequestContext, key_type: int, key: str) -> Coordinator:
    try:
        found = _find(context, key_type, key)
    except KafkaError as failure:
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=failure.code,
            error_message=failure.message,
        )
    return Coordinator(
        key=key, node_id=found.node_id, host=found.host, port=found.port, error_code=ErrorCode.NONE
    )


def _find(context: RequestContext, key_type: int, key: str) -> _Found:
    if key_type not in _TOPICS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are no coordinators of kind {key_type}")
    if key_type == _SHARE:
        if context.version < _SHARE_FROM:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        _check_share_key(key)
    view = ClusterView.of(context)
    topic = view.image.topics.get(_TOPICS[key_type])
    if topic is None:
        create_in_background(context.services, [_TOPICS[key_type]])
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[partition_of(key, len(topic.partitions))]
    if not view.is_alive(partition.leader):
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    endpoint = view.endpoint(partition.leader)
    return _Found(partition.leader, endpoint.host, endpoint.port)


def _check_share_key(key: str) -> None:
    """Group, topic id and partition, with colons between them; a group's name may have some, too."""
    group_id, _, rest = key.rpartition(":")
    group_id, _, topic_id = group_id.rpartition(":")
    try:
        uuid_from_string(topic_id)
        int(rest)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} is no key of a share coordinator") from None
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} is no key of a share coordinator")
