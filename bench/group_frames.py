"""Frames of consumer groups, packed by hand as those of `bench.frames` are, and by the same rules.

Knows one version of each request, all of them flexible, and topics by name, except in heartbeats of the
consumer protocol, which know them by id.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.frames import compact, frame, uvarint

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 8, 9, 10, 11, 12, 14
CONSUMER_GROUP_HEARTBEAT = 68
OFFSET_COMMIT_VERSION, OFFSET_FETCH_VERSION, FIND_COORDINATOR_VERSION = 8, 8, 3
JOIN_GROUP_VERSION, HEARTBEAT_VERSION, SYNC_GROUP_VERSION = 9, 4, 5
CONSUMER_GROUP_HEARTBEAT_VERSION = 1

COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 22, 25, 27, 79
NOT_HERE_YET = (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)

PROTOCOL_TYPE, ASSIGNOR = b"consumer", b"range"

# Where in an answer's payload what comes first is: behind correlation id, tags and throttle time.
_FIRST_AT = 4 + 1 + 4

Owned = Mapping[bytes, Sequence[int]]
"""Partitions by the name or the id of their topic."""


# Requests


def find_coordinator(group: str) -> bytes:
    return frame(FIND_COORDINATOR, FIND_COORDINATOR_VERSION, compact(group.encode()) + b"\0\0")


def offset_commit(group: str, topic: str, partitions: Sequence[int], offset: int) -> bytes:
    """As of a consumer that assigns itself its partitions."""
    body = compact(group.encode()) + struct.pack(">i", -1) + compact(b"") + b"\0"
    body += b"\2" + compact(topic.encode()) + uvarint(len(partitions) + 1)
    body += b"".join(struct.pack(">iqi", each, offset, -1) + b"\1\0" for each in partitions)
    return frame(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, body + b"\0\0")


def offset_fetch(groups: Sequence[str]) -> bytes:
    """All that these groups have committed."""
    asked = b"".join(compact(group.encode()) + b"\0\0" for group in groups)
    return frame(OFFSET_FETCH, OFFSET_FETCH_VERSION, uvarint(len(groups) + 1) + asked + b"\0\0")


def join_group(group: str, member_id: bytes, topics: Sequence[str], timeout_ms: int) -> bytes:
    """With the same timeout for the session and for the rebalance."""
    subscription = struct.pack(">hi", 0, len(topics))
    subscription += b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    subscription += struct.pack(">i", -1)
    body = compact(group.encode()) + struct.pack(">ii", timeout_ms, timeout_ms)
    body += compact(member_id) + b"\0" + compact(PROTOCOL_TYPE)
    body += b"\2" + compact(ASSIGNOR) + compact(subscription) + b"\0"
    return frame(JOIN_GROUP, JOIN_GROUP_VERSION, body + b"\0\0")


def sync_group(group: str, generation: int, member_id: bytes, assignments: Mapping[bytes, bytes]) -> bytes:
    body = compact(group.encode()) + struct.pack(">i", generation) + compact(member_id) + b"\0"
    body += compact(PROTOCOL_TYPE) + compact(ASSIGNOR) + uvarint(len(assignments) + 1)
    body += b"".join(compact(member) + compact(told) + b"\0" for member, told in assignments.items())
    return frame(SYNC_GROUP, SYNC_GROUP_VERSION, body + b"\0")


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """What the leader of a classic group tells a member."""
    head = struct.pack(">hih", 0, 1, len(topic)) + topic.encode()
    return head + struct.pack(f">i{len(partitions)}ii", len(partitions), *partitions, -1)


def heartbeat(group: str, generation: int, member_id: bytes) -> bytes:
    body = compact(group.encode()) + struct.pack(">i", generation) + compact(member_id) + b"\0\0"
    return frame(HEARTBEAT, HEARTBEAT_VERSION, body)


def consumer_group_heartbeat(
    group: str,
    member_id: bytes,
    epoch: int,
    *,
    topics: Iterable[str] | None = None,
    owned: Owned | None = None,
    rebalance_timeout_ms: int = -1,
) -> bytes:
    """None for what has not changed since the last one."""
    body = compact(group.encode()) + compact(member_id) + struct.pack(">i", epoch) + b"\0\0"
    body += struct.pack(">i", rebalance_timeout_ms)
    body += b"\0" if topics is None else _array(compact(topic.encode()) for topic in topics)
    body += b"\0\0"
    if owned is None:
        body += b"\0"
    else:
        body += _array(
            topic_id + uvarint(len(each) + 1) + struct.pack(f">{len(each)}i", *each) + b"\0"
            for topic_id, each in owned.items()
        )
    return frame(CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_HEARTBEAT_VERSION, body + b"\0")


def _array(items: Iterable[bytes]) -> bytes:
    packed = list(items)
    return uvarint(len(packed) + 1) + b"".join(packed)


# Answers. A payload is what follows the length of the frame.


def first_error(payload: bytes | bytearray) -> int:
    """Of FindCoordinator, JoinGroup, SyncGroup and both heartbeats: of the request as a whole."""
    return int.from_bytes(payload[_FIRST_AT : _FIRST_AT + 2], "big", signed=True)


def commit_error_at(topic: str) -> int:
    """Where in an OffsetCommit answer's payload the first partition's error code lies; there are few."""
    return _FIRST_AT + 1 + len(compact(topic.encode())) + 1 + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedGroup:
    error_code: int
    offsets: int
    """How many partitions have one."""


def fetched_offsets(payload: bytes | bytearray) -> dict[bytes, FetchedGroup]:
    read = _Reader(payload, _FIRST_AT)
    groups = {}
    for _ in range(read.count()):
        name, offsets = read.bytes(), 0
        for _ in range(read.count()):
            read.bytes()
            for _ in range(read.count()):
                read.int32()
                offsets += read.int64() >= 0
                read.int32()
                read.bytes()
                read.skip(2 + 1)
            read.skip(1)
        groups[name] = FetchedGroup(error_code=read.int16(), offsets=offsets)
        read.skip(1)
    return groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    error_code: int
    generation: int
    leader: bytes
    member_id: bytes
    members: list[bytes]
    """Told to the leader only."""


def joined(payload: bytes | bytearray) -> Joined:
    read = _Reader(payload, _FIRST_AT)
    error_code, generation = read.int16(), read.int32()
    read.bytes()
    read.bytes()
    leader = read.bytes()
    read.skip(1)
    member_id = read.bytes()
    members = []
    for _ in range(read.count()):
        members.append(read.bytes())
        read.bytes()
        read.bytes()
        read.skip(1)
    return Joined(
        error_code=error_code, generation=generation, leader=leader, member_id=member_id, members=members
    )


def synced(payload: bytes | bytearray) -> list[int]:
    """The partitions of an assignment of one topic, made by `assignment`."""
    read = _Reader(payload, _FIRST_AT + 2)
    read.bytes()
    read.bytes()
    told = read.bytes()
    (name_size,) = struct.unpack_from(">h", told, 6)
    (count,) = struct.unpack_from(">i", told, 8 + name_size)
    return list(struct.unpack_from(f">{count}i", told, 12 + name_size))


@dataclass(frozen=True, slots=True, kw_only=True)
class Beaten:
    """Of a heartbeat that went well. `assigned` is None when nothing is said of it."""

    epoch: int
    interval_ms: int
    assigned: dict[bytes, list[int]] | None


def beaten(payload: bytes | bytearray) -> Beaten:
    read = _Reader(payload, _FIRST_AT + 2)
    read.bytes()
    read.bytes()
    epoch, interval_ms = read.int32(), read.int32()
    assigned: dict[bytes, list[int]] | None = None
    if read.int8() >= 0:
        assigned = {}
        for _ in range(read.count()):
            topic_id = read.raw(16)
            assigned[topic_id] = [read.int32() for _ in range(read.count())]
            read.skip(1)
    return Beaten(epoch=epoch, interval_ms=interval_ms, assigned=assigned)


class _Reader:
    """Reads one field after another."""

    def __init__(self, payload: bytes | bytearray, at: int) -> None:
        self._payload = payload
        self._at = at

    def skip(self, count: int) -> None:
        self._at += count

    def raw(self, count: int) -> bytes:
        self._at += count
        return bytes(self._payload[self._at - count : self._at])

    def _signed(self, count: int) -> int:
        return int.from_bytes(self.raw(count), "big", signed=True)

    def int8(self) -> int:
        return self._signed(1)

    def int16(self) -> int:
        return self._signed(2)

    def int32(self) -> int:
        return self._signed(4)

    def int64(self) -> int:
        return self._signed(8)

    def count(self) -> int:
        """Of the items of an array; a null one has none."""
        value = shift = 0
        while True:
            byte = self._payload[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return max(0, value - 1)
            shift += 7

    def bytes(self) -> bytes:
        """A string or bytes; what is null is empty."""
        return self.raw(self.count())
