"""What consumers of the classic protocol tell each other by way of the coordinator, which reads and writes it
for them while they are in a group of the consumer protocol.

A version stands in front of each message. One from a later client is read as the latest that is known, as all
clients do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from struct import Struct
from typing import TypeVar

from moldau.metadata.image import ClusterImage
from moldau.wire.codec import ProtocolError, decode, encode
from moldau.wire.ids import Uuid
from moldau.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from moldau.wire.schema import Message

_VERSION = Struct(">h")

M = TypeVar("M", bound=Message)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Raises ProtocolError."""
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Raises ProtocolError. Nothing assigns nothing."""
    return _read(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()


def version_of(data: bytes) -> int:
    """Raises ProtocolError."""
    if len(data) < _VERSION.size:
        raise ProtocolError("a message of consumers is shorter than its version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"a message of consumers has version {version}")
    return min(version, ConsumerProtocolSubscription.VERSIONS.last)


def write_assignment(partitions: Mapping[Uuid, Collection[int]], version: int, image: ClusterImage) -> bytes:
    """Of the topics that there are."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=sorted(indexes))
            for topic, indexes in partitions.items()
            if (name := image.topic_names.get(topic)) is not None
        ]
    )
    return bytes(encode(message, version, bytearray(_VERSION.pack(version))))


def _read(message: type[M], data: bytes) -> M:
    return decode(message, version_of(data), data, _VERSION.size)[0]
