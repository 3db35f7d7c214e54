"""What holds of a classic group after whatever has happened to it."""

from __future__ import annotations

from collections import Counter

from moldau.groups.classic.group import ClassicGroup, ClassicState
from moldau.groups.classic.rebalance import JoinTimeout, SyncTimeout
from moldau.groups.shard import GroupShard

EMPTY, PREPARING, COMPLETING, STABLE = (
    ClassicState.EMPTY,
    ClassicState.PREPARING_REBALANCE,
    ClassicState.COMPLETING_REBALANCE,
    ClassicState.STABLE,
)


def check(group: ClassicGroup, shard: GroupShard) -> None:
    _check_members(group)
    _check_state(group)
    _check_timers(group, shard)


def _check_members(group: ClassicGroup) -> None:
    members = group.members
    assert all(member_id == member.member_id for member_id, member in members.items())
    assert group.leader_id in members if members else group.leader_id is None
    assert group.static_members == {
        member.instance_id: member_id
        for member_id, member in members.items()
        if member.instance_id is not None
    }
    assert not members.keys() & group.pending_members.keys()
    assert group.awaiting_join_count == sum(member.awaiting_join is not None for member in members.values())
    known = Counter(name for member in members.values() for name in {name for name, _ in member.protocols})
    assert dict(group._supporters) == dict(known)
    assert not members or len(members) in known.values()
    assert group.pending_sync <= members.keys()
    assert not any(waiter.is_done for waiter in group.waiting())


def _check_state(group: ClassicGroup) -> None:
    members = list(group.members.values())
    if group.state is EMPTY:
        assert not members and group.protocol_name is None
    if group.state in (COMPLETING, STABLE):
        assert members and group.protocol_name is not None
        assert all(member.metadata(group.protocol_name) is not None for member in members)
    if group.state is not COMPLETING:
        assert all(member.awaiting_sync is None for member in members)
    if group.state in (EMPTY, PREPARING):
        assert not group.pending_sync
    if group.state is COMPLETING:
        # Its leader has not assigned, or what it assigned is not committed.
        assert group.leader_id in group.pending_sync or group.members[group.leader_id].awaiting_sync
        assert not any(member.awaiting_join for member in members)
    if group.state is PREPARING and not group.is_initial_rebalance():
        assert not group.have_all_joined()


def _check_timers(group: ClassicGroup, shard: GroupShard) -> None:
    """Whatever is waited for has an end."""
    timers = shard.timers
    assert ((JoinTimeout, group.group_id) in timers) == (group.state is PREPARING)
    assert ((SyncTimeout, group.group_id) in timers) == bool(group.pending_sync)
    assert all(session in timers for session in group.pending_members.values())
    for member in group.members.values():
        assert member.session in timers or member.is_excused()


def check_replayed(group: ClassicGroup, replayed: ClassicGroup | None) -> None:
    """What was written of a group that is assigned or empty is all that there is to know of it."""
    assert replayed is not None
    if group.state in (EMPTY, STABLE):
        assert persisted(replayed) == persisted(group)
        assert replayed.subscribed_topics == group.subscribed_topics
    else:
        assert replayed.generation <= group.generation


def persisted(group: ClassicGroup) -> tuple[object, ...]:
    return (
        group.group_id,
        group.state,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader_id,
        {
            member.member_id: (
                member.instance_id,
                member.client,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.metadata(group.protocol_name or ""),
                member.assignment,
            )
            for member in group.members.values()
        },
    )
