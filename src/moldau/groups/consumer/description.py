"""A consumer group as ConsumerGroupDescribe tells of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from moldau.groups.assignors.assignment import NO_PARTITIONS
from moldau.groups.consumer import member as members
from moldau.groups.consumer.group import ConsumerGroup
from moldau.metadata.image import ClusterImage
from moldau.wire.ids import Uuid
from moldau.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

_CLASSIC, _CONSUMER = 0, 1


def describe(group: ConsumerGroup, default_assignor: str, image: ClusterImage) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_member(group, member, image) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: members.Member, image: ClusterImage) -> Member:
    # What it has not given up yet, it has.
    held: dict[Uuid, set[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic, of_topic in partitions.items():
            held.setdefault(topic, set()).update(of_topic)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(held, image),
        target_assignment=_assignment(group.targets.get(member.member_id, NO_PARTITIONS), image),
        member_type=_CLASSIC if member.is_classic else _CONSUMER,
    )


def _assignment(partitions: Mapping[Uuid, Collection[int]], image: ClusterImage) -> Assignment:
    """Of the topics that there are."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, topic_name=name, partitions=sorted(of_topic))
            for topic, of_topic in partitions.items()
            if (name := image.topic_names.get(topic)) is not None
        ]
    )
