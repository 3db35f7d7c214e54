"""Questions and orders about topics, configs and offsets, for any node of a cluster.

Answerable for the request of each operation, its retries, and one error per item. Reads do not retry what
merely does not exist; changes go to the controller or to a node that passes them on.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeVar

from moldau.client.cluster import Cluster, ClusterView, TopicPartition, topic_error
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from moldau.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

T = TypeVar("T")

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3

_NOT_THERE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
# How long a node may work on a change, as it is told, and how long its answer may take on top.
_CHANGE_TIMEOUT_MS = 30_000
_CHANGE_TIMEOUT_S = _CHANGE_TIMEOUT_MS / 1000 + 5


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ConfigSource(IntEnum):
    UNKNOWN = -1
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class IsolationLevel(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """Either counts (-1 is the broker's default) or `assignments`: the replicas of each partition."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    name: str
    topic_id: Uuid
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfig:
    name: str
    operation: ConfigOperation
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndTimestamp:
    """`offset` is None where no record is as new as the timestamp asked for."""

    offset: int | None
    timestamp: int
    leader_epoch: int


class Admin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def describe_topics(self, names: Iterable[str] | None = None) -> ClusterView:
        """The named topics, or all. What does not exist is in the view's `errors`."""
        names = None if names is None else list(names)
        return await self._cluster.retrying(lambda: self._cluster.refresh(names))

    async def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> CreatedTopic:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=-1 if topic.assignments else topic.partitions,
                    replication_factor=-1 if topic.assignments else topic.replication_factor,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                        for index, replicas in topic.assignments.items()
                    ],
                    configs=[
                        CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
                    ],
                )
            ],
            timeout_ms=_CHANGE_TIMEOUT_MS,
            validate_only=validate_only,
        )

        async def attempt() -> CreatedTopic:
            response = await self._cluster.ask_controller(
                request, CreateTopicsResponse, timeout_s=_CHANGE_TIMEOUT_S
            )
            result = _only(response.topics)
            _check_topic(topic.name, result.error_code, result.error_message)
            return CreatedTopic(
                name=topic.name,
                topic_id=result.topic_id,
                partitions=result.num_partitions,
                replication_factor=result.replication_factor,
            )

        # When an attempt timed out the topic may be there all the same: sending it again would be an error
        # that did not happen.
        return await self._cluster.retrying(
            attempt, topics=[topic.name], unless=frozenset({ErrorCode.REQUEST_TIMED_OUT})
        )

    async def delete_topic(self, name: str) -> None:
        async def attempt() -> None:
            connection = await self._cluster.connection_to_controller()
            request = DeleteTopicsRequest(timeout_ms=_CHANGE_TIMEOUT_MS)
            if connection.version_of(ApiKey.DELETE_TOPICS) >= 6:
                request.topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID)]
            else:
                request.topic_names = [name]
            response = await connection.request(request, DeleteTopicsResponse, timeout_s=_CHANGE_TIMEOUT_S)
            result = _only(response.responses)
            _check_topic(name, result.error_code, result.error_message)

        await self._cluster.retrying(
            attempt, topics=[name], unless=_NOT_THERE | {ErrorCode.REQUEST_TIMED_OUT}
        )

    async def create_partitions(self, name: str, count: int) -> None:
        """Raise the number of partitions to `count`."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=_CHANGE_TIMEOUT_MS,
        )

        async def attempt() -> None:
            response = await self._cluster.ask_controller(
                request, CreatePartitionsResponse, timeout_s=_CHANGE_TIMEOUT_S
            )
            result = _only(response.results)
            _check_topic(name, result.error_code, result.error_message)

        await self._cluster.retrying(
            attempt, topics=[name], unless=_NOT_THERE | {ErrorCode.REQUEST_TIMED_OUT}
        )

    async def describe_configs(self, kind: ResourceType, name: str) -> list[ConfigEntry]:
        """All options of the resource, sorted by name. What a broker says about itself only it can say."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            ]
        )

        async def attempt() -> list[ConfigEntry]:
            if kind is not ResourceType.TOPIC and name:
                response = await self._cluster.ask_node(int(name), request, DescribeConfigsResponse)
            else:
                response = await self._cluster.ask_any(request, DescribeConfigsResponse)
            result = _only(response.results)
            _check(result.error_code, result.error_message or f"{kind.name.lower()} {name!r}")
            entries = [
                ConfigEntry(
                    name=entry.name,
                    value=entry.value,
                    source=_source(entry.config_source),
                    is_sensitive=entry.is_sensitive,
                    is_read_only=entry.read_only,
                )
                for entry in result.configs
            ]
            return sorted(entries, key=lambda entry: entry.name)

        return await self._cluster.retrying(attempt, unless=_NOT_THERE)

    async def alter_configs(self, kind: ResourceType, name: str, changes: Iterable[AlterConfig]) -> None:
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        AlterableConfig(
                            name=change.name, config_operation=change.operation, value=change.value
                        )
                        for change in changes
                    ],
                )
            ]
        )

        async def attempt() -> None:
            if kind is not ResourceType.TOPIC and name:
                response = await self._cluster.ask_node(int(name), request, IncrementalAlterConfigsResponse)
            else:
                response = await self._cluster.ask_controller(request, IncrementalAlterConfigsResponse)
            result = _only(response.responses)
            _check(result.error_code, result.error_message or f"{kind.name.lower()} {name!r}")

        await self._cluster.retrying(attempt, unless=_NOT_THERE)

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """For each partition the first offset at or after a timestamp, or EARLIEST_TIMESTAMP and the like."""
        found: dict[TopicPartition, OffsetAndTimestamp] = {}

        async def attempt() -> None:
            by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
            for place in timestamps:
                if place not in found:
                    by_leader[await self._cluster.leader(place)].append(place)
            await gather_all(ask(leader, places) for leader, places in by_leader.items())

        async def ask(leader: int, places: list[TopicPartition]) -> None:
            topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
            for place in places:
                topics[place.topic].append(
                    ListOffsetsPartition(partition_index=place.partition, timestamp=timestamps[place])
                )
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[
                    ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()
                ],
            )
            response = await self._cluster.ask_node(leader, request, ListOffsetsResponse)
            for topic in response.topics:
                for partition in topic.partitions:
                    place = TopicPartition(topic.name, partition.partition_index)
                    _check(partition.error_code, f"partition {place}")
                    found[place] = OffsetAndTimestamp(
                        offset=partition.offset if partition.offset >= 0 else None,
                        timestamp=partition.timestamp,
                        leader_epoch=partition.leader_epoch,
                    )

        await self._cluster.retrying(
            attempt, topics=sorted({place.topic for place in timestamps}), unless=_NOT_THERE
        )
        return found


async def gather_all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all to their end, then raise the first error: what one node refused does not undo the others."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def _only(results: list[T]) -> T:
    """The answer to a request about one thing."""
    if len(results) != 1:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{len(results)} results came back for a request about one"
        )
    return results[0]


def _check_topic(name: str, code: int, message: str | None) -> None:
    if code:
        raise KafkaError(error_code(code), message) if message else topic_error(name, error_code(code))


def _check(code: int, message: str) -> None:
    if code:
        raise KafkaError(error_code(code), message)


def _source(code: int) -> ConfigSource:
    try:
        return ConfigSource(code)
    except ValueError:
        return ConfigSource.UNKNOWN
