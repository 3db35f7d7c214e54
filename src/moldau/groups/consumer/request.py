"""What a heartbeat has to be like, whatever its group is like."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.groups.consumer.member import JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_MEMBER_IDS_FROM = 1


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Raises KafkaError, with Kafka's words, for the first thing that is wrong."""
    epoch = request.member_epoch
    if version >= _MEMBER_IDS_FROM or epoch > 0 or epoch == LEAVING_EPOCH:
        _check_filled(request.member_id, "MemberId can't be empty.")
    _check_filled(request.group_id, "GroupId can't be empty.")
    _check_filled(request.instance_id, "InstanceId can't be empty.")
    _check_filled(request.rack_id, "RackId can't be empty.")
    if epoch == JOINING_EPOCH:
        _check_joining(request)
    elif epoch == STATIC_LEAVING_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _check_filled(text: str | None, message: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
