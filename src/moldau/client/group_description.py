"""What a cluster tells of groups, in one form for every kind of group and every API that tells it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct, error

from moldau.client.cluster import Node, TopicPartition
from moldau.wire.codec import ProtocolError, decode
from moldau.wire.messages import consumer_group_describe, describe_groups, share_group_describe
from moldau.wire.messages.consumer_protocol import ConsumerProtocolAssignment

log = logging.getLogger(__name__)

CLASSIC, CONSUMER, SHARE, STREAMS = TYPES = ("Classic", "Consumer", "Share", "Streams")
STATES = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
)
REBALANCING = frozenset(("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"))
# A group whose members agree on nothing else has one of these; no members at all is the second.
CONSUMER_PROTOCOLS = ("consumer", "")

_VERSION = Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """`state` and `type` are empty where the broker is too old to tell."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """Epochs and the target are what members of classic groups do not have."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    is_upgraded: bool | None = None
    """Whether it speaks the protocol of consumer groups; None if nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: Node
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    target_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    offset: int
    leader_epoch: int | None
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOffset:
    """Where a share group's records begin. It has no start, and no lag, before it first reads."""

    start_offset: int | None
    leader_epoch: int | None
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPosition:
    """How far a client has read of a partition, and how long ago that was."""

    client_id: str
    host: str
    place: TopicPartition
    position: int
    high_watermark: int
    age_ms: int


def of_classic(group: describe_groups.DescribedGroup, coordinator: Node) -> GroupDescription:
    is_consumer = group.protocol_type in CONSUMER_PROTOCOLS
    return GroupDescription(
        group_id=group.group_id,
        type=CLASSIC,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=coordinator,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=_assigned(member.member_assignment) if is_consumer else (),
            )
            for member in group.members
        ),
    )


def of_consumer(group: consumer_group_describe.DescribedGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        type=CONSUMER,
        state=group.group_state,
        protocol_type="consumer",
        assignor=group.assignor_name,
        coordinator=coordinator,
        epoch=group.group_epoch,
        target_epoch=group.assignment_epoch,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=_places(member.assignment.topic_partitions),
                epoch=member.member_epoch,
                target=_places(member.target_assignment.topic_partitions),
                is_upgraded=None if member.member_type < 0 else member.member_type == 1,
            )
            for member in group.members
        ),
    )


def of_share(group: share_group_describe.DescribedGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        type=SHARE,
        state=group.group_state,
        protocol_type="share",
        assignor=group.assignor_name,
        coordinator=coordinator,
        epoch=group.group_epoch,
        target_epoch=group.assignment_epoch,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                instance_id=None,
                client_id=member.client_id,
                host=member.client_host,
                assignment=_places(member.assignment.topic_partitions),
                epoch=member.member_epoch,
            )
            for member in group.members
        ),
    )


def _places(
    topics: Iterable[consumer_group_describe.TopicPartitions | share_group_describe.TopicPartitions],
) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic_name, index) for topic in topics for index in topic.partitions)


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """What the leader of a classic group gave a member: its bytes, which the broker does not read. Later
    versions only add at the end."""
    if not assignment:
        return ()
    known = ConsumerProtocolAssignment.VERSIONS
    try:
        version = min(_VERSION.unpack_from(assignment)[0], known.last)
        found, _ = decode(ConsumerProtocolAssignment, max(version, known.first), assignment, _VERSION.size)
    except (error, ProtocolError) as failure:
        log.warning("an assignment cannot be read: %s", failure)
        return ()
    return tuple(
        TopicPartition(topic.topic, index)
        for topic in found.assigned_partitions
        for index in topic.partitions
    )


def by_topic(places: Iterable[TopicPartition]) -> dict[str, Sequence[int]]:
    """The partitions of each topic, both sorted."""
    topics: dict[str, list[int]] = {}
    for place in sorted(places):
        topics.setdefault(place.topic, []).append(place.partition)
    return dict(topics)
