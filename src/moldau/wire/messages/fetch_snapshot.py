"""FetchSnapshot (API key 59), versions 0-1."""

from __future__ import annotations

from moldau.wire.codec import Buffer
from moldau.wire.ids import Uuid
from moldau.wire.schema import (
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uuid,
)


class RequestSnapshotId(Struct):
    end_offset: int = int64("0+")
    epoch: int = int32("0+")


class RequestPartitionSnapshot(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("0+")
    snapshot_id: RequestSnapshotId = struct(RequestSnapshotId, "0+")
    position: int = int64("0+")
    replica_directory_id: Uuid = uuid("1+", tag=0, tagged="1+", ignorable=True)


class RequestTopicSnapshot(Struct):
    name: str = string("0+")
    partitions: list[RequestPartitionSnapshot] = array(RequestPartitionSnapshot, "0+")


class FetchSnapshotRequest(Message, api_key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None, tag=0, tagged="0+")
    replica_id: int = int32("0+", default=-1)
    max_bytes: int = int32("0+", default=2147483647)
    topics: list[RequestTopicSnapshot] = array(RequestTopicSnapshot, "0+")


class ResponseSnapshotId(Struct):
    end_offset: int = int64("0+")
    epoch: int = int32("0+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class ResponsePartitionSnapshot(Struct):
    index: int = int32("0+")
    error_code: int = int16("0+", default=0)
    snapshot_id: ResponseSnapshotId = struct(ResponseSnapshotId, "0+")
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+", tag=0, tagged="0+")
    size: int = int64("0+")
    position: int = int64("0+")
    unaligned_records: Buffer | None = records("0+")


class ResponseTopicSnapshot(Struct):
    name: str = string("0+")
    partitions: list[ResponsePartitionSnapshot] = array(ResponsePartitionSnapshot, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class FetchSnapshotResponse(Message, api_key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0, ignorable=True)
    error_code: int = int16("0+", default=0)
    topics: list[ResponseTopicSnapshot] = array(ResponseTopicSnapshot, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0, tagged="1+")
