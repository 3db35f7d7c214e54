"""The records of `__share_group_state`: how far a share group has come in a partition.

A snapshot says everything about one share partition, an update what is new since the last snapshot.
"""

from __future__ import annotations

from moldau.coordinator.record import RecordTypes
from moldau.wire.ids import Uuid
from moldau.wire.schema import Message, Struct, array, int8, int16, int32, int64, string, uuid


class ShareSnapshotKey(Message, api_key=0, versions="0"):
    group_id: str = string("0")
    topic_id: Uuid = uuid("0")
    partition: int = int32("0")


class RecordedBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class ShareSnapshotValue(Message, api_key=0, versions="0", flexible="0+"):
    snapshot_epoch: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0, tagged="0+")
    create_timestamp: int = int64("0+")
    write_timestamp: int = int64("0+")
    state_batches: list[RecordedBatch] = array(RecordedBatch, "0+")


class ShareUpdateKey(Message, api_key=1, versions="0"):
    group_id: str = string("0")
    topic_id: Uuid = uuid("0")
    partition: int = int32("0")


class ShareUpdateValue(Message, api_key=1, versions="0", flexible="0+"):
    snapshot_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0, tagged="0+")
    state_batches: list[RecordedBatch] = array(RecordedBatch, "0+")


RECORD_TYPES = RecordTypes(((ShareSnapshotKey, ShareSnapshotValue), (ShareUpdateKey, ShareUpdateValue)))
