"""Produce requests and responses by hand (API key 0, versions 3-13), because every record passes here.

A request is read into plain tuples; the records stay views of the frame. Topics are the raw bytes of the
name, or from version 13 on of the id: the caller looks them up as they are.

The layouts are those of `moldau.wire.messages.produce`; the tests hold the two against each other.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from moldau.wire.codec import ProtocolError, read_uvarint, skip_tags, write_uvarint

FLEXIBLE_FROM = 9
TOPIC_IDS_FROM = 13

_ACKS_TIMEOUT = Struct(">hi").unpack_from
_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i").unpack_from
_INDEX_AND_SIZE = Struct(">ii").unpack_from


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[bytes, list[tuple[int, memoryview | None]]]]


class PartitionResult(NamedTuple):
    """What one partition answers. Offsets and times are -1 where there is nothing to say."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[tuple[int, str | None], ...] = ()
    error_message: str | None = None
    leader_id: int = -1  # told to clients from version 10 on, when they asked the wrong broker
    leader_epoch: int = -1


_ONE_BY_ID = Struct(">BhiB16sBi")
_ONE_BY_NAME = Struct(">BhiBB")
_ONE_INDEX = Struct(">Bi")
_NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request


def read_one_partition(
    version: int, frame: memoryview, position: int, before: int = 0
) -> tuple[int, bytes, int, memoryview] | None:
    """The acks, topic, partition and records of a request in its usual shape: records for one partition, no
    transaction, no tags, and a short name. None for any other, which `read_produce_request` then reads: it
    takes twice as long. `before` is what the byte at `position` has to be: the size of no id."""
    try:
        if version >= TOPIC_IDS_FROM:
            transactional, acks, _, topics, topic, partitions, index = _ONE_BY_ID.unpack_from(frame, position)
            position += 29
        elif version >= FLEXIBLE_FROM:
            transactional, acks, _, topics, size = _ONE_BY_NAME.unpack_from(frame, position)
            if not 0 < size < 0x80:
                return None
            position += 9
            after = position + size - 1
            topic = bytes(frame[position:after])
            partitions, index = _ONE_INDEX.unpack_from(frame, after)
            position = after + 5
        else:
            return None
        if transactional != before or topics != 2 or partitions != 2:  # counts are written plus one
            return None
        size, position = read_uvarint(frame, position)
    except (error, IndexError, ProtocolError):
        return None
    after = position + size - 1
    if size < 2 or frame[after:] != _NO_TAGS:
        return None
    return acks, topic, index, frame[position:after]


def read_one_partition_of_transaction(
    version: int, frame: memoryview, position: int
) -> tuple[int, bytes, int, memoryview] | None:
    """The same with a short transactional id, which is passed over."""
    if version < FLEXIBLE_FROM or position >= len(frame) or not 1 < frame[position] < 0x80:
        return None
    id_end = position + frame[position] - 1
    return read_one_partition(version, frame, id_end, frame[id_end]) if id_end < len(frame) else None


def read_produce_request(version: int, frame: memoryview, position: int) -> ProduceRequest:
    try:
        if version >= FLEXIBLE_FROM:
            return _read_flexible(version, frame, position)
        return _read_fixed(frame, position)
    except (error, IndexError) as problem:
        raise ProtocolError(f"malformed ProduceRequest v{version}: {problem}") from None


def _read_flexible(version: int, frame: memoryview, position: int) -> ProduceRequest:
    end = len(frame)
    size, position = read_uvarint(frame, position)
    transactional_id = None
    if size:
        transactional_id = str(frame[position : position + size - 1], "utf-8", "replace")
        position += size - 1
    acks, timeout_ms = _ACKS_TIMEOUT(frame, position)
    topic_count, position = read_uvarint(frame, position + 6)
    if not topic_count:
        raise _null("the list of topics")
    topics = []
    for _ in range(topic_count - 1):
        if version >= TOPIC_IDS_FROM:
            size = 16
        else:
            size, position = read_uvarint(frame, position)
            size -= 1
            if size < 0:
                raise _null("a topic's name")
        topic = bytes(frame[position : position + size])
        partition_count, position = read_uvarint(frame, position + size)
        if not partition_count:
            raise _null("the partitions of a topic")
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count - 1):
            (index,) = _INT32(frame, position)
            size, position = read_uvarint(frame, position + 4)
            if size:
                after = position + size - 1
                if after > end:
                    raise ProtocolError("records reach beyond the request")
                partitions.append((index, frame[position:after]))
                position = after
            else:
                partitions.append((index, None))
            position = skip_tags(frame, position) if frame[position] else position + 1
        topics.append((topic, partitions))
        position = skip_tags(frame, position) if frame[position] else position + 1
    position = skip_tags(frame, position) if frame[position] else position + 1
    if position > end:
        raise ProtocolError(f"ProduceRequest v{version} ends {position - end} bytes too early")
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_fixed(frame: memoryview, position: int) -> ProduceRequest:
    end = len(frame)
    (size,) = _INT16(frame, position)
    position += 2
    transactional_id = None
    if size >= 0:
        transactional_id = str(frame[position : position + size], "utf-8", "replace")
        position += size
    acks, timeout_ms = _ACKS_TIMEOUT(frame, position)
    (topic_count,) = _INT32(frame, position + 6)
    if topic_count < 0:
        raise _null("the list of topics")
    position += 10
    topics = []
    for _ in range(topic_count):
        (size,) = _INT16(frame, position)
        if size < 0:
            raise _null("a topic's name")
        position += 2
        topic = bytes(frame[position : position + size])
        position += size
        (partition_count,) = _INT32(frame, position)
        if partition_count < 0:
            raise _null("the partitions of a topic")
        position += 4
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            index, size = _INDEX_AND_SIZE(frame, position)
            position += 8
            if size >= 0:
                after = position + size
                if after > end:
                    raise ProtocolError("records reach beyond the request")
                partitions.append((index, frame[position:after]))
                position = after
            else:
                partitions.append((index, None))
        topics.append((topic, partitions))
    if position > end:
        raise ProtocolError(f"ProduceRequest ends {position - end} bytes too early")
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _null(what: str) -> ProtocolError:
    return ProtocolError(f"{what} is null")


_SIZE_AND_CORRELATION = Struct(">ii")
_SIZE = Struct(">i")
_PARTITION_FIRST = Struct(">ihqq").pack  # index, error, base offset, log append time
_PARTITION_FROM_5 = Struct(">ihqqq").pack  # and log start offset
_PARTITION_FLEXIBLE_OK = Struct(">ihqqqBBB").pack  # and no record errors, no message, no tags
_LEADER = Struct(">BBBiiB").pack
_SHORT = Struct(">h").pack
_INT = Struct(">i").pack


_ONE_RESPONSE_BY_ID = Struct(">iiBB16sBihqqqBBBBiB")
_ONE_RESPONSE_HEAD = Struct(">iiBBB")
_ONE_RESPONSE_TAIL = Struct(">BihqqqBBBBiB")


def write_one_partition(
    version: int,
    correlation_id: int,
    topic: bytes,
    partition: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    throttle_time_ms: int = 0,
) -> bytes:
    """What `write_produce_response` makes of a success, for a request that `read_one_partition` has read."""
    if version >= TOPIC_IDS_FROM:
        return _ONE_RESPONSE_BY_ID.pack(
            _ONE_RESPONSE_BY_ID.size - 4,
            correlation_id,
            0,
            2,
            topic,
            2,
            partition,
            0,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            1,  # no record errors
            0,  # no message
            0,
            0,
            throttle_time_ms,
            0,
        )
    size = len(topic)
    head = _ONE_RESPONSE_HEAD.pack(
        _ONE_RESPONSE_HEAD.size + size + _ONE_RESPONSE_TAIL.size - 4, correlation_id, 0, 2, size + 1
    )
    tail = _ONE_RESPONSE_TAIL.pack(
        2,
        partition,
        0,
        base_offset,
        log_append_time_ms,
        log_start_offset,
        1,
        0,
        0,
        0,
        throttle_time_ms,
        0,
    )
    return head + topic + tail


def write_produce_response(
    version: int,
    correlation_id: int,
    topics: list[tuple[bytes, list[PartitionResult]]],
    throttle_time_ms: int = 0,
) -> bytearray:
    """The whole response with its frame and header. Node endpoints (a hint of version 10 on) are left out."""
    out = bytearray(_SIZE_AND_CORRELATION.pack(0, correlation_id))
    if version >= FLEXIBLE_FROM:
        _write_flexible(version, out, topics)
        out += _INT(throttle_time_ms)
        out.append(0)
    else:
        _write_fixed(version, out, topics)
        out += _INT(throttle_time_ms)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return out


def _write_flexible(version: int, out: bytearray, topics: list[tuple[bytes, list[PartitionResult]]]) -> None:
    out.append(0)
    write_uvarint(len(topics) + 1, out)
    for topic, results in topics:
        if version < TOPIC_IDS_FROM:
            write_uvarint(len(topic) + 1, out)
        out += topic
        write_uvarint(len(results) + 1, out)
        for result in results:
            partition, code, base_offset, log_append_time_ms, log_start_offset, *_ = result
            if not code:
                out += _PARTITION_FLEXIBLE_OK(
                    partition, 0, base_offset, log_append_time_ms, log_start_offset, 1, 0, 0
                )
                continue
            out += _PARTITION_FROM_5(partition, code, base_offset, log_append_time_ms, log_start_offset)
            write_uvarint(len(result.record_errors) + 1, out)
            for record_index, message in result.record_errors:
                out += _INT(record_index)
                _write_compact_string(message, out)
                out.append(0)
            _write_compact_string(result.error_message, out)
            if version >= 10 and result.leader_epoch >= 0:
                # One tag (0) of nine bytes: id, epoch and no tags of their own.
                out += _LEADER(1, 0, 9, result.leader_id, result.leader_epoch, 0)
            else:
                out.append(0)
        out.append(0)


def _write_fixed(version: int, out: bytearray, topics: list[tuple[bytes, list[PartitionResult]]]) -> None:
    out += _INT(len(topics))
    for topic, results in topics:
        out += _SHORT(len(topic))
        out += topic
        out += _INT(len(results))
        for result in results:
            partition, code, base_offset, log_append_time_ms, log_start_offset, *_ = result
            if version < 5:
                out += _PARTITION_FIRST(partition, code, base_offset, log_append_time_ms)
                continue
            out += _PARTITION_FROM_5(partition, code, base_offset, log_append_time_ms, log_start_offset)
            if version >= 8:
                out += _INT(len(result.record_errors))
                for record_index, message in result.record_errors:
                    out += _INT(record_index)
                    _write_string(message, out)
                _write_string(result.error_message, out)


def _write_compact_string(text: str | None, out: bytearray) -> None:
    if text is None:
        out.append(0)
    else:
        data = text.encode()
        write_uvarint(len(data) + 1, out)
        out += data


def _write_string(text: str | None, out: bytearray) -> None:
    if text is None:
        out += b"\xff\xff"
    else:
        data = text.encode()
        out += _SHORT(len(data))
        out += data
