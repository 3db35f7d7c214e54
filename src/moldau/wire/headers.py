"""Request and response headers, by hand: they are read and written for every request.

A request header says its API key and version first; from version 2 on (flexible requests) it ends with tagged
fields. A response header is the correlation id, and for flexible responses a tag section; the answer to
ApiVersions never has one, because a client reads it before both sides know what they speak.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from moldau.wire.api import ApiKey, request_type
from moldau.wire.codec import Buffer, ProtocolError, skip_tags

_FIXED = struct.Struct(">hhih")


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: bytes | None
    body_position: int


def read_request_header(frame: Buffer, flexible_from: dict[int, int]) -> RequestHeader:
    """`flexible_from` gives, for each API key, the first version whose header has tagged fields."""
    try:
        api_key, api_version, correlation_id, size = _FIXED.unpack_from(frame)
        position = 10
        client_id = None
        if size >= 0:
            position += size
            if position > len(frame):
                raise ProtocolError("the client id is longer than the request")
            client_id = bytes(frame[10:position])
        if api_version >= flexible_from.get(api_key, 32767):
            position = skip_tags(frame, position) if frame[position] else position + 1
    except (struct.error, IndexError):
        raise ProtocolError("a request is shorter than its header") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def write_request_header(key: ApiKey, version: int, correlation_id: int, client_id: str | None) -> bytearray:
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    out = bytearray(_FIXED.pack(key, version, correlation_id, size)) + name
    if version in request_type(key).FLEXIBLE:
        out.append(0)
    return out


def response_is_flexible(key: int, version: int, flexible: bool) -> bool:
    """Whether the response header ends with a tag section, given whether the body is flexible."""
    return flexible and key != ApiKey.API_VERSIONS
