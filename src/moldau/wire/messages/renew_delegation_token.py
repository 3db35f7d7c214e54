"""RenewDelegationToken (API key 39), versions 1-2."""

from __future__ import annotations

from moldau.wire.schema import Message, binary, int16, int32, int64


class RenewDelegationTokenRequest(Message, api_key=39, versions="1-2", flexible="2+"):
    hmac: bytes = binary("0+")
    renew_period_ms: int = int64("0+")


class RenewDelegationTokenResponse(Message, api_key=39, versions="1-2", flexible="2+"):
    error_code: int = int16("0+", default=0)
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+", default=0)
