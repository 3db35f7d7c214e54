"""The group coordinator of this broker: groups, found by their ids in the partitions of `__consumer_offsets`.

What groups decide is in `moldau.groups`, how that is carried out in `moldau.coordinator`; this keeps what
they see of the world up to date, and knows where the coordinator of a group is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from moldau.config.broker import BrokerConfig
from moldau.coordinator.coordinator import Coordinator, Decide, R
from moldau.coordinator.decision import Waiter
from moldau.coordinator.placement import partition_of
from moldau.groups.environment import GroupEnvironment
from moldau.log.errors import LogDirError
from moldau.log.producer_state import Verification
from moldau.metadata.delta import Delta
from moldau.metadata.image import ClusterImage
from moldau.records.compression import Codec
from moldau.records.control import EndTxnMarker
from moldau.replica.partition import Partition
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from moldau.groups.shard import GroupShard

TOPIC = "__consumer_offsets"


class GroupCoordinator:
    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        image: ClusterImage,
        on_log_dir_failure: Callable[[LogDirError], None],
    ) -> None:
        self.environment = GroupEnvironment(config=config, image=image, random=runtime.random)
        self._partition_count = 0
        self.update(image, config)
        self._coordinator = Coordinator(
            runtime,
            TOPIC,
            self._make_shard,
            on_log_dir_failure,
            load_buffer_bytes=config.offsets.load_buffer_size,
            codec=Codec(config.offsets.topic_compression_codec),
        )

    def _make_shard(self, index: int) -> GroupShard:
        """What groups are made of is imported with the first of them: a node without any starts sooner."""
        from moldau.groups.shard import GroupShard

        return GroupShard(index, self.environment)

    # ------------------------------------------------------------ requests

    def partition_of(self, group_id: str) -> int:
        """Raises KafkaError while there is no topic for groups."""
        if not self._partition_count:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return partition_of(group_id, self._partition_count)

    def submit(self, group_id: str | None, decide: Decide[GroupShard, R]) -> Waiter[R]:
        """Have the shard of a group decide, and carry that out."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._coordinator.submit(self.partition_of(group_id), decide)

    def submit_in_transaction(
        self, group_id: str, decide: Decide[GroupShard, R], verification: Verification
    ) -> Waiter[R]:
        """As `submit`, for what belongs to a transaction that somebody has asked about."""
        return self._coordinator.submit(self.partition_of(group_id), decide, verification)

    def submit_any_id(self, group_id: str, decide: Decide[GroupShard, R]) -> Waiter[R]:
        """As `submit`, for offsets: old clients that assign themselves their partitions commit for a group
        without a name."""
        return self._coordinator.submit(self.partition_of(group_id), decide)

    def end_transaction(
        self, index: int, marker: EndTxnMarker, producer: tuple[int, int], transaction_version: int
    ) -> None:
        """The marker goes to a partition of groups: offsets that the transaction committed there count from
        now on, or never will. Raises KafkaError, and then nothing was written."""
        self._coordinator.end_transaction(index, marker, producer, transaction_version)

    def shards(self) -> Iterator[GroupShard]:
        """Those that answer here, to look at. Raises KafkaError while one is still loading."""
        if self._coordinator.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return (shard for _, shard in self._coordinator.shards())

    # ------------------------------------------------------------ the node

    def on_role(self, partition: Partition) -> None:
        if partition.topic == TOPIC:
            self._coordinator.on_role(partition)

    def update(self, image: ClusterImage, config: BrokerConfig) -> None:
        self.environment.image, self.environment.config = image, config
        topic = image.topics.get(TOPIC)
        self._partition_count = 0 if topic is None else len(topic.partitions)

    def on_image(self, image: ClusterImage, delta: Delta, config: BrokerConfig) -> None:
        self.update(image, config)
        self._coordinator.submit_to_all(lambda shard, now_ms: shard.on_image(now_ms, delta))

    def close(self) -> None:
        self._coordinator.close()
