"""What follows when a member comes, changes or goes: the group's epoch, what members are to have, and a
member's step towards that.

All of it is decided before any of it is applied. So a group is asked here what it would be with the member as
it is about to be.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from moldau.config.broker import BrokerConfig
from moldau.config.group import GroupConfig
from moldau.coordinator.decision import Decision
from moldau.coordinator.record import CoordinatorRecord
from moldau.coordinator.timers import Timers
from moldau.groups.assignors.assignment import Assignment
from moldau.groups.assignors.catalog import ASSIGNORS, offered
from moldau.groups.consumer import records
from moldau.groups.consumer.group import ConsumerGroup
from moldau.groups.consumer.member import Member, MemberState, Owned
from moldau.groups.consumer.reconciliation import Target, reconcile
from moldau.groups.consumer.target import compute_target, target_records
from moldau.groups.consumer.timeouts import KINDS, RebalanceTimeout, SessionTimeout, Timeout, key
from moldau.groups.environment import GroupEnvironment
from moldau.groups.metadata_hash import MetadataHashes

R = TypeVar("R")

# After a write that failed.
_RETRY_INTERVAL_MS = 500


@dataclass(slots=True, kw_only=True)
class Change:
    """A member as it was and as it is about to be, and the records that make it so."""

    group: ConsumerGroup
    old: Member
    new: Member
    records: list[CoordinatorRecord] = field(default_factory=list)
    dropped_regex: str | None = None
    """The pattern that nobody subscribes to any more."""


class Rebalances:
    def __init__(self, timers: Timers, environment: GroupEnvironment) -> None:
        self._timers = timers
        self._environment = environment
        self.hashes = MetadataHashes()
        self.rebalances = 0
        self._configs: dict[str, GroupConfig] = {}
        self._configs_of: BrokerConfig | None = None

    # ------------------------------------------------------------ options

    def config(self, group_id: str) -> GroupConfig:
        broker = self._environment.config
        if broker is not self._configs_of:
            self._configs.clear()
            self._configs_of = broker
        known = self._configs.get(group_id)
        if known is None:
            known = self._configs[group_id] = self._environment.group_config(group_id)
        return known

    def forget_config(self, group_id: str) -> None:
        self._configs.pop(group_id, None)

    def assignors(self) -> tuple[str, ...]:
        """Those that members may ask for; the first is for a group that asks for none."""
        return offered(self._environment.config.groups.consumer_assignors)

    # ------------------------------------------------------------ the group's epoch

    def raise_epoch(self, change: Change, *, is_due: bool) -> int:
        """The group's epoch as it will be: raised if it `is_due`, or if the topics are not what they were."""
        group, old, new = change.group, change.old, change.new
        without: list[Collection[str]] = [old.topics]
        if change.dropped_regex is not None and change.dropped_regex in group.regexes:
            without.append(group.regexes[change.dropped_regex].topics)
        metadata_hash = self.hash_of(group.topics_if(without, [new.topics]))
        epoch = group.epoch
        if is_due or metadata_hash != group.metadata_hash:
            epoch += 1
            change.records.append(records.epoch_record(group.group_id, epoch, metadata_hash))
            self.rebalances += 1
        group.saw_topics(epoch)
        if group.has_partition_metadata:
            change.records.append(records.partition_metadata_tombstone(group.group_id))
        return epoch

    def hash_of(self, topics: Collection[str]) -> int:
        return self.hashes.of(topics, self._environment.image)

    # ------------------------------------------------------------ what members are to have

    def assign(self, now_ms: int, change: Change, epoch: int) -> tuple[int, Assignment]:
        """The epoch of what members are to have, and what the member is. It is found anew if it is older than
        the group, and the last time is long enough ago."""
        group, new = change.group, change.new
        if epoch <= group.assignment_epoch or not self._may_assign(now_ms, group):
            return group.assignment_epoch, group.target_of(new.member_id, new.instance_id)
        members = {**group.members, new.member_id: new}
        replaced = None if new.instance_id is None else group.instances.get(new.instance_id)
        if replaced is not None and replaced != new.member_id:
            members.pop(replaced, None)
        default, *_ = offers = self.assignors()
        name = group.preferred_assignor(change.old, new) or default
        assignor = ASSIGNORS[name if name in offers else default]
        targets = compute_target(group, members, assignor, self._environment.image)
        change.records += target_records(group, targets, epoch, now_ms)
        return epoch, targets[new.member_id]

    def _may_assign(self, now_ms: int, group: ConsumerGroup) -> bool:
        interval_ms = self.config(group.group_id).consumer_assignment_interval_ms
        assigned_ms = group.assignment_timestamp_ms
        return assigned_ms == 0 or interval_ms == 0 or now_ms >= assigned_ms + interval_ms

    # ------------------------------------------------------------ a member's step

    def step(
        self,
        now_ms: int,
        change: Change,
        target: tuple[int, Assignment],
        owned: Owned | None,
        *,
        has_new_subscription: bool,
    ) -> Member:
        """The member after it."""
        group, member = change.group, change.new
        target_epoch, partitions = target
        if not has_new_subscription and member.is_reconciled_to(target_epoch):
            return member
        image = self._environment.image
        reconciled = reconcile(
            member,
            Target(
                epoch=target_epoch,
                partitions=partitions,
                is_subscribed=lambda topic: group.is_member_subscribed(member, topic, image),
                is_owned=group.is_owned,
            ),
            owned,
            has_new_subscription=has_new_subscription,
        )
        if reconciled != member:
            change.records.append(records.current_record(group.group_id, reconciled))
            if not reconciled.is_classic:
                self.watch_revocation(now_ms, group.group_id, reconciled)
        change.new = reconciled
        return reconciled

    # ------------------------------------------------------------ members that go

    def fence(self, group: ConsumerGroup, members: Sequence[Member], reply: R | None) -> Decision[R]:
        """Takes members out of the group, which raises its epoch."""
        if not members:
            return Decision(reply=reply)
        written: list[CoordinatorRecord] = []
        for member in members:
            written += records.member_tombstones(group.group_id, member.member_id)
        without: list[Collection[str]] = [member.topics for member in members]
        for regex in dict.fromkeys(member.regex for member in members if member.regex):
            if group.regex_members(regex) == sum(member.regex == regex for member in members):
                written.append(records.regex_tombstone(group.group_id, regex))
                if regex in group.regexes:
                    without.append(group.regexes[regex].topics)
        metadata_hash = self.hash_of(group.topics_if(without, ()))
        written.append(records.epoch_record(group.group_id, group.epoch + 1, metadata_hash))
        return Decision(records=written, reply=reply)

    # ------------------------------------------------------------ timers

    def watch_session(self, now_ms: int, group_id: str, member_id: str, timeout_ms: int) -> None:
        self._timers.set(
            key(SessionTimeout, group_id, member_id),
            now_ms + timeout_ms,
            SessionTimeout(group_id, member_id),
        )

    def watch_revocation(self, now_ms: int, group_id: str, member: Member) -> None:
        timer = key(RebalanceTimeout, group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            event = RebalanceTimeout(group_id, member.member_id, member.epoch)
            self._timers.set(timer, now_ms + member.rebalance_timeout_ms, event)
        else:
            self._timers.cancel(timer)

    def try_again(self, now_ms: int, event: Timeout) -> None:
        self._timers.set(
            key(type(event), event.group_id, event.member_id), now_ms + _RETRY_INTERVAL_MS, event
        )

    def forget_timers(self, group_id: str, member_id: str) -> None:
        for kind in KINDS:
            self._timers.cancel(key(kind, group_id, member_id))
