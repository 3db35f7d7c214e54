"""Offset commits by hand (API key 8, versions 8-10), in the shape that nearly all of them have: without tags,
and with sizes and counts that take a byte each.

Any other shape is for the declared messages, `moldau.wire.messages.offset_commit`; the tests hold the two
against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import NamedTuple

TOPIC_IDS_FROM = 10
_FIRST_VERSION = 8

_GENERATION_AND_SIZE = Struct(">iB").unpack_from
_OFFSET = Struct(">iqiB").unpack_from
_SHORT_MAX = 127  # of sizes and counts, which are written plus one; 0 is null
_ONE = 2  # as a count is written
_NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request
_new_tuple = tuple.__new__

Offset = tuple[int, int, int, str]
"""Partition, offset, leader epoch and metadata; to have none is to have the empty one."""

TopicOffsets = tuple[str | bytes, Sequence[Offset]]
"""Of a topic by its name, or from version 10 on by its id."""


class UsualCommit(NamedTuple):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: Sequence[TopicOffsets]


def read_usual_commit(version: int, frame: bytes, position: int) -> UsualCommit | None:
    """None for a request of another shape; whether that is well formed is not said. No topic comes twice."""
    if version < _FIRST_VERSION:
        return None
    try:
        # That slices lie within the frame shows at its end, where there has to be a byte.
        size = frame[position]
        after = position + size
        group_id = frame[position + 1 : after].decode()
        generation, member_size = _GENERATION_AND_SIZE(frame, after)
        position = after + 4 + member_size
        member_id = frame[after + 5 : position].decode()
        instance_size = frame[position]
        instance_id = None
        if instance_size:
            after = position + instance_size
            instance_id = frame[position + 1 : after].decode()
            position = after - 1
        count = frame[position + 1]
        position += 2
        if not (
            0 < size <= _SHORT_MAX
            and 0 < member_size <= _SHORT_MAX
            and instance_size <= _SHORT_MAX
            and 1 < count <= _SHORT_MAX
        ):
            return None
        topics: list[TopicOffsets] = []
        for _ in range(count - 1):
            topic: str | bytes
            if version >= TOPIC_IDS_FROM:
                after = position + 16
                topic = frame[position:after]
            else:
                size = frame[position]
                if not 0 < size <= _SHORT_MAX:
                    return None
                after = position + size
                topic = frame[position + 1 : after].decode()
            partitions = frame[after]
            position = after + 1
            if count == partitions == _ONE:
                index, offset, leader_epoch, size = _OFFSET(frame, position)
                position += 17
                if size <= 1 and frame[position : position + 3] == _NO_TAGS:
                    topics.append((topic, [(index, offset, leader_epoch, "")]))
                    break
                position = after + 1
            if not 0 < partitions <= _SHORT_MAX:
                return None
            offsets = []
            for _ in range(partitions - 1):
                index, offset, leader_epoch, size = _OFFSET(frame, position)
                position += 17
                metadata = ""
                if size > 1:
                    after = position + size - 1
                    metadata = frame[position:after].decode()
                    position = after
                if size > _SHORT_MAX or frame[position]:
                    return None
                position += 1
                offsets.append((index, offset, leader_epoch, metadata))
            if frame[position]:
                return None
            position += 1
            topics.append((topic, offsets))
        if frame[position]:
            return None
    except (error, IndexError, UnicodeDecodeError):
        return None
    if count > 2 and len(dict(topics)) < len(topics):
        return None
    return _new_tuple(UsualCommit, (group_id, generation, member_id, instance_id, topics))


_HEAD = Struct(">iiBiB").pack
_SIZE = Struct(">i").pack_into
_CODE = Struct(">ihB").pack
_ONE_CODE = Struct(">BihBBB").pack


def write_usual_answer(
    correlation_id: int, topics: Sequence[TopicOffsets], codes: Sequence[int]
) -> bytes | bytearray:
    """The whole response, with its frame and header, to what `read_usual_commit` has read; the codes are in
    the order of the offsets."""
    if len(topics) == len(codes) == 1:
        topic, offsets = topics[0]
        if topic.__class__ is not bytes:
            name = topic.encode()  # type: ignore[union-attr]
            topic = b"%c%b" % (len(name) + 1, name)
        head = _HEAD(20 + len(topic), correlation_id, 0, 0, _ONE)
        return b"%b%b%b" % (head, topic, _ONE_CODE(_ONE, offsets[0][0], codes[0], 0, 0, 0))
    out = bytearray(_HEAD(0, correlation_id, 0, 0, len(topics) + 1))
    number = 0
    for topic, offsets in topics:
        if topic.__class__ is not bytes:
            topic = topic.encode()  # type: ignore[union-attr]
            out.append(len(topic) + 1)
        out += topic
        out.append(len(offsets) + 1)
        for offset in offsets:
            out += _CODE(offset[0], codes[number], 0)
            number += 1
        out.append(0)
    out.append(0)
    _SIZE(out, 0, len(out) - 4)
    return out
