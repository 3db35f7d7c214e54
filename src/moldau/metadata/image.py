"""The cluster as the metadata log describes it up to some offset: an immutable value.

A new image is made from the one before by `moldau.metadata.delta`; images share what did not change. Values
that others read whole (ACLs, SCRAM credentials, delegation tokens) are the records themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.metadata.features import METADATA_VERSION, METADATA_VERSION_MIN
from moldau.metadata.persistent_map import PersistentMap
from moldau.metadata.records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)
from moldau.wire.ids import ZERO_UUID, Uuid

NO_LEADER = -1

# Where a replica lies when it lies in no directory that has an id (KIP-858).
DIRECTORY_MIGRATING = ZERO_UUID
DIRECTORY_UNASSIGNED = Uuid(bytes(15) + b"\x01")
DIRECTORY_LOST = Uuid(bytes(15) + b"\x02")


class ConfigResource(NamedTuple):
    """What a configuration belongs to; an empty broker name is the default of all brokers."""

    type: int
    name: str


class ResourceType:
    """Codes of ConfigResource.type that are persisted, or may be asked for."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


DEFAULT_BROKER = ConfigResource(ResourceType.BROKER, "")

ClientQuotaEntity = tuple[tuple[str, str | None], ...]
"""Sorted (entity type, entity name) pairs; a name of None is the default entity."""

Quotas = Mapping[str, float]

ScramKey = tuple[str, int]
"""User and mechanism."""
ScramCredential = UserScramCredentialRecord


class Endpoint(NamedTuple):
    """A listener of a broker or controller as it is advertised."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = 0

    def directory_of(self, broker_id: int) -> Uuid:
        """The log directory that holds the replica of `broker_id`."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == broker_id:
                return directory
        return DIRECTORY_UNASSIGNED


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionImage]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None

    @property
    def is_active(self) -> bool:
        return not self.fenced and not self.in_controlled_shutdown

    def is_online(self, directory: Uuid) -> bool:
        """Whether a replica that lies in that directory of the broker can be served."""
        if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
            return True
        # Brokers that registered before directories had ids named none.
        return directory != DIRECTORY_LOST and (not self.log_dirs or directory in self.log_dirs)

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener_name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerImage:
    id: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]
    zk_migration_ready: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIds:
    """The first producer id that no block holds yet, and who was given the last block."""

    next_producer_id: int = 0
    broker_id: int = -1
    broker_epoch: int = -1


_NO_PRODUCER_IDS = ProducerIds()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """`offset` is the last one contained, `epoch` its leader epoch, `timestamp_ms` its append time."""

    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1
    features: PersistentMap[str, int] = field(default_factory=PersistentMap)
    brokers: PersistentMap[int, BrokerImage] = field(default_factory=PersistentMap)
    controllers: PersistentMap[int, ControllerImage] = field(default_factory=PersistentMap)
    topics: PersistentMap[str, TopicImage] = field(default_factory=PersistentMap)
    topic_names: PersistentMap[Uuid, str] = field(default_factory=PersistentMap)
    configs: PersistentMap[ConfigResource, Mapping[str, str]] = field(default_factory=PersistentMap)
    producer_ids: ProducerIds = _NO_PRODUCER_IDS
    client_quotas: PersistentMap[ClientQuotaEntity, Quotas] = field(default_factory=PersistentMap)
    acls: PersistentMap[Uuid, AccessControlEntryRecord] = field(default_factory=PersistentMap)
    scram_credentials: PersistentMap[ScramKey, ScramCredential] = field(default_factory=PersistentMap)
    delegation_tokens: PersistentMap[str, DelegationTokenRecord] = field(default_factory=PersistentMap)

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION, METADATA_VERSION_MIN)

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        image = self.topics.get(topic)
        return None if image is None else image.partitions.get(partition)

    def config(self, type: int, name: str) -> Mapping[str, str]:
        """The dynamic configuration of one resource; empty if it has none."""
        return self.configs.get(ConfigResource(type, name), {})

    def partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        """Every partition of the cluster: for rare events, not for requests."""
        for topic in self.topics.values():
            for index, partition in topic.partitions.items():
                yield topic, index, partition
