"""The little of HTTP/1.1 that serving a page to a scraper takes (RFC 9112): bytes in, requests out.

Only requests without a body are understood: what asks for anything else is refused and the connection closed,
because where its body ends is then not known. Pure: knows no socket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

HEAD_BYTES_MAX = 8 * 1024
METHODS = ("GET", "HEAD")

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VERSION = re.compile(r"HTTP/(\d)\.(\d)")
_ABSOLUTE = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class Request(NamedTuple):
    method: str
    path: str
    keep_alive: bool


class HttpError(Exception):
    """A request that is answered with `status` and the end of the connection."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class RequestReader:
    """Keeps no more than one head and what came with it in the same read."""

    def __init__(self) -> None:
        self._received = bytearray()

    @property
    def is_empty(self) -> bool:
        return not self._received

    def feed(self, data: bytes | memoryview) -> None:
        self._received += data

    def next_request(self) -> Request | None:
        """The next whole request; None if more has to be received. Raises HttpError."""
        received = self._received
        while received.startswith((b"\r", b"\n")):  # some clients end a request with a line too many
            del received[0]
        end = _HEAD_END.search(received, 0, HEAD_BYTES_MAX)
        if end is None:
            if len(received) >= HEAD_BYTES_MAX:
                raise HttpError(431, f"the head of a request may have {HEAD_BYTES_MAX} bytes")
            return None
        head = received[: end.start()].decode("latin-1")
        del received[: end.end()]
        return _parse(head)


def _parse(head: str) -> Request:
    first, *lines = (line.removesuffix("\r") for line in head.split("\n"))
    words = first.split(" ")
    if len(words) != 3 or not _TOKEN.fullmatch(words[0]):
        raise HttpError(400, "the request line is not METHOD TARGET VERSION")
    method, target, version_text = words
    version = _VERSION.fullmatch(version_text)
    if version is None:
        raise HttpError(400, "the request line does not end with a version of HTTP")
    if version[1] != "1":
        raise HttpError(505, "HTTP/1.0 and HTTP/1.1 are spoken here")
    headers = _parse_headers(lines)
    if method not in METHODS:
        raise HttpError(405, "only GET and HEAD are allowed")
    if "transfer-encoding" in headers or headers.get("content-length", "0").strip("0"):
        raise HttpError(400, "a request with a body")
    is_1_1 = version[2] != "0"
    if is_1_1 and "host" not in headers:
        raise HttpError(400, "a request without a Host")
    path = _ABSOLUTE.sub("", target, count=1).partition("?")[0] or "/"
    if not path.startswith("/"):
        raise HttpError(400, "the target is not a path")
    options = {option.strip().lower() for option in headers.get("connection", "").split(",")}
    keep_alive = "close" not in options and (is_1_1 or "keep-alive" in options)
    return Request(method, path, keep_alive)


def _parse_headers(lines: list[str]) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or "\0" in value or "\r" in value:
            raise HttpError(400, "a header line is not NAME: VALUE")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def response_head(status: int, content_type: str, content_bytes: int, *, keep_alive: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Content-Type: {content_type}",
        f"Content-Length: {content_bytes}",
        "Cache-Control: no-store",
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
    ]
    if status == 405:
        lines.append(f"Allow: {', '.join(METHODS)}")
    return "\r\n".join([*lines, "", ""]).encode()
