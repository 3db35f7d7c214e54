"""Kafka frames packed by hand, for load generators that must cost next to nothing.

Knows one version of each request it sends (flexible ones that still name topics by name), one partition
of one topic a request, and where in the answers the few fields lie that a load looks at. It shares no
code with Moldau on purpose: a mistake in our codec must not cancel itself out in what we measure, or in a
test that uses these frames.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crc32c import crc32c

PRODUCE, FETCH, METADATA, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 3, 19, 20
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION, CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION = (
    9,
    12,
    12,
    7,
    5,
)
CLIENT_ID = b"bench"

_HEADER = struct.Struct(">hhih")
_BATCH_HEAD = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
_BATCH_BODY = struct.Struct(">hiqqqhii")  # attributes ... record count: the crc starts here
BATCH_HEADER_BYTES = _BATCH_HEAD.size + _BATCH_BODY.size
_LAST_OFFSET_DELTA_AT = _BATCH_HEAD.size + 2


class BrokerAnswered(Exception):
    """The broker answered with an error code where a load needs success."""

    def __init__(self, api: str, error_code: int) -> None:
        super().__init__(f"{api}: error code {error_code}")
        self.error_code = error_code


# Requests


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact(data: bytes) -> bytes:
    return uvarint(len(data) + 1) + data


def frame(api_key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    head = _HEADER.pack(api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID + b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def record(offset_delta: int, value: bytes) -> bytes:
    """One record without key and headers; its timestamp is its batch's."""
    body = b"\0\0" + _zigzag(offset_delta) + _zigzag(-1) + _zigzag(len(value)) + value + b"\0"
    return _zigzag(len(body)) + body


def keyed_record(offset_delta: int, key: bytes, value: bytes) -> bytes:
    body = b"\0\0" + _zigzag(offset_delta) + _zigzag(len(key)) + key + _zigzag(len(value)) + value + b"\0"
    return _zigzag(len(body)) + body


def batch(values: Sequence[bytes], timestamp_ms: int) -> bytes:
    """A plain uncompressed record batch of these values."""
    records = b"".join(record(delta, value) for delta, value in enumerate(values))
    return batch_of(records, len(values), timestamp_ms)


def batch_of(records: bytes, count: int, timestamp_ms: int, codec: int = 0) -> bytes:
    """A batch of records that are encoded, and compressed by that codec, already."""
    body = _BATCH_BODY.pack(codec, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count) + records
    return _BATCH_HEAD.pack(0, 9 + len(body), -1, 2, crc32c(body)) + body


def produce(
    topic: str, records: bytes, acks: int = 1, partition: int = 0, transactional_id: str | None = None
) -> bytes:
    body = b"\0" if transactional_id is None else compact(transactional_id.encode())
    body += struct.pack(">hi", acks, 30_000)
    body += b"\2" + compact(topic.encode())
    body += b"\2" + struct.pack(">i", partition) + compact(records)
    return frame(PRODUCE, PRODUCE_VERSION, body + b"\0\0\0")


def fetch(
    topic: str,
    offset: int,
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition: int = 0,
) -> bytes:
    """A fetch outside any fetch session."""
    body = struct.pack(">iiiibii", -1, max_wait_ms, min_bytes, max_bytes, 0, 0, -1)
    body += b"\2" + compact(topic.encode())
    body += b"\2" + struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes) + b"\0"
    return frame(FETCH, FETCH_VERSION, body + b"\0" + b"\1" + b"\1" + b"\0")


def metadata(topic: str | None, create: bool = False) -> bytes:
    """Ask for one topic, or for none (the brokers alone)."""
    topics = b"\1" if topic is None else b"\2" + bytes(16) + compact(topic.encode()) + b"\0"
    return frame(METADATA, METADATA_VERSION, topics + bytes([create, 0]) + b"\0")


def create_topic(topic: str, partitions: int) -> bytes:
    """One replica of each partition."""
    body = b"\2" + compact(topic.encode()) + struct.pack(">ih", partitions, 1) + b"\1\1\0"
    return frame(CREATE_TOPICS, CREATE_TOPICS_VERSION, body + struct.pack(">i", 30_000) + b"\0\0")


def delete_topic(topic: str) -> bytes:
    body = b"\2" + compact(topic.encode()) + struct.pack(">i", 30_000) + b"\0"
    return frame(DELETE_TOPICS, DELETE_TOPICS_VERSION, body)


def _zigzag(value: int) -> bytes:
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


# Answers. A payload is what follows the length of the frame: correlation id, tags, body.


def produce_error_at(topic: str) -> int:
    """Where in a Produce answer's payload the partition's error code lies."""
    return 4 + 1 + 1 + len(compact(topic.encode())) + 1 + 4


def produce_error(payload: bytes | bytearray | memoryview, topic: str) -> int:
    return int.from_bytes(payload[(at := produce_error_at(topic)) : at + 2], "big", signed=True)


def create_topic_error(payload: bytes | bytearray, topic: str) -> int:
    at = 4 + 1 + 4 + 1 + len(compact(topic.encode())) + 16
    return int.from_bytes(payload[at : at + 2], "big", signed=True)


def delete_topic_error(payload: bytes | bytearray, topic: str) -> int:
    at = 4 + 1 + 4 + 1 + len(compact(topic.encode()))
    return int.from_bytes(payload[at : at + 2], "big", signed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    error_code: int
    high_watermark: int
    records: memoryview


def fetched(payload: bytes | bytearray | memoryview, topic: str) -> Fetched:
    view = memoryview(payload)
    at = 4 + 1 + 4
    request_error = struct.unpack_from(">h", view, at)[0]
    at += 2 + 4
    if request_error or view[at] < 2:
        return Fetched(error_code=request_error or -1, high_watermark=-1, records=view[:0])
    at += 1 + len(compact(topic.encode())) + 1
    _, error_code, high_watermark = struct.unpack_from(">ihq", view, at)
    at += 4 + 2 + 8 + 8 + 8
    aborted, at = _read_uvarint(view, at)
    at += max(0, aborted - 1) * 17 + 4
    size, at = _read_uvarint(view, at)
    return Fetched(
        error_code=error_code, high_watermark=high_watermark, records=view[at : at + max(0, size - 1)]
    )


def batches(records: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """(base offset, last offset, bytes) of each whole batch: a fetch may end in a part of one."""
    at = 0
    while at + BATCH_HEADER_BYTES <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            return
        last_delta = struct.unpack_from(">i", records, at + _LAST_OFFSET_DELTA_AT)[0]
        yield base_offset, base_offset + last_delta, records[at : at + 12 + length]
        at += 12 + length


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a Metadata answer says: how many brokers live, and the asked topic's error and leader."""

    brokers: int
    error_code: int
    leader: int


def described(payload: bytes | bytearray) -> Described:
    view = memoryview(payload)
    brokers, at = _read_uvarint(view, 4 + 1 + 4)
    for _ in range(brokers - 1):
        at = _skip_string(view, at + 4) + 4  # node id, host, port
        at = _skip_string(view, at) + 1  # rack, tags
    at = _skip_string(view, at) + 4  # cluster id, controller id
    topics, at = _read_uvarint(view, at)
    if topics < 2:
        return Described(brokers=brokers - 1, error_code=0, leader=-1)
    error_code = struct.unpack_from(">h", view, at)[0]
    at = _skip_string(view, at + 2) + 16 + 1  # name, topic id, is internal
    partitions, at = _read_uvarint(view, at)
    if partitions < 2:
        return Described(brokers=brokers - 1, error_code=error_code, leader=-1)
    partition_error, _, leader = struct.unpack_from(">hii", view, at)
    return Described(brokers=brokers - 1, error_code=error_code or partition_error, leader=leader)


def _read_uvarint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _skip_string(view: memoryview, at: int) -> int:
    size, at = _read_uvarint(view, at)
    return at + max(0, size - 1)


def fetch_error_at(topic: str) -> int:
    """Where in a Fetch answer's payload the partition's error code lies, the request's own being none."""
    return 4 + 1 + 4 + 2 + 4 + 1 + len(compact(topic.encode())) + 1 + 4


# Sockets


def connect(bootstrap: str, timeout_s: float | None = 30) -> socket.socket:
    """A connected socket. With a timeout each of its calls costs Python a poll more: generators use None."""
    host, _, port = bootstrap.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def receive(sock: socket.socket) -> bytearray:
    """The payload of the next frame."""
    size = int.from_bytes(_receive_exactly(sock, 4), "big")
    return _receive_exactly(sock, size)


def call(sock: socket.socket, request: bytes) -> bytearray:
    sock.sendall(request)
    return receive(sock)


def _receive_exactly(sock: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        got = sock.recv_into(view)
        if got == 0:
            raise ConnectionError("the broker closed the connection")
        view = view[got:]
    return data
