"""Many transactional clients on a node that is killed, cut off from its power, and has trouble with its disk.

Writers write transactions, copiers consume and produce in transactions, readers read what is committed. They
are killed and cut off from the network too, and replaced while they do not know of it. Every message is
synced, so that a power cut loses nothing that was acknowledged. Each run is a function of its seed; the
checker that also judges real clients says what is wrong with its history.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from moldau.client.admin import LATEST_TIMESTAMP, Admin, IsolationLevel
from moldau.client.cluster import Cluster, TopicPartition, parse_addresses
from moldau.client.fetch import Fetcher
from moldau.sim.faults import PowerCut
from moldau.sim.runtime import SimRuntime
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.chaos.checker import check, summary
from tests.chaos.history import Done, Event, Finally, GroupFinally, Place, Position, Read, Sought
from tests.sim_node.seeds import seeds
from tests.sim_node.transactor import Tell, Transactor, teller
from tests.sim_node.world import HOST, PORT, CrashedWhileStarting, World, until

GROUP, PARTITIONS = "copiers", 2
IN = [Place("in", index) for index in range(PARTITIONS)]
OUT = [Place("out", index) for index in range(PARTITIONS)]
WRITERS, COPIERS, READERS = 3, PARTITIONS, 1
DEEDS = 12
OPTIONS = {
    "log.flush.interval.messages": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.index.size.max.bytes": "4096",
    "log.retention.check.interval.ms": "3000",
}


@dataclass(slots=True)
class Slot:
    """A part that one client at a time plays, each on a machine of its own."""

    kind: str
    number: int
    life: int = 0

    @property
    def transactional_id(self) -> str:
        return f"{self.kind}-{self.number}"

    @property
    def name(self) -> str:
        return f"{self.transactional_id}/{self.life}"


class Run:
    def __init__(self, seed: int) -> None:
        self.random = Random(f"transactional clients {seed}")
        self.cuts_power = self.random.random() < 0.6
        self.world = World(seed, OPTIONS)
        self.history: list[Event] = []
        self.is_over = False
        kinds = (("writer", WRITERS), ("copier", COPIERS), ("reader", READERS))
        self.slots = [Slot(kind, number) for kind, count in kinds for number in range(count)]

    # -- Clients

    def begin(self, slot: Slot) -> None:
        slot.life += 1
        runtime = self.world.simulation.host(slot.name)
        play = {"writer": self.write, "copier": self.copy, "reader": self.read}[slot.kind]
        runtime.spawn(self.live(slot, slot.name, runtime, play), "client")

    async def live(
        self, slot: Slot, name: str, runtime: SimRuntime, play: Callable[..., Coroutine[Any, Any, None]]
    ) -> None:
        """Until it has heard what it cannot go on from. Then another takes its place."""
        tell = teller(self.history, name)
        random = Random(self.random.random())
        async with self.cluster(runtime) as cluster:
            try:
                await play(slot, name, runtime, cluster, random, tell)
            except (KafkaError, TimeoutError) as error:
                tell(Done, text=f"ends: {error}")
        if slot.name == name and not self.is_over:
            self.begin(slot)

    def cluster(self, runtime: SimRuntime) -> Cluster:
        return Cluster(runtime, parse_addresses(f"{HOST}:{PORT}"), request_timeout_s=2, retry_timeout_s=600)

    async def transactor(
        self, slot: Slot, name: str, cluster: Cluster, random: Random, tell: Tell
    ) -> Transactor:
        made = Transactor(
            cluster,
            random,
            tell,
            name=name,
            transactional_id=slot.transactional_id,
            version=random.choice((1, 2)),
        )
        await made.initialize()
        return made

    async def write(
        self, slot: Slot, name: str, runtime: SimRuntime, cluster: Cluster, random: Random, tell: Tell
    ) -> None:
        producer = await self.transactor(slot, name, cluster, random, tell)
        number = 0
        while not self.is_over:
            producer.begin()
            for _ in range(random.randint(1, 4)):
                values = [f"{name}.{number + step}" for step in range(random.randint(1, 3))]
                number += len(values)
                await producer.write(random.choice(IN), values)
                await asyncio.sleep(random.choice((0, 0, 0.01, 0.3)))
            await (producer.commit if random.random() < 0.75 else producer.abort)()
            await asyncio.sleep(random.uniform(0, 0.2))

    async def copy(
        self, slot: Slot, name: str, runtime: SimRuntime, cluster: Cluster, random: Random, tell: Tell
    ) -> None:
        source, target = IN[slot.number], OUT[slot.number]
        producer = await self.transactor(slot, name, cluster, random, tell)
        while not self.is_over:
            # Anew after each abort, from where the group is.
            fetcher = Fetcher(runtime, cluster, isolation=IsolationLevel.READ_COMMITTED, wait_ms_max=100)
            fetcher.assign({TopicPartition(*source): max(0, (await self.group_offsets(cluster))[source])})
            try:
                while not self.is_over:
                    fetched = await fetcher.poll(0.2)
                    if fetched is None or not fetched.records:
                        continue
                    records = fetched.records[: random.randint(1, 10)]
                    producer.begin()
                    sources = {
                        f"{producer.transaction}.{record.offset}": Position(*source, record.offset)
                        for record in records
                    }
                    await producer.write(target, list(sources), sources)
                    await producer.send_offsets(GROUP, {source: records[-1].offset + 1})
                    if random.random() < 0.2:
                        await producer.abort()
                        break
                    await producer.commit()
                    if len(records) < len(fetched.records):
                        break
            finally:
                await fetcher.close()

    async def read(
        self, slot: Slot, name: str, runtime: SimRuntime, cluster: Cluster, random: Random, tell: Tell
    ) -> None:
        while not self.is_over:
            fetcher = Fetcher(runtime, cluster, isolation=IsolationLevel.READ_COMMITTED, wait_ms_max=100)
            for place in (*IN, *OUT):
                tell(Sought, position=Position(*place, 0))
            fetcher.assign({TopicPartition(*place): 0 for place in (*IN, *OUT)})
            try:
                for _ in range(random.randint(10, 100)):
                    fetched = await fetcher.poll(0.2)
                    for record in fetched.records if fetched else ():
                        position = Position(*fetched.place, record.offset)
                        tell(Read, position=position, value=(record.value or b"").decode())
            finally:
                await fetcher.close()

    # -- What happens to them

    async def disturb(self) -> None:
        deeds = [
            *(self.kill_client, self.kill_client, self.cut_off, self.replace, self.replace, self.heal),
            *(self.kill_node, self.stop_node, self.fill_disk, self.break_operation, self.break_connections),
        ]
        if self.cuts_power:
            deeds += [self.cut_power, self.cut_power_at_an_operation]
        for _ in range(DEEDS):
            await asyncio.sleep(self.random.uniform(0.1, 2.5))
            deed = self.random.choice(deeds)
            self.do(deed.__name__)
            await deed()
            await self.mend_node()

    async def kill_client(self) -> None:
        slot = self.random.choice(self.slots)
        self.world.simulation.kill(slot.name)
        self.begin(slot)

    async def cut_off(self) -> None:
        slot = self.random.choice(self.slots)
        self.world.simulation.network.wires.partition(slot.name, HOST)

    async def replace(self) -> None:
        """The one before it lives on, and does not know; perhaps it is heard again."""
        slot = self.random.choice(self.slots)
        self.world.simulation.network.wires.partition(slot.name, HOST)
        self.begin(slot)

    async def heal(self) -> None:
        self.world.simulation.network.wires.heal()

    async def break_connections(self) -> None:
        wires = self.world.simulation.network.wires
        wires.reset_chance = 0.05
        await asyncio.sleep(self.random.uniform(0.1, 1))
        wires.reset_chance = 0

    async def kill_node(self) -> None:
        self.world.kill()

    async def cut_power(self) -> None:
        self.world.power_cut()

    async def cut_power_at_an_operation(self) -> None:
        """Of its disk: in the middle of whatever it does."""
        faults = self.world.disk.faults
        faults.power_cut_at(faults.count + self.random.randint(1, 40))
        await asyncio.sleep(1)
        faults.power_cut_at(None)

    async def stop_node(self) -> None:
        await self.world.stop()

    async def fill_disk(self) -> None:
        self.world.disk.capacity = 0
        await asyncio.sleep(self.random.uniform(0.1, 2))
        self.world.disk.capacity = None

    async def break_operation(self) -> None:
        """One operation of the disk fails: its directory is offline, and with it the node.

        Where the power goes too, no sync: what one that failed did not write no later one will, though it can
        be read until then. Kafka has no answer to that either."""
        faults = self.world.disk.faults
        if self.cuts_power:
            faults.fail_next(operation=self.random.choice(("write", "create", "rename", "open")))
        else:
            faults.fail_at(faults.count + self.random.randint(1, 40), errno.EIO)
        await asyncio.sleep(1)
        faults.stop_failing()

    async def mend_node(self) -> None:
        """It runs again, however it ended."""
        world = self.world
        if world.node is not None and world.node.failed.is_set():
            await until(lambda: world.exit_code is not None or not world.runtime.is_alive)
        if world.node is not None and world.runtime.is_alive and world.exit_code is None:
            return
        while True:
            with suppress(CrashedWhileStarting, PowerCut):
                await world.restart()
                return

    # -- The whole

    async def main(self) -> None:
        await self.world.start()
        for topic in ("in", "out"):
            await self.world.create_topic(topic, PARTITIONS)
        await self.find_coordinators()
        for slot in self.slots:
            self.begin(slot)
        await self.disturb()
        await self.rest()

    async def find_coordinators(self) -> None:
        """Their topics are made when they are first asked for."""
        connection = await self.world.connect()
        for key, key_type in ((GROUP, 0), ("writer-0", 1)):
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            while (await connection.request(request, FindCoordinatorResponse, version=3)).error_code:
                await asyncio.sleep(0.1)
        connection.close()

    async def rest(self) -> None:
        self.do("all shall end")
        await self.heal()
        await asyncio.sleep(self.random.uniform(0, 3))  # those who come back meet their successors
        for slot in self.slots:
            if slot.kind != "copier":
                self.world.simulation.kill(slot.name)
        async with self.cluster(self.world.client) as cluster:
            await self.take_ids("writer", cluster)
            for place in IN:
                await self.read_finally(place, cluster)
            ends = {
                event.place: event.records[-1][0] + 1
                for event in self.history
                if isinstance(event, Finally) and event.records
            }
            async with asyncio.timeout(600):
                offsets = await self.group_offsets(cluster)
                while any(offsets[place] < end for place, end in ends.items()):
                    await asyncio.sleep(0.5)
                    offsets = await self.group_offsets(cluster)
            self.is_over = True
            for slot in self.slots:
                if slot.kind == "copier":
                    self.world.simulation.kill(slot.name)
            await self.take_ids("copier", cluster)
            for place in OUT:
                await self.read_finally(place, cluster)
            offsets = await self.group_offsets(cluster)
            where = tuple(Position(*place, offset) for place, offset in offsets.items())
            teller(self.history, "run")(GroupFinally, group=GROUP, offsets=where)
        await self.world.stop()

    async def take_ids(self, kind: str, cluster: Cluster) -> None:
        for slot in self.slots:
            if slot.kind == kind:
                await self.transactor(slot, "run", cluster, self.random, teller(self.history, "run"))

    async def group_offsets(self, cluster: Cluster) -> dict[Place, int]:
        """Of what is decided: a transaction that is not is waited for."""
        topic = OffsetFetchRequestTopics(name="in", partition_indexes=[place.partition for place in IN])
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        while True:
            try:
                connection = await cluster.connection_to_any()
                response = await connection.request(request, OffsetFetchResponse, version=8)
                (found,) = response.groups
                partitions = found.topics[0].partitions if found.topics else []
                codes = {found.error_code, *(each.error_code for each in partitions)} - {0}
                if not codes:
                    return {Place("in", each.partition_index): each.committed_offset for each in partitions}
                code = ErrorCode(codes.pop())
            except KafkaError as error:
                code = error.code
            assert code.retriable or code is ErrorCode.UNSTABLE_OFFSET_COMMIT, code
            await asyncio.sleep(0.1)

    async def read_finally(self, place: Place, cluster: Cluster) -> None:
        async def end(isolation: IsolationLevel) -> int:
            where = TopicPartition(*place)
            found = await Admin(cluster).list_offsets({where: LATEST_TIMESTAMP}, isolation)
            return found[where].offset or 0

        # Markers may be on their way; what is open for longer than its timeout hangs.
        for _ in range(600):
            stable = await end(IsolationLevel.READ_COMMITTED)
            high_watermark = await end(IsolationLevel.READ_UNCOMMITTED)
            if stable == high_watermark:
                break
            await asyncio.sleep(0.1)
        fetcher = Fetcher(self.world.client, cluster, isolation=IsolationLevel.READ_COMMITTED)
        fetcher.assign({TopicPartition(*place): 0})
        records: list[tuple[int, str]] = []
        while fetcher.positions[TopicPartition(*place)] < stable:
            fetched = await fetcher.poll(1)
            records += [
                (record.offset, (record.value or b"").decode())
                for record in (fetched.records if fetched else ())
            ]
        await fetcher.close()
        teller(self.history, "run")(
            Finally,
            place=place,
            records=tuple(records),
            last_stable_offset=stable,
            high_watermark=high_watermark,
        )

    def do(self, text: str) -> None:
        teller(self.history, "run")(Done, text=text)


@pytest.mark.parametrize("seed", seeds(6))
def test_transactions_hold_whatever_happens(seed: int) -> None:
    run = Run(seed)
    with run.world:
        run.world.run(run.main(), within_s=3600)
    anomalies = check(run.history)
    assert not anomalies, "\n".join([f"seed {seed}, {summary(run.history)}", *map(str, anomalies[:30])])
    counts = summary(run.history)
    assert counts["committed"] > 0
    assert counts["copies"] > 0
