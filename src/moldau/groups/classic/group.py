"""A classic group: its members, the generation they are in, and the protocol they agree on.

A group goes round: a rebalance is prepared until every member has joined again (PreparingRebalance), their
leader assigns while the others wait (CompletingRebalance), the assignment holds (Stable). Each round is a
generation, and who speaks of another one is told so.

What is here runs ahead of the log: a group is written when it was assigned or has become empty. A group that
is read back was one of both.

Invariants: a group without members has no leader, any other one has a member as its leader; there is at least
one protocol that all members support; a member that joined or waits is a member, never a pending one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from moldau.coordinator.decision import Waiter
from moldau.coordinator.record import CoordinatorRecord
from moldau.groups.classic.member import Member, Protocols, SessionTimeout
from moldau.groups.classic.subscription import PROTOCOL_TYPE, subscribed_topics
from moldau.groups.group import GroupType
from moldau.groups.records import GroupMetadataKey
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from moldau.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember

NO_TIMESTAMP = -1


class ClassicState(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"  # no group is: it is told of one that is not there


_COMES_FROM = {
    ClassicState.EMPTY: (ClassicState.PREPARING_REBALANCE,),
    ClassicState.PREPARING_REBALANCE: (
        ClassicState.EMPTY,
        ClassicState.COMPLETING_REBALANCE,
        ClassicState.STABLE,
    ),
    ClassicState.COMPLETING_REBALANCE: (ClassicState.PREPARING_REBALANCE,),
    ClassicState.STABLE: (ClassicState.COMPLETING_REBALANCE,),
}


class ClassicGroup:
    type = GroupType.CLASSIC

    def __init__(
        self,
        group_id: str,
        *,
        state: ClassicState = ClassicState.EMPTY,
        generation: int = 0,
        protocol_type: str = "",
        protocol_name: str | None = None,
        leader_id: str | None = None,
        state_since_ms: int = NO_TIMESTAMP,
    ) -> None:
        self.group_id = group_id
        self.state = state
        self.previous_state = ClassicState.DEAD
        self.state_since_ms = state_since_ms
        self.generation = generation
        self.protocol_type = protocol_type  # empty while nobody has ever joined
        self.protocol_name = protocol_name
        self.leader_id = leader_id
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.pending_members: dict[str, SessionTimeout] = {}
        """Ids that were given to those who have to join with one, and have not yet (KIP-394)."""
        self.pending_sync: set[str] = set()
        self.subscribed_topics: frozenset[str] | None = None
        """None where it cannot be known."""
        self.has_newcomer = False
        """Someone joined for the first time since the initial rebalance was last put off."""
        self._awaiting_join_count = 0
        self._supporters: Counter[str] = Counter()
        """How many members support a protocol."""

    # ------------------------------------------------------------ states

    def become(self, state: ClassicState, now_ms: int) -> None:
        assert self.state in _COMES_FROM[state], f"{self.group_id} cannot go from {self.state} to {state}"
        self.previous_state, self.state = self.state, state
        self.state_since_ms = now_ms

    def begin_generation(self, now_ms: int) -> None:
        """Everyone who is to be in it has joined. Without members the group is empty."""
        self.generation += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.become(ClassicState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.become(ClassicState.EMPTY, now_ms)
        self.note_subscribed_topics()

    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    def is_initial_rebalance(self) -> bool:
        return self.state is ClassicState.PREPARING_REBALANCE and self.previous_state is ClassicState.EMPTY

    # ------------------------------------------------------------ members

    def add(self, member: Member, protocol_type: str) -> None:
        assert member.member_id not in self.members and member.member_id not in self.pending_members
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        del self.members[member.member_id]
        self._count(member, -1)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_sync.discard(member.member_id)

    def replace(self, old: Member, new: Member) -> None:
        """`new` is what `old` was, under another member id: a static member that has come back."""
        assert old.instance_id is not None and old.instance_id == new.instance_id
        del self.members[old.member_id]
        self._count(old, -1)
        self.members[new.member_id] = new
        self._count(new, 1)
        self.static_members[old.instance_id] = new.member_id
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
            self.pending_sync.add(new.member_id)

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._support(member, -1)
        member.protocols = protocols
        self._support(member, 1)

    def await_join(self, member: Member, waiter: Waiter[JoinGroupResponse]) -> None:
        if member.awaiting_join is None:
            self._awaiting_join_count += 1
        member.awaiting_join = waiter

    def take_awaiting_join(self, member: Member) -> Waiter[JoinGroupResponse] | None:
        waiter, member.awaiting_join = member.awaiting_join, None
        if waiter is not None:
            self._awaiting_join_count -= 1
        return waiter

    def _count(self, member: Member, by: int) -> None:
        self._support(member, by)
        if member.awaiting_join is not None:
            self._awaiting_join_count += by

    def _support(self, member: Member, by: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] += by
            if not self._supporters[name]:
                del self._supporters[name]

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is not None and known != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def waiting(self) -> Iterator[Waiter[Any]]:
        """Everyone whose request is not answered yet."""
        for member in self.members.values():
            if member.awaiting_join is not None:
                yield member.awaiting_join
            if member.awaiting_sync is not None:
                yield member.awaiting_sync

    # ------------------------------------------------------------ joining

    @property
    def awaiting_join_count(self) -> int:
        return self._awaiting_join_count

    def have_all_joined(self) -> bool:
        return self._awaiting_join_count == len(self.members) and not self.pending_members

    def rebalance_timeout_ms(self) -> int:
        """The slowest member's."""
        return max((0, *(member.rebalance_timeout_ms for member in self.members.values())))

    def elect_joined_leader(self) -> bool:
        """Whether the leader, or one who takes its place, has joined."""
        if self.leader_id is None or self.members[self.leader_id].awaiting_join is not None:
            return self.leader_id is not None
        joined = (member.member_id for member in self.members.values() if member.awaiting_join is not None)
        elected = next(joined, None)
        self.leader_id = elected or self.leader_id
        return elected is not None

    # ------------------------------------------------------------ protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether someone with these could be a member."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self._supporters[name] == len(self.members) for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Each member votes for what it likes best of what all support."""
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        votes = Counter(
            next(name for name, _ in member.protocols if name in candidates)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def note_subscribed_topics(self) -> None:
        if self.protocol_type != PROTOCOL_TYPE:
            self.subscribed_topics = None
        elif self.protocol_name is None:
            self.subscribed_topics = None if self.members else frozenset()
        else:
            name = self.protocol_name
            self.subscribed_topics = subscribed_topics(
                member.metadata(name) for member in self.members.values()
            )

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in self.subscribed_topics

    # ------------------------------------------------------------ what it is asked

    def joined(self, member_id: str, *, with_members: bool) -> JoinGroupResponse:
        """That a member is in this generation, to which its leader is told all of them."""
        protocol = self.protocol_name
        assert protocol is not None and self.leader_id is not None
        members = [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(protocol),
            )
            for member in (self.members.values() if with_members else ())
        ]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=protocol,
            leader=self.leader_id,
            member_id=member_id,
            members=members,
        )

    def described(self) -> DescribedGroup:
        protocol = self.protocol_name if self.state is ClassicState.STABLE else None
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state,
            protocol_type=self.protocol_type,
            protocol_data=protocol or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client.id,
                    client_host=member.client.host,
                    member_metadata=b"" if protocol is None else member.metadata(protocol),
                    member_assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    # ------------------------------------------------------------ what offsets and deletion ask

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        is_transactional: bool,
        version: int,
    ) -> None:
        if generation < 0 and self.is_empty():
            return  # a consumer that assigns itself its partitions, or a tool
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not is_transactional:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not is_transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            # Its generation is right, so it has joined: it knows what to do.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        pass

    def check_offset_delete(self) -> None:
        """While there are members, those of consumers may be deleted of topics that they do not read."""
        if not self.is_empty() and self.protocol_type != PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if not self.is_empty():
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def offset_expiration_base_ms(self, topic: str, committed_ms: int) -> int | None:
        if self.is_subscribed_to(topic):
            return None
        if not self.protocol_type:
            return committed_ms
        if self.is_empty():
            # Records before version 2 do not say since when.
            return committed_ms if self.state_since_ms == NO_TIMESTAMP else self.state_since_ms
        if self.state is ClassicState.STABLE and self.subscribed_topics is not None:
            return committed_ms
        return None

    def should_expire(self) -> bool:
        return True

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)]
