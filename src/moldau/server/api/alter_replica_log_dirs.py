"""AlterReplicaLogDirs (key 34), versions 1-2: begins to move replicas to other log directories of this
broker; v2 flexible. DescribeLogDirs tells how far they are."""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    # Of a replica that is named twice, the last word counts.
    wanted = {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for (topic_name, index), path in wanted.items():
        result = AlterReplicaLogDirPartitionResult(
            partition_index=index, error_code=_move(context, topic_name, index, path)
        )
        topics.setdefault(topic_name, []).append(result)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=results)
            for name, results in topics.items()
        ]
    )


def _move(context: RequestContext, topic: str, index: int, path: str) -> ErrorCode:
    services = context.services
    try:
        services.replica_mover.check_path(path)
        services.replica_mover.move(services.partition(topic, index), path)
    except KafkaError as failure:
        services.on_storage_failure(failure)
        # Since before replicas elsewhere had a code of their own.
        if failure.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return failure.code
    return ErrorCode.NONE
