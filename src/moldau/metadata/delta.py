"""Records applied to an image: the next image, and exactly what changed.

`MetadataReplay` is the only place where an image comes from another. Applying costs as much as what the
records change. It never refuses a decision (the controller did that before it wrote the record): a record
that does not fit the image means that the log is not the one the image came from: `InconsistentRecordError`.

Records between a begin and an end of a metadata transaction (KIP-868) count from its end on, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from moldau.metadata import records
from moldau.metadata.image import (
    DIRECTORY_MIGRATING,
    BrokerImage,
    ClientQuotaEntity,
    ClusterImage,
    ConfigResource,
    ControllerImage,
    Endpoint,
    PartitionImage,
    ProducerIds,
    ResourceType,
    ScramKey,
    TopicImage,
)
from moldau.metadata.persistent_map import MapEdit
from moldau.wire.ids import Uuid
from moldau.wire.schema import Message

_LEADER_UNCHANGED = -2


class InconsistentRecordError(Exception):
    """The record speaks of something the image does not have."""


@dataclass(slots=True, kw_only=True)
class TopicDelta:
    """`partitions` are those that are new or changed; of a created topic, all."""

    topic_id: Uuid
    name: str
    created: bool
    partitions: set[int] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class Delta:
    """What differs between two images. Values are in the new image, those of what was deleted in the old.

    A topic that was deleted and created again under its name is in both `deleted_topics` and `topics`, which
    go by id. A broker, controller, config resource or feature that is named here and absent from the new
    image was deleted.
    """

    topics: dict[Uuid, TopicDelta] = field(default_factory=dict)
    deleted_topics: dict[Uuid, TopicImage] = field(default_factory=dict)
    configs: set[ConfigResource] = field(default_factory=set)
    brokers: set[int] = field(default_factory=set)
    controllers: set[int] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    producer_ids: bool = False
    client_quotas: set[ClientQuotaEntity] = field(default_factory=set)
    acls: set[Uuid] = field(default_factory=set)
    scram_credentials: set[ScramKey] = field(default_factory=set)
    delegation_tokens: set[str] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        return self == _NO_CHANGE


_NO_CHANGE = Delta()


def apply_records(image: ClusterImage, messages: Iterable[Message]) -> tuple[ClusterImage, Delta]:
    """The image after whole transactions of records. For a log read batch by batch, use `MetadataReplay`."""
    replay = MetadataReplay(image)
    for message in messages:
        replay.apply(message)
    return replay.publish(image.offset, image.epoch, image.timestamp_ms)


class MetadataReplay:
    """Takes records in the order of the log, and gives an image whenever asked for one."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._transaction: list[Message] | None = None
        self._draft = _Draft(image)

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def apply(self, message: Message) -> None:
        match message:
            case records.BeginTransactionRecord():
                if self._transaction is not None:
                    raise InconsistentRecordError("a metadata transaction begins inside another")
                self._transaction = []
            case records.EndTransactionRecord():
                for held in self._end_transaction():
                    self._draft.apply(held)
            case records.AbortTransactionRecord():
                self._end_transaction()
            case _ if self._transaction is not None:
                self._transaction.append(message)
            case _:
                self._draft.apply(message)

    def publish(self, offset: int, epoch: int, timestamp_ms: int) -> tuple[ClusterImage, Delta]:
        """The image after the records so far, the last of which is at `offset`, and what is new in it."""
        draft = self._draft
        self.image = draft.finish(offset, epoch, timestamp_ms)
        self._draft = _Draft(self.image)
        return self.image, draft.delta

    def _end_transaction(self) -> list[Message]:
        held, self._transaction = self._transaction, None
        if held is None:
            raise InconsistentRecordError("a metadata transaction ends that never began")
        return held


class _Draft:
    """The next image while records change it."""

    def __init__(self, base: ClusterImage) -> None:
        self._base = base
        self.delta = Delta()
        self._edits: dict[str, MapEdit[Any, Any]] = {}
        # Partitions of the topics that changed, copied once for each image.
        self._partitions: dict[Uuid, dict[int, PartitionImage]] = {}
        self._configs: dict[ConfigResource, dict[str, str]] = {}
        self._quotas: dict[ClientQuotaEntity, dict[str, float]] = {}
        self._producer_ids = base.producer_ids

    def apply(self, message: Message) -> None:
        handler = _HANDLERS.get(type(message))
        if handler is None:
            raise InconsistentRecordError(f"{type(message).__name__} is no record of the cluster's metadata")
        handler(self, message)

    def finish(self, offset: int, epoch: int, timestamp_ms: int) -> ClusterImage:
        for topic_id, partitions in self._partitions.items():
            name = self._edit("topic_names").get(topic_id)
            assert name is not None, "a deleted topic leaves no draft"
            self._edit("topics")[name] = TopicImage(name=name, topic_id=topic_id, partitions=partitions)
        _finish_nested(self._configs, lambda: self._edit("configs"))
        _finish_nested(self._quotas, lambda: self._edit("client_quotas"))
        return replace(
            self._base,
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            producer_ids=self._producer_ids,
            **{name: edit.finish() for name, edit in self._edits.items()},
        )

    def _edit(self, name: str) -> MapEdit[Any, Any]:
        edit = self._edits.get(name)
        if edit is None:
            edit = self._edits[name] = getattr(self._base, name).edit()
        return edit

    # ------------------------------------------------------------ topics

    def on_topic(self, record: records.TopicRecord) -> None:
        if self._edit("topic_names").get(record.topic_id) is not None or record.name in self._edit("topics"):
            raise InconsistentRecordError(f"topic {record.name} is created twice")
        self._edit("topic_names")[record.topic_id] = record.name
        # The name is taken from here on; the partitions follow in `finish`.
        self._edit("topics")[record.name] = TopicImage(
            name=record.name, topic_id=record.topic_id, partitions={}
        )
        self._partitions[record.topic_id] = {}
        self.delta.topics[record.topic_id] = TopicDelta(
            topic_id=record.topic_id, name=record.name, created=True
        )

    def on_partition(self, record: records.PartitionRecord) -> None:
        self._changed_partitions(record.topic_id)[record.partition_id] = PartitionImage(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=_directories(record.directories, len(record.replicas)),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader_recovery_state=record.leader_recovery_state,
        )
        self.delta.topics[record.topic_id].partitions.add(record.partition_id)

    def on_partition_change(self, record: records.PartitionChangeRecord) -> None:
        partitions = self._changed_partitions(record.topic_id)
        current = partitions.get(record.partition_id)
        if current is None:
            raise InconsistentRecordError(f"a change of partition {record.partition_id}, which is not there")
        partitions[record.partition_id] = apply_partition_change(current, record)
        self.delta.topics[record.topic_id].partitions.add(record.partition_id)

    def on_remove_topic(self, record: records.RemoveTopicRecord) -> None:
        name = self._edit("topic_names").pop(record.topic_id)
        if name is None:
            raise InconsistentRecordError(f"topic id {record.topic_id.hex()} is removed and was not there")
        self._edit("topics").pop(name)
        self._partitions.pop(record.topic_id, None)
        self.delta.topics.pop(record.topic_id, None)
        existed = self._base.topic_by_id(record.topic_id)
        if existed is not None:
            self.delta.deleted_topics[record.topic_id] = existed
        resource = ConfigResource(ResourceType.TOPIC, name)
        if self._configs.get(resource, self._base.configs.get(resource)):
            self._configs[resource] = {}
            self.delta.configs.add(resource)

    def on_clear_elr(self, record: records.ClearElrRecord) -> None:
        """One topic's, or with an empty name everyone's: then all topics have to be looked at."""
        names = [record.topic_name] if record.topic_name else list(self._base.topics)
        for name in names:
            topic = self._edit("topics").get(name)
            if topic is None:
                if record.topic_name:
                    raise InconsistentRecordError(f"ELR of topic {name} is cleared, which is not there")
                continue
            current = self._partitions.get(topic.topic_id, topic.partitions)
            for index, partition in list(current.items()):
                if partition.elr or partition.last_known_elr:
                    partitions = self._changed_partitions(topic.topic_id)
                    partitions[index] = replace(partition, elr=(), last_known_elr=())
                    self.delta.topics[topic.topic_id].partitions.add(index)

    def _changed_partitions(self, topic_id: Uuid) -> dict[int, PartitionImage]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            name = self._edit("topic_names").get(topic_id)
            if name is None:
                raise InconsistentRecordError(f"topic id {topic_id.hex()} is not there")
            partitions = self._partitions[topic_id] = dict(self._base.topics[name].partitions)
            self.delta.topics[topic_id] = TopicDelta(topic_id=topic_id, name=name, created=False)
        return partitions

    # ------------------------------------------------------------ brokers and controllers

    def on_register_broker(self, record: records.RegisterBrokerRecord) -> None:
        cordoned = record.cordoned_log_dirs
        self._put_broker(
            BrokerImage(
                id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                endpoints=_endpoints(record.end_points),
                features=_feature_ranges(record.features),
                rack=record.rack,
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                log_dirs=tuple(record.log_dirs),
                cordoned_log_dirs=None if cordoned is None else tuple(cordoned),
            )
        )

    def on_unregister_broker(self, record: records.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        self._edit("brokers").pop(record.broker_id)
        self.delta.brokers.add(record.broker_id)

    def on_fence(self, record: records.FenceBrokerRecord) -> None:
        self._put_broker(replace(self._broker(record.id, record.epoch), fenced=True))

    def on_unfence(self, record: records.UnfenceBrokerRecord) -> None:
        self._put_broker(replace(self._broker(record.id, record.epoch), fenced=False))

    def on_registration_change(self, record: records.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker = replace(broker, fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = replace(broker, in_controlled_shutdown=True)
        if record.log_dirs:
            broker = replace(broker, log_dirs=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = replace(broker, cordoned_log_dirs=tuple(record.cordoned_log_dirs))
        self._put_broker(broker)

    def on_register_controller(self, record: records.RegisterControllerRecord) -> None:
        self._edit("controllers")[record.controller_id] = ControllerImage(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_feature_ranges(record.features),
            zk_migration_ready=record.zk_migration_ready,
        )
        self.delta.controllers.add(record.controller_id)

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker: BrokerImage | None = self._edit("brokers").get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise InconsistentRecordError(f"broker {broker_id} is not registered with epoch {epoch}")
        return broker

    def _put_broker(self, broker: BrokerImage) -> None:
        self._edit("brokers")[broker.id] = broker
        self.delta.brokers.add(broker.id)

    # ------------------------------------------------------------ the rest

    def on_config(self, record: records.ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        values = self._configs.get(resource)
        if values is None:
            values = self._configs[resource] = dict(self._base.configs.get(resource, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        self.delta.configs.add(resource)

    def on_feature_level(self, record: records.FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self._edit("features").pop(record.name)
        else:
            self._edit("features")[record.name] = record.feature_level
        self.delta.features.add(record.name)

    def on_producer_ids(self, record: records.ProducerIdsRecord) -> None:
        self._producer_ids = ProducerIds(
            next_producer_id=record.next_producer_id,
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
        )
        self.delta.producer_ids = True

    def on_client_quota(self, record: records.ClientQuotaRecord) -> None:
        entity: ClientQuotaEntity = tuple(
            sorted(((part.entity_type, part.entity_name) for part in record.entity), key=lambda pair: pair[0])
        )
        values = self._quotas.get(entity)
        if values is None:
            values = self._quotas[entity] = dict(self._base.client_quotas.get(entity, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        self.delta.client_quotas.add(entity)

    def on_acl(self, record: records.AccessControlEntryRecord) -> None:
        self._edit("acls")[record.id] = record
        self.delta.acls.add(record.id)

    def on_remove_acl(self, record: records.RemoveAccessControlEntryRecord) -> None:
        if self._edit("acls").pop(record.id) is None:
            raise InconsistentRecordError(f"ACL {record.id.hex()} is removed and was not there")
        self.delta.acls.add(record.id)

    def on_scram(self, record: records.UserScramCredentialRecord) -> None:
        key = (record.name, record.mechanism)
        self._edit("scram_credentials")[key] = record
        self.delta.scram_credentials.add(key)

    def on_remove_scram(self, record: records.RemoveUserScramCredentialRecord) -> None:
        key = (record.name, record.mechanism)
        self._edit("scram_credentials").pop(key)
        self.delta.scram_credentials.add(key)

    def on_delegation_token(self, record: records.DelegationTokenRecord) -> None:
        self._edit("delegation_tokens")[record.token_id] = record
        self.delta.delegation_tokens.add(record.token_id)

    def on_remove_delegation_token(self, record: records.RemoveDelegationTokenRecord) -> None:
        self._edit("delegation_tokens").pop(record.token_id)
        self.delta.delegation_tokens.add(record.token_id)

    def on_no_op(self, record: records.NoOpRecord) -> None:
        """It only moves the offset on, so that an idle log is seen to be alive."""


def apply_partition_change(current: PartitionImage, record: records.PartitionChangeRecord) -> PartitionImage:
    """The partition after the change. A named leader means a new leader epoch, even if it is the same."""
    replicas = current.replicas if record.replicas is None else tuple(record.replicas)
    directories = current.directories if record.directories is None else tuple(record.directories)
    if len(directories) != len(replicas):
        directories = _directories([], len(replicas))
    leads_on = record.leader == _LEADER_UNCHANGED
    recovery = record.leader_recovery_state
    return PartitionImage(
        replicas=replicas,
        isr=current.isr if record.isr is None else tuple(record.isr),
        leader=current.leader if leads_on else record.leader,
        leader_epoch=current.leader_epoch + (0 if leads_on else 1),
        partition_epoch=current.partition_epoch + 1,
        directories=directories,
        removing_replicas=_changed(record.removing_replicas, current.removing_replicas),
        adding_replicas=_changed(record.adding_replicas, current.adding_replicas),
        elr=_changed(record.eligible_leader_replicas, current.elr),
        last_known_elr=_changed(record.last_known_elr, current.last_known_elr),
        leader_recovery_state=current.leader_recovery_state if recovery < 0 else recovery,
    )


def _changed(value: list[int] | None, current: tuple[int, ...]) -> tuple[int, ...]:
    return current if value is None else tuple(value)


def _directories(directories: list[Uuid], replicas: int) -> tuple[Uuid, ...]:
    # Records from before directories had ids name none.
    return tuple(directories) if directories else (DIRECTORY_MIGRATING,) * replicas


def _endpoints(
    declared: list[records.BrokerEndpoint] | list[records.ControllerEndpoint],
) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(end.name, end.host, end.port, end.security_protocol) for end in declared)


def _feature_ranges(
    declared: list[records.BrokerFeature] | list[records.ControllerFeature],
) -> dict[str, tuple[int, int]]:
    return {
        feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in declared
    }


def _finish_nested(drafts: dict[Any, Any], edit: Callable[[], MapEdit[Any, Any]]) -> None:
    for key, values in drafts.items():
        if values:
            edit()[key] = values
        else:
            edit().pop(key)


_HANDLERS: dict[type[Message], Callable[[_Draft, Any], None]] = {
    records.TopicRecord: _Draft.on_topic,
    records.PartitionRecord: _Draft.on_partition,
    records.PartitionChangeRecord: _Draft.on_partition_change,
    records.RemoveTopicRecord: _Draft.on_remove_topic,
    records.ClearElrRecord: _Draft.on_clear_elr,
    records.RegisterBrokerRecord: _Draft.on_register_broker,
    records.UnregisterBrokerRecord: _Draft.on_unregister_broker,
    records.FenceBrokerRecord: _Draft.on_fence,
    records.UnfenceBrokerRecord: _Draft.on_unfence,
    records.BrokerRegistrationChangeRecord: _Draft.on_registration_change,
    records.RegisterControllerRecord: _Draft.on_register_controller,
    records.ConfigRecord: _Draft.on_config,
    records.FeatureLevelRecord: _Draft.on_feature_level,
    records.ProducerIdsRecord: _Draft.on_producer_ids,
    records.ClientQuotaRecord: _Draft.on_client_quota,
    records.AccessControlEntryRecord: _Draft.on_acl,
    records.RemoveAccessControlEntryRecord: _Draft.on_remove_acl,
    records.UserScramCredentialRecord: _Draft.on_scram,
    records.RemoveUserScramCredentialRecord: _Draft.on_remove_scram,
    records.DelegationTokenRecord: _Draft.on_delegation_token,
    records.RemoveDelegationTokenRecord: _Draft.on_remove_delegation_token,
    records.NoOpRecord: _Draft.on_no_op,
}
