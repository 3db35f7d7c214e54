"""Groups whose members come, go, stop, bounce and change their minds, while topics grow and go and the shard
is replayed: no partition has two owners at once, and everything comes to rest when nothing happens any more.

Members follow the client's half of KIP-848: they give up what they are no longer assigned before they say so,
take what is new only then, and begin anew when they are fenced.
"""

from __future__ import annotations

from random import Random

import pytest

from moldau.groups.consumer.group import STABLE, ConsumerGroup
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tests.groups.consumer.consumer_driver import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    ConsumerDriver,
    Owned,
    assigned,
    check_owners,
    snapshot,
)

TICK_MS = 1000
PATTERNS = ["", "", "", "t.*", "t[0-4]", "none"]
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)


class ModelMember:
    def __init__(self, name: str, random: Random, instance_id: str | None) -> None:
        self.name = name
        self.random = random
        self.instance_id = instance_id
        self.lives = 0
        self.member_id = name
        self.topics: list[str] = []
        self.regex = ""
        self.begin_again()
        self.beats_at_ms = 0
        self.heard_at_ms = 0
        self.is_gone = False

    def begin_again(self) -> None:
        self.epoch = 0
        self.owned: Owned = {}
        self.told: Owned = {}  # what it was last assigned
        self.is_changed = True  # something is to be said that was not said yet
        self.wait = 0  # heartbeats until the revocation that is under way ends

    def subscribe(self, topics: list[str], regex: str) -> None:
        self.topics, self.regex = topics, regex
        self.is_changed = True

    def beat(self, driver: ConsumerDriver) -> None:
        fields: dict[str, object] = {}
        if self.instance_id is not None:
            fields["instance_id"] = self.instance_id
        if self.epoch == 0 or self.is_changed:
            fields.update(topics=self.topics, regex=self.regex, rebalance_timeout_ms=REBALANCE_MS)
            fields["owned"] = {} if self.epoch == 0 else self.owned
        try:
            response = driver.beat(self.member_id, self.epoch, **fields)
        except KafkaError as failure:
            if failure.code is ErrorCode.UNRELEASED_INSTANCE_ID:
                return
            assert failure.code in (*FENCED, ErrorCode.FENCED_INSTANCE_ID), failure
            self.begin_again()
            return
        if self.random.random() < 0.1:
            self.is_changed = True  # the answer is lost: it says everything again
            return
        self.heard_at_ms = driver.now_ms
        self.is_changed = False
        self.follow(response)

    def follow(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.told = assigned(response)
        kept = {topic: self.owned[topic] & self.told.get(topic, set()) for topic in self.owned}
        if any(self.owned[topic] - kept[topic] for topic in kept):
            if self.wait == 0:
                self.wait = self.random.randint(1, 3)
            self.wait -= 1
            if self.wait:
                return
            self.owned = {topic: indexes for topic, indexes in kept.items() if indexes}
            self.is_changed = True
        # What it gave up is told before what is new is taken: nothing new comes with a revocation.
        if self.owned != self.told:
            self.owned = {topic: set(indexes) for topic, indexes in self.told.items()}
            self.is_changed = True

    def is_live(self, now_ms: int) -> bool:
        return not self.is_gone and now_ms - self.heard_at_ms < SESSION_MS


class Simulation:
    def __init__(self, seed: int, member_count: int) -> None:
        self.random = Random(seed)
        self.driver = ConsumerDriver({f"t{number}": 1 + 3 * number for number in range(6)}, seed=seed)
        self.members: list[ModelMember] = []
        self.count = 0
        self.member_count = member_count

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            self.happen()
            self.tick()

    def tick(self) -> None:
        driver = self.driver
        driver.advance(TICK_MS)
        self.random.shuffle(self.members)
        for member in self.members:
            if driver.now_ms >= member.beats_at_ms:
                member.beats_at_ms = driver.now_ms + 5 * TICK_MS
                member.beat(driver)
                self.check()
        self.check()

    def happen(self) -> None:
        random, driver = self.random, self.driver
        match random.randrange(30):
            case 0 | 1 | 2 | 3 | 4 | 5 if len(self.members) < self.member_count:
                for _ in range(random.choice([1, 1, 2, max(1, self.member_count // 4)])):
                    self.add_member()
            case 6 | 7 if self.members:
                self.leave(random.choice(self.members))
            case 8 if self.members:
                self.silence(random.choice(self.members))
            case 9 | 10 if self.members:
                self.bounce(random.choice(self.members))
            case 11 | 12 if self.members:
                random.choice(self.members).subscribe(self.some_topics(), random.choice(PATTERNS))
            case 13:
                name = f"t{random.randrange(8)}"
                if name not in driver.ids:
                    driver.create_topic(name, random.randint(1, 9))
                elif random.random() < 0.5:
                    driver.grow_topic(name, len(driver.environment.image.topics[name].partitions) + 2)
                elif len(driver.ids) > 2:
                    driver.delete_topic(name)
            case 14:
                driver.reload()

    def some_topics(self) -> list[str]:
        if self.random.random() < 0.7:
            return ["t1", "t2", "t3"]
        return self.random.sample([f"t{number}" for number in range(8)], self.random.randint(0, 4))

    def add_member(self) -> None:
        self.count += 1
        instance_id = f"i{self.count}" if self.random.random() < 0.3 else None
        member = ModelMember(f"m{self.count}", self.random, instance_id)
        member.subscribe(self.some_topics(), self.random.choice(PATTERNS))
        member.heard_at_ms = self.driver.now_ms
        self.members.append(member)

    def leave(self, member: ModelMember) -> None:
        member.is_gone = True
        self.members.remove(member)
        if member.epoch > 0:
            self.last_word(member, -1)

    def silence(self, member: ModelMember) -> None:
        """It stops, and whoever started it does not know."""
        member.is_gone = True
        self.members.remove(member)

    def bounce(self, member: ModelMember) -> None:
        """A static member comes back as another; one that is not just begins anew under its id."""
        if member.instance_id is not None and member.epoch > 0:
            self.last_word(member, -2)
            member.lives += 1
            member.member_id = f"{member.name}-{member.lives}"
        member.begin_again()

    def last_word(self, member: ModelMember, epoch: int) -> None:
        fields = {} if member.instance_id is None else {"instance_id": member.instance_id}
        try:
            self.driver.beat(member.member_id, epoch, **fields)
        except KafkaError as failure:
            assert failure.code in (*FENCED, ErrorCode.FENCED_INSTANCE_ID), failure

    # ------------------------------------------------------------ what has to hold

    def check(self) -> None:
        owners: dict[tuple[Uuid, int], str] = {}
        for member in self.members:
            if member.is_live(self.driver.now_ms):
                for topic, indexes in member.owned.items():
                    for index in indexes:
                        other = owners.setdefault((topic, index), member.name)
                        assert other == member.name, f"{topic!r}-{index} belongs to {other} and {member.name}"

    def check_machine(self) -> None:
        group = self.driver.shard.groups.groups.get(GROUP)
        replayed = self.driver.replayed().groups.groups.get(GROUP)
        if group is None:
            assert replayed is None
            return
        assert isinstance(group, ConsumerGroup)
        assert isinstance(replayed, ConsumerGroup)
        check_owners(group)
        assert snapshot(replayed) == snapshot(group)
        for keeps_tombstones in (True, False):
            shard = self.driver.replayed_compacted(keeps_tombstones=keeps_tombstones)
            compacted = shard.groups.groups[GROUP]
            assert isinstance(compacted, ConsumerGroup)
            assert snapshot(compacted) == snapshot(group)

    def come_to_rest(self) -> None:
        # Until those who are silent are given up, patterns are resolved, and everyone followed.
        for _ in range((SESSION_MS + REBALANCE_MS) // TICK_MS + 60):
            self.tick()
        group = self.driver.shard.groups.groups.get(GROUP)
        if not self.members:
            assert group is None or group.is_empty()
            return
        assert isinstance(group, ConsumerGroup)
        assert group.state == STABLE
        assert set(group.members) == {member.member_id for member in self.members}
        image = self.driver.environment.image
        for member in self.members:
            assert member.owned == member.told == self.driver.target(member.member_id)
        owned = {(t, i) for member in self.members for t, indexes in member.owned.items() for i in indexes}
        wanted = {
            (image.topics[topic].topic_id, index)
            for topic in group.topics
            if topic in image.topics
            for index in image.topics[topic].partitions
        }
        assert owned == wanted


@pytest.mark.parametrize("seed", range(12))
def test_no_partition_has_two_owners_and_all_come_to_rest(seed: int) -> None:
    simulation = Simulation(seed, member_count=[3, 8, 20][seed % 3])
    for _ in range(4):
        simulation.run(60)
        simulation.check_machine()
    simulation.come_to_rest()
    simulation.check_machine()


def test_so_it_is_in_a_large_group() -> None:
    simulation = Simulation(99, member_count=200)
    for _ in range(150):
        simulation.add_member()
    simulation.run(60)
    simulation.check_machine()
    simulation.come_to_rest()
    simulation.check_machine()
