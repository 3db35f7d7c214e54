"""Each record once, though members are killed between what they read and what they store, and are stuck."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from moldau.client.consumer import AsyncConsumer
from moldau.client.once import AsyncOnce, OnceBatch
from moldau.client.topology import TopicPartition
from moldau.sim.runtime import SimRuntime
from tests.sim_node.seeds import seeds
from tests.sim_node.world import HOST, PORT, World, until
from tests.support.producing import Message, Writer

OPTIONS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.index.size.max.bytes": "4096",
}
PARTITIONS, COUNT = 3, 150


class Store:
    """A database in one process: results and offsets change together, or not at all."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.results: list[tuple[TopicPartition, int]] = []
        self.refused = 0

    async def load(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        await asyncio.sleep(0.01)
        return {place: self.offsets[place] for place in places if place in self.offsets}

    def store(self, batch: OnceBatch) -> bool:
        if any(self.offsets.get(place) != begin for place, begin in batch.begins.items()):
            self.refused += 1
            return False
        self.offsets.update(batch.ends)
        self.results += [(TopicPartition(each.topic, each.partition), each.offset) for each in batch.records]
        return True


async def work(store: Store, runtime: SimRuntime, random: Random) -> None:
    while True:
        async with AsyncConsumer(
            runtime=runtime,
            bootstrap_servers=f"{HOST}:{PORT}",
            group_id="ledger",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=3000,
            heartbeat_interval_ms=300,
            max_poll_interval_ms=4000,
        ) as consumer:
            once = AsyncOnce(consumer, store.load)
            once.subscribe(["events"])
            while True:
                batch = await once.poll(0.5, max_records=random.randint(1, 10))
                await asyncio.sleep(random.choice((0, 0, 0, 0.2, 6)))  # longer than it may take
                if batch and not store.store(batch):
                    break  # others have its partitions: from where they are now


@pytest.mark.parametrize("seed", seeds(3))
def test_each_record_is_stored_once(seed: int) -> None:
    random = Random(f"once {seed}")
    store = Store()

    async def main() -> None:
        await world.start()
        await world.create_topic("events", PARTITIONS)
        async with world.cluster() as cluster:
            writer = Writer(world.client, cluster)
            for number in range(COUNT):
                await writer.produce("events", [Message(b"%d" % number, partition=number % PARTITIONS)])
            await writer.close()
        life = 0
        names = ["one", "two"]
        for name in names:
            world.simulation.host(name).spawn(work(store, world.simulation.host(name), random), "work")
        while len(store.results) < COUNT:
            await asyncio.sleep(random.uniform(1, 8))
            life += 1
            if life % 3 == 0:
                name = random.choice(names)
                runtime = world.simulation.restart(name)
                runtime.spawn(work(store, runtime, random), "work")
        await until(lambda: sum(store.offsets.values()) == COUNT)
        for name in names:
            world.simulation.kill(name)
        await world.stop()

    with World(seed, OPTIONS) as world:
        world.run(main())
    assert sorted(store.results) == sorted(
        (TopicPartition("events", index), offset)
        for index in range(PARTITIONS)
        for offset in range(COUNT // PARTITIONS)
    )
