"""SaslAuthenticate (API key 36), versions 0-2."""

from __future__ import annotations

from moldau.wire.schema import Message, binary, int16, int64, string


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = binary("0+")


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = binary("0+")
    session_lifetime_ms: int = int64("1+", default=0, ignorable=True)
