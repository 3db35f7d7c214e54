"""A share group as its records describe it: members, what they are to have, what they have.

It changes only by what is applied to it, and applying never refuses: of records that contradict each other,
as a log that is being compacted may have them, the later one counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from moldau.coordinator.record import CoordinatorRecord
from moldau.groups.group import GroupType
from moldau.groups.share.assignor import NO_PARTITIONS, Assignment
from moldau.groups.share.records import Member, group_tombstones
from moldau.metadata.image import ClusterImage
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid
from moldau.wire.messages import share_group_describe as describe

PROTOCOL_TYPE = "share"

EMPTY = "Empty"
STABLE = "Stable"

_FIRST_EPOCH = 1
NO_EPOCH = -1


class ShareGroup:
    """`targets` is what members are to have as of `assignment_epoch`; while that is behind `epoch`, another
    assignment is due."""

    type = GroupType.SHARE
    protocol_type = PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = _FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = _FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Assignment] = {}
        self.topics: Counter[str] = Counter()
        """How many members subscribe to a topic, by its name."""
        # Not in the log: the epoch at which the topics were looked at, unless they have changed since.
        self._seen_at_epoch: int | None = None

    # ------------------------------------------------------------ to look at

    @property
    def state(self) -> str:
        return STABLE if self.members else EMPTY

    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topics

    def member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def target_of(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NO_PARTITIONS)

    def topics_with(self, member_id: str, topics: frozenset[str]) -> set[str]:
        """What the group would subscribe to if the member subscribed to these."""
        return {topic for topic, _ in self._without(member_id)} | topics

    def _without(self, member_id: str) -> Iterator[tuple[str, int]]:
        member = self.members.get(member_id)
        own = member.topics if member is not None else frozenset[str]()
        return ((topic, count) for topic, count in self.topics.items() if count > (topic in own))

    @property
    def has_to_look_at_topics(self) -> bool:
        return self._seen_at_epoch is None or self.epoch < self._seen_at_epoch

    def note_topics_seen(self, epoch: int) -> None:
        self._seen_at_epoch = epoch

    def note_topics_changed(self) -> None:
        self._seen_at_epoch = None

    def described(self, assignor: str, image: ClusterImage) -> describe.DescribedGroup:
        return describe.DescribedGroup(
            group_id=self.group_id,
            group_state=self.state,
            group_epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor_name=assignor,
            members=[_described(member, image) for member in self.members.values()],
        )

    # ------------------------------------------------------------ what others ask of a group

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        is_transactional: bool,
        version: int,
    ) -> None:
        raise self._no_consumer_group()

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        raise self._no_consumer_group()

    def check_offset_delete(self) -> None:
        raise self._no_consumer_group()

    def _no_consumer_group(self) -> KafkaError:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def offset_expiration_base_ms(self, topic: str, committed_ms: int) -> int | None:
        return None

    def should_expire(self) -> bool:
        return False

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_tombstones(self.group_id, self.members)

    # ------------------------------------------------------------ records

    def apply_member(self, member: Member) -> None:
        self._count(self.members.get(member.member_id), -1)
        self.members[member.member_id] = member
        self._count(member, 1)

    def remove_member(self, member_id: str) -> None:
        self._count(self.members.pop(member_id, None), -1)

    def _count(self, member: Member | None, by: int) -> None:
        for topic in member.topics if member is not None else ():
            self.topics[topic] += by
            if not self.topics[topic]:
                del self.topics[topic]


def _described(member: Member, image: ClusterImage) -> describe.Member:
    return describe.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=describe.Assignment(
            topic_partitions=[
                describe.TopicPartitions(
                    topic_id=topic_id, topic_name=image.topic_names[topic_id], partitions=sorted(partitions)
                )
                for topic_id, partitions in member.assigned.items()
                if topic_id in image.topic_names
            ]
        ),
    )


def topic_ids(names: frozenset[str], image: ClusterImage) -> frozenset[Uuid]:
    """Of those that there are."""
    topics = (image.topics.get(name) for name in names)
    return frozenset(topic.topic_id for topic in topics if topic is not None)
