"""A broker made of its controller alone, for the handlers that describe the cluster and change it.

What is asked goes through the codec in both directions, so that a field the version cannot carry is found.
The cluster is one that Apache Kafka 4.3 was asked the same about: broker 1 on the listeners PLAINTEXT and
INTERNAL, broker 2 on INTERNAL alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast

from moldau.config.broker import BrokerConfig
from moldau.controller.driver import Controller
from moldau.metadata import records
from moldau.metadata.delta import MetadataReplay
from moldau.metadata.features import SUPPORTED_FEATURES, bootstrap_records
from moldau.metadata.framing import MetadataRecord
from moldau.metadata.image import ClusterImage
from moldau.net.connection import Connection
from moldau.server.context import RequestContext
from moldau.server.services import Services
from moldau.sim.runtime import SimRuntime
from moldau.sim.simulation import Simulation
from moldau.wire import codec
from moldau.wire.api import ApiKey, request_type, response_type
from moldau.wire.ids import Uuid
from moldau.wire.schema import Message

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
ENDPOINTS = {
    1: [("PLAINTEXT", "127.0.0.1", 9092), ("INTERNAL", "localhost", 9192)],
    2: [("INTERNAL", "localhost", 9292)],
}


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"."))


def directory(broker_id: int) -> Uuid:
    return Uuid(b"directory-" + broker_id.to_bytes(6, "big"))


def broker(broker_id: int, *, fenced: bool = False, log_dirs: bool = True) -> records.RegisterBrokerRecord:
    return records.RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=broker_id,
        incarnation_id=Uuid(bytes([broker_id]) * 16),
        end_points=[
            records.BrokerEndpoint(name=name, host=host, port=port)
            for name, host, port in ENDPOINTS[broker_id]
        ],
        features=[
            records.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack="r1" if broker_id == 1 else None,
        fenced=fenced,
        log_dirs=[directory(broker_id)] if log_dirs else [],
    )


def topic(name: str, *partitions: records.PartitionRecord) -> list[Message]:
    for index, partition in enumerate(partitions):
        partition.topic_id, partition.partition_id = topic_id(name), index
    return [records.TopicRecord(name=name, topic_id=topic_id(name)), *partitions]


def partition(*replicas: int, leader: int | None = None, **fields: Any) -> records.PartitionRecord:
    """All in sync, the first one leads, each in its broker's directory, unless told otherwise."""
    values: dict[str, Any] = {
        "replicas": list(replicas),
        "isr": list(replicas),
        "leader": replicas[0] if leader is None else leader,
        "leader_epoch": 5,
        "partition_epoch": 7,
        "directories": [directory(replica) for replica in replicas],
    }
    return records.PartitionRecord(**{**values, **fields})


class MemoryLog:
    epoch = 1
    high_watermark = 0
    failure = None
    _end_offset = 0

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        self._end_offset += len(records)
        return self._end_offset - 1

    async def commit(self, offset: int) -> None:
        self.high_watermark = self._end_offset


class Broker:
    """Also a context manager. `runtime` is simulated: what runs in the background does in `settle`."""

    def __init__(self, *content: Message | list[Message], node_id: int = 1, **options: str) -> None:
        self._simulation = Simulation(seed=1)
        runtime: SimRuntime = self._simulation.host("localhost")
        replay = MetadataReplay(ClusterImage())
        for record in bootstrap_records():
            replay.apply(record.message)
        for item in content:
            for message in item if isinstance(item, list) else [item]:
                replay.apply(message)
        replay.publish(-1, 1, 0)
        self.controller = Controller(MemoryLog(), replay, runtime.clock.now_ms)
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{node_id}@127.0.0.1:9093",
            "log.dirs": "/data",
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        self.quorum: Any = None
        self._services = SimpleNamespace(
            runtime=runtime,
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            config=BrokerConfig.parse(properties),
            controller=self.controller,
            image=lambda: self.controller.image,
        )

    def ask(self, key: ApiKey, version: int, request: Message, *, listener: str = "PLAINTEXT") -> Any:
        self._services.quorum = self.quorum
        connection = SimpleNamespace(state=listener, client_id="test")
        context = RequestContext(cast("Services", self._services), cast("Connection", connection), version)
        received, _ = codec.decode(request_type(key), version, bytes(codec.encode(request, version)), 0)
        handle = import_module(f"moldau.server.api.{key.name.lower()}").handle

        async def answer() -> Message:
            response = handle(context, received)
            return cast("Message", await response if inspect.isawaitable(response) else response)

        response = self._simulation.run(answer())
        return codec.decode(response_type(key), version, bytes(codec.encode(response, version)), 0)[0]

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def settle(self) -> None:
        self._simulation.advance(1)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self._simulation.close()
