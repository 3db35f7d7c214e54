"""Hundreds of members in one shard, from a seed: they come and go, crash, are slow, bounce, change what they
read, and the shard is loaded anew in the middle of it. No partition ever has two owners in one generation,
and when it is quiet every group settles."""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from random import Random
from typing import Any

import pytest

from moldau.coordinator.decision import Waiter
from moldau.groups.classic.group import ClassicGroup, ClassicState
from moldau.groups.classic.subscription import subscribed_topics
from moldau.wire.errors import ErrorCode, KafkaError
from tests.groups.classic.classic_invariants import check, check_replayed
from tests.groups.classic.classic_members import ClassicDriver, error_of, subscription

PARTITIONS = {"a": 7, "b": 4, "c": 12}
HEARTBEAT_MS = 3000
SESSION_MS = 10_000
REBALANCE_MS = 20_000
NOISE_MS = 120_000
QUIET_MS = 180_000


class Cluster:
    def __init__(self, seed: int, groups: int, members: int) -> None:
        self.random = Random(seed)
        self.driver = ClassicDriver(seed=seed)
        self.members: list[Process] = []
        self.owners: defaultdict[tuple[str, int, str], set[str]] = defaultdict(set)
        self._heap: list[tuple[int, int, Process, int]] = []
        self._sequence = 0
        for number in range(members):
            name = f"static-{number}" if number % 3 == 0 else None
            self.start(f"group-{number % groups}", name, self.random.randrange(NOISE_MS // 4))

    def start(self, group_id: str, instance_id: str | None, in_ms: int) -> None:
        process = Process(self, group_id, instance_id)
        self.members.append(process)
        self.wake(process, in_ms)

    def wake(self, process: Process, in_ms: int) -> None:
        """Its next step, instead of whichever was to come."""
        process.turn += 1
        self._sequence += 1
        heappush(self._heap, (self.driver.now_ms + in_ms, self._sequence, process, process.turn))

    def run(self, until_ms: int) -> None:
        while self._heap and self._heap[0][0] <= until_ms:
            at_ms, _, process, turn = heappop(self._heap)
            self.driver.advance(max(0, at_ms - self.driver.now_ms))
            if process.is_alive and process.turn == turn:
                process.step()

    def disturb(self) -> None:
        """One thing that goes wrong; commits that were late are there by then."""
        self.driver.commit()
        random = self.random
        alive = [process for process in self.members if process.is_alive]
        victim = random.choice(alive)
        match random.randrange(8):
            case 0 | 1:
                victim.crash()
                self.start(victim.group_id, victim.instance_id, random.choice((100, 5000, 30_000)))
            case 2:
                victim.leave()
                self.start(victim.group_id, victim.instance_id, random.choice((100, 20_000)))
            case 3:
                victim.pause(random.choice((4000, 12_000, 40_000)))
            case 4:
                victim.topics = random.sample(sorted(PARTITIONS), random.choice((1, 2, 3)))
                victim.rejoin()
            case 5 if victim.instance_id is not None:
                # The new process is there before the old one has gone.
                self.start(victim.group_id, victim.instance_id, 0)
            case 6:
                self.driver.reload()
            case 7:
                self.driver.is_committing = False

    def check(self) -> None:
        shard = self.driver.shard
        replayed = self.driver.replayed()
        for group_id, group in shard.groups.groups.items():
            assert isinstance(group, ClassicGroup)
            if self.driver.is_committing:
                check(group, shard)
                again = replayed.groups.get(group_id)
                assert isinstance(again, ClassicGroup)
                check_replayed(group, again)
        for (group_id, generation, partition), owners in self.owners.items():
            assert len(owners) == 1, f"{partition} of {group_id} in generation {generation}: {owners}"

    def check_settled(self) -> None:
        by_group: defaultdict[str, list[Process]] = defaultdict(list)
        for process in self.members:
            if process.is_alive:
                by_group[process.group_id].append(process)
        for group_id, processes in by_group.items():
            group = self.driver.group(group_id)
            assert group.state is ClassicState.STABLE
            assert group.members.keys() == {process.member_id for process in processes}
            assert {process.generation for process in processes} == {group.generation}
            read = {topic for process in processes for topic in process.topics}
            owned = sorted(partition for process in processes for partition in process.owned)
            assert owned == sorted(f"{topic}-{n}" for topic in read for n in range(PARTITIONS[topic]))


class Process:
    """A consumer as clients have it: joins, asks for its assignment, beats, and does as it is told."""

    def __init__(self, cluster: Cluster, group_id: str, instance_id: str | None) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.instance_id = instance_id
        self.topics = cluster.random.sample(sorted(PARTITIONS), cluster.random.choice((1, 2)))
        self.is_alive = True
        self.turn = 0
        self.member_id = ""
        self.generation = -1
        self.owned: list[str] = []
        self._step = self._join
        self._wait: Waiter[Any] | None = None

    def step(self) -> None:
        self._step()

    def crash(self) -> None:
        self.is_alive = False

    def leave(self) -> None:
        self.is_alive = False
        if self.member_id:
            self.cluster.driver.send_leave((self.member_id, self.instance_id), group_id=self.group_id)

    def pause(self, for_ms: int) -> None:
        """A long collection of garbage: what was to be done next is done then."""
        self.cluster.wake(self, for_ms)

    def rejoin(self, in_ms: int = 10) -> None:
        self.owned = []
        self._wait = None
        self._step = self._join
        self.cluster.wake(self, in_ms)

    def _after(self, waiter: Waiter[Any], step: Any) -> None:
        """Goes on when the answer is there, which takes a little on the wire."""
        self._wait = waiter

        def arrived() -> None:
            if self._wait is waiter:
                self._step = lambda: step(waiter)
                self.cluster.wake(self, self.cluster.random.randrange(1, 40))

        waiter.when_done(arrived)

    def _join(self) -> None:
        waiter = self.cluster.driver.send_join(
            self.member_id,
            group_id=self.group_id,
            instance_id=self.instance_id,
            protocols=[("range", subscription(*self.topics))],
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self._after(waiter, self._on_joined)

    def _on_joined(self, waiter: Waiter[Any]) -> None:
        code = error_of(waiter)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = waiter.result().member_id
        if code is not ErrorCode.NONE:
            self._on_error(code)
            return
        joined = waiter.result()
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignments: dict[str, bytes] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = assign({each.member_id: each.metadata for each in joined.members})
        synced = self.cluster.driver.send_sync(
            self.member_id,
            self.generation,
            assignments,
            group_id=self.group_id,
            instance_id=self.instance_id,
        )
        self._after(synced, self._on_synced)

    def _on_synced(self, waiter: Waiter[Any]) -> None:
        code = error_of(waiter)
        if code is not ErrorCode.NONE:
            self._on_error(code)
            return
        self.owned = waiter.result().assignment.decode().split()
        owner = self.instance_id or self.member_id
        for partition in self.owned:
            self.cluster.owners[self.group_id, self.generation, partition].add(owner)
        self._step = self._beat
        self.cluster.wake(self, HEARTBEAT_MS)

    def _beat(self) -> None:
        waiter = self.cluster.driver.send_beat(
            self.member_id, self.generation, group_id=self.group_id, instance_id=self.instance_id
        )
        self._after(waiter, self._on_beat)

    def _on_beat(self, waiter: Waiter[Any]) -> None:
        code = error_of(waiter)
        if code is not ErrorCode.NONE:
            self._on_error(code)
            return
        self._step = self._beat
        self.cluster.wake(self, HEARTBEAT_MS)

    def _on_error(self, code: ErrorCode) -> None:
        match code:
            case ErrorCode.FENCED_INSTANCE_ID:
                self.is_alive = False
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                self.rejoin()
            case ErrorCode.MEMBER_ID_REQUIRED | ErrorCode.REBALANCE_IN_PROGRESS:
                self.rejoin()
            case ErrorCode.ILLEGAL_GENERATION | ErrorCode.NOT_COORDINATOR:
                self.rejoin(100)
            case _:
                raise KafkaError(code)


def assign(subscriptions: dict[str, bytes]) -> dict[str, bytes]:
    """Ranges of each topic to those who read it, as Kafka's range assignor has it."""
    owned: defaultdict[str, list[str]] = defaultdict(list)
    for topic, count in PARTITIONS.items():
        readers = sorted(
            member for member, data in subscriptions.items() if topic in (subscribed_topics([data]) or ())
        )
        for index, member in enumerate(readers):
            first = index * count // len(readers)
            owned[member] += [f"{topic}-{n}" for n in range(first, (index + 1) * count // len(readers))]
    return {member: " ".join(owned[member]).encode() for member in subscriptions}


@pytest.mark.parametrize("seed", range(2))
def test_members_come_and_go_and_settle(seed: int) -> None:
    cluster = Cluster(seed, groups=10, members=200)
    begun_ms = cluster.driver.now_ms
    while cluster.driver.now_ms < begun_ms + NOISE_MS:
        cluster.run(cluster.driver.now_ms + cluster.random.randrange(2000))
        cluster.driver.advance(1)
        cluster.disturb()
        if cluster.random.random() < 0.05:
            cluster.check()
    cluster.driver.commit()
    cluster.run(cluster.driver.now_ms + QUIET_MS)
    cluster.check()
    cluster.check_settled()
    assert len(cluster.owners) > 500
