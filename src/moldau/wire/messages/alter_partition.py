"""AlterPartition (API key 56), versions 2-3."""

from __future__ import annotations

from moldau.wire.ids import Uuid
from moldau.wire.schema import INT32, Message, Struct, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class RequestPartitionData(Struct):
    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    new_isr: list[int] = array(INT32, "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+", default=0)
    partition_epoch: int = int32("0+")


class RequestTopicData(Struct):
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: list[RequestPartitionData] = array(RequestPartitionData, "0+")


class AlterPartitionRequest(Message, api_key=56, versions="2-3", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    topics: list[RequestTopicData] = array(RequestTopicData, "0+")


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+", default=0)
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: list[int] = array(INT32, "0+")
    leader_recovery_state: int = int8("1+", default=0, ignorable=True)
    partition_epoch: int = int32("0+")


class ResponseTopicData(Struct):
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


class AlterPartitionResponse(Message, api_key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")
