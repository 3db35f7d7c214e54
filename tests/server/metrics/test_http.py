"""Requests are understood however they arrive; anything else is refused with the right status."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.server.metrics.http import (
    HEAD_BYTES_MAX,
    HttpError,
    Request,
    RequestReader,
    response_head,
)

GET = b"GET /metrics HTTP/1.1\r\nHost: localhost:9404\r\n\r\n"


def read(data: bytes) -> list[Request | int]:
    """The requests in `data`, and the status of the error that ends them."""
    reader = RequestReader()
    reader.feed(data)
    found: list[Request | int] = []
    try:
        while (request := reader.next_request()) is not None:
            found.append(request)
    except HttpError as error:
        found.append(error.status)
    return found


@pytest.mark.parametrize(
    ("data", "request_or_status"),
    [
        (GET, Request("GET", "/metrics", True)),
        (b"\r\n" + GET, Request("GET", "/metrics", True)),
        (GET.replace(b"\r\n", b"\n"), Request("GET", "/metrics", True)),
        (b"HEAD /health HTTP/1.1\r\nhost:x\r\n\r\n", Request("HEAD", "/health", True)),
        (b"GET /metrics?name[]=a HTTP/1.1\r\nHost: x\r\n\r\n", Request("GET", "/metrics", True)),
        (b"GET http://h:1/metrics HTTP/1.1\r\nHost: x\r\n\r\n", Request("GET", "/metrics", True)),
        (b"GET http://h HTTP/1.1\r\nHost: x\r\n\r\n", Request("GET", "/", True)),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: TE, Close\r\n\r\n", Request("GET", "/", False)),
        (b"GET / HTTP/1.0\r\n\r\n", Request("GET", "/", False)),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", Request("GET", "/", True)),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", Request("GET", "/", True)),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET metrics HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTPS/1.1\r\nHost: x\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00 hello\r\n\r\n", 400),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505),
        (b"GET /" + b"a" * HEAD_BYTES_MAX, 431),
        (b"GET / HTTP/1.1\r\nHost: " + b"a" * HEAD_BYTES_MAX + b"\r\n\r\n", 431),
    ],
)
def test_requests_and_refusals(data: bytes, request_or_status: Request | int) -> None:
    assert read(data) == [request_or_status]


def test_a_head_of_the_largest_size_is_taken() -> None:
    head = b"GET / HTTP/1.1\r\nHost: "
    filled = head + b"a" * (HEAD_BYTES_MAX - len(head) - 4) + b"\r\n\r\n"
    assert len(filled) == HEAD_BYTES_MAX
    assert read(filled) == [Request("GET", "/", True)]


def test_requests_behind_each_other_are_all_found() -> None:
    assert read(GET * 3) == [Request("GET", "/metrics", True)] * 3


def test_a_request_may_come_byte_by_byte() -> None:
    reader = RequestReader()
    for byte in GET[:-1]:
        reader.feed(bytes([byte]))
        assert reader.next_request() is None
    reader.feed(GET[-1:])
    assert reader.next_request() == Request("GET", "/metrics", True)
    assert reader.is_empty


PIECES = st.sampled_from(
    [
        b"GET ",
        b"POST ",
        b"/metrics",
        b" HTTP/1.1",
        b" HTTP/1.0",
        b"\r\n",
        b"\n",
        b"\r",
        b"Host: x",
        b":",
        b" ",
    ]
)


@given(st.lists(PIECES | st.binary(max_size=8), max_size=30), st.integers(1, 40))
def test_any_bytes_give_the_same_requests_whole_or_in_pieces(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    reader = RequestReader()
    found: list[Request | int] = []
    try:
        for start in range(0, len(data), size):
            reader.feed(data[start : start + size])
            while (request := reader.next_request()) is not None:
                found.append(request)
    except HttpError as error:
        found.append(error.status)
    assert found == read(data)


def test_a_response_says_how_long_it_is_and_what_comes_after() -> None:
    assert response_head(405, "text/plain", 7, keep_alive=False) == (
        b"HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n"
        b"Cache-Control: no-store\r\nConnection: close\r\nAllow: GET, HEAD\r\n\r\n"
    )
