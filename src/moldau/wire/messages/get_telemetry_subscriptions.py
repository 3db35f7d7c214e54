"""GetTelemetrySubscriptions (API key 71), versions 0."""

from __future__ import annotations

from moldau.wire.ids import Uuid
from moldau.wire.schema import INT8, STRING, Message, array, boolean, int16, int32, uuid


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions="0", flexible="0+"):
    client_instance_id: Uuid = uuid("0+")


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    client_instance_id: Uuid = uuid("0+")
    subscription_id: int = int32("0+")
    accepted_compression_types: list[int] = array(INT8, "0+")
    push_interval_ms: int = int32("0+")
    telemetry_max_bytes: int = int32("0+")
    delta_temporality: bool = boolean("0+")
    requested_metrics: list[str] = array(STRING, "0+")
