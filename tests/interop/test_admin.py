"""What the administrative clients ask of a node, and what they are told."""

from __future__ import annotations

import asyncio

import confluent_kafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as PythonNewTopic

from tests.support.clients import CLIENTS, TIMEOUT_S, Record
from tests.support.node import KEEP, unique_name

pytestmark = [pytest.mark.interop, pytest.mark.timeout(60)]


@pytest.fixture
def admin(node) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap})


def result(futures):
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def refused(futures) -> int:
    with pytest.raises(KafkaException) as failure:
        result(futures)
    return failure.value.args[0].code()


def test_topics_come_grow_and_go(admin):
    name = unique_name()
    assert result(admin.create_topics([NewTopic(name, 2, 1)], validate_only=True)) is None
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics
    result(admin.create_topics([NewTopic(name, 2, 1)]))
    assert refused(admin.create_topics([NewTopic(name, 2, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    described = result(admin.describe_topics(TopicCollection([name])))
    assert [partition.leader.id for partition in described.partitions] == [1, 1]
    result(admin.create_partitions([NewPartitions(name, 5)]))
    assert refused(admin.create_partitions([NewPartitions(name, 3)])) == KafkaError.INVALID_PARTITIONS
    assert len(admin.list_topics(timeout=TIMEOUT_S).topics[name].partitions) == 5
    result(admin.delete_topics([name]))
    assert refused(admin.delete_topics([name])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("no spaces", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x-replicas", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("x-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("x-config", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("x-config", 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("x-assigned", 1, replica_assignment=[[7]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_topics_that_cannot_be(admin, topic, code):
    assert refused(admin.create_topics([topic])) == code


def test_options_are_set_appended_to_and_reset(admin, new_topic):
    name = new_topic(cleanup_policy="delete")

    def alter(option: str, value: str | None, how: AlterConfigOpType) -> None:
        entry = ConfigEntry(option, value, incremental_operation=how)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        result(admin.incremental_alter_configs([resource]))

    def value(option: str) -> str:
        return result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]))[option].value

    alter("retention.ms", "5000000", AlterConfigOpType.SET)
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    assert (value("retention.ms"), value("cleanup.policy")) == ("5000000", "delete,compact")
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    assert (value("retention.ms"), value("cleanup.policy")) == (KEEP["log.retention.ms"], "compact")


def test_offsets_by_every_specification(node, admin, new_topic):
    name = new_topic()
    records = [Record(None, b"x", (), time_ms) for time_ms in (1000, 2000, 9000, 3000, 4000)]
    for client in CLIENTS.values():
        client.write(node.bootstrap, name, records)
    where = confluent_kafka.TopicPartition(name, 0)
    for spec, offset in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 15),
        (OffsetSpec.max_timestamp(), 2),
        (OffsetSpec.for_timestamp(1500), 1),
        (OffsetSpec.for_timestamp(8999), 2),
        (OffsetSpec.for_timestamp(9001), -1),
    ):
        assert result(admin.list_offsets({where: spec})).offset == offset
    where.offset = 7
    assert result(admin.delete_records([where])).low_watermark == 7
    assert result(admin.list_offsets({where: OffsetSpec.earliest()})).offset == 7
    where.offset = 99
    assert refused(admin.delete_records([where])) == KafkaError.OFFSET_OUT_OF_RANGE


def test_the_cluster(node, admin):
    described = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    (broker,) = described.nodes
    assert f"{broker.host}:{broker.port}" == node.bootstrap
    assert described.controller.id == broker.id == 1
    assert f"cluster.id={described.cluster_id}\n" in (node.data_dir / "meta.properties").read_text()


def test_kafka_python(node):
    name = unique_name()
    admin = KafkaAdminClient(bootstrap_servers=node.bootstrap)
    try:
        admin.create_topics([PythonNewTopic(name, 2, 1)])
        assert name in admin.list_topics()
        admin.create_partitions({name: 4})
        CLIENTS["kafka-python"].write(node.bootstrap, name, [Record(None, b"x")] * 9, partition=3)
        where = kafka.TopicPartition(name, 3)
        admin.delete_records({where: 4})
        assert [
            offset for offset, _ in CLIENTS["kafka-python"].read(node.bootstrap, name, partition=3, offset=4)
        ] == [
            4,
            5,
            6,
            7,
            8,
        ]
        (topic,) = admin.describe_topics([name])
        assert len(topic["partitions"]) == 4
        assert len(admin.describe_cluster()["brokers"]) == 1
        assert admin.describe_log_dirs()
        assert admin.describe_metadata_quorum()
        admin.delete_topics([name])
        assert name not in admin.list_topics()
    finally:
        admin.close()


def test_aiokafka(node):
    name = unique_name()

    async def main() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=node.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([AioNewTopic(name, 3, 1)])
            assert name in await admin.list_topics()
            (topic,) = await admin.describe_topics([name])
            assert len(topic["partitions"]) == 3
            assert len((await admin.describe_cluster())["brokers"]) == 1
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
