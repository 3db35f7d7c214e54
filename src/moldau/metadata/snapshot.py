"""An image as the records that make it from nothing: what a snapshot holds.

The order is the one Kafka writes and needs: features first (they decide how the rest is read), topics before
their configuration.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.metadata import records
from moldau.metadata.features import METADATA_VERSION, record_version
from moldau.metadata.framing import MetadataRecord
from moldau.metadata.image import BrokerImage, ClusterImage, ControllerImage, PartitionImage, ProducerIds
from moldau.wire.ids import Uuid
from moldau.wire.schema import Message


def image_records(image: ClusterImage) -> Iterator[MetadataRecord]:
    version = image.metadata_version
    for message in _messages(image):
        yield MetadataRecord(message, record_version(type(message), version))


def partition_record(topic_id: Uuid, index: int, partition: PartitionImage) -> records.PartitionRecord:
    return records.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def register_broker_record(broker: BrokerImage) -> records.RegisterBrokerRecord:
    cordoned = broker.cordoned_log_dirs
    return records.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            records.BrokerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in broker.endpoints
        ],
        features=[
            records.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def register_controller_record(controller: ControllerImage) -> records.RegisterControllerRecord:
    return records.RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            records.ControllerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in controller.endpoints
        ],
        features=[
            records.ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in controller.features.items()
        ],
    )


def _messages(image: ClusterImage) -> Iterator[Message]:
    for feature in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield records.FeatureLevelRecord(name=feature, feature_level=image.features[feature])
    for broker in image.brokers.values():
        yield register_broker_record(broker)
    for controller in image.controllers.values():
        yield register_controller_record(controller)
    for topic in image.topics.values():
        yield records.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for index, partition in topic.partitions.items():
            yield partition_record(topic.topic_id, index, partition)
    for resource, values in image.configs.items():
        for name, value in values.items():
            yield records.ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=name, value=value
            )
    for entity, quotas in image.client_quotas.items():
        for key, quota in quotas.items():
            parts = [records.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            yield records.ClientQuotaRecord(entity=parts, key=key, value=quota, remove=False)
    if image.producer_ids != ProducerIds():
        yield records.ProducerIdsRecord(
            broker_id=image.producer_ids.broker_id,
            broker_epoch=image.producer_ids.broker_epoch,
            next_producer_id=image.producer_ids.next_producer_id,
        )
    yield from image.acls.values()
    yield from image.scram_credentials.values()
    yield from image.delegation_tokens.values()
