"""The records of `__transaction_state`: for each transactional id all that is known of it, written anew with
each change.

Version 1 of the value came with transaction.version 1. What only it can say is left out of version 0.
"""

from __future__ import annotations

from moldau.coordinator.record import RecordTypes
from moldau.wire.schema import INT32, Message, Struct, array, int8, int16, int32, int64, string


class TransactionLogKey(Message, api_key=0, versions="0"):
    transactional_id: str = string("0")


class PartitionsSchema(Struct):
    topic: str = string("0+")
    partition_ids: list[int] = array(INT32, "0+")


class TransactionLogValue(Message, api_key=0, versions="0-1", flexible="1+"):
    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", default=-1, tag=0, tagged="1+", ignorable=True)
    next_producer_id: int = int64("1+", default=-1, tag=1, tagged="1+", ignorable=True)
    producer_epoch: int = int16("0+")
    next_producer_epoch: int = int16("1+", default=-1, tag=3, tagged="1+", ignorable=True)
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, "0+", nullable="0+")
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", default=0, tag=2, tagged="1+", ignorable=True)


RECORD_TYPES = RecordTypes([(TransactionLogKey, TransactionLogValue)])
