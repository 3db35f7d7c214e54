"""A whole node in memory, on virtual time, from one seed: for tests of asyncio code that need an hour to
pass, a network to part or a machine to lose power, and the same history each time.

    with moldau.testing.simulated(seed=7) as world:
        async def scenario() -> None:
            orders = await world.topic("orders")
            await asyncio.sleep(3600)  # takes no time
            ...

        world.run(scenario())

The node is the real one, `Node.start` and `stop`; only clock, chance, files and network are simulated. Its
program ends when the node says that it cannot go on, as `moldau up` does, and `exit_code` is then what that
process would have returned. There is one host for the node and one, `client`, for the code under test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from moldau.client.cluster import Cluster, parse_addresses
from moldau.client.connection import Connection, connect
from moldau.config.broker import BrokerConfig
from moldau.config.single_node import node_properties
from moldau.runtime.interfaces import T
from moldau.server.main import format_new_directories
from moldau.server.node import Node
from moldau.sim.faults import PowerCut
from moldau.sim.runtime import SimRuntime
from moldau.sim.simulation import Simulation
from moldau.testing.client import COLLECT_TIMEOUT_S, Data, Headers, Record, TopicClient
from moldau.testing.fault_controls import FaultControls
from moldau.testing.faults import Action, FaultRules, Match
from moldau.testing.front import Front
from moldau.testing.nodes import check_nodes

PORT = 9092
HOST = "node"
CLIENT_HOST = "client"
DATA = "/data"
WITHIN_S = 24 * 3600.0


class CrashedWhileStarting(Exception):
    """The machine went down before the node was up."""


class Simulated(FaultControls):
    """One node and one client. Made with what differs from the defaults of `moldau up`; a context manager
    that leaves it to its user when the node starts. `simulated` starts it."""

    def __init__(
        self,
        seed: int = 0,
        options: Mapping[str, str] | None = None,
        *,
        log_dirs: str = DATA,
        disk_capacity: int | None = None,
    ) -> None:
        self.simulation = Simulation(seed)
        self.runtime: SimRuntime = self.simulation.host(HOST, disk_capacity=disk_capacity)
        self.client: SimRuntime = self.simulation.host(CLIENT_HOST)
        self.disk = self.simulation.disk(HOST)
        self.options = dict(options or {})
        self.log_dirs = log_dirs
        self.node: Node | None = None
        self.exit_code: int | None = None
        self.rules = FaultRules()
        self.bootstrap = f"{HOST}:{PORT}"
        self._helper: TopicClient | None = None
        self._disk_capacity = disk_capacity

    def __enter__(self) -> Simulated:
        return self

    def __exit__(self, *_: object) -> None:
        self.simulation.close()

    def run(self, work: Coroutine[Any, Any, T], *, within_s: float = WITHIN_S) -> T:
        """Run the code under test until it is done, `within_s` virtual seconds at most."""
        return self.simulation.run(work, within_s=within_s)

    @property
    def now(self) -> float:
        """Virtual seconds since the world began."""
        return self.simulation.loop.time()

    def config(self) -> BrokerConfig:
        return BrokerConfig.parse(node_properties(self.log_dirs, HOST, PORT, tuple(self.options.items())))

    # -- The life of the node

    async def start(self) -> Node:
        """What the program does until it is ready. Raises what ends it before."""
        runtime, config = self.runtime, self.config()
        self.exit_code = None
        front = Front(runtime, self.rules)

        async def begin() -> Node:
            format_new_directories(runtime, config)
            node = await Node.start(runtime, config, in_front=front.wrap)
            front.attach(node)
            return node

        starting = runtime.spawn(begin(), "start")
        # The machine may go down before it is up: that is no cancellation of whoever waits here.
        await asyncio.wait([starting])
        if starting.cancelled() or isinstance(starting.exception(), PowerCut):
            raise CrashedWhileStarting
        self.node = starting.result()
        runtime.spawn(self._stop_when_failed(runtime, self.node), "program")
        return self.node

    async def _stop_when_failed(self, runtime: SimRuntime, node: Node) -> None:
        await node.failed.wait()
        try:
            await node.stop()
        finally:
            self.exit_code = 1

    async def stop(self) -> None:
        """A clean stop."""
        assert self.node is not None, "the node is not running"
        node, self.node = self.node, None
        await self.runtime.spawn(node.stop(), "stop")
        self.exit_code = 0

    def kill(self) -> None:
        """As `kill -9`: what was written stays in the page cache."""
        self.node = None
        self.simulation.kill(HOST)

    def power_cut(self) -> None:
        """What was not synced is lost, or torn; the client hears nothing."""
        self.node = None
        self.simulation.crash(HOST)

    async def restart(self) -> Node:
        """A new program on the same disk, after a power cut, a kill or a stop. Nothing goes wrong with its
        requests any more."""
        self.rules.clear()
        self.runtime = self.simulation.restart(HOST)
        return await self.start()

    # -- What may go wrong

    def clear_faults(self) -> None:
        """Requests are answered as they should be, and the disk has room."""
        self.rules.clear()
        self.disk_ok()

    def drop_connections(self) -> None:
        """Reset all connections between the client and the node."""
        self.simulation.network.reset(CLIENT_HOST, HOST)

    def partition(self, *, from_client: bool = True, from_node: bool = True) -> None:
        """Nothing gets through any more, one way or both; what is sent is held until `heal`."""
        wires = self.simulation.network.wires
        if from_client:
            wires.partition(CLIENT_HOST, HOST, one_way=True)
        if from_node:
            wires.partition(HOST, CLIENT_HOST, one_way=True)

    def heal(self) -> None:
        """End the partition, and deliver what it held."""
        self.simulation.network.wires.heal()

    def disk_full(self) -> None:
        """The node's disk has no page left, until `disk_ok`."""
        self.disk.fill()

    def disk_ok(self) -> None:
        self.disk.capacity = self._disk_capacity

    def skew_clock(self, seconds: float) -> None:
        """Set the node's wall clock wrong, by so much from the client's."""
        self.runtime.clock.skew_ms = round(seconds * 1000)

    # -- Clients

    def cluster(self, **options: Any) -> Cluster:
        """A way into the cluster from the client's host; close it, or use it as an async context manager."""
        return Cluster(self.client, parse_addresses(self.bootstrap), **options)

    async def connect(self) -> Connection:
        return await connect(self.client.network, HOST, PORT)

    async def topic(self, name: str, *, partitions: int = 1, **configs: str | int) -> str:
        """A new topic; `retention_ms=1000` sets `retention.ms`. The world is one test's own, and so the
        name is as given."""
        named = {option.replace("_", "."): str(value) for option, value in configs.items()}
        await self._call(lambda helper: helper.create_topic(name, partitions, named))
        return name

    async def produce(
        self,
        topic: str,
        *values: Data,
        key: Data = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """As `Node.produce`."""
        await self._call(lambda helper: helper.produce(topic, values, key, headers, partition, timestamp))

    async def collect(
        self,
        topic: str,
        count: int | None = None,
        *,
        timeout: float = COLLECT_TIMEOUT_S,
        read_committed: bool = False,
    ) -> list[Record]:
        """As `Node.collect`, in virtual seconds."""
        return await self._call(lambda helper: helper.collect(topic, count, timeout, read_committed))

    async def _call(self, work: Callable[[TopicClient], Coroutine[Any, Any, T]]) -> T:
        if self._helper is None:
            self._helper = TopicClient(self.client, self.bootstrap)
        return await work(self._helper)

    def add_rule(self, match: Match, action: Action, times: int | None) -> int:
        return self.rules.add(match, action, times)

    def hits_of(self, number: int) -> int:
        return self.rules.hits(number)

    def remove_rule(self, number: int) -> None:
        self.rules.remove(number)


class _Started(Simulated):
    def __enter__(self) -> Simulated:
        try:
            self.run(self.start())
        except BaseException:
            self.simulation.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._helper is not None:
            self._helper.close()
        super().__exit__()


def simulated(seed: int = 0, *, nodes: int = 1, options: Mapping[str, str] | None = None) -> Simulated:
    """A world whose node runs when the `with` begins. The same seed and the same code, the same history."""
    check_nodes(nodes)
    return _Started(seed, options)
