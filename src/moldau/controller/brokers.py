"""Brokers and controllers that join, come to life, wind down and leave.

A broker registers fenced, is unfenced once it has caught up with the metadata, and from then on may lead. Its
epoch is the offset of its registration: a request with another epoch comes from an earlier life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from moldau.controller.decision import Decision, versioned
from moldau.controller.partition_change import BrokerShift, is_elr_enabled, leader_and_isr_changes
from moldau.metadata.features import (
    METADATA_VERSION,
    registration_change_version,
    supports_directory_assignment,
)
from moldau.metadata.framing import MetadataRecord
from moldau.metadata.image import (
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    ControllerImage,
    Endpoint,
    PartitionImage,
)
from moldau.metadata.records import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from moldau.metadata.snapshot import register_broker_record, register_controller_record
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid, uuid_to_string
from moldau.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from moldau.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from moldau.wire.schema import Message

# Directory ids below this are reserved (KIP-858), as the first topic ids are.
_RESERVED_IDS_END = 100

FENCE, UNFENCE = 1, -1


def decide_register_broker(
    image: ClusterImage,
    request: BrokerRegistrationRequest,
    *,
    cluster_id: str,
    has_session: bool = False,
) -> Decision[BrokerRegistrationResponse]:
    """`has_session`: a broker of this id was heard of within its session timeout."""
    if request.cluster_id != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = image.brokers.get(request.broker_id)
    is_same_life = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and has_session and not is_same_life:
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another broker is registered with that broker id."
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers."
        )
    # Records from before directories had ids have no room for them.
    log_dirs = request.log_dirs if supports_directory_assignment(image.metadata_version) else []
    if supports_directory_assignment(image.metadata_version):
        _check_directories(image, request.broker_id, log_dirs)
    supported = {
        feature.name: (feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    }
    _check_features(image, supported)

    changes: list[Message] = []
    epoch = image.offset + 1
    fenced, in_controlled_shutdown = True, False
    if existing is not None and is_same_life:
        epoch, fenced = existing.epoch, existing.fenced
        in_controlled_shutdown = existing.in_controlled_shutdown
    elif existing is not None and request.previous_broker_epoch != existing.epoch and is_elr_enabled(image):
        changes += _after_unclean_shutdown(image, request.broker_id)
    registration = BrokerImage(
        id=request.broker_id,
        epoch=epoch,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(
            Endpoint(end.name, end.host, end.port, end.security_protocol) for end in request.listeners
        ),
        features=supported,
        rack=request.rack,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=tuple(log_dirs),
    )
    changes.append(register_broker_record(registration))
    return Decision(records=versioned(image, changes), reply=BrokerRegistrationResponse(broker_epoch=epoch))


def decide_unfence_broker(image: ClusterImage, broker_id: int, broker_epoch: int) -> Decision[None]:
    """The broker may lead from here on; partitions that wait for it get it as their leader. Those that it led
    in an earlier life, in a directory that is not there any more, lose it."""
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    if not broker.fenced:
        return Decision(records=[], reply=None)

    def affected(partition: PartitionImage) -> bool:
        leads_offline = partition.leader == broker_id and not broker.is_online(
            partition.directory_of(broker_id)
        )
        return partition.leader == NO_LEADER or leads_offline

    elected = leader_and_isr_changes(image, BrokerShift(added=broker_id), affected)
    records = [_registration_change(broker, fenced=UNFENCE), *versioned(image, elected)]
    return Decision(records=records, reply=None)


def decide_fence_broker(image: ClusterImage, broker_id: int, broker_epoch: int) -> Decision[None]:
    """The broker went silent, or asked to be fenced: others take over what it led."""
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    if broker.fenced:
        return Decision(records=[], reply=None)
    changes = leader_and_isr_changes(image, BrokerShift(removed=broker_id), _in_isr(broker_id))
    records = [*versioned(image, changes), _registration_change(broker, fenced=FENCE)]
    return Decision(records=records, reply=None)


def decide_controlled_shutdown(image: ClusterImage, broker_id: int, broker_epoch: int) -> Decision[bool]:
    """The broker wants to stop. Replies whether it may: it leads nothing any more once this is applied,
    except what nobody else can lead, which then waits for it without a leader."""
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    records: list[MetadataRecord] = []
    if not broker.in_controlled_shutdown:
        records.append(_registration_change(broker, in_controlled_shutdown=1))
    changes = leader_and_isr_changes(image, BrokerShift(removed=broker_id), _in_isr(broker_id))
    return Decision(records=[*records, *versioned(image, changes)], reply=True)


def decide_change_log_dirs(
    image: ClusterImage,
    broker_id: int,
    broker_epoch: int,
    *,
    offline: Iterable[Uuid] = (),
    cordoned: Iterable[Uuid] | None = None,
) -> Decision[None]:
    """Directories of a broker that failed, and those that take no new replicas (None: as before)."""
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    records: list[MetadataRecord] = []
    failed = set(offline) & set(broker.log_dirs)
    if failed:
        changes = leader_and_isr_changes(
            image,
            BrokerShift(removed=broker_id),
            lambda partition: broker_id in partition.isr and partition.directory_of(broker_id) in failed,
        )
        records += versioned(image, changes)
        online = [directory for directory in broker.log_dirs if directory not in failed]
        records.append(_registration_change(broker, log_dirs=online))
    if cordoned is not None and tuple(cordoned) != broker.cordoned_log_dirs:
        records.append(_registration_change(broker, cordoned_log_dirs=list(cordoned)))
    return Decision(records=records, reply=None)


def decide_unregister_broker(
    image: ClusterImage, request: UnregisterBrokerRequest
) -> Decision[UnregisterBrokerResponse]:
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered"
        )
    changes: list[Message] = [
        *leader_and_isr_changes(
            image,
            BrokerShift(removed=broker.id),
            lambda partition: broker.id in partition.isr or broker.id in partition.elr,
        )
    ]
    changes.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
    return Decision(records=versioned(image, changes), reply=UnregisterBrokerResponse())


def decide_register_controller(
    image: ClusterImage, request: ControllerRegistrationRequest
) -> Decision[ControllerRegistrationResponse]:
    registration = ControllerImage(
        id=request.controller_id,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(
            Endpoint(end.name, end.host, end.port, end.security_protocol) for end in request.listeners
        ),
        features={
            feature.name: (feature.min_supported_version, feature.max_supported_version)
            for feature in request.features
        },
    )
    records = versioned(image, [register_controller_record(registration)])
    return Decision(records=records, reply=ControllerRegistrationResponse())


def check_broker_epoch(image: ClusterImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """The registration of the broker, if the one who asks is it in its present life."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}"
        )
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}",
        )
    return broker


def _after_unclean_shutdown(image: ClusterImage, broker_id: int) -> list[Message]:
    def affected(partition: PartitionImage) -> bool:
        return broker_id in partition.isr or broker_id in partition.elr

    return [*leader_and_isr_changes(image, BrokerShift(unclean=broker_id), affected)]


def _in_isr(broker_id: int) -> Callable[[PartitionImage], bool]:
    return lambda partition: broker_id in partition.isr


def _registration_change(
    broker: BrokerImage,
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    log_dirs: list[Uuid] | None = None,
    cordoned_log_dirs: list[Uuid] | None = None,
) -> MetadataRecord:
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=log_dirs or [],
        cordoned_log_dirs=cordoned_log_dirs,
    )
    return MetadataRecord(change, registration_change_version(change))


def _check_directories(image: ClusterImage, broker_id: int, log_dirs: list[Uuid]) -> None:
    if not log_dirs:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(int.from_bytes(directory, "big") < _RESERVED_IDS_END for directory in log_dirs):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(set(log_dirs)) != len(log_dirs):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for other in image.brokers.values():
        for directory in log_dirs:
            if other.id != broker_id and directory in other.log_dirs:
                raise KafkaError(
                    ErrorCode.INVALID_REGISTRATION,
                    f"Broker {other.id} is already registered with directory {uuid_to_string(directory)}",
                )


def _check_features(image: ClusterImage, supported: Mapping[str, tuple[int, int]]) -> None:
    """Every level that is finalized has to be within what the broker supports."""
    finalized = {**dict.fromkeys(supported, 0), **image.features, METADATA_VERSION: image.metadata_version}
    for name, level in finalized.items():
        low, high = supported.get(name, (1, 1) if name == METADATA_VERSION else (0, 0))
        if not low <= level <= high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "Unable to register because the broker does not support finalized version "
                f"{level} of {name}. The broker wants a version between {low} and {high}, inclusive.",
            )
