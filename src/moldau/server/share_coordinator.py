"""The share coordinator of this broker: the states of share partitions, found in the partitions of
`__share_group_state`.

What is decided is in `moldau.share.states`, how that is carried out in `moldau.coordinator`; this knows where
a state is kept, answers requests about many of them, and has the log begin where it is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from moldau.config.broker import BrokerConfig
from moldau.coordinator.coordinator import Coordinator, Decide
from moldau.coordinator.decision import Waiter
from moldau.coordinator.placement import partition_of
from moldau.log.errors import LogDirError
from moldau.metadata.delta import Delta
from moldau.metadata.image import ClusterImage
from moldau.records.compression import Codec
from moldau.replica.partition import Partition
from moldau.replica.replicas import Replicas
from moldau.runtime.interfaces import Runtime, Timer
from moldau.server.waiting import result_of
from moldau.share.environment import ShareEnvironment
from moldau.share.states import ShareKey, ShareStateShard
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import uuid_to_string
from moldau.wire.messages import delete_share_group_state as delete
from moldau.wire.messages import initialize_share_group_state as initialize
from moldau.wire.messages import read_share_group_state as read
from moldau.wire.messages import read_share_group_state_summary as summary
from moldau.wire.messages import write_share_group_state as write

log = logging.getLogger(__name__)

TOPIC = "__share_group_state"

R = TypeVar("R")


class ShareCoordinator:
    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        image: ClusterImage,
        replicas: Replicas,
        on_log_dir_failure: Callable[[LogDirError], None],
    ) -> None:
        self.environment = ShareEnvironment(config=config, image=image)
        self._runtime = runtime
        self._replicas = replicas
        options = config.share_coordinator
        self._coordinator = Coordinator(
            runtime,
            TOPIC,
            lambda index: ShareStateShard(index, self.environment),
            on_log_dir_failure,
            load_buffer_bytes=options.load_buffer_size,
            codec=Codec(options.state_topic_compression_codec),
        )
        self._prune_interval_s = options.state_topic_prune_interval_ms / 1000
        self._prune_timer: Timer | None = None

    def submit(self, key: ShareKey, decide: Decide[ShareStateShard, R]) -> Waiter[R]:
        """Have the shard of a share partition decide, and carry that out. Raises KafkaError."""
        topic = self.environment.image.topics.get(TOPIC)
        if topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"There is no topic {TOPIC} yet.")
        name = f"{key.group_id}:{uuid_to_string(key.topic_id)}:{key.partition}"
        return self._coordinator.submit(partition_of(name, len(topic.partitions)), decide)

    # ------------------------------------------------------------ requests about many

    async def read(self, request: read.ReadShareGroupStateRequest) -> read.ReadShareGroupStateResponse:
        def decide(key: ShareKey, data: read.PartitionData) -> Decide[ShareStateShard, read.PartitionResult]:
            return lambda shard, now_ms, waiter: shard.read(now_ms, key, data.leader_epoch)

        return read.ReadShareGroupStateResponse(
            results=await self._each(request, decide, read.ReadStateResult, read.PartitionResult)
        )

    async def write(self, request: write.WriteShareGroupStateRequest) -> write.WriteShareGroupStateResponse:
        def decide(
            key: ShareKey, data: write.PartitionData
        ) -> Decide[ShareStateShard, write.PartitionResult]:
            return lambda shard, now_ms, waiter: shard.write(now_ms, key, data)

        return write.WriteShareGroupStateResponse(
            results=await self._each(request, decide, write.WriteStateResult, write.PartitionResult)
        )

    async def initialize(
        self, request: initialize.InitializeShareGroupStateRequest
    ) -> initialize.InitializeShareGroupStateResponse:
        def decide(
            key: ShareKey, data: initialize.PartitionData
        ) -> Decide[ShareStateShard, initialize.PartitionResult]:
            return lambda shard, now_ms, waiter: shard.initialize(now_ms, key, data)

        return initialize.InitializeShareGroupStateResponse(
            results=await self._each(
                request, decide, initialize.InitializeStateResult, initialize.PartitionResult
            )
        )

    async def delete(
        self, request: delete.DeleteShareGroupStateRequest
    ) -> delete.DeleteShareGroupStateResponse:
        def decide(
            key: ShareKey, data: delete.PartitionData
        ) -> Decide[ShareStateShard, delete.PartitionResult]:
            return lambda shard, now_ms, waiter: shard.delete(key)

        return delete.DeleteShareGroupStateResponse(
            results=await self._each(request, decide, delete.DeleteStateResult, delete.PartitionResult)
        )

    async def summarize(
        self, request: summary.ReadShareGroupStateSummaryRequest
    ) -> summary.ReadShareGroupStateSummaryResponse:
        def decide(
            key: ShareKey, data: summary.PartitionData
        ) -> Decide[ShareStateShard, summary.PartitionResult]:
            return lambda shard, now_ms, waiter: shard.summarize(key)

        return summary.ReadShareGroupStateSummaryResponse(
            results=await self._each(request, decide, summary.ReadStateSummaryResult, summary.PartitionResult)
        )

    async def _each(
        self,
        request: Any,
        decide: Callable[[ShareKey, Any], Decide[ShareStateShard, Any]],
        topic_result: type[Any],
        partition_result: type[Any],
    ) -> list[Any]:
        """An answer for each partition of the request. As in Kafka, a request that is not about a group, or
        has a topic without partitions, is not answered at all."""

        async def one(key: ShareKey, data: Any) -> Any:
            try:
                return await result_of(self.submit(key, decide(key, data)))
            except KafkaError as failure:
                return partition_result(
                    partition=key.partition, error_code=failure.code, error_message=failure.message
                )

        if not (request.group_id and all(topic.partitions for topic in request.topics)):
            return []
        return [
            topic_result(
                topic_id=topic.topic_id,
                partitions=[
                    await one(ShareKey(request.group_id, topic.topic_id, data.partition), data)
                    for data in topic.partitions
                ],
            )
            for topic in request.topics
        ]

    # ------------------------------------------------------------ the node

    def on_role(self, partition: Partition) -> None:
        if partition.topic == TOPIC:
            self._coordinator.on_role(partition)
            if self._prune_timer is None:
                self._prune_timer = self._runtime.call_later(self._prune_interval_s, self._prune)

    def update(self, image: ClusterImage, config: BrokerConfig) -> None:
        self.environment.image, self.environment.config = image, config

    def on_image(self, image: ClusterImage, delta: Delta, config: BrokerConfig) -> None:
        self.update(image, config)
        if delta.deleted_topics:
            self._coordinator.submit_to_all(lambda shard, now_ms: shard.on_image(now_ms, delta))

    def close(self) -> None:
        if self._prune_timer is not None:
            self._prune_timer.cancel()
        self._coordinator.close()

    def _prune(self) -> None:
        """Moves the start of logs to what is needed; retention deletes what lies before that."""
        self._prune_timer = self._runtime.call_later(self._prune_interval_s, self._prune)
        for index, shard in self._coordinator.shards():
            partition = self._replicas.get(TOPIC, index)
            needed_from = shard.needed_from()
            if partition is None or partition.log is None or needed_from <= partition.log.log_start_offset:
                continue
            try:
                partition.log.delete_records_before(min(needed_from, partition.log.high_watermark))
            except KafkaError as failure:
                log.warning("%s keeps what it does not need: %s", partition, failure.message)
