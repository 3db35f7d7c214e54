"""ListOffsets (key 2), versions 1-11: v2 isolation, v4 leader epochs, v6 flexible, v7 the record with the
largest timestamp, v8 the earliest local record, v9 the latest tiered one, v10 a timeout for remote logs, v11
the earliest one not tiered yet.

Our logs are all local: the earliest local record is the earliest one, and nothing is tiered or about to be.
"""

from __future__ import annotations

from collections import Counter

from moldau.log.log import Log
from moldau.replica.partition import Partition
from moldau.server.context import RequestContext
from moldau.server.services import Services
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
_FIRST_VERSIONS = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2  # asks any replica, not only the leader
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NOTHING = -1, -1, -1


def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    counts = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    topics = []
    for topic in request.topics:
        partitions: dict[int, ListOffsetsPartitionResponse] = {}
        for asked in topic.partitions:
            index = asked.partition_index
            try:
                if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
                if counts[topic.name, index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                partitions[index] = _find(context.services, context.version, request, topic.name, asked)
            except KafkaError as failure:
                context.services.on_storage_failure(failure)
                partitions[index] = ListOffsetsPartitionResponse(
                    partition_index=index, error_code=failure.code
                )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=list(partitions.values())))
    return ListOffsetsResponse(topics=topics)


def _find(
    services: Services, version: int, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    if asked.timestamp < 0 and version < _FIRST_VERSIONS.get(asked.timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = services.partition(topic, asked.partition_index)
    if request.replica_id == DEBUGGING_REPLICA_ID:
        log = partition.local_log(asked.current_leader_epoch)
    else:
        log = partition.leader_log(asked.current_leader_epoch)
    timestamp, offset, epoch = _look_up(partition, log, request, asked.timestamp)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch if version >= 4 else -1,
    )


def _look_up(
    partition: Partition, log: Log, request: ListOffsetsRequest, timestamp: int
) -> tuple[int, int, int]:
    """Timestamp, offset and leader epoch; each -1 where there is none."""
    if timestamp == LATEST:
        return -1, _end_offset(log, request), partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        first = log.leader_epochs.earliest()
        epoch = first[0] if first is not None and first[1] <= log.log_start_offset else -1
        return -1, log.log_start_offset, epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    if timestamp == MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp()
    else:
        found = log.offset_for_timestamp(timestamp)
    # What may not be read yet has no time yet, either.
    return found if found is not None and found.offset < _end_offset(log, request) else NOTHING


def _end_offset(log: Log, request: ListOffsetsRequest) -> int:
    """Where what the asking party may read ends."""
    if request.replica_id != CONSUMER_REPLICA_ID:
        return log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark
