"""The client's half of produce by hand: requests written around batches that are not copied, responses read.

Answerable for the same layouts as `moldau.wire.produce`, versions 3-13; the tests hold both halves and the
declared messages against each other. Topics are the raw bytes of the name, or from version 13 on of the id.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import NamedTuple

from moldau.wire.codec import Buffer, ProtocolError, read_uvarint, write_uvarint
from moldau.wire.produce import FLEXIBLE_FROM, TOPIC_IDS_FROM, PartitionResult

_ACKS_TIMEOUT = Struct(">hi").pack
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_RESULT_FIRST = Struct(">ihqq")
_RESULT_FROM_5 = Struct(">ihqqq")
_LEADER = Struct(">ii")
_LEADER_TAG = 0
_ENDPOINTS_TAG = 0


class Endpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class ProduceAnswer(NamedTuple):
    topics: list[tuple[bytes, list[PartitionResult]]]
    throttle_time_ms: int
    endpoints: list[Endpoint]


def write_produce_request(
    version: int,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Sequence[tuple[bytes, Sequence[tuple[int, Buffer]]]],
) -> list[Buffer]:
    """The body of a request, in pieces: every second one is a batch as it was given."""
    flexible = version >= FLEXIBLE_FROM
    pieces: list[Buffer] = []
    out = bytearray()
    _write_text(out, transactional_id, flexible)
    out += _ACKS_TIMEOUT(acks, timeout_ms)
    _write_count(out, len(topics), flexible)
    for topic, partitions in topics:
        if version < TOPIC_IDS_FROM:
            if flexible:
                write_uvarint(len(topic) + 1, out)
            else:
                out += _INT16.pack(len(topic))
        out += topic
        _write_count(out, len(partitions), flexible)
        for index, records in partitions:
            out += _INT32.pack(index)
            if flexible:
                write_uvarint(len(records) + 1, out)
            else:
                out += _INT32.pack(len(records))
            pieces += (out, records)
            out = bytearray(1 if flexible else 0)  # the partition's tags
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    pieces.append(out)
    return pieces


def read_produce_response(version: int, frame: Buffer, position: int) -> ProduceAnswer:
    """What stands in `frame` from `position`, behind the response's header. Raises ProtocolError."""
    try:
        if version >= FLEXIBLE_FROM:
            return _read_flexible(version, memoryview(frame), position)
        return _read_fixed(version, memoryview(frame), position)
    except (error, IndexError, UnicodeDecodeError) as problem:
        raise ProtocolError(f"malformed ProduceResponse v{version}: {problem}") from None


def _read_flexible(version: int, frame: memoryview, position: int) -> ProduceAnswer:
    topics = []
    count, position = read_uvarint(frame, position)
    for _ in range(count - 1):
        size = 16
        if version < TOPIC_IDS_FROM:
            size, position = read_uvarint(frame, position)
            size -= 1
        topic = bytes(frame[position : position + size])
        partitions, position = read_uvarint(frame, position + size)
        results = []
        for _ in range(partitions - 1):
            result, position = _read_result(frame, position)
            results.append(result)
        _, position = _read_tags(frame, position)
        topics.append((topic, results))
    (throttle_time_ms,) = _INT32.unpack_from(frame, position)
    tags, position = _read_tags(frame, position + 4)
    if position != len(frame):
        raise ProtocolError(f"ProduceResponse v{version} ends {len(frame) - position} bytes too early")
    endpoints = tags.get(_ENDPOINTS_TAG)
    return ProduceAnswer(topics, throttle_time_ms, [] if endpoints is None else _read_endpoints(endpoints))


def _read_result(frame: memoryview, position: int) -> tuple[PartitionResult, int]:
    fields: tuple[int, int, int, int, int] = _RESULT_FROM_5.unpack_from(frame, position)
    position += _RESULT_FROM_5.size
    if frame[position] == 1 and not frame[position + 1] and not frame[position + 2]:
        return PartitionResult(*fields), position + 3  # no record errors, no message, no tags
    record_errors = []
    count, position = read_uvarint(frame, position)
    for _ in range(count - 1):
        (index,) = _INT32.unpack_from(frame, position)
        message, position = _read_compact_text(frame, position + 4)
        _, position = _read_tags(frame, position)
        record_errors.append((index, message))
    message, position = _read_compact_text(frame, position)
    tags, position = _read_tags(frame, position)
    leader = tags.get(_LEADER_TAG)
    leader_id, leader_epoch = (-1, -1) if leader is None else _LEADER.unpack_from(leader)
    result = PartitionResult(*fields)._replace(
        record_errors=tuple(record_errors),
        error_message=message,
        leader_id=leader_id,
        leader_epoch=leader_epoch,
    )
    return result, position


def _read_endpoints(data: memoryview) -> list[Endpoint]:
    endpoints = []
    count, position = read_uvarint(data, 0)
    for _ in range(count - 1):
        (node_id,) = _INT32.unpack_from(data, position)
        host, position = _read_compact_text(data, position + 4)
        (port,) = _INT32.unpack_from(data, position)
        rack, position = _read_compact_text(data, position + 4)
        _, position = _read_tags(data, position)
        endpoints.append(Endpoint(node_id, host or "", port, rack))
    return endpoints


def _read_fixed(version: int, frame: memoryview, position: int) -> ProduceAnswer:
    topics = []
    (count,) = _INT32.unpack_from(frame, position)
    position += 4
    for _ in range(count):
        (size,) = _INT16.unpack_from(frame, position)
        position += 2
        topic = bytes(frame[position : position + size])
        position += size
        (partitions,) = _INT32.unpack_from(frame, position)
        position += 4
        results = []
        for _ in range(partitions):
            result, position = _read_fixed_result(version, frame, position)
            results.append(result)
        topics.append((topic, results))
    (throttle_time_ms,) = _INT32.unpack_from(frame, position)
    if position + 4 != len(frame):
        raise ProtocolError(f"ProduceResponse v{version} does not end where it should")
    return ProduceAnswer(topics, throttle_time_ms, [])


def _read_fixed_result(version: int, frame: memoryview, position: int) -> tuple[PartitionResult, int]:
    layout = _RESULT_FIRST if version < 5 else _RESULT_FROM_5
    fields = layout.unpack_from(frame, position)
    position += layout.size
    if version < 8:
        return PartitionResult(*fields), position
    (count,) = _INT32.unpack_from(frame, position)
    position += 4
    record_errors = []
    for _ in range(count):
        (index,) = _INT32.unpack_from(frame, position)
        message, position = _read_text(frame, position + 4)
        record_errors.append((index, message))
    message, position = _read_text(frame, position)
    result = PartitionResult(*fields)._replace(record_errors=tuple(record_errors), error_message=message)
    return result, position


def _read_tags(frame: memoryview, position: int) -> tuple[dict[int, memoryview], int]:
    if not frame[position]:
        return _NO_TAGS, position + 1
    tags = {}
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        if position + size > len(frame):
            raise IndexError("a tag reaches beyond the response")
        tags[tag] = frame[position : position + size]
        position += size
    return tags, position


_NO_TAGS: dict[int, memoryview] = {}


def _read_compact_text(frame: memoryview, position: int) -> tuple[str | None, int]:
    size, position = read_uvarint(frame, position)
    if not size:
        return None, position
    return _text(frame, position, size - 1), position + size - 1


def _read_text(frame: memoryview, position: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(frame, position)
    if size < 0:
        return None, position + 2
    return _text(frame, position + 2, size), position + 2 + size


def _text(frame: memoryview, position: int, size: int) -> str:
    if position + size > len(frame):
        raise IndexError("a string reaches beyond the response")
    return str(frame[position : position + size], "utf-8")


def _write_text(out: bytearray, text: str | None, flexible: bool) -> None:
    data = None if text is None else text.encode()
    if flexible:
        write_uvarint(0 if data is None else len(data) + 1, out)
    else:
        out += _INT16.pack(-1 if data is None else len(data))
    out += data or b""


def _write_count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        write_uvarint(count + 1, out)
    else:
        out += _INT32.pack(count)
