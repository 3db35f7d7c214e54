"""PushTelemetry (key 72), version 0: takes a client's metrics (KIP-714), counts them and drops them."""

from __future__ import annotations

from moldau.server.api.get_telemetry_subscriptions import client_of
from moldau.server.context import RequestContext
from moldau.server.telemetry import read_payload
from moldau.wire.errors import KafkaError
from moldau.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


async def handle(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    services = context.services
    telemetry = services.telemetry
    telemetry.update(services.image().configs)
    metrics = request.metrics
    try:
        telemetry.check_push(
            request.client_instance_id,
            client_of(context),
            services.runtime.clock.now_ms(),
            subscription_id=request.subscription_id,
            terminating=request.terminating,
            compression_type=request.compression_type,
            size=len(metrics),
            bytes_max=services.config.metrics.telemetry_max_bytes,
        )
    except KafkaError as failure:
        return PushTelemetryResponse(error_code=failure.code)
    if metrics:
        try:
            size = await services.runtime.run_blocking(read_payload, request.compression_type, metrics)
        except KafkaError as failure:
            telemetry.count_push_error()
            return PushTelemetryResponse(error_code=failure.code)
        telemetry.count_push(size)
    return PushTelemetryResponse()
