"""AssignReplicasToDirs (API key 73), versions 0."""

from __future__ import annotations

from moldau.wire.ids import Uuid
from moldau.wire.schema import Message, Struct, array, int16, int32, int64, uuid


class RequestPartitionData(Struct):
    partition_index: int = int32("0+")


class RequestTopicData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, "0+")


class RequestDirectoryData(Struct):
    id: Uuid = uuid("0+")
    topics: list[RequestTopicData] = array(RequestTopicData, "0+")


class AssignReplicasToDirsRequest(Message, api_key=73, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    directories: list[RequestDirectoryData] = array(RequestDirectoryData, "0+")


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+", default=0)


class ResponseTopicData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


class ResponseDirectoryData(Struct):
    id: Uuid = uuid("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")


class AssignReplicasToDirsResponse(Message, api_key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    directories: list[ResponseDirectoryData] = array(ResponseDirectoryData, "0+")
