"""A commit of offsets, as it is asked for, written and kept.

Commits are what groups ask for most, and the record of one offset is packed here by hand. Its bytes are those
of the declared `OffsetCommitKey` and `OffsetCommitValue`; the tests hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from moldau.coordinator.record import CoordinatorRecord, Pair, encode_value
from moldau.groups.records import OffsetCommitKey, OffsetCommitValue
from moldau.wire.ids import ZERO_UUID, Uuid

NO_RETENTION = -1
NO_TIMESTAMP = -1

_VALUE_VERSION = 4
# With an expiry of its own, which clients before Kafka 2.1 could ask for, an offset has the one layout that
# has a place for it.
_VALUE_VERSION_WITH_EXPIRY = 1

_KEY_AND_GROUP = Struct(">hh").pack
_SIZE = Struct(">h").pack
_PARTITION = Struct(">i").pack
_VALUE_HEAD = Struct(">hqiB").pack  # version, offset, leader epoch, size of the metadata plus one
_VALUE_TAIL = Struct(">qBBB16s").pack  # commit timestamp, one tag, of number 0, with 16 bytes
_SHORT_METADATA_MAX = 126  # its size takes one byte


OffsetToCommit = tuple[str, Uuid, int, int, int, str]
"""Topic and its id, partition, offset, leader epoch and metadata."""


class OffsetCommit(NamedTuple):
    """`generation` is that of a classic group, the member's epoch in others. `version` is the request's."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    version: int
    offsets: Sequence[OffsetToCommit]


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: Uuid
    sequence: int
    """Grows in the order of the log."""


class OffsetRecord(NamedTuple):
    """What is written of one offset. Behind the partition the fields are those that a `CommittedOffset` is
    made of, in their order."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: Uuid

    def encode(self) -> Pair:
        group, topic, partition, offset, leader_epoch, metadata, committed_ms, expires_ms, topic_id = self
        group_bytes, topic_bytes, metadata_bytes = group.encode(), topic.encode(), metadata.encode()
        key = b"".join(
            (
                _KEY_AND_GROUP(OffsetCommitKey.API_KEY, len(group_bytes)),
                group_bytes,
                _SIZE(len(topic_bytes)),
                topic_bytes,
                _PARTITION(partition),
            )
        )
        size = len(metadata_bytes)
        if expires_ms != NO_TIMESTAMP or size > _SHORT_METADATA_MAX or topic_id == ZERO_UUID:
            return key, encode_value(self.declared())
        head = _VALUE_HEAD(_VALUE_VERSION, offset, leader_epoch, size + 1)
        return key, head + metadata_bytes + _VALUE_TAIL(committed_ms, 1, 0, 16, topic_id)

    def declared(self) -> CoordinatorRecord:
        """The same, as it is read back."""
        has_expiry = self.expire_timestamp != NO_TIMESTAMP
        return CoordinatorRecord(
            OffsetCommitKey(group=self.group, topic=self.topic, partition=self.partition),
            OffsetCommitValue(
                offset=self.offset,
                leader_epoch=self.leader_epoch,
                metadata=self.metadata,
                commit_timestamp=self.commit_timestamp,
                expire_timestamp=self.expire_timestamp,
                topic_id=self.topic_id,
            ),
            _VALUE_VERSION_WITH_EXPIRY if has_expiry else _VALUE_VERSION,
        )
