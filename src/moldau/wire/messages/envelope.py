"""Envelope (API key 58), versions 0."""

from __future__ import annotations

from moldau.wire.schema import Message, binary, int16


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    request_data: bytes = binary("0+")
    request_principal: bytes | None = binary("0+", nullable="0+")
    client_host_address: bytes = binary("0+")


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    response_data: bytes | None = binary("0+", nullable="0+", default=None)
    error_code: int = int16("0+", default=0)
