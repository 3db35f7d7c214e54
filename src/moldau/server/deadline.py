"""The timeout that a client gives for a change of the cluster."""

from __future__ import annotations

from moldau.wire.errors import ErrorCode, KafkaError


def check_deadline(timeout_ms: int) -> None:
    """As in Kafka, the timeout is for the wait until the controller begins: a change that has begun is
    awaited to its end. We begin at once, so only those who give no time at all are too late."""
    if timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
