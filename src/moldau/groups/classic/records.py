"""What is written of a classic group: one record with all of it, each time that it was assigned or became
empty, and when it comes to be."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.coordinator.record import CoordinatorRecord
from moldau.groups.classic.group import ClassicGroup, ClassicState
from moldau.groups.classic.member import Member
from moldau.groups.group import Client
from moldau.groups.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata

_VALUE_VERSION = 3
_NO_TIMEOUT = -1


def new_group_record(group_id: str, now_ms: int) -> CoordinatorRecord:
    """Of a group that nobody is in yet."""
    return _record(ClassicGroup(group_id, state_since_ms=now_ms), [])


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None) -> CoordinatorRecord:
    """Of a group as it is, or as it is to be with other assignments. Whoever is not in them has none."""
    members = [
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client.id,
            client_host=member.client.host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name or ""),
            assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    return _record(group, members)


def _record(group: ClassicGroup, members: list[MemberMetadata]) -> CoordinatorRecord:
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_since_ms,
        members=members,
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value, _VALUE_VERSION)


def read_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Of what a member supports only the protocol that was chosen is known; it tells the rest when it joins
    again."""
    protocol = value.protocol or ""
    group = ClassicGroup(
        group_id,
        state=ClassicState.STABLE if value.members else ClassicState.EMPTY,
        generation=value.generation,
        protocol_type=value.protocol_type,
        protocol_name=protocol if value.members else value.protocol,
        leader_id=value.leader,
        state_since_ms=value.current_state_timestamp,
    )
    for written in value.members:
        timeout_ms = written.rebalance_timeout
        group.add(
            Member(
                group_id,
                written.member_id,
                written.group_instance_id,
                Client(written.client_id, written.client_host),
                rebalance_timeout_ms=written.session_timeout if timeout_ms == _NO_TIMEOUT else timeout_ms,
                session_timeout_ms=written.session_timeout,
                protocols=((protocol, written.subscription),),
                assignment=written.assignment,
            ),
            value.protocol_type,
        )
    group.note_subscribed_topics()
    return group
