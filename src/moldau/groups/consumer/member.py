"""One member of a consumer group: what it asks for, and how far it has come towards what it is to have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from moldau.groups.group import Client
from moldau.groups.records import (
    AssignedPartitions,
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)
from moldau.wire.ids import Uuid
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2
"""Of an instance that is about to come back, with the partitions that it had."""

Partitions = Mapping[Uuid, Mapping[int, int]]
"""Topics, their partitions, and the epoch at which the member got each."""

Owned = Sequence[RequestTopicPartitions]

NO_PARTITIONS: Partitions = {}


class MemberState(IntEnum):
    """As the log has it. UNKNOWN stands for what a later release may have written."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


_STATES = {int(state): state for state in MemberState}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """`assigned` is what the member may consume, `pending_revocation` what it may have until it says that it
    does not. The epoch before the last is kept since the answer that raised it may have been lost."""

    member_id: str
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    assigned: Partitions = field(default_factory=dict)
    pending_revocation: Partitions = field(default_factory=dict)
    classic: ClassicMemberMetadata | None = None
    """There for one that speaks the classic protocol."""

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def epoch_of(self, topic_id: Uuid, partition: int) -> int | None:
        """When the member got a partition that it has, or may still have; None if it has not."""
        for partitions in (self.assigned, self.pending_revocation):
            epoch = partitions.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def owns_no_more_than(self, owned: Owned | None) -> bool:
        """Whether what a member says that it owns is part of what it is assigned."""
        if owned is None:
            return False
        return all(
            topic.topic_id in self.assigned and self.assigned[topic.topic_id].keys() >= set(topic.partitions)
            for topic in owned
        )

    # ------------------------------------------------------------ changes, each giving another member

    def heard(self, request: ConsumerGroupHeartbeatRequest, client: Client) -> Member:
        """As the heartbeat describes it: what it leaves out is as it was. The member itself if all is."""
        changes: dict[str, Any] = {}
        if request.instance_id is not None and request.instance_id != self.instance_id:
            changes["instance_id"] = request.instance_id
        if request.rack_id is not None and request.rack_id != self.rack_id:
            changes["rack_id"] = request.rack_id
        if request.rebalance_timeout_ms not in (-1, self.rebalance_timeout_ms):
            changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
        if request.server_assignor is not None and request.server_assignor != self.assignor:
            changes["assignor"] = request.server_assignor
        if request.subscribed_topic_names is not None:
            topics = frozenset(request.subscribed_topic_names)
            if topics != self.topics:
                changes["topics"] = topics
        if request.subscribed_topic_regex is not None and request.subscribed_topic_regex != self.regex:
            changes["regex"] = request.subscribed_topic_regex
        if client.id != self.client_id:
            changes["client_id"] = client.id
        if client.host != self.client_host:
            changes["client_host"] = client.host
        if self.classic is not None:
            changes["classic"] = None
        return replace(self, **changes) if changes else self

    def with_epoch(self, epoch: int, **changes: Any) -> Member:
        """At its next epoch, which may be the same: the one before it is where it is now."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch, **changes)

    def left_for_now(self) -> Member:
        """An instance that is gone and expected back. Whoever comes may commit what it consumed under any
        epoch."""
        assigned = {topic: dict.fromkeys(partitions, 0) for topic, partitions in self.assigned.items()}
        return replace(self, epoch=STATIC_LEAVING_EPOCH, assigned=assigned, pending_revocation=NO_PARTITIONS)

    def replaced_by(self, member_id: str) -> Member:
        """The same instance come back under another id."""
        return replace(self, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=0)

    # ------------------------------------------------------------ as records tell of it

    def described_by(self, value: ConsumerGroupMemberMetadataValue) -> Member:
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def assigned_by(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> Member:
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_STATES.get(value.state, MemberState.UNKNOWN),
            assigned=_partitions(value.assigned_partitions, value.member_epoch),
            pending_revocation=_partitions(value.partitions_pending_revocation, value.member_epoch),
        )

    def unassigned(self) -> Member:
        return replace(
            self,
            epoch=LEAVING_EPOCH,
            previous_epoch=LEAVING_EPOCH,
            assigned=NO_PARTITIONS,
            pending_revocation=NO_PARTITIONS,
        )


def _partitions(topics: Sequence[AssignedPartitions], member_epoch: int) -> Partitions:
    found: dict[Uuid, Mapping[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is not None and len(epochs) == len(topic.partitions):
            found[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
        else:
            # Before Kafka 4.3 there were none: the member's own is the latest that each can be.
            found[topic.topic_id] = dict.fromkeys(topic.partitions, max(member_epoch, 0))
    return found
