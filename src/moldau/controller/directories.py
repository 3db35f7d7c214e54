"""In which log directory of a broker a replica lies (KIP-858): the broker says, the metadata remembers.

It matters when a directory fails: what lay there has to be led by another broker.
"""

from __future__ import annotations

from dataclasses import replace

from moldau.controller.brokers import check_broker_epoch
from moldau.controller.decision import Decision, versioned
from moldau.controller.partition_change import BrokerShift, partition_change
from moldau.metadata.features import supports_directory_assignment
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import PartitionChangeRecord
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid
from moldau.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)


def decide_assign_replicas_to_dirs(
    image: ClusterImage, request: AssignReplicasToDirsRequest
) -> Decision[AssignReplicasToDirsResponse]:
    """Each replica on its own: one that is unknown does not keep the others from being assigned."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    if not supports_directory_assignment(image.metadata_version):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    changes: list[PartitionChangeRecord] = []
    directories = []
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            results = []
            for partition in topic.partitions:
                result = ResponsePartitionData(partition_index=partition.partition_index)
                try:
                    changes += _change(
                        image, request.broker_id, directory.id, topic.topic_id, partition.partition_index
                    )
                except KafkaError as failure:
                    result.error_code = failure.code
                results.append(result)
            topics.append(ResponseTopicData(topic_id=topic.topic_id, partitions=results))
        directories.append(ResponseDirectoryData(id=directory.id, topics=topics))
    return Decision(
        records=versioned(image, changes), reply=AssignReplicasToDirsResponse(directories=directories)
    )


def _change(
    image: ClusterImage, broker_id: int, directory_id: Uuid, topic_id: Uuid, index: int
) -> list[PartitionChangeRecord]:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in partition.replicas:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.directory_of(broker_id) == directory_id:
        return []
    assigned = [
        directory_id if replica == broker_id else partition.directory_of(replica)
        for replica in partition.replicas
    ]
    # In a directory that has failed meanwhile it cannot lead; in one that works it may have to.
    is_online = image.brokers[broker_id].is_online(directory_id)
    shift = BrokerShift() if is_online else BrokerShift(removed=broker_id)
    moved = replace(partition, directories=tuple(assigned))
    change = partition_change(image, topic, index, moved, shift) or PartitionChangeRecord(
        topic_id=topic_id, partition_id=index
    )
    change.directories = assigned
    return [change]
