"""The records that share groups write, as Kafka writes them: topics and partitions in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.coordinator.record import CoordinatorRecord
from moldau.groups.records import (
    ShareAssignedPartitions,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    ShareTargetPartitions,
    TopicInfo,
    TopicPartitionsInfo,
)
from moldau.groups.share.assignor import NO_PARTITIONS, Assignment
from moldau.wire.ids import Uuid

STABLE_STATE = 0  # members of share groups know no other


class Member(NamedTuple):
    """`topics` are the names that it subscribes to; the rest is as of its last heartbeat."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    assigned: Assignment = NO_PARTITIONS


class TopicState(NamedTuple):
    """Partitions of a topic whose share state is there, or is on its way."""

    name: str
    partitions: frozenset[int]


TopicStates = Mapping[Uuid, TopicState]


def member_record(group_id: str, member: Member) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
        ),
    )


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupMetadataKey(group_id=group_id),
        ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[
                ShareTargetPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(target.items())
            ]
        ),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def current_record(group_id: str, member: Member) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=STABLE_STATE,
            assigned_partitions=[
                ShareAssignedPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(member.assigned.items())
            ],
        ),
    )


def state_record(
    group_id: str, initializing: TopicStates, initialized: TopicStates, deleting: Mapping[Uuid, str]
) -> CoordinatorRecord:
    """`deleting` has the names of the topics."""
    return CoordinatorRecord(
        ShareGroupStatePartitionMetadataKey(group_id=group_id),
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=_infos(initializing),
            initialized_topics=_infos(initialized),
            deleting_topics=[
                TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in sorted(deleting.items())
            ],
        ),
    )


def _infos(topics: TopicStates) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
        for topic_id, topic in sorted(topics.items())
    ]


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """In the order in which a member goes."""
    return [
        CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
    members = list(member_ids)
    return [
        *(
            CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=each), None)
            for each in members
        ),
        *(
            CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=each), None)
            for each in members
        ),
        CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(
            CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=each), None)
            for each in members
        ),
        CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), None),
    ]
