"""A whole node on the simulated runtime, whose handlers are called without a wire.

It has two log directories, so that replicas can move. The simulated disk and clock belong to one
`Simulation`: the host may crash, and the node start again on what is left.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast

from moldau.config.broker import BrokerConfig
from moldau.coordinator.decision import Waiter
from moldau.net.connection import Connection, Signal
from moldau.raft.format import format_directories
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.replica.partition import Partition
from moldau.server.api import APIS
from moldau.server.context import RequestContext
from moldau.server.node import Node
from moldau.sim.runtime import SimRuntime
from moldau.sim.simulation import Simulation
from moldau.wire import codec
from moldau.wire.api import ApiKey, response_type
from moldau.wire.messages import create_topics, find_coordinator, offset_commit
from moldau.wire.schema import Message

DIRECTORIES = ("/data/one", "/data/two")
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": ",".join(DIRECTORIES),
    "log.index.size.max.bytes": "4096",
}
# A single node has room for groups only so.
ONE_REPLICA = {"offsets_topic_replication_factor": "1", "offsets_topic_num_partitions": "4"}
_MODULES = {api.key: api.module for api in APIS}


class SimNode:
    def __init__(self, seed: int = 0, **properties: str) -> None:
        self.simulation = Simulation(seed)
        self.config = BrokerConfig.parse(
            {**PROPERTIES, **{name.replace("_", "."): value for name, value in properties.items()}}
        )
        runtime = self.simulation.host("localhost")
        format_directories(
            runtime.files,
            DIRECTORIES,
            metadata_directory=DIRECTORIES[0],
            cluster_id="4L6g3nShT-eMCtK--X86sw",
            node_id=1,
            random=runtime.random,
            now_ms=runtime.clock.now_ms(),
        )
        for path in ("/", "/data"):  # the directories were made long ago
            runtime.files.sync_dir(path)
        self.node: Node
        self.start(runtime)

    def __enter__(self) -> SimNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.simulation.close()

    def start(self, runtime: SimRuntime) -> None:
        self.node = self._run_on(runtime, Node.start(runtime, self.config))

    def stop(self) -> None:
        self.run(self.node.stop())

    def restart(self) -> None:
        self.stop()
        self.start(self.simulation.restart("localhost"))

    def crash(self) -> None:
        self.simulation.crash("localhost")
        self.start(self.simulation.restart("localhost"))

    @property
    def runtime(self) -> SimRuntime:
        return self.simulation.host("localhost")

    @property
    def services(self) -> Any:
        return self.node.services

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._run_on(self.runtime, work)

    def _run_on(self, runtime: SimRuntime, work: Coroutine[Any, Any, Any]) -> Any:
        return self.simulation.run(_joined(runtime, work))

    def call(
        self,
        request: Message,
        version: int,
        *,
        client_id: str | None = "client",
        host: str = "localhost",
        port: int = 40_000,
    ) -> Any:
        """What the handler answers."""
        connection = SimpleNamespace(
            client_id=client_id,
            client_software=("librdkafka", "2.6.0"),
            peer_host=host,
            peer_port=port,
            state="PLAINTEXT",
            closed=False,
        )
        handle = import_module(f"moldau.server.api.{_MODULES[type(request).API_KEY]}").handle
        context = RequestContext(self.services, cast(Connection, connection), version)
        answer = self.run(_handled(handle, context, request))
        return answer.result() if isinstance(answer, Waiter) and answer.is_done else answer

    def send(self, request: Message, version: int, *, wait_s: float = 0) -> Any:
        """As `call`, for the handlers that take a frame. None where there is no answer: the connection was
        closed, nothing came within `wait_s`, or the request is not of the usual shape."""
        kind = response_type(ApiKey(type(request).API_KEY))
        replies: list[Any] = []
        connection = SimpleNamespace(
            client_id="client", peer_host="localhost", closed=False, on_closed=None, reply=replies.append
        )
        connection.close_behind_responses = lambda: setattr(connection, "closed", True)
        encoded = codec.encode(request, version)
        module = import_module(f"moldau.server.api.{_MODULES[type(request).API_KEY]}")
        handle_usual = getattr(module, "handle_usual", None)

        async def scenario() -> None:
            if handle_usual is not None:
                reply = handle_usual(self.services, connection, version, 1, bytes(encoded), 0)
            else:
                reply = module.handle(self.services, connection, version, 1, memoryview(encoded), 0)
            if isinstance(reply, Signal):
                await asyncio.sleep(wait_s)
            elif reply is not None:
                replies.append(reply)

        self.run(scenario())
        if not replies or isinstance(replies[0], Signal):
            return None
        reply = b"".join(replies[0]) if isinstance(replies[0], list) else bytes(replies[0])
        position = 9 if version in kind.FLEXIBLE else 8
        return codec.decode_whole(kind, version, reply[position:])

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        response = self.call(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        assert [(each.error_code, each.error_message) for each in response.topics] == [(0, None)]
        self.run(asyncio.sleep(1))  # until the broker has told the controller which directories it chose

    def commit(self, group_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """As a consumer that assigns itself its partitions does. Takes the options in ONE_REPLICA."""
        for _ in range(10):
            if not self.call(find_coordinator.FindCoordinatorRequest(key=group_id), 3).error_code:
                break
            self.run(asyncio.sleep(1))  # until the topic of groups is there
        topics = [
            offset_commit.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=None
                    )
                ],
            )
            for (topic, index), offset in offsets.items()
        ]
        response = self.call(offset_commit.OffsetCommitRequest(group_id=group_id, topics=topics), 9)
        assert {each.error_code for topic in response.topics for each in topic.partitions} == {0}

    def partition(self, topic: str, index: int = 0) -> Partition:
        return cast(Partition, self.services.replicas.find(topic, index))

    def produce(self, topic: str, timestamps: list[int], index: int = 0, size: int = 10) -> int:
        """Append one batch; its base offset."""
        records = [Record(0, timestamp, b"key", bytes(size)) for timestamp in timestamps]
        batch = memoryview(bytearray(build_batch(records)))
        result = self.partition(topic, index).append(batch, -1, self.runtime.clock.now_ms())
        return result.base_offset


async def _handled(handle: Any, context: RequestContext, request: Message) -> Any:
    answer = handle(context, request)
    return await answer if inspect.isawaitable(answer) else answer


async def _joined(runtime: SimRuntime, work: Coroutine[Any, Any, Any]) -> Any:
    """The work as a task of the host, so that it ends with it."""
    return await runtime.spawn(work, "test")
