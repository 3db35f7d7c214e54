"""SaslHandshake (API key 17), versions 0-1."""

from __future__ import annotations

from moldau.wire.schema import STRING, Message, array, int16, string


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    error_code: int = int16("0+", default=0)
    mechanisms: list[str] = array(STRING, "0+")
