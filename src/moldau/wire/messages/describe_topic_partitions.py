"""DescribeTopicPartitions (API key 75), versions 0."""

from __future__ import annotations

from moldau.wire.ids import Uuid
from moldau.wire.schema import INT32, Message, Struct, array, boolean, int16, int32, string, struct, uuid


class TopicRequest(Struct):
    name: str = string("0+")


class RequestCursor(Struct):
    topic_name: str = string("0+")
    partition_index: int = int32("0+")


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", default=2000)
    cursor: RequestCursor | None = struct(RequestCursor, "0+", nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16("0+", default=0)
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(INT32, "0+")
    isr_nodes: list[int] = array(INT32, "0+")
    eligible_leader_replicas: list[int] | None = array(INT32, "0+", nullable="0+", default=None)
    last_known_elr: list[int] | None = array(INT32, "0+", nullable="0+", default=None)
    offline_replicas: list[int] = array(INT32, "0+", ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16("0+", default=0)
    name: str | None = string("0+", nullable="0+")
    topic_id: Uuid = uuid("0+", ignorable=True)
    is_internal: bool = boolean("0+", default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition, "0+"
    )
    topic_authorized_operations: int = int32("0+", default=-2147483648)


class ResponseCursor(Struct):
    topic_name: str = string("0+")
    partition_index: int = int32("0+")


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic, "0+")
    next_cursor: ResponseCursor | None = struct(ResponseCursor, "0+", nullable="0+", default=None)
