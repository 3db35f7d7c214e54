"""DescribeLogDirs (key 35), versions 1-5: what lies in each log directory of this broker; v2 flexible, v3 a
code for the request, v4 the size of the volume, v5 cordoned directories."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.log.directory import LogDirectory
from moldau.log.log import Log
from moldau.server.context import RequestContext
from moldau.server.services import Services
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

NO_OFFSET_LAG = -1


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    services = context.services
    asked = None
    if request.topics is not None:
        asked = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = []
    for path in services.config.log_dirs:
        result = DescribeLogDirsResult(log_dir=path)
        directory = services.log_directories.by_path(path)
        try:
            if directory is None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
            _describe(services, directory, asked, result)
        except KafkaError as failure:
            services.on_storage_failure(failure)
            result = DescribeLogDirsResult(log_dir=path, error_code=failure.code)
        results.append(result)
    return DescribeLogDirsResponse(results=results)


def _describe(
    services: Services,
    directory: LogDirectory,
    asked: set[tuple[str, int]] | None,
    result: DescribeLogDirsResult,
) -> None:
    result.total_bytes, result.usable_bytes = directory.disk_space()
    broker = services.image().brokers.get(services.node_id)
    cordoned = (broker.cordoned_log_dirs or ()) if broker is not None else ()
    result.is_cordoned = directory.directory_id in cordoned
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for log, is_future in _logs(directory):
        if asked is None or (log.topic, log.partition) in asked:
            topics.setdefault(log.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=log.partition,
                    partition_size=log.size_bytes,
                    offset_lag=_offset_lag(services, log, is_future),
                    is_future_key=is_future,
                )
            )
    result.topics = [
        DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()
    ]


def _logs(directory: LogDirectory) -> Iterator[tuple[Log, bool]]:
    for log in directory.logs.values():
        yield log, False
    for log in directory.future_logs.values():
        yield log, True


def _offset_lag(services: Services, log: Log, is_future: bool) -> int:
    """How far a future log is behind the one it will replace, and any other behind its high watermark."""
    partition = services.replicas.get(log.topic, log.partition)
    current = partition.log if partition is not None else None
    if current is None:
        return NO_OFFSET_LAG
    if is_future:
        return current.log_end_offset - log.log_end_offset
    return max(current.high_watermark - log.log_end_offset, 0)
