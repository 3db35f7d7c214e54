"""Asks a cluster for the settings that a measurement depends on."""

from __future__ import annotations

from moldau.client.admin import Admin, ConfigEntry, NewTopic, ResourceType
from moldau.client.cluster import Cluster, TopicPartition
from moldau.perf.measure.settings import BROKER_OPTIONS, TOPIC_OPTIONS, TopicSettings
from moldau.wire.errors import ErrorCode, KafkaError


async def topic_settings(cluster: Cluster, name: str) -> TopicSettings:
    """Configurations that may not be told are left out."""
    admin = Admin(cluster)
    view = await admin.describe_topics([name])
    if name not in view.topics:
        raise KafkaError(view.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"topic {name!r}")
    partitions = view.topics[name].partitions
    replicas = [len(partition.replicas) for partition in partitions]
    in_sync = [len(partition.isr) for partition in partitions]
    leader = next((partition.leader for partition in partitions if partition.leader is not None), None)
    return TopicSettings(
        topic=name,
        brokers=len(view.nodes),
        partitions=len(partitions),
        replicas=(min(replicas, default=0), max(replicas, default=0)),
        in_sync=(min(in_sync, default=0), max(in_sync, default=0)),
        configs=await _configs(admin, ResourceType.TOPIC, name, TOPIC_OPTIONS),
        broker_configs={}
        if leader is None
        else await _configs(admin, ResourceType.BROKER, str(leader), BROKER_OPTIONS),
    )


async def make_topic(cluster: Cluster, name: str, partitions: int, replication: int = -1) -> bool:
    """Whether it had to be made."""
    admin = Admin(cluster)
    view = await admin.describe_topics([name])
    if name in view.topics:
        return False
    try:
        await admin.create_topic(NewTopic(name=name, partitions=partitions, replication_factor=replication))
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        raise
    # Brokers hear of it a little later.
    await cluster.retrying(lambda: cluster.leader(TopicPartition(name, partitions - 1)), topics=[name])
    return True


async def _configs(admin: Admin, kind: ResourceType, name: str, wanted: tuple[str, ...]) -> dict[str, str]:
    try:
        entries: list[ConfigEntry] = await admin.describe_configs(kind, name)
    except KafkaError:
        return {}
    return {entry.name: entry.value for entry in entries if entry.name in wanted and entry.value is not None}
