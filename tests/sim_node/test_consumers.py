"""Consumers of one group on a node that is killed, while they come and go, are killed, cut off and stuck.

Each run is a function of its seed. Held are: nobody has what another has who was not cut off or stuck;
what is handed out of an assignment begins at a committed offset and has no holes; what is committed never
goes back; everything is delivered in the end; and every call ends.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster, TopicPartition, parse_addresses
from moldau.client.consumer import AsyncConsumer
from moldau.client.group_admin import GroupAdmin
from moldau.sim.faults import PowerCut
from moldau.sim.runtime import SimRuntime
from moldau.wire.errors import KafkaError
from tests.sim_node.seeds import seeds
from tests.sim_node.world import HOST, PORT, World, until
from tests.support.producing import Message, Writer

GROUP, TOPICS = "readers", {"events": 4, "events-too": 2}
MEMBERS = 3
DEEDS = 12
OPTIONS = {
    "log.flush.interval.messages": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.session.timeout.ms": "10000",
    "group.min.session.timeout.ms": "1000",
    "log.index.size.max.bytes": "4096",
}
KINDS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range"},
    "roundrobin": {"partition_assignment_strategy": "roundrobin"},
    "sticky": {"partition_assignment_strategy": "sticky"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "default": {},
    "consumer": {"group_protocol": "consumer"},
}
CLASSIC = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 1000}


class Run:
    def __init__(self, seed: int, kind: str) -> None:
        self.random = Random(f"consumers {kind} {seed}")
        self.options = KINDS[kind] | ({} if kind == "consumer" else CLASSIC)
        self.world = World(seed, OPTIONS)
        self.is_calm = False
        self.is_over = False
        self.written: dict[TopicPartition, int] = defaultdict(int)
        self.seen: dict[TopicPartition, set[int]] = defaultdict(set)
        self.owners: dict[TopicPartition, str] = {}
        self.dubious: set[str] = set()  # who may have lost what it has without knowing
        self.committed: dict[TopicPartition, int] = {}
        self.attempted: dict[TopicPartition, set[int]] = defaultdict(lambda: {0})
        self.lives: dict[str, SimRuntime] = {}
        self.stuck: set[str] = set()
        self.number = 0
        self.tasks: list[asyncio.Task[None]] = []

    # -- Clients

    def cluster(self, runtime: SimRuntime) -> Cluster:
        return Cluster(runtime, parse_addresses(f"{HOST}:{PORT}"), request_timeout_s=5, retry_timeout_s=600)

    def begin(self) -> None:
        self.number += 1
        name = f"member-{self.number}"
        runtime = self.lives[name] = self.world.simulation.host(name)
        self.tasks.append(runtime.spawn(self.live(name, runtime), "member"))

    async def live(self, name: str, runtime: SimRuntime) -> None:
        random = Random(self.random.random())
        expected: dict[TopicPartition, int | None] = {}

        def on_assigned(places: list[TopicPartition]) -> None:
            for place in places:
                owner = self.owners.get(place)
                assert owner is None or owner == name or owner in self.dubious, f"{name}, {owner}: {place}"
                self.owners[place] = name
                expected[place] = None

        async def on_revoked(places: list[TopicPartition]) -> None:
            await asyncio.sleep(random.choice((0, 0, 0.5)))
            for place in places:
                if self.owners.get(place) == name:
                    del self.owners[place]
                del expected[place]

        consumer = AsyncConsumer(
            runtime=runtime,
            bootstrap_servers=f"{HOST}:{PORT}",
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=random.random() < 0.5,
            auto_commit_interval_ms=700,
            max_poll_interval_ms=15_000,
            max_poll_records=random.choice((1, 7, 500)),
            max_partition_fetch_bytes=random.choice((100, 1 << 20)),
            metadata_max_age_ms=5000,
            request_timeout_ms=5000,
            **self.options,
        )
        async with consumer:
            if random.random() < 0.3:
                consumer.subscribe(pattern="events.*", on_assigned=on_assigned, on_revoked=on_revoked)
            else:
                consumer.subscribe(list(TOPICS), on_assigned=on_assigned, on_revoked=on_revoked)
            while not self.is_over and name in self.lives:
                if name in self.stuck:
                    self.stuck.discard(name)
                    await asyncio.sleep(20)  # longer than max.poll.interval.ms
                records = await consumer.poll(random.choice((0, 0.1, 1)))
                for record in records:
                    place = TopicPartition(record.topic, record.partition)
                    wanted = expected[place]
                    if wanted is None:
                        assert record.offset in self.attempted[place], f"{name}: {record.offset} begins"
                    else:
                        assert record.offset == wanted, f"{name} reads {record.offset} after {wanted - 1}"
                    expected[place] = record.offset + 1
                    # Whatever is handed out may be committed by itself.
                    self.attempted[place].add(record.offset + 1)
                    assert record.value == b"%d" % record.offset
                    self.seen[place].add(record.offset)
                await self.do_something(consumer, random, expected)
        for place in [place for place, owner in self.owners.items() if owner == name]:
            assert name in self.dubious, f"{name} left without giving back {place}"
            del self.owners[place]

    async def do_something(
        self, consumer: AsyncConsumer, random: Random, expected: dict[TopicPartition, int | None]
    ) -> None:
        if self.is_calm:
            consumer.resume(*consumer.paused())
            return
        match random.randrange(12):
            case 0 | 1:
                with suppress(KafkaError):  # the group has gone on
                    await consumer.commit()
            case 2:
                consumer.commit_nowait()
            case 3:
                await asyncio.sleep(random.uniform(0, 2))
            case 4 if consumer.assignment():
                place = random.choice(sorted(consumer.assignment()))
                consumer.pause(place)
            case 5:
                consumer.resume(*consumer.paused())
            case 6 if consumer.assignment():
                # Back to what was read is no new beginning, and nothing is lost by it.
                place = random.choice(sorted(consumer.assignment()))
                wanted = expected.get(place)
                if wanted:
                    consumer.seek(place, wanted)
            case 7 if random.random() < 0.1:
                consumer.enforce_rebalance()

    async def write(self, runtime: SimRuntime) -> None:
        async with self.cluster(runtime) as cluster:
            writer = Writer(runtime, cluster)
            random = Random(self.random.random())
            while not self.is_calm:
                place = random.choice([TopicPartition(t, i) for t, n in TOPICS.items() for i in range(n)])
                numbers = range(self.written[place], self.written[place] + random.randint(1, 20))
                messages = [Message(b"%d" % number, partition=place.partition) for number in numbers]
                await writer.produce(place.topic, messages)
                self.written[place] = numbers.stop
                await asyncio.sleep(random.uniform(0, 0.3))
            await writer.close()

    async def watch(self) -> None:
        """What is committed, as anybody may see it."""
        async with self.cluster(self.world.client) as cluster:
            admin = GroupAdmin(cluster)
            while True:
                try:
                    found = await offsets_of(admin)
                except KafkaError:
                    found = {}
                for place, offset in found.items():
                    before = self.committed.get(place, 0)
                    assert offset >= before, f"{place}: {before} was committed, and {offset} is"
                    assert offset in self.attempted[place], f"{place}: nobody read up to {offset}"
                    self.committed[place] = offset
                await asyncio.sleep(0.2)

    # -- What happens to them

    async def disturb(self) -> None:
        deeds = [self.leave, self.kill, self.cut_off, self.stick, self.kill_node, self.drop, self.grow]
        for _ in range(DEEDS):
            await asyncio.sleep(self.random.uniform(0.5, 6))
            self.is_well()
            await self.random.choice(deeds)()

    def anybody(self) -> str:
        return self.random.choice(sorted(self.lives))

    async def leave(self) -> None:
        del self.lives[self.anybody()]
        self.begin()

    async def kill(self) -> None:
        name = self.anybody()
        self.dubious.add(name)
        del self.lives[name]
        self.world.simulation.kill(name)
        self.begin()

    async def cut_off(self) -> None:
        name = self.anybody()
        self.dubious.add(name)
        wires = self.world.simulation.network.wires
        wires.partition(name, HOST)
        await asyncio.sleep(self.random.choice((1, 20)))
        wires.heal()

    async def stick(self) -> None:
        name = self.anybody()
        self.dubious.add(name)
        self.stuck.add(name)

    async def kill_node(self) -> None:
        self.world.kill()
        await asyncio.sleep(self.random.uniform(0, 3))
        await self.world.restart()

    async def drop(self) -> None:
        self.world.simulation.network.reset(self.anybody(), HOST)

    async def grow(self) -> None:
        if TOPICS_MORE not in self.written:
            self.written[TOPICS_MORE] = 0
            async with self.cluster(self.world.client) as cluster:
                await Admin(cluster).create_partitions(TOPICS_MORE.topic, TOPICS_MORE.partition + 1)

    # -- The run

    async def main(self) -> None:
        await self.world.start()
        for topic, count in TOPICS.items():
            await self.world.create_topic(topic, count)
        writing = asyncio.create_task(self.write(self.world.client))
        watching = asyncio.create_task(self.watch())
        self.tasks.append(watching)
        for _ in range(MEMBERS):
            self.begin()
        await self.disturb()
        self.world.simulation.network.wires.heal()
        self.is_calm = True
        await writing
        end = {place: count for place, count in self.written.items() if count}
        await until(lambda: self.is_well() and all(len(self.seen[each]) >= end[each] for each in end))
        everything = {TopicPartition(t, i) for t, n in TOPICS.items() for i in range(n)}
        await until(lambda: everything <= {p for p, o in self.owners.items() if o in self.lives})
        for place, count in end.items():
            assert set(range(count)) <= self.seen[place]
        self.is_over = True
        async with asyncio.timeout(120):
            await asyncio.wait([task for task in self.tasks if task is not watching])
        self.is_well()
        watching.cancel()
        await self.world.stop()

    def is_well(self) -> bool:
        for task in self.tasks:
            if task.done() and not task.cancelled() and not isinstance(task.exception(), PowerCut):
                task.result()
        return True


TOPICS_MORE = TopicPartition("events", TOPICS["events"])


async def offsets_of(admin: GroupAdmin) -> dict[TopicPartition, int]:
    (found,) = (await admin.offsets([GROUP])).values()
    if isinstance(found, KafkaError):
        return {}
    return {place: committed.offset for place, committed in found.items()}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("seed", seeds(2))
def test_members_come_and_go(seed: int, kind: str) -> None:
    run = Run(seed, kind)
    with run.world as world:
        world.run(run.main())
