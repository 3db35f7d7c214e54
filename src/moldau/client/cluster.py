"""The cluster as a client sees it: its nodes, who leads what, and how to ask the right node.

Answerable for the bootstrap list, one connection per address, metadata and its refresh, and the one place
where a request that failed for a passing reason is sent again. It does not know what requests are about.

A broker answers a connection in order, so a request that waits there holds up what comes behind it. What may
wait, such as fetches, goes by a lane of its own.

Invariants: an address has at most one open connection for each lane. Metadata only changes as a whole, so a
`ClusterView` in hand stays consistent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from types import TracebackType
from typing import NamedTuple, TypeVar

from moldau.client.connection import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    Connection,
    connect,
    host_and_port,
)
from moldau.client.topology import ClusterView, Node, PartitionInfo, TopicInfo, TopicPartition
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.ids import ZERO_UUID
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from moldau.wire.schema import Message

__all__ = [
    "Address",
    "Cluster",
    "ClusterView",
    "Node",
    "PartitionInfo",
    "Patience",
    "TopicInfo",
    "TopicPartition",
    "parse_addresses",
    "topic_error",
]

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R", bound=Message)

# Kafka's clients wait the same: retry.backoff.ms, doubled up to retry.backoff.max.ms, give or take a fifth.
BACKOFF_S = 0.1
BACKOFF_MAX_S = 1.0
BACKOFF_JITTER = 0.2
DEFAULT_PORT = 9092
# What passes sooner is nobody's concern: a new topic's leader, a broker that is being restarted.
SILENT_S = 2.0


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return host_and_port(self.host, self.port)


def parse_addresses(text: str) -> list[Address]:
    """A bootstrap list, `host:port,[::1]:port,host`. Raises ValueError with what is wrong."""
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ValueError("the bootstrap list is empty")
    return addresses


def _parse_address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not host:port")
        colon, port = rest[:1], rest[1:]
    elif not colon:
        host, port = text, ""
    elif ":" in host:
        raise ValueError(f"{text!r} is not host:port (an IPv6 address goes in brackets)")
    if not host or (colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise ValueError(f"{text!r} is not host:port")
    return Address(host, int(port) if port else DEFAULT_PORT)


class Cluster:
    """The way into a cluster; close it, or use it as an async context manager.

    async with Cluster(runtime, parse_addresses("127.0.0.1:9092")) as cluster:
        view = await cluster.refresh(["orders"])
    """

    def __init__(
        self,
        runtime: Runtime,
        bootstrap: Sequence[Address],
        *,
        client_id: str = "moldau",
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        retry_timeout_s: float = 60.0,
    ) -> None:
        self._network = runtime.network
        self._monotonic = runtime.clock.monotonic
        self._random: Random = runtime.random
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self.retry_timeout_s = retry_timeout_s
        self._nodes: dict[int, Node] = {}
        self._controller_id: int | None = None
        self._topics: dict[str, TopicInfo] = {}
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._connecting: dict[tuple[Address, str], asyncio.Lock] = {}

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def refresh(
        self, topics: Iterable[str] | None = None, *, allow_auto_topic_creation: bool = False
    ) -> ClusterView:
        """Ask any node about `topics` (None is all of them) and keep the answer."""
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=allow_auto_topic_creation,
        )
        connection = await self.connection_to_any()
        response = await connection.request(request, MetadataResponse)
        if response.error_code:
            raise KafkaError(error_code(response.error_code))
        view = _view(response)
        self._nodes = view.nodes
        self._controller_id = view.controller_id
        for name in view.errors:
            self._topics.pop(name, None)
        self._topics.update(view.topics)
        return view

    def learn_node(self, node_id: int, host: str, port: int, rack: str | None) -> None:
        """Where a node is, as another answer than one to Metadata told."""
        self._nodes[node_id] = Node(node_id=node_id, host=host, port=port, rack=rack)

    async def topic(self, name: str, *, allow_auto_topic_creation: bool = False) -> TopicInfo:
        """The topic as last heard of, or a fresh answer. Raises UNKNOWN_TOPIC_OR_PARTITION and the like."""
        known = self._topics.get(name)
        if known is not None:
            return known
        view = await self.refresh([name], allow_auto_topic_creation=allow_auto_topic_creation)
        if name in view.errors:
            raise topic_error(name, view.errors[name], creates=allow_auto_topic_creation)
        return view.topics[name]

    async def leader(self, place: TopicPartition, *, allow_auto_topic_creation: bool = False) -> int:
        """The node that leads the partition. Raises LEADER_NOT_AVAILABLE when there is none right now."""
        topic = await self.topic(place.topic, allow_auto_topic_creation=allow_auto_topic_creation)
        partition = topic.partition(place.partition)
        if partition is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {place.topic!r} has no partition {place.partition} (it has {len(topic.partitions)})",
            )
        if partition.leader is None:
            self.forget(place.topic)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {place}")
        return partition.leader

    def forget(self, topic: str) -> None:
        """Who leads the topic's partitions turned out to be wrong: the next question goes to the cluster."""
        self._topics.pop(topic, None)

    async def connection_to(self, node_id: int, lane: str = "") -> Connection:
        node = self._nodes.get(node_id)
        if node is None:
            await self.refresh([])
            node = self._nodes.get(node_id)
        if node is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} is not in the cluster")
        address = Address(node.host, node.port)
        try:
            return await self._connection(address, lane)
        except KafkaError as error:
            if address in self._bootstrap:
                raise
            # Behind a tunnel, or in a container, a cluster is not where it says it is.
            reason = f"{error.message} (the address that node {node_id} advertises)"
            raise KafkaError(error.code, reason) from None

    async def connection_to_any(self) -> Connection:
        """A connection that is open, else to the first node that can be reached."""
        for (_, lane), connection in self._connections.items():
            if not lane and not connection.is_closed:
                return connection
        known = [Address(node.host, node.port) for node in self._nodes.values()]
        self._random.shuffle(known)
        failure: KafkaError | None = None
        for address in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return await self._connection(address)
            except KafkaError as error:
                failure = error
        assert failure is not None, "a bootstrap list has at least one address"
        raise failure

    async def connection_to_controller(self) -> Connection:
        """Where requests that change the cluster go. Any node of a KRaft cluster passes them on, and Metadata
        names one of them as the controller; in older clusters only the one it names will do."""
        if self._controller_id is None:
            await self.refresh([])
        if self._controller_id is None:
            return await self.connection_to_any()
        return await self.connection_to(self._controller_id)

    async def ask_any(self, request: Message, response: type[R], *, timeout_s: float | None = None) -> R:
        return await (await self.connection_to_any()).request(request, response, timeout_s=timeout_s)

    async def ask_controller(
        self, request: Message, response: type[R], *, timeout_s: float | None = None
    ) -> R:
        return await (await self.connection_to_controller()).request(request, response, timeout_s=timeout_s)

    async def ask_node(
        self, node_id: int, request: Message, response: type[R], *, timeout_s: float | None = None
    ) -> R:
        return await (await self.connection_to(node_id)).request(request, response, timeout_s=timeout_s)

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        topics: Iterable[str] = (),
        unless: frozenset[ErrorCode] = frozenset(),
        timeout_s: float | None = None,
    ) -> T:
        """Do `attempt` until it succeeds, fails for good (or with a code in `unless`), or time is up.

        Between attempts what was known about `topics` and the controller is forgotten.
        """
        timeout_s = self.retry_timeout_s if timeout_s is None else timeout_s
        patience = Patience(self._random, self._monotonic, timeout_s, since=self._monotonic())
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if error.code in unless:
                    raise
                pause_s = patience.after(error)
            for topic in topics:
                self.forget(topic)
            self._controller_id = None
            await asyncio.sleep(pause_s)

    async def _connection(self, address: Address, lane: str = "") -> Connection:
        key = address, lane
        async with self._connecting.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is None or connection.is_closed:
                self._connections.pop(key, None)
                connection = await connect(
                    self._network,
                    address.host,
                    address.port,
                    client_id=self._client_id,
                    connect_timeout_s=self._connect_timeout_s,
                    request_timeout_s=self._request_timeout_s,
                )
                self._connections[key] = connection
            return connection


class Patience:
    """With failures that may pass: for `timeout_s`, from the first of them or from `since` on."""

    def __init__(
        self,
        random: Random,
        monotonic: Callable[[], float],
        timeout_s: float,
        *,
        since: float | None = None,
    ) -> None:
        self._random = random
        self._monotonic = monotonic
        self._timeout_s = timeout_s
        self.reset(since=since)

    def reset(self, *, since: float | None = None) -> None:
        """It works: the next failure is a first one."""
        self.failure: KafkaError | None = None
        self._since = since
        self._pause_s = BACKOFF_S
        self._is_told = False

    def after(self, failure: KafkaError) -> float:
        """How long to wait before the next attempt. Raises `failure` when there is none to make."""
        now = self._monotonic()
        if self._since is None:
            self._since = now
        self.failure = failure
        pause_s = self._pause_s * self._random.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER)
        self._pause_s = min(self._pause_s * 2, BACKOFF_MAX_S)
        left_s = self._since + self._timeout_s - now
        if not failure.code.retriable or pause_s >= left_s:
            raise failure
        if not self._is_told and now - self._since >= SILENT_S:
            self._is_told = True
            reason = failure.message if failure.code is ErrorCode.NETWORK_EXCEPTION else failure
            log.warning("%s; trying again for %d s", reason, left_s)
        return pause_s


def topic_error(name: str, code: ErrorCode, *, creates: bool = False) -> KafkaError:
    """What Metadata said about a topic; `creates` if the question would have created it."""
    if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return KafkaError(code, f"topic {name!r}")
    reason = ", and the cluster does not create it by itself" if creates else ""
    return KafkaError(code, f"there is no topic {name!r}{reason}")


def _view(response: MetadataResponse) -> ClusterView:
    topics: dict[str, TopicInfo] = {}
    errors: dict[str, ErrorCode] = {}
    for topic in response.topics:
        if topic.name is None:
            continue  # the answer to a question by id, which is not asked here
        if topic.error_code:
            errors[topic.name] = error_code(topic.error_code)
        else:
            topics[topic.name] = _topic(topic.name, topic)
    return ClusterView(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id if response.controller_id >= 0 else None,
        nodes={
            broker.node_id: Node(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in response.brokers
        },
        topics=topics,
        errors=errors,
    )


def _topic(name: str, topic: MetadataResponseTopic) -> TopicInfo:
    partitions = [
        PartitionInfo(
            index=partition.partition_index,
            # A partition without a leader has an error code and -1 here.
            leader=partition.leader_id if partition.leader_id >= 0 else None,
            leader_epoch=partition.leader_epoch,
            replicas=tuple(partition.replica_nodes),
            isr=tuple(partition.isr_nodes),
            offline=tuple(partition.offline_replicas),
        )
        for partition in topic.partitions
    ]
    return TopicInfo(
        name=name,
        topic_id=topic.topic_id or ZERO_UUID,
        is_internal=topic.is_internal,
        partitions=tuple(sorted(partitions, key=lambda partition: partition.index)),
    )
