"""Groups that change their protocol while their members go on.

A classic group of consumers becomes a consumer group when a member of the consumer protocol joins; its
members stay, and are served by the protocol that they know. It becomes classic again when the last member of
the consumer protocol goes. What is allowed of that `group.consumer.migration.policy` says.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from moldau.coordinator.decision import NOTHING, Answer, Decision
from moldau.coordinator.record import CoordinatorRecord
from moldau.groups.assignors.assignment import NO_PARTITIONS
from moldau.groups.classic.group import ClassicGroup, ClassicState
from moldau.groups.classic.member import Member as ClassicMember
from moldau.groups.classic.member import Protocols
from moldau.groups.classic.outcome import Outcome
from moldau.groups.classic.protocol import ClassicProtocol
from moldau.groups.classic.records import group_record
from moldau.groups.consumer import records
from moldau.groups.consumer.embedded import read_assignment, read_subscription, version_of, write_assignment
from moldau.groups.consumer.group import PROTOCOL_TYPE, ConsumerGroup, TopicIndex
from moldau.groups.consumer.member import Member
from moldau.groups.consumer.rebalance import Rebalances
from moldau.groups.environment import GroupEnvironment
from moldau.groups.group import Client
from moldau.groups.records import ClassicMemberMetadata
from moldau.groups.records import ClassicProtocol as SupportedProtocol
from moldau.wire.codec import ProtocolError
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.join_group import JoinGroupResponse
from moldau.wire.messages.sync_group import SyncGroupResponse

log = logging.getLogger(__name__)

R = TypeVar("R")

_UPGRADES = ("UPGRADE", "BIDIRECTIONAL")
_DOWNGRADES = ("DOWNGRADE", "BIDIRECTIONAL")
_FIRST_EPOCH = 1


class Migration:
    def __init__(
        self, classic: ClassicProtocol, environment: GroupEnvironment, rebalances: Rebalances
    ) -> None:
        self._classic = classic
        self._environment = environment
        self._rebalances = rebalances

    # ------------------------------------------------------------ from classic to consumer

    def upgraded(
        self, now_ms: int, classic: ClassicGroup, written: list[CoordinatorRecord], answers: list[Answer]
    ) -> ConsumerGroup:
        """The group as it will be; it comes to be with the records. Whoever waits in the classic group is
        told to join again. Raises KafkaError."""
        self._check_upgrade(classic)
        try:
            group = self._converted(classic)
        except ProtocolError:
            raise _no_upgrade(classic, "the embedded consumer protocol is malformed.") from None
        for member in classic.members.values():
            again = ErrorCode.REBALANCE_IN_PROGRESS
            waiter = classic.take_awaiting_join(member)
            if waiter is not None:
                answers.append((waiter, JoinGroupResponse(member_id=member.member_id, error_code=again)))
            if member.awaiting_sync is not None:
                answers.append((member.awaiting_sync, SyncGroupResponse(error_code=again)))
                member.awaiting_sync = None
            self._rebalances.watch_session(
                now_ms, group.group_id, member.member_id, member.session_timeout_ms
            )
        written += classic.tombstones()
        written += _records_of(group)
        log.info("group %s becomes a consumer group", group.group_id)
        return group

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        options = self._environment.config.groups
        if options.consumer_migration_policy.upper() not in _UPGRADES:
            raise _no_upgrade(classic, "online upgrade is disabled.")
        if classic.protocol_type != PROTOCOL_TYPE:
            raise _no_upgrade(classic, "the group does not use the consumer embedded protocol.")
        if len(classic.members) > options.consumer_max_size:
            raise _no_upgrade(classic, "the group size exceeds the consumer group maximum size.")

    def _converted(self, classic: ClassicGroup) -> ConsumerGroup:
        """As of the classic group's last assignment, which each member has. Raises ProtocolError."""
        # One that never had an assignment has no generation, and is not a member's epoch yet.
        epoch = max(classic.generation, _FIRST_EPOCH)
        group = ConsumerGroup(classic.group_id, TopicIndex())
        for known in classic.members.values():
            member = self._converted_member(classic, known, epoch)
            group.apply_target(
                member.member_id, {topic: frozenset(indexes) for topic, indexes in member.assigned.items()}
            )
            group.apply_member(member)
        group.apply_epoch(epoch, self._rebalances.hash_of(group.topics))
        group.apply_assignment(epoch, 0)
        return group

    def _converted_member(self, classic: ClassicGroup, known: ClassicMember, epoch: int) -> Member:
        assignment = read_assignment(known.assignment)
        if assignment.user_data:
            raise _no_upgrade(
                classic,
                "an unsupported custom assignor is in use. "
                "Please refer to the documentation or switch to a default assignor before re-attempting the "
                "upgrade.",
            )
        topics = self._environment.image.topics
        subscription = read_subscription(known.metadata(classic.protocol_name or known.protocols[0][0]))
        return Member(
            member_id=known.member_id,
            epoch=epoch,
            previous_epoch=epoch,
            instance_id=known.instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=known.rebalance_timeout_ms,
            client_id=known.client.id,
            client_host=known.client.host,
            topics=frozenset(subscription.topics),
            assigned={
                topics[each.topic].topic_id: dict.fromkeys(each.partitions, epoch)
                for each in assignment.assigned_partitions
                if each.topic in topics
            },
            classic=classic_metadata(known.session_timeout_ms, known.protocols),
        )

    # ------------------------------------------------------------ from consumer to classic

    def may_downgrade(self, group: ConsumerGroup, leaving: Sequence[Member]) -> bool:
        """Whether those who stay are some, speak the classic protocol, and may go on by themselves."""
        options = self._environment.config.groups
        staying = len(group.members) - len(leaving)
        return (
            0 < staying <= options.max_size
            and group.is_classic_without(leaving)
            and options.consumer_migration_policy.upper() in _DOWNGRADES
        )

    def may_downgrade_with(self, group: ConsumerGroup, replaced: Member) -> bool:
        """The same when one of the consumer protocol comes back as one of the classic protocol."""
        options = self._environment.config.groups
        return (
            not replaced.is_classic
            and group.is_classic_without([replaced])
            and len(group.members) <= options.max_size
            and options.consumer_migration_policy.upper() in _DOWNGRADES
        )

    def downgraded(
        self,
        now_ms: int,
        group: ConsumerGroup,
        leaving: Sequence[Member],
        joining: Member | None,
        reason: str | None,
        written: list[CoordinatorRecord],
        reply: R | None,
    ) -> Decision[R]:
        """The group without those who leave, and with one who takes the place of its instance. With a
        `reason` it begins to rebalance. Raises KafkaError."""
        replaced = None
        if joining is not None and joining.instance_id is not None:
            replaced = group.instances.get(joining.instance_id)
        try:
            classic = self._classic_group(now_ms, group, leaving, joining, replaced)
        except ProtocolError as error:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot downgrade the classic group {group.group_id}: {error}.",
            ) from None
        ids = [
            joining.member_id if joining is not None and member_id == replaced else member_id
            for member_id in group.members
        ]
        written += group.tombstones_of(ids)
        written.append(group_record(classic))
        log.info("group %s becomes a classic group", group.group_id)
        protocols = {member.member_id: member.protocols for member in classic.members.values()}
        then = partial(self._go_on_as_classic, now_ms, group.group_id, protocols, reason, reply)
        return Decision(records=written, reply=reply, then=then)

    def _classic_group(
        self,
        now_ms: int,
        group: ConsumerGroup,
        leaving: Sequence[Member],
        joining: Member | None,
        replaced: str | None,
    ) -> ClassicGroup:
        classic = ClassicGroup(
            group.group_id,
            state=ClassicState.STABLE,
            generation=group.epoch,
            protocol_type=PROTOCOL_TYPE,
            state_since_ms=now_ms,
        )
        gone = {member.member_id for member in leaving} | {replaced}
        staying = [member for member in group.members.values() if member.member_id not in gone]
        targets = {member.member_id: group.targets.get(member.member_id, NO_PARTITIONS) for member in staying}
        if joining is not None:
            staying.append(joining)
            targets[joining.member_id] = group.targets.get(replaced or joining.member_id, NO_PARTITIONS)
        for member in staying:
            classic.add(_classic_member(group.group_id, member), PROTOCOL_TYPE)
        classic.protocol_name = classic.select_protocol()
        for known in classic.members.values():
            known.assignment = write_assignment(
                targets[known.member_id],
                version_of(known.metadata(classic.protocol_name)),
                self._environment.image,
            )
        return classic

    def _go_on_as_classic(
        self,
        now_ms: int,
        group_id: str,
        protocols: Mapping[str, Protocols],
        reason: str | None,
        reply: Any,
        failure: KafkaError | None,
    ) -> Decision[Any]:
        if failure is not None:
            return NOTHING if reply is None else Decision(reply=type(reply)(error_code=failure.code))
        outcome = Outcome()
        self._classic.take_over(now_ms, group_id, protocols, reason, outcome)
        return outcome.decision()


def classic_metadata(session_timeout_ms: int, protocols: Protocols) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[SupportedProtocol(name=name, metadata=metadata) for name, metadata in protocols],
    )


def _classic_member(group_id: str, member: Member) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        group_id,
        member.member_id,
        member.instance_id,
        Client(member.client_id, member.client_host),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=tuple((each.name, each.metadata) for each in member.classic.supported_protocols),
    )


def _records_of(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """All that makes the group what it is, as a heartbeat would write it."""
    group_id, members = group.group_id, group.members.values()
    return [
        *(records.member_record(group_id, member) for member in members),
        records.epoch_record(group_id, group.epoch, group.metadata_hash),
        *(
            records.target_record(group_id, member_id, group.targets[member_id])
            for member_id in group.members
        ),
        records.assignment_record(group_id, group.assignment_epoch, group.assignment_timestamp_ms),
        *(records.current_record(group_id, member) for member in members),
    ]


def _no_upgrade(classic: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}",
    )
