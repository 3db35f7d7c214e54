"""Who leads a partition, and who is in sync, after brokers came or went: ISR, leader election, ELR (KIP-966).

Only the election that follows the brokers' comings and goings lives here: the leader stays if it may, else
the first replica in assignment order that is in sync takes over. With eligible leader replicas enabled the
ISR may become empty; its former members then stay eligible, and the last leader is remembered for the case
that no one is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from moldau.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, supports_elr
from moldau.metadata.image import (
    DEFAULT_BROKER,
    NO_LEADER,
    ClusterImage,
    ConfigResource,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from moldau.metadata.records import PartitionChangeRecord

_RECOVERING = 1
_LEADER_UNCHANGED = -2
_NOTHING = PartitionChangeRecord()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerShift:
    """Which broker comes or goes. `removed` leaves in good order; `unclean` came back without its unflushed
    data, so that it may not count as in sync; `added` may lead although the image still has it fenced."""

    removed: int = NO_LEADER
    added: int = NO_LEADER
    unclean: int = NO_LEADER


def leader_and_isr_changes(
    image: ClusterImage, shift: BrokerShift, affects: Callable[[PartitionImage], bool]
) -> list[PartitionChangeRecord]:
    """The changes of all partitions that `affects` picks. It looks at every partition once."""
    changes = []
    for topic, index, partition in image.partitions():
        if affects(partition):
            change = partition_change(image, topic, index, partition, shift)
            if change is not None:
                changes.append(change)
    return changes


def partition_change(
    image: ClusterImage, topic: TopicImage, index: int, partition: PartitionImage, shift: BrokerShift
) -> PartitionChangeRecord | None:
    """Who leads and who is in sync, if that changes."""

    def may_lead(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        if broker is None or broker_id in (shift.removed, shift.unclean):
            return False
        # A live broker is of no use to a partition whose directory it has lost.
        return (broker.is_active or broker_id == shift.added) and broker.is_online(
            partition.directory_of(broker_id)
        )

    elr_enabled = is_elr_enabled(image)
    isr = [replica for replica in partition.isr if replica not in (shift.removed, shift.unclean)]
    elr: list[int] = []
    if elr_enabled and len(isr) < effective_min_isr(image, topic):
        eligible = sorted({*partition.elr, *partition.isr} - {*isr, shift.unclean})
        elr = [replica for replica in eligible if replica in partition.replicas]

    change = PartitionChangeRecord()
    leader, is_unclean = _elect(image, topic, partition, isr, elr, elr_enabled, may_lead)
    if leader != partition.leader:
        change.leader = leader
        if leader in elr:
            isr, elr = [leader], [replica for replica in elr if replica != leader]
        elif is_unclean:
            isr, elr = [leader], []
            if partition.leader_recovery_state != _RECOVERING:
                change.leader_recovery_state = _RECOVERING
    if elr != list(partition.elr):
        change.eligible_leader_replicas = elr
    # Without ELR the last in-sync replica stays in the ISR, so that it is known who has all the data.
    if isr != list(partition.isr) and (isr or elr_enabled):
        change.isr = isr
    if elr_enabled:
        _remember_last_leader(partition, change)
    if change == _NOTHING:
        return None
    change.topic_id, change.partition_id = topic.topic_id, index
    return change


def is_active(image: ClusterImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active


def is_elr_enabled(image: ClusterImage) -> bool:
    level = image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0)
    return level > 0 and supports_elr(image.metadata_version)


def effective_min_isr(image: ClusterImage, topic: TopicImage) -> int:
    """min.insync.replicas of the topic, no more than it has replicas: as in Kafka, than its first partition
    has. Asked for each partition of a topic in turn, so that looking at all of them would be quadratic."""
    configured = int(_topic_config(image, topic, "min.insync.replicas", "1"))
    first = topic.partitions.get(0)
    return configured if first is None else min(configured, len(first.replicas))


def _elect(
    image: ClusterImage,
    topic: TopicImage,
    partition: PartitionImage,
    isr: list[int],
    elr: list[int],
    elr_enabled: bool,
    may_lead: Callable[[int], bool],
) -> tuple[int, bool]:
    """The leader, or NO_LEADER, and whether the election is unclean."""
    candidates = isr or elr
    leader = _first((partition.leader, *partition.replicas), lambda id: id in candidates and may_lead(id))
    if leader != NO_LEADER:
        return leader, False
    if elr_enabled and not candidates and len(partition.last_known_elr) == 1:
        leader = _first(partition.last_known_elr, may_lead)
    if leader == NO_LEADER and _is_unclean_election_enabled(image, topic):
        leader = _first(partition.replicas, may_lead)
    return leader, leader != NO_LEADER


def _first(replicas: Iterable[int], qualifies: Callable[[int], bool]) -> int:
    return next((replica for replica in replicas if qualifies(replica)), NO_LEADER)


def _remember_last_leader(partition: PartitionImage, change: PartitionChangeRecord) -> None:
    if change.isr == [] and partition.last_known_elr != (partition.leader,):
        change.last_known_elr = [partition.leader]
        return
    leader = partition.leader if change.leader == _LEADER_UNCHANGED else change.leader
    if leader != NO_LEADER and partition.last_known_elr:
        change.last_known_elr = []


def _is_unclean_election_enabled(image: ClusterImage, topic: TopicImage) -> bool:
    return _topic_config(image, topic, "unclean.leader.election.enable", "false") == "true"


def _topic_config(image: ClusterImage, topic: TopicImage, name: str, default: str) -> str:
    """The topic's own, else the default of all brokers: both are topic and broker options of one name."""
    own = image.configs.get(ConfigResource(ResourceType.TOPIC, topic.name), {})
    return own.get(name) or image.configs.get(DEFAULT_BROKER, {}).get(name) or default
