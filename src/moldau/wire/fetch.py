"""Fetch requests and responses by hand (API key 1, versions 4-18), because every record leaves here.

A request becomes plain tuples. A response is written around the records, which the caller sends from where
they are: the functions at the end give the bytes before, between and after them.

The layouts are those of `moldau.wire.messages.fetch`; the tests hold the two against each other.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

from moldau.wire.codec import ProtocolError, read_uvarint, skip_tags, write_uvarint

FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13

_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i").unpack_from


class FetchPartition(NamedTuple):
    topic: bytes  # the raw name, or from version 13 on the raw id
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    forgotten: list[tuple[bytes, int]]
    rack_id: str
    replica_epoch: int = -1


def read_fetch_request(version: int, frame: memoryview, position: int) -> FetchRequest:
    try:
        return _read_request(version, frame, position)
    except (error, IndexError) as problem:
        raise ProtocolError(f"malformed FetchRequest v{version}: {problem}") from None


_HEAD = Struct(">iiiib").unpack_from
_HEAD_FROM_7 = Struct(">iiiibii").unpack_from
_HEAD_FROM_15 = Struct(">iiibii").unpack_from
# Which fields of a partition a version carries; what it lacks is put in as -1.
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqi")
_REPLICA_STATE = Struct(">iq").unpack_from
_REPLICA_STATE_BYTES = 12


def _read_request(version: int, frame: memoryview, position: int) -> FetchRequest:
    flexible = version >= FLEXIBLE_FROM
    replica_id, session_id, session_epoch = -1, 0, -1
    if version >= 15:
        max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_FROM_15(
            frame, position
        )
        position += 21
    elif version >= 7:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_FROM_7(
            frame, position
        )
        position += 25
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation = _HEAD(frame, position)
        position += 17
    partitions: list[FetchPartition] = []
    topic_count, position = _read_count(frame, position, flexible)
    for _ in range(topic_count):
        topic, position = _read_topic(version, frame, position)
        partition_count, position = _read_count(frame, position, flexible)
        for _ in range(partition_count):
            if flexible:
                index, leader_epoch, offset, last_epoch, log_start, max_partition = _PARTITION_12.unpack_from(
                    frame, position
                )
                position += 32
                position = skip_tags(frame, position) if frame[position] else position + 1
            else:
                last_epoch = leader_epoch = log_start = -1
                if version >= 9:
                    index, leader_epoch, offset, log_start, max_partition = _PARTITION_9.unpack_from(
                        frame, position
                    )
                    position += 28
                elif version >= 5:
                    index, offset, log_start, max_partition = _PARTITION_5.unpack_from(frame, position)
                    position += 24
                else:
                    index, offset, max_partition = _PARTITION_4.unpack_from(frame, position)
                    position += 16
            partitions.append(
                FetchPartition(topic, index, leader_epoch, offset, last_epoch, log_start, max_partition)
            )
        if flexible:
            position = skip_tags(frame, position) if frame[position] else position + 1
    forgotten: list[tuple[bytes, int]] = []
    if version >= 7:
        topic_count, position = _read_count(frame, position, flexible)
        for _ in range(topic_count):
            topic, position = _read_topic(version, frame, position)
            partition_count, position = _read_count(frame, position, flexible)
            for _ in range(partition_count):
                forgotten.append((topic, _INT32(frame, position)[0]))
                position += 4
            if flexible:
                position = skip_tags(frame, position) if frame[position] else position + 1
    rack_id = ""
    if version >= 11:
        if flexible:
            size, position = read_uvarint(frame, position)
            size -= 1
        else:
            (size,) = _INT16(frame, position)
            position += 2
        if size < 0:
            raise ProtocolError("the rack id is null")
        if size:
            rack_id = str(frame[position : position + size], "utf-8", "replace")
            position += size
    replica_epoch = -1
    if flexible:
        if frame[position]:
            if version >= 15:
                replica_id, replica_epoch, position = _read_tags(frame, position)
            else:
                position = skip_tags(frame, position)
        else:
            position += 1
    if position > len(frame):
        raise ProtocolError(f"FetchRequest v{version} ends {position - len(frame)} bytes too early")
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        partitions,
        forgotten,
        rack_id,
        replica_epoch,
    )


def _read_count(frame: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, position = read_uvarint(frame, position)
        count -= 1
    else:
        (count,) = _INT32(frame, position)
        position += 4
    if count < 0:
        raise ProtocolError("a list of topics or partitions is null")
    return count, position


def _read_topic(version: int, frame: memoryview, position: int) -> tuple[bytes, int]:
    if version >= TOPIC_IDS_FROM:
        size = 16
    elif version >= FLEXIBLE_FROM:
        size, position = read_uvarint(frame, position)
        size -= 1
    else:
        (size,) = _INT16(frame, position)
        position += 2
    if size < 0 or position + size > len(frame):
        raise ProtocolError("a topic's name is null, or longer than the request")
    return bytes(frame[position : position + size]), position + size


def _read_tags(frame: memoryview, position: int) -> tuple[int, int, int]:
    """Replica id and epoch from the tagged fields of a request, if they are there."""
    replica_id = replica_epoch = -1
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        end = position + size
        if end > len(frame):
            raise ProtocolError("a tagged field is longer than the request")
        if tag == 1:
            replica_id, replica_epoch = _REPLICA_STATE(frame, position)
            if skip_tags(frame, position + _REPLICA_STATE_BYTES) != end:
                raise ProtocolError("the replica's state does not fill its tag")
        position = end
    return replica_id, replica_epoch, position


_FRAME = Struct(">ii")
_FRAME_FROM_7 = Struct(">iiihi")  # size, correlation id, throttle time, error, session id
_FRAME_FLEXIBLE = Struct(">iiBihi")
_SIZE = Struct(">i")
_INT = Struct(">i").pack
_SHORT = Struct(">h").pack
_PARTITION_HEAD_4 = Struct(">ihqq").pack
_PARTITION_HEAD_5 = Struct(">ihqqq").pack
_ABORTED = Struct(">qq").pack
_ABORTED_FLEXIBLE = Struct(">qqB").pack
_EPOCH_TAG = Struct(">BBiqB").pack
_LEADER_TAG = Struct(">BBiiB").pack


class PartitionHead(NamedTuple):
    """What is told of a partition besides its records."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: list[tuple[int, int]] | None = None  # (producer id, first offset); None unless read_committed
    diverging_epoch: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None  # (id, epoch), for a client that asked the wrong broker
    preferred_read_replica: int = -1


def begin_response(
    version: int, correlation_id: int, session_id: int, error_code: int, topic_count: int
) -> bytearray:
    """The start of a frame, up to the first topic. `finish_frame` sets its size when all is known."""
    if version >= FLEXIBLE_FROM:
        out = bytearray(_FRAME_FLEXIBLE.pack(0, correlation_id, 0, 0, error_code, session_id))
        write_uvarint(topic_count + 1, out)
    elif version >= 7:
        out = bytearray(_FRAME_FROM_7.pack(0, correlation_id, 0, error_code, session_id))
        out += _INT(topic_count)
    else:
        out = bytearray(_FRAME.pack(0, correlation_id))
        out += _INT(0)
        out += _INT(topic_count)
    return out


def begin_topic(version: int, topic: bytes, partition_count: int, out: bytearray) -> None:
    if version >= FLEXIBLE_FROM:
        if version < TOPIC_IDS_FROM:
            write_uvarint(len(topic) + 1, out)
        out += topic
        write_uvarint(partition_count + 1, out)
    else:
        out += _SHORT(len(topic))
        out += topic
        out += _INT(partition_count)


def begin_partition(version: int, head: PartitionHead, records_bytes: int, out: bytearray) -> None:
    """Everything before the records, including their size."""
    partition, error_code, high_watermark, stable, log_start, aborted, _, _, preferred = head
    if version >= FLEXIBLE_FROM:
        out += _PARTITION_HEAD_5(partition, error_code, high_watermark, stable, log_start)
        if aborted is None:
            out.append(0)
        else:
            write_uvarint(len(aborted) + 1, out)
            for producer_id, first_offset in aborted:
                out += _ABORTED_FLEXIBLE(producer_id, first_offset, 0)
        out += _INT(preferred)
        write_uvarint(records_bytes + 1, out)
        return
    if version >= 5:
        out += _PARTITION_HEAD_5(partition, error_code, high_watermark, stable, log_start)
    else:
        out += _PARTITION_HEAD_4(partition, error_code, high_watermark, stable)
    if aborted is None:
        out += b"\xff\xff\xff\xff"
    else:
        out += _INT(len(aborted))
        for producer_id, first_offset in aborted:
            out += _ABORTED(producer_id, first_offset)
    if version >= 11:
        out += _INT(preferred)
    out += _INT(records_bytes)


def end_partition(version: int, head: PartitionHead, out: bytearray) -> None:
    """What follows the records: tagged fields, in versions that have them."""
    if version < FLEXIBLE_FROM:
        return
    diverging, leader = head.diverging_epoch, head.leader
    out.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        out += _EPOCH_TAG(0, 13, *diverging, 0)
    if leader is not None:
        out += _LEADER_TAG(1, 9, *leader, 0)


def end_topic(version: int, out: bytearray) -> None:
    if version >= FLEXIBLE_FROM:
        out.append(0)


def end_response(version: int, out: bytearray) -> None:
    """Node endpoints, a hint of version 16 on, are left out: every client asks for metadata anyway."""
    if version >= FLEXIBLE_FROM:
        out.append(0)


def finish_frame(first: bytearray, total_bytes: int) -> None:
    _SIZE.pack_into(first, 0, total_bytes - 4)
