"""New partitions from replica assignments, whether people or the placer made them."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.controller.partition_change import is_active
from moldau.controller.placement import default_directory
from moldau.metadata.image import ClusterImage, PartitionImage
from moldau.wire.errors import ErrorCode, KafkaError


def check_manual_assignment(
    image: ClusterImage, replicas: Sequence[int], replication_factor: int | None
) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT. `replication_factor` is that of the topic's other partitions."""
    if not replicas:
        raise _refused("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _refused(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is "
                "registered."
            )
        if broker_id == previous:
            raise _refused(f"The manual partition assignment includes the broker {broker_id} more than once.")
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _refused(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this "
            f"is not consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def manual_partition(image: ClusterImage, index: int, replicas: Sequence[int]) -> PartitionImage:
    partition = new_partition(image, replicas)
    if partition is None:
        raise _refused(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or "
            "in controlled shutdown."
        )
    return partition


def placed_partition(image: ClusterImage, replicas: Sequence[int]) -> PartitionImage:
    partition = new_partition(image, replicas)
    if partition is None:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {len(replicas)} time(s): All brokers are currently fenced or "
            "in controlled shutdown.",
        )
    return partition


def new_partition(image: ClusterImage, replicas: Sequence[int]) -> PartitionImage | None:
    """The replicas on brokers that live are in sync, the first of them leads; None if there is none."""
    isr = [replica for replica in replicas if is_active(image, replica)]
    if not isr:
        return None
    return PartitionImage(
        replicas=tuple(replicas),
        isr=tuple(isr),
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(default_directory(image, replica) for replica in replicas),
    )


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
