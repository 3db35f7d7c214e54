"""A whole node on a simulated machine, and a client on another: what the tests in this directory stand on.

The node is the real one, `Node.start` and `stop`; only clock, chance, files and network are simulated. Its
program ends when the node says that it cannot go on, as `moldau up` does, and `exit_code` is then what that
process would have returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from moldau.client.admin import Admin, NewTopic
from moldau.client.cluster import Cluster, TopicPartition, parse_addresses
from moldau.client.connection import Connection, connect
from moldau.config.broker import BrokerConfig
from moldau.records.batch import check_crc, iterate_headers
from moldau.records.record import Record, read_records
from moldau.runtime.interfaces import T
from moldau.server.main import format_new_directories
from moldau.server.node import Node
from moldau.sim.faults import PowerCut
from moldau.sim.files import SimFileSystem
from moldau.sim.runtime import SimRuntime
from moldau.sim.simulation import Simulation

PORT = 9092
HOST = "node"
DATA = "/data"


class CrashedWhileStarting(Exception):
    pass


class World:
    """One node and one client. Made with what differs from the defaults of `moldau up`."""

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
        self.client: SimRuntime = self.simulation.host("client")
        self.disk = self.simulation.disk(HOST)
        self.options = dict(options or {})
        self.log_dirs = log_dirs
        self.node: Node | None = None
        self.exit_code: int | None = None

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.simulation.close()

    def run(self, work: Coroutine[Any, Any, T], *, within_s: float = 24 * 3600) -> T:
        return self.simulation.run(work, within_s=within_s)

    def config(self) -> BrokerConfig:
        return BrokerConfig.parse(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "1@127.0.0.1:0",
                "listeners": f"PLAINTEXT://{HOST}:{PORT},CONTROLLER://127.0.0.1:0",
                "log.dirs": self.log_dirs,
                "group.initial.rebalance.delay.ms": "0",
                **self.options,
            }
        )

    # -- The life of the node

    async def start(self) -> Node:
        """What the program does until it is ready. Raises what ends it before."""
        runtime, config = self.runtime, self.config()
        self.exit_code = None

        async def begin() -> Node:
            format_new_directories(runtime, config)
            return await Node.start(runtime, config)

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
        assert self.node is not None
        node, self.node = self.node, None
        await self.runtime.spawn(node.stop(), "stop")
        self.exit_code = 0

    def kill(self) -> None:
        """As `kill -9`: what was written stays in the page cache."""
        self.node = None
        self.simulation.kill(HOST)

    def power_cut(self) -> None:
        """What was not synced is lost, or torn."""
        self.node = None
        self.simulation.crash(HOST)

    async def restart(self) -> Node:
        """A new program on the same disk, after a crash, a kill or a stop."""
        self.runtime = self.simulation.restart(HOST)
        return await self.start()

    # -- Clients

    def cluster(self, **options: Any) -> Cluster:
        return Cluster(self.client, parse_addresses(f"{HOST}:{PORT}"), **options)

    async def connect(self) -> Connection:
        return await connect(self.client.network, HOST, PORT)

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        async with self.cluster() as cluster:
            await Admin(cluster).create_topic(
                NewTopic(
                    name=name,
                    partitions=partitions,
                    replication_factor=1,
                    configs={key.replace("_", "."): value for key, value in configs.items()},
                )
            )

    # -- What is on the disk

    @property
    def files(self) -> SimFileSystem:
        """The files as an operator sees them, who is neither killed nor cut off."""
        return SimFileSystem(self.disk, self.runtime.clock.now_ms)

    def names(self, directory: str) -> list[str]:
        return self.files.list_dir(directory)

    def stored(
        self, place: TopicPartition, directory: str = DATA, *, may_be_torn: bool = False
    ) -> list[Record]:
        """The records of a partition as its segments hold them, every batch checked: whole, with a right
        checksum, and offsets that follow each other. Neither power nor faults can get in the way."""
        path = f"{directory}/{place}"
        records: list[Record] = []
        next_offset: int | None = None
        for name in sorted(self.disk.directory(path).entries):
            if not name.endswith(".log"):
                continue
            content = self.disk.file(f"{path}/{name}").content
            data = memoryview(content.read(0, content.size))
            end = 0
            for position, header in iterate_headers(data):
                end = position + header.size
                check_crc(data, header, position)
                assert next_offset in (None, header.base_offset), f"{path}: a hole before {header}"
                next_offset = header.next_offset
                records += read_records(data[position:end])
            assert end == len(data) or may_be_torn, (
                f"{path}/{name}: {len(data) - end} bytes after the last batch"
            )
        return records


async def until(condition: Any, *, within_s: float = 60, step_s: float = 0.05) -> None:
    """Return once `condition()` holds, in virtual time."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(step_s)
