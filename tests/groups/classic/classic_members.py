"""Requests of members of a classic group, as a client would send them to a shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moldau.coordinator.decision import Decision, Waiter
from moldau.groups.classic.group import ClassicGroup
from moldau.groups.group import Client
from moldau.wire.codec import encode
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from moldau.wire.messages.describe_groups import DescribedGroup
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.groups.shard_driver import CLIENT, ShardDriver

GROUP = "group"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    return b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


class ClassicDriver(ShardDriver):
    def group(self, group_id: str = GROUP) -> ClassicGroup:
        group = self.shard.groups.find(group_id)
        assert isinstance(group, ClassicGroup)
        return group

    def send_join(
        self,
        member_id: str = "",
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"metadata"),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
        client: Client = CLIENT,
    ) -> Waiter[JoinGroupResponse]:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        )
        return self.submit(
            lambda shard, now_ms, waiter: shard.join_group(now_ms, client, request, version, waiter)
        )

    def send_new(self, **options: Any) -> tuple[str, Waiter[JoinGroupResponse]]:
        """The join of a new dynamic member, which asks for its id first."""
        asked = self.send_join(**options).result()
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return asked.member_id, self.send_join(asked.member_id, **options)

    def send_sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> Waiter[Any]:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in (assignments or {}).items()
            ],
        )
        return self.submit(lambda shard, now_ms, waiter: shard.sync_group(now_ms, request, waiter))

    def beat(self, member_id: str, generation: int, **options: Any) -> ErrorCode:
        return error_of(self.send_beat(member_id, generation, **options))

    def send_beat(
        self, member_id: str, generation: int, *, group_id: str = GROUP, instance_id: str | None = None
    ) -> Waiter[Any]:
        request = HeartbeatRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        return self.submit(lambda shard, now_ms, waiter: shard.heartbeat(now_ms, request))

    def leave(self, *members: str | tuple[str, str | None]) -> list[tuple[str, str | None, int]]:
        """What each is told."""
        response = self.send_leave(*members).result()
        assert not response.error_code
        return [(each.member_id, each.group_instance_id, each.error_code) for each in response.members]

    def send_leave(self, *members: str | tuple[str, str | None], group_id: str = GROUP) -> Waiter[Any]:
        """Ids, or pairs of a member id and an instance id."""
        identities = [(each, None) if isinstance(each, str) else each for each in members]
        request = LeaveGroupRequest(
            group_id=group_id,
            members=[
                MemberIdentity(member_id=member_id, group_instance_id=instance_id)
                for member_id, instance_id in identities
            ],
        )
        return self.submit(lambda shard, now_ms, waiter: shard.leave_group(now_ms, request))

    def delete(self, group_id: str = GROUP) -> None:
        """As a client or the expiry of offsets may, when the group allows it."""
        group = self.group(group_id)
        group.check_delete()
        self.submit(lambda shard, now_ms, waiter: Decision(records=group.tombstones()))

    def describe(self, group_id: str = GROUP, version: int = 6) -> DescribedGroup:
        waiter = self.submit(lambda shard, now_ms, waiter: shard.describe_group(group_id, version))
        described = waiter.result()
        assert isinstance(described, DescribedGroup)
        return described

    def settle(self, count: int, **options: Any) -> list[str]:
        """A stable group of new members: their ids, the leader's first, each with its place as assignment."""
        joins = [self.send_new(**options) for _ in range(count)]
        self.advance(4 * self.environment.config.groups.initial_rebalance_delay_ms)
        members = self.sync_all([member_id for member_id, _ in joins])
        for member_id in members:
            assert self.beat(member_id, self.group().generation) == ErrorCode.NONE
        return members

    def sync_all(self, members: Sequence[str]) -> list[str]:
        group = self.group()
        members = sorted(members, key=lambda member: member != group.leader_id)
        assignments = {member: b"part %d" % index for index, member in enumerate(members)}
        name = group.protocol_name
        syncs = [
            self.send_sync(
                member,
                group.generation,
                assignments if member == group.leader_id else None,
                instance_id=group.members[member].instance_id,
                protocol_type=group.protocol_type,
                protocol_name=name,
            )
            for member in members
        ]
        assert [sync.result().assignment for sync in syncs] == list(assignments.values())
        return list(members)


def error_of(waiter: Waiter[Any]) -> ErrorCode:
    """What a client is told: by the response, or instead of one."""
    if waiter.failure is not None:
        return waiter.failure.code
    return ErrorCode(waiter.result().error_code)
