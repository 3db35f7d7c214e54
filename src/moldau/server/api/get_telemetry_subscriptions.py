"""GetTelemetrySubscriptions (key 71), version 0: which metrics a client pushes, and how often (KIP-714)."""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.server.telemetry import ACCEPTED_COMPRESSION_TYPES, Client
from moldau.wire.errors import KafkaError
from moldau.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


def handle(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    services = context.services
    telemetry = services.telemetry
    telemetry.update(services.image().configs)
    now_ms = services.runtime.clock.now_ms()
    try:
        instance_id, subscription = telemetry.get_subscription(
            request.client_instance_id, client_of(context), now_ms
        )
    except KafkaError as failure:
        return GetTelemetrySubscriptionsResponse(error_code=failure.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription.subscription_id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION_TYPES),
        push_interval_ms=subscription.push_interval_ms,
        telemetry_max_bytes=services.config.metrics.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(subscription.metrics),
    )


def client_of(context: RequestContext) -> Client:
    connection = context.connection
    return Client(
        connection.client_id, *connection.client_software, connection.peer_host, connection.peer_port
    )
