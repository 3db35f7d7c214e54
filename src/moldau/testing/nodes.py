"""A node for tests: the process, a client for what tests do with topics, and what may go wrong with it.

    with moldau.testing.node() as m:
        orders = m.topic("orders")
        run_my_service(bootstrap=m.bootstrap, topic=orders)
        assert [record.json["id"] for record in m.collect(orders, 2)] == [1, 2]

Everything here blocks until it is done; in a test that runs on a loop, `await asyncio.to_thread(m.collect,
…)`.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from moldau.runtime.interfaces import T
from moldau.runtime.real import RealRuntime
from moldau.testing.bridge import Bridge
from moldau.testing.client import COLLECT_TIMEOUT_S, Data, Headers, Record, TopicClient
from moldau.testing.control import ControlError, add_command
from moldau.testing.fault_controls import FaultControls
from moldau.testing.faults import Action, Match
from moldau.testing.process import NodeProcess

_names = itertools.count()
S = TypeVar("S")


def unique_name(prefix: str = "topic") -> str:
    """A name that no other test, worker or earlier run on the same node has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}-{next(_names)}"


class NodeError(Exception):
    """The node is not in a state to do that, or ended by itself. The message says what to do."""


class Node(FaultControls):
    """Made by `node()` or by the fixture `moldau`. Its address stays the same through restarts."""

    def __init__(self, data_dir: Path, options: Mapping[str, str] | None = None) -> None:
        self.process = NodeProcess(data_dir, options, is_controlled=True)
        self._bridge = Bridge()
        self._client: TopicClient | None = None

    # -- Where it is

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers` of any Kafka client."""
        return self.process.bootstrap

    @property
    def host(self) -> str:
        return self.bootstrap.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    @property
    def data_dir(self) -> Path:
        return self.process.data_dir

    # -- Topics and records

    def unique(self, prefix: str) -> str:
        """A name that no other test has: for topics, groups, clients."""
        return unique_name(prefix)

    def topic(self, prefix: str = "topic", *, partitions: int = 1, **configs: str | int) -> str:
        """The name of a new topic that is nobody else's; `retention_ms=1000` sets `retention.ms`."""
        return self.create_topic(self.unique(prefix), partitions=partitions, **configs)

    def create_topic(self, name: str, *, partitions: int = 1, **configs: str | int) -> str:
        """A topic of exactly this name."""
        named = {option.replace("_", "."): str(value) for option, value in configs.items()}
        self._call(lambda client: client.create_topic(name, partitions, named))
        return name

    def delete_topic(self, name: str) -> None:
        self._call(lambda client: client.delete_topics([name]))

    def topics(self) -> list[str]:
        return self._call(lambda client: client.topics())

    def produce(
        self,
        topic: str,
        *values: Data,
        key: Data = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Write records and wait until they are acknowledged. Text is UTF-8, None a tombstone."""
        self._call(lambda client: client.produce(topic, values, key, headers, partition, timestamp))

    def collect(
        self,
        topic: str,
        count: int | None = None,
        *,
        timeout: float = COLLECT_TIMEOUT_S,
        read_committed: bool = False,
    ) -> list[Record]:
        """The records of a topic from its beginning: `count` of them, for which it waits, or those that are
        there. Raises TimeoutError that shows what came instead."""
        return self._call(lambda client: client.collect(topic, count, timeout, read_committed))

    # -- What may go wrong with requests

    def drop_connections(self) -> int:
        """Close all connections; how many there were. Clients connect again."""
        return int(self._ask({"do": "drop connections"}))

    def disk_full(self) -> None:
        """From here on nothing can be written, until `disk_ok`."""
        self._ask({"do": "fill disk", "full": True})

    def disk_ok(self) -> None:
        self._ask({"do": "fill disk", "full": False})

    def clear_faults(self) -> None:
        """Nothing goes wrong any more."""
        self._ask({"do": "clear"})

    # -- What may happen to the process

    def kill(self) -> None:
        """As `kill -9`, or a crash. `restart` brings it back."""
        self._check_running()
        self.process.kill()

    def stop(self) -> None:
        """A clean stop, as for an upgrade. `restart` brings it back."""
        self._check_running()
        self.process.stop()

    def restart(self) -> None:
        """After `kill` or `stop`, or both in one. The faults are gone, the data is not."""
        if self.process.is_started:
            self.stop()
        self.process.start()

    def pause(self) -> None:
        """It hangs: connections stay open and nothing is answered, until `resume`."""
        self._check_running()
        self.process.pause()

    def resume(self) -> None:
        self._check_running(paused_too=True)
        self.process.resume()

    @property
    def is_running(self) -> bool:
        return self.process.is_started and not self.process.has_ended

    # -- Its life

    def recover(self) -> None:
        """As it was at first: running, and nothing going wrong. If it had ended by itself it runs again, too,
        but that is a NodeError."""
        if self.process.has_ended:
            self.process.kill()
            self.process.start()
            raise NodeError(f"the node ended by itself:\n{self.process.what_it_said()}")
        if not self.process.is_started:
            self.process.start()
            return
        if self.process.is_paused:
            self.process.resume()
        self.clear_faults()

    @contextmanager
    def isolated(self) -> Iterator[Node]:
        """Inside is one test: what it broke is mended afterwards, and topics that came up are deleted."""
        before = set(self.topics())
        try:
            yield self
        finally:
            self.recover()
            self._call(lambda client: client.delete_topics_but(before))

    def start(self) -> None:
        self.process.start()

    def close(self) -> None:
        """Ends it at once: what it wrote is of no use any more."""
        try:
            if self._client is not None:
                client, self._client = self._client, None
                self._bridge.call(lambda runtime: _closed(client))
        finally:
            self._bridge.close()
            if self.process.is_started:
                self.process.kill()

    def add_rule(self, match: Match, action: Action, times: int | None) -> int:
        return int(self._ask(add_command(match, action, times)))

    def hits_of(self, number: int) -> int:
        return int(self._ask({"do": "hits", "rule": number}))

    def remove_rule(self, number: int) -> None:
        self._ask({"do": "remove", "rule": number})

    def _ask(self, command: dict[str, Any]) -> Any:
        self._check_running()
        try:
            return self.process.control.ask(command)
        except ControlError as error:
            raise NodeError(f"{error}\n{self.process.what_it_said()}".rstrip()) from None

    def _call(self, work: Callable[[TopicClient], Coroutine[Any, Any, T]]) -> T:
        self._check_running()

        async def on_loop(runtime: RealRuntime) -> T:
            if self._client is None:
                self._client = TopicClient(runtime, self.bootstrap)
            return await work(self._client)

        return self._bridge.call(on_loop)

    def _check_running(self, *, paused_too: bool = False) -> None:
        if not self.process.is_started:
            raise NodeError("the node is not running: call restart() first")
        if self.process.has_ended:
            raise NodeError(f"the node ended by itself:\n{self.process.what_it_said()}")
        if self.process.is_paused and not paused_too:
            raise NodeError("the node is paused: call resume() first")


class Cluster:
    """Nodes that belong together. A node of its own is a cluster of one."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)


class _Running(Generic[S]):
    """What starts with a `with` or an `async with`, and ends behind it. Entering and leaving an `async with`
    does not hold up the loop."""

    def __init__(
        self, count: int, options: Mapping[str, str] | None, shown: Callable[[list[Node]], S]
    ) -> None:
        check_nodes(count)
        self._count = count
        self._options = options
        self._shown = shown
        self._directory = ""
        self._nodes: list[Node] = []

    def __enter__(self) -> S:
        self._directory = tempfile.mkdtemp(prefix="moldau-")
        self._nodes = [
            Node(Path(self._directory) / f"node-{number + 1}", self._options) for number in range(self._count)
        ]
        try:
            for node in self._nodes:
                node.start()
        except BaseException:
            self._end()
            raise
        return self._shown(self._nodes)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        said = [node.process.what_it_said() for node in self._nodes if node.process.has_ended]
        self._end()
        if said and kind is None:
            raise NodeError(f"the node ended by itself:\n{said[0]}")

    async def __aenter__(self) -> S:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await asyncio.to_thread(self.__exit__, kind)

    def _end(self) -> None:
        try:
            for node in self._nodes:
                node.close()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)


def node(*, options: Mapping[str, str] | None = None) -> _Running[Node]:
    """A node of its own, for `with` or `async with`. `options` are its properties, by Kafka's names."""
    return _Running(1, options, lambda nodes: nodes[0])


def cluster(*, nodes: int = 1, options: Mapping[str, str] | None = None) -> _Running[Cluster]:
    """Nodes that belong together, for `with` or `async with`."""
    return _Running(nodes, options, Cluster)


def check_nodes(count: int) -> None:
    """Raises ValueError where there cannot be so many."""
    if count < 1:
        raise ValueError(f"a cluster of {count} nodes is none")
    if count > 1:
        raise ValueError(f"nodes={count}: Moldau runs as a single node so far; use nodes=1")


async def _closed(client: TopicClient) -> None:
    client.close()
