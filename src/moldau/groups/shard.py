"""One partition of `__consumer_offsets`: its groups and their offsets, as the coordinator runs them.

Each kind of group has its protocol, and offsets have their keeper; this puts them together. A record goes to
the part that declared itself for its key, a timer's event to the part that declared itself for its class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

from moldau.coordinator.decision import Decision, Waiter
from moldau.coordinator.record import CoordinatorRecord, Encodable
from moldau.coordinator.timers import Timers
from moldau.groups.classic.group import ClassicGroup
from moldau.groups.classic.joining import Join
from moldau.groups.classic.protocol import ClassicProtocol
from moldau.groups.consumer.group import ConsumerGroup
from moldau.groups.consumer.protocol import ConsumerProtocol
from moldau.groups.environment import GroupEnvironment
from moldau.groups.group import Client, GroupStore
from moldau.groups.offset_commit import OffsetCommit, OffsetRecord
from moldau.groups.offsets import Offsets
from moldau.groups.records import RECORD_TYPES
from moldau.groups.share.protocol import ShareGroupProtocol
from moldau.metadata.delta import Delta
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from moldau.wire.messages.delete_groups import DeletableGroupResult
from moldau.wire.messages.describe_groups import DescribedGroup
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from moldau.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from moldau.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from moldau.wire.schema import Message

Apply = Callable[[CoordinatorRecord, int], None]
"""A record, and the producer id of the transaction that it belongs to, -1 for none."""

OnTimer = Callable[[int, Any], Decision[Any]]


class Part(Protocol):
    """What a shard is made of. A part changes what it keeps in the log only in its `appliers`."""

    @property
    def appliers(self) -> Mapping[type[Message], Apply]:
        """By the class of the record's key."""
        ...

    @property
    def timer_handlers(self) -> Mapping[type, OnTimer]:
        """By the class of the event."""
        ...

    def on_loaded(self, now_ms: int) -> Decision[Any]: ...
    def on_image(self, now_ms: int, delta: Delta) -> Decision[Any]:
        """The cluster has changed; the environment has the new image already."""
        ...

    def on_unloaded(self) -> Sequence[Waiter[Any]]:
        """Who still waits, and has to look for another coordinator."""
        ...


class GroupShard:
    record_types = RECORD_TYPES

    def __init__(self, index: int, environment: GroupEnvironment) -> None:
        self.index = index
        self.timers = Timers()
        self.applied_offset = 0  # which groups have no use for
        self.groups = GroupStore()
        self._environment = environment
        self.classic = ClassicProtocol(self.groups, self.timers, environment)
        self.consumer = ConsumerProtocol(self.groups, self.timers, environment, self.classic)
        self.share = ShareGroupProtocol(self.groups, self.timers, environment)
        self.offsets = Offsets(self.groups, self.timers, environment, self.classic.create_group)
        # Offsets last: what they look for in the groups when a shard was loaded has to be there.
        self._parts: Sequence[Part] = (self.classic, self.consumer, self.share, self.offsets)
        self._appliers = {key: apply for part in self._parts for key, apply in part.appliers.items()}
        self._on_timer = {
            kind: handle for part in self._parts for kind, handle in part.timer_handlers.items()
        }

    # ------------------------------------------------------------ members of classic groups

    def join_group(
        self,
        now_ms: int,
        client: Client,
        request: JoinGroupRequest,
        version: int,
        waiter: Waiter[JoinGroupResponse],
    ) -> Decision[JoinGroupResponse]:
        group = self._consumers(request.group_id)
        if group is not None and not group.is_empty():
            join = Join(client, request, version, waiter)
            return self.consumer.classic_members.join(now_ms, group, join)
        return self.classic.join(now_ms, client, request, version, waiter)

    def sync_group(
        self, now_ms: int, request: SyncGroupRequest, waiter: Waiter[SyncGroupResponse]
    ) -> Decision[SyncGroupResponse]:
        group = self._consumers(request.group_id)
        if group is not None:
            return self.consumer.classic_members.sync(now_ms, group, request)
        return self.classic.sync(now_ms, request, waiter)

    def heartbeat(self, now_ms: int, request: HeartbeatRequest) -> Decision[HeartbeatResponse]:
        group = self._consumers(request.group_id)
        if group is not None:
            return self.consumer.classic_members.heartbeat(now_ms, group, request)
        return self.classic.heartbeat(now_ms, request)

    def leave_group(self, now_ms: int, request: LeaveGroupRequest) -> Decision[LeaveGroupResponse]:
        group = self._consumers(request.group_id)
        if group is not None:
            return self.consumer.classic_members.leave(now_ms, group, request)
        return self.classic.leave(now_ms, request)

    def describe_group(self, group_id: str, version: int) -> Decision[DescribedGroup]:
        return self.classic.describe(group_id, version)

    def _consumers(self, group_id: str) -> ConsumerGroup | None:
        """The group, if it is one of the consumer protocol, which serves members of the classic one too."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    # ------------------------------------------------------------ members of consumer groups

    def consumer_group_heartbeat(
        self, now_ms: int, client: Client, request: ConsumerGroupHeartbeatRequest
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        return self.consumer.heartbeat(now_ms, client, request)

    def describe_consumer_group(self, group_id: str) -> Decision[DescribedConsumerGroup]:
        return self.consumer.describe(group_id)

    # ------------------------------------------------------------ offsets, and groups of any kind

    def commit_offsets(self, now_ms: int, commit: OffsetCommit) -> Decision[Sequence[ErrorCode]]:
        """Replies with the code of each offset, in their order."""
        decision = self.offsets.decide_commit(now_ms, commit)
        if commit.member_id:
            group = self.groups.get(commit.group_id)
            if isinstance(group, ClassicGroup):
                self.classic.on_offset_commit(now_ms, group, commit.member_id)
        return decision

    def commit_txn_offsets(
        self, now_ms: int, request: TxnOffsetCommitRequest, version: int
    ) -> Decision[TxnOffsetCommitResponse]:
        return self.offsets.decide_txn_commit(now_ms, request, version)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> Decision[OffsetFetchResponseGroup]:
        return self.offsets.decide_fetch(request, require_stable=require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest) -> Decision[OffsetDeleteResponse]:
        return self.offsets.decide_delete(request)

    def delete_group(self, group_id: str) -> Decision[DeletableGroupResult]:
        """A group without members, and its offsets with it."""
        group = self.groups.find(group_id)
        group.check_delete()
        return Decision(
            records=[*self.offsets.tombstones(group_id), *group.tombstones()],
            reply=DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE),
            is_atomic=False,
        )

    # ------------------------------------------------------------ the coordinator's

    def apply(self, record: Encodable, producer_id: int) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.apply_committed(record, producer_id)
        else:
            assert isinstance(record, CoordinatorRecord)
            self._appliers[type(record.key)](record, producer_id)

    def apply_marker(self, producer_id: int, *, is_committed: bool) -> None:
        self.offsets.apply_marker(producer_id, is_committed=is_committed)

    def on_loaded(self, now_ms: int) -> Decision[Any]:
        return _joined([part.on_loaded(now_ms) for part in self._parts])

    def on_image(self, now_ms: int, delta: Delta) -> Decision[Any]:
        return _joined([part.on_image(now_ms, delta) for part in self._parts])

    def on_timer(self, now_ms: int, event: object) -> Decision[Any]:
        return self._on_timer[type(event)](now_ms, event)

    def on_unloaded(self) -> Sequence[Waiter[Any]]:
        self.timers.clear()
        return list(chain.from_iterable(part.on_unloaded() for part in self._parts))


def _joined(decisions: Sequence[Decision[Any]]) -> Decision[Any]:
    """Of parts that know nothing of each other: what each of them writes stands for itself."""
    assert all(decision.then is None and decision.reply is None for decision in decisions)
    return Decision(
        records=list(chain.from_iterable(decision.records for decision in decisions)),
        answers=list(chain.from_iterable(decision.answers for decision in decisions)),
        is_atomic=False,
    )
