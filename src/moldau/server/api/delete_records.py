"""DeleteRecords (key 21), versions 0-2: moves the start of logs forward; v2 flexible.

Unlike Kafka, which remembers the new start within a minute, we answer once it is on disk: deleted records do
not come back. Their segments go with the next retention.
"""

from __future__ import annotations

import logging

from moldau.log.directory import LogDirectory
from moldau.server.context import RequestContext
from moldau.server.services import Services
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

log = logging.getLogger(__name__)

NO_LOW_WATERMARK = -1


async def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    services = context.services
    topics: dict[str, dict[int, DeleteRecordsPartitionResult]] = {}
    moved: dict[str, LogDirectory] = {}
    for topic in request.topics:
        results = topics.setdefault(topic.name, {})
        # Of a partition that is named twice, the last word counts.
        for index, offset in {asked.partition_index: asked.offset for asked in topic.partitions}.items():
            try:
                low_watermark = _delete(services, topic.name, index, offset)
                results[index] = DeleteRecordsPartitionResult(
                    partition_index=index, low_watermark=low_watermark
                )
                directory = services.log_directories.directory_of(topic.name, index)
                if directory is not None:
                    moved[directory.path] = directory
            except KafkaError as failure:
                services.on_storage_failure(failure)
                results[index] = _failed(index, failure.code)
    for directory in moved.values():
        try:
            await services.runtime.run_blocking(directory.write, directory.prepare_log_start_offsets())
        except KafkaError as failure:
            log.error("cannot write down where logs start: %s", failure.message)
            for name, results in topics.items():
                for index in results:
                    if (name, index) in directory.logs:
                        results[index] = _failed(index, failure.code)
            services.on_storage_failure(failure)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=name, partitions=list(results.values()))
            for name, results in topics.items()
        ]
    )


def _delete(services: Services, topic: str, index: int, offset: int) -> int:
    """The low watermark afterwards: with a single replica, where its log starts."""
    partition = services.partition(topic, index)
    if partition.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    of_leader = partition.leader_log()
    if not of_leader.config.delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    return of_leader.delete_records_before(offset)


def _failed(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=code
    )
