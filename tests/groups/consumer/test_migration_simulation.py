"""Groups in which members of both protocols come and go, so that the group changes its protocol again and
again: no partition has two owners at once, and everything comes to rest when nothing happens any more.

Members of the classic protocol are eager: they give up everything before they join, and their leader assigns.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from moldau.coordinator.decision import Waiter
from moldau.groups.assignors.assignment import Subscriber
from moldau.groups.assignors.range import assign_ranges
from moldau.groups.classic.group import ClassicGroup
from moldau.groups.consumer.embedded import read_assignment, read_subscription, write_assignment
from moldau.groups.consumer.group import ConsumerGroup
from moldau.wire import codec
from moldau.wire.errors import ErrorCode
from moldau.wire.ids import Uuid
from moldau.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from moldau.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.groups.consumer.consumer_driver import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    ConsumerDriver,
    Owned,
    check_owners,
    snapshot,
)
from tests.groups.consumer.test_consumer_simulation import TICK_MS, ModelMember, Simulation
from tests.groups.shard_driver import CLIENT

BEGIN_ANEW = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
JOIN_AGAIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class ClassicModelMember(ModelMember):
    def __init__(self, name: str, random: Random) -> None:
        super().__init__(name, random, None)
        self.member_id = ""
        self.waiter: Waiter[Any] | None = None

    def begin_again(self) -> None:
        super().begin_again()
        self.member_id = ""
        self.waiter = None

    def subscribe(self, topics: list[str], regex: str) -> None:
        super().subscribe(topics, "")

    def is_live(self, now_ms: int) -> bool:
        return super().is_live(now_ms) or (not self.is_gone and self.waiter is not None)

    def beat(self, driver: ConsumerDriver) -> None:
        if self.waiter is not None:
            if self.waiter.is_done:
                waiter, self.waiter = self.waiter, None
                self.hear(driver, waiter)
        elif self.epoch == 0 or self.is_changed:
            self.join(driver)
        else:
            request = HeartbeatRequest(group_id=GROUP, member_id=self.member_id, generation_id=self.epoch)
            self.hear(driver, driver.submit(lambda shard, now_ms, waiter: shard.heartbeat(now_ms, request)))

    def hear(self, driver: ConsumerDriver, waiter: Waiter[Any]) -> None:
        self.heard_at_ms = driver.now_ms
        if waiter.failure is not None:
            answer, code = None, waiter.failure.code
        else:
            answer = waiter.result()
            code = ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join(driver)
        elif code in BEGIN_ANEW:
            self.begin_again()
        elif code in JOIN_AGAIN:
            self.join(driver)
        else:
            assert code is ErrorCode.NONE, waiter.failure
            match answer:
                case JoinGroupResponse():
                    self.on_joined(driver, answer)
                case SyncGroupResponse():
                    self.on_synced(driver, answer)
                case HeartbeatResponse():
                    pass

    def join(self, driver: ConsumerDriver) -> None:
        self.owned, self.told, self.is_changed = {}, {}, False
        subscription = ConsumerProtocolSubscription(topics=self.topics)
        metadata = bytes(codec.encode(subscription, 0, bytearray(2)))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        self.waiter = driver.submit(
            lambda shard, now_ms, waiter: shard.join_group(now_ms, CLIENT, request, 9, waiter)
        )

    def on_joined(self, driver: ConsumerDriver, joined: JoinGroupResponse) -> None:
        self.member_id, self.epoch = joined.member_id, joined.generation_id
        assignments: Mapping[str, bytes] = {}
        if joined.leader == self.member_id:
            assignments = self.assign(driver, joined)
        request = SyncGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            generation_id=self.epoch,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )
        self.waiter = driver.submit(lambda shard, now_ms, waiter: shard.sync_group(now_ms, request, waiter))

    def assign(self, driver: ConsumerDriver, joined: JoinGroupResponse) -> dict[str, bytes]:
        image = driver.environment.image
        subscribers = {}
        for member in joined.members:
            names = read_subscription(member.metadata).topics
            ids = (image.topics[name].topic_id for name in names if name in image.topics)
            subscribers[member.member_id] = Subscriber(topics=frozenset(ids))
        counts = {topic.topic_id: len(topic.partitions) for topic in image.topics.values()}
        assigned = assign_ranges(subscribers, counts)
        return {name: write_assignment(partitions, 0, image) for name, partitions in assigned.items()}

    def on_synced(self, driver: ConsumerDriver, synced: SyncGroupResponse) -> None:
        topics = driver.environment.image.topics
        self.told = {
            topics[each.topic].topic_id: set(each.partitions)
            for each in read_assignment(synced.assignment).assigned_partitions
            if each.topic in topics and each.partitions
        }
        self.owned = {topic: set(indexes) for topic, indexes in self.told.items()}


class MixedSimulation(Simulation):
    def __init__(self, seed: int, member_count: int) -> None:
        super().__init__(seed, member_count)
        self.changes = 0
        self.kind: type | None = None

    def add_member(self) -> None:
        super().add_member()
        if self.random.random() < 0.5:
            added = self.members.pop()
            member = ClassicModelMember(added.name, self.random)
            member.subscribe(added.topics, "")
            member.heard_at_ms = self.driver.now_ms
            self.members.append(member)

    def happen(self) -> None:
        super().happen()
        if self.random.randrange(25) == 0:
            kind = self.random.choice([ModelMember, ClassicModelMember])
            for member in [each for each in self.members if type(each) is kind]:
                self.leave(member)

    def last_word(self, member: ModelMember, epoch: int) -> None:
        if isinstance(member, ClassicModelMember):
            request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member.member_id)])
            self.driver.submit(lambda shard, now_ms, waiter: shard.leave_group(now_ms, request))
        else:
            super().last_word(member, epoch)

    def check(self) -> None:
        super().check()
        group = self.driver.shard.groups.groups.get(GROUP)
        if group is not None and type(group) is not self.kind:
            self.kind = type(group)
            self.changes += 1

    def check_machine(self) -> None:
        group = self.driver.shard.groups.groups.get(GROUP)
        replayed = self.driver.replayed().groups.groups.get(GROUP)
        assert type(group) is type(replayed)
        if isinstance(group, ConsumerGroup):
            assert isinstance(replayed, ConsumerGroup)
            check_owners(group)
            assert snapshot(replayed) == snapshot(group)

    def come_to_rest(self) -> None:
        for _ in range((SESSION_MS + 2 * REBALANCE_MS) // TICK_MS + 60):
            self.tick()
        group = self.driver.shard.groups.groups[GROUP]
        if not self.members:
            assert group.is_empty()
            return
        assert isinstance(group, ConsumerGroup | ClassicGroup)
        assert group.state == "Stable"
        assert set(group.members) == {member.member_id for member in self.members}
        has_consumers = any(not isinstance(member, ClassicModelMember) for member in self.members)
        assert isinstance(group, ConsumerGroup) is has_consumers
        self.check_complete(group)

    def check_complete(self, group: ConsumerGroup | ClassicGroup) -> None:
        image = self.driver.environment.image
        owned: Owned = {}
        for member in self.members:
            for topic, indexes in member.owned.items():
                assert not owned.setdefault(topic, set()) & indexes
                owned[topic] |= indexes
        topics = group.topics if isinstance(group, ConsumerGroup) else group.subscribed_topics or ()
        wanted: dict[Uuid, set[int]] = {
            image.topics[name].topic_id: set(image.topics[name].partitions)
            for name in topics
            if name in image.topics
        }
        assert {topic: indexes for topic, indexes in owned.items() if indexes} == wanted


@pytest.mark.parametrize("seed", range(12))
def test_no_partition_has_two_owners_and_all_come_to_rest(seed: int) -> None:
    simulation = MixedSimulation(seed, member_count=[2, 4, 8][seed % 3])
    for _ in range(4):
        simulation.run(60)
        simulation.check_machine()
    assert simulation.changes > 1
    simulation.come_to_rest()
    simulation.check_machine()


def test_a_group_is_classic_again_when_only_classic_members_are_left() -> None:
    simulation = MixedSimulation(5, member_count=8)
    while {type(member) for member in simulation.members} != {ModelMember, ClassicModelMember}:
        simulation.add_member()
    simulation.come_to_rest()
    for member in [each for each in simulation.members if type(each) is ModelMember]:
        simulation.leave(member)
    simulation.come_to_rest()
