"""One step of a member towards what it is to have.

A member first gives up what it has too much of, and stays at its epoch until it says that it did so; then it
comes to the epoch of the assignment and gets what is free of it; the rest it gets as others give it up. So at
no time a partition belongs to two members.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from moldau.groups.assignors.assignment import Assignment
from moldau.groups.consumer.member import Member, MemberState, Owned, Partitions
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a member is to have as of an epoch of the assignment. `is_subscribed` says of a topic whether it
    asks for it now, which may be less than when the assignment was made; `is_owned` whether any member
    has a partition, or may have it still."""

    epoch: int
    partitions: Assignment
    is_subscribed: Callable[[Uuid], bool]
    is_owned: Callable[[Uuid, int], bool]


def reconcile(member: Member, target: Target, owned: Owned | None, *, has_new_subscription: bool) -> Member:
    """The member after the step; itself if there is none to take. `owned` is what it says that it has, None
    if it says nothing."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != target.epoch:
                return _approach(member, target, owned)
        case MemberState.UNREVOKED_PARTITIONS:
            if not _owns(owned, member.pending_revocation):
                return _approach(member, target, owned)
        case MemberState.UNRELEASED_PARTITIONS:
            return _approach(member, target, owned)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _approach(replace(member, epoch=target.epoch), target, owned)
    if has_new_subscription:
        return _drop_unsubscribed(member, target, owned)
    return member


def _owns(owned: Owned | None, partitions: Partitions) -> bool:
    """Whether the member may still have one of the partitions."""
    if owned is None:
        return True
    return any(
        index in partitions[topic.topic_id]
        for topic in owned
        if topic.topic_id in partitions
        for index in topic.partitions
    )


def _approach(member: Member, target: Target, owned: Owned | None) -> Member:
    assigned: dict[Uuid, dict[int, int]] = {}
    to_revoke: dict[Uuid, dict[int, int]] = {}
    granted = False
    unreleased = False
    pending = member.pending_revocation
    for topic in dict.fromkeys([*member.assigned, *target.partitions]):
        wanted = target.partitions.get(topic, frozenset()) if target.is_subscribed(topic) else frozenset()
        current = member.assigned.get(topic, {})
        kept = {index: epoch for index, epoch in current.items() if index in wanted}
        if len(kept) < len(current):
            to_revoke[topic] = {index: epoch for index, epoch in current.items() if index not in wanted}
        for index in wanted - current.keys():
            # What this member is just giving up it may have again: nobody else can have got it.
            if target.is_owned(topic, index) and index not in pending.get(topic, {}):
                unreleased = True
            else:
                granted = True
                kept[index] = target.epoch
        if kept:
            assigned[topic] = kept
    if to_revoke and _owns(owned, to_revoke):
        return member.with_epoch(
            member.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=_without_new(assigned, member.assigned) if granted else assigned,
            pending_revocation=to_revoke,
        )
    return member.with_epoch(
        target.epoch,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        assigned=assigned,
        pending_revocation={},
    )


def _without_new(assigned: Partitions, before: Partitions) -> dict[Uuid, dict[int, int]]:
    kept: dict[Uuid, dict[int, int]] = {}
    for topic, partitions in assigned.items():
        of_topic = {index: epoch for index, epoch in partitions.items() if index in before.get(topic, {})}
        if of_topic:
            kept[topic] = of_topic
    return kept


def _drop_unsubscribed(member: Member, target: Target, owned: Owned | None) -> Member:
    """Takes back what the member no longer asks for, at once and whatever else it waits for."""
    dropped = {topic: of for topic, of in member.assigned.items() if not target.is_subscribed(topic)}
    if not dropped:
        return member
    assigned = {topic: of for topic, of in member.assigned.items() if target.is_subscribed(topic)}
    to_revoke = dict(member.pending_revocation)
    for topic, partitions in dropped.items():
        to_revoke[topic] = {**to_revoke.get(topic, {}), **partitions}
    if _owns(owned, to_revoke):
        return member.with_epoch(
            member.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=assigned,
            pending_revocation=to_revoke,
        )
    return member.with_epoch(member.epoch, assigned=assigned)
