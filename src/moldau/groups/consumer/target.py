"""What the members of a group are to have: the assignor asked, and what its answer changes."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.coordinator.record import CoordinatorRecord
from moldau.groups.assignors.assignment import Assignment, Assignor, Subscriber
from moldau.groups.consumer.group import ConsumerGroup
from moldau.groups.consumer.member import Member
from moldau.groups.consumer.records import assignment_record, target_record
from moldau.metadata.image import ClusterImage
from moldau.wire.ids import Uuid


def compute_target(
    group: ConsumerGroup,
    members: Mapping[str, Member],
    assignor: Assignor,
    image: ClusterImage,
) -> dict[str, Assignment]:
    """`members` may differ from those of the group by what is about to be applied."""
    counts: dict[Uuid, int] = {}
    found: dict[tuple[frozenset[str], frozenset[str]], frozenset[Uuid]] = {}
    subscribers: dict[str, Subscriber] = {}
    for member_id, member in members.items():
        subscription = group.subscription(member)
        topics = found.get(subscription)
        if topics is None:
            topics = found[subscription] = _ids(subscription[0] | subscription[1], image, counts)
        subscribers[member_id] = Subscriber(
            topics=topics,
            assigned=group.target_of(member_id, member.instance_id),
            instance_id=member.instance_id,
        )
    return assignor(subscribers, counts)


def target_records(
    group: ConsumerGroup, targets: Mapping[str, Assignment], epoch: int, now_ms: int
) -> list[CoordinatorRecord]:
    """One for each member that is to have something else, or of which nothing was known."""
    changed = [
        target_record(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if group.targets.get(member_id) != target
    ]
    return [*changed, assignment_record(group.group_id, epoch, now_ms)]


def _ids(names: frozenset[str], image: ClusterImage, counts: dict[Uuid, int]) -> frozenset[Uuid]:
    ids = set()
    for name in names:
        topic = image.topics.get(name)
        if topic is not None:
            ids.add(topic.topic_id)
            counts[topic.topic_id] = len(topic.partitions)
    return frozenset(ids)
