"""Offset commits by hand (API key 8, versions 8-10), in the shape that nearly all of them have: one offset,
of a member without an instance id or of nobody, and no tags.

Any other shape is for the declared messages, `moldau.wire.messages.offset_commit`; the tests hold the two
against each other.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

_FIRST_VERSION = 8
TOPIC_IDS_FROM = 10

_GENERATION_AND_SIZE = Struct(">iB").unpack_from
_INSTANCE_TOPICS_SIZE = Struct(">BBB").unpack_from
_INSTANCE_TOPICS_ID = Struct(">BB16s").unpack_from
_OFFSET = Struct(">BiqiB").unpack_from
_NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request


class OneOffset(NamedTuple):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    topic: str | bytes
    """Its name, or from version 10 on its id."""
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


_new_tuple = tuple.__new__


def read_one_offset(version: int, frame: bytes, position: int) -> OneOffset | None:
    """None for a request of another shape. Whether it is well formed is not said then."""
    if version < _FIRST_VERSION:
        return None
    try:
        # Sizes and counts are written plus one; from 128 on they take more than a byte.
        size = frame[position]
        after = position + size
        group_id = frame[position + 1 : after].decode()
        generation, member_size = _GENERATION_AND_SIZE(frame, after)
        position = after + 5
        after = position + member_size - 1
        member_id = frame[position:after].decode() if member_size > 1 else ""
        topic: str | bytes
        if version >= TOPIC_IDS_FROM:
            instance, topics, topic = _INSTANCE_TOPICS_ID(frame, after)
            name_size, position = 1, after + 18
        else:
            instance, topics, name_size = _INSTANCE_TOPICS_SIZE(frame, after)
            position = after + name_size + 2
            topic = frame[after + 3 : position].decode()
        partitions, index, offset, leader_epoch, metadata_size = _OFFSET(frame, position)
        position += 18
        metadata = None
        if metadata_size:
            after = position + metadata_size - 1
            metadata = frame[position:after].decode() if metadata_size > 1 else ""
            position = after
    except (error, IndexError, UnicodeDecodeError):
        return None
    if (
        instance
        or topics != 2
        or partitions != 2
        or not (0 < size < 128 and 0 < member_size < 128 and 0 < name_size < 128 and metadata_size < 128)
        or frame[position : position + 3] != _NO_TAGS
    ):
        return None
    return _new_tuple(
        OneOffset, (group_id, generation, member_id, topic, index, offset, leader_epoch, metadata)
    )


_ANSWER_BY_ID = Struct(">iiBiB16sBihBBB")
_ANSWER_HEAD = Struct(">iiBiBB")
_ANSWER_TAIL = Struct(">BihBBB")


def write_one_answer(correlation_id: int, topic: str | bytes, partition: int, error_code: int) -> bytes:
    """The whole response to what `read_one_offset` has read, with its frame and header."""
    if isinstance(topic, bytes):
        return _ANSWER_BY_ID.pack(
            _ANSWER_BY_ID.size - 4, correlation_id, 0, 0, 2, topic, 2, partition, error_code, 0, 0, 0
        )
    name = topic.encode()
    size = _ANSWER_HEAD.size + len(name) + _ANSWER_TAIL.size - 4
    head = _ANSWER_HEAD.pack(size, correlation_id, 0, 0, 2, len(name) + 1)
    return head + name + _ANSWER_TAIL.pack(2, partition, error_code, 0, 0, 0)
