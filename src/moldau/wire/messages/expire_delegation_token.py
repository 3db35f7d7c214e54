"""ExpireDelegationToken (API key 40), versions 1-2."""

from __future__ import annotations

from moldau.wire.schema import Message, binary, int16, int32, int64


class ExpireDelegationTokenRequest(Message, api_key=40, versions="1-2", flexible="2+"):
    hmac: bytes = binary("0+")
    expiry_time_period_ms: int = int64("0+")


class ExpireDelegationTokenResponse(Message, api_key=40, versions="1-2", flexible="2+"):
    error_code: int = int16("0+", default=0)
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+", default=0)
