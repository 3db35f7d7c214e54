"""A shard with topics, and members of share groups that heartbeat to it."""

from __future__ import annotations

from typing import Any

from moldau.groups.group import Client
from moldau.groups.share.protocol import HeartbeatResult
from moldau.metadata import records
from moldau.metadata.delta import apply_records
from moldau.wire.ids import Uuid
from moldau.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from moldau.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.groups.shard_driver import CLIENT, ShardDriver

GROUP = "group"


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().rjust(16, b"\0"))


class ShareDriver(ShardDriver):
    def __init__(self, **properties: object) -> None:
        super().__init__(**properties)  # type: ignore[arg-type]
        self.asked: list[InitializeShareGroupStateRequest] = []

    def change_image(self, *messages: Any) -> None:
        image, delta = apply_records(self.environment.image, messages)
        self.environment.image = image
        self._carry_out(self.shard.on_image(self.now_ms, delta), None)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        self.change_image(
            records.TopicRecord(name=name, topic_id=topic_id(name)),
            *(_partition(name, index) for index in range(partitions)),
        )

    def add_partition(self, name: str, index: int) -> None:
        self.change_image(_partition(name, index))

    def delete_topic(self, name: str) -> None:
        self.change_image(records.RemoveTopicRecord(topic_id=topic_id(name)))

    def heartbeat(
        self,
        member_id: str,
        epoch: int,
        topics: list[str] | None = None,
        *,
        group_id: str = GROUP,
        rack: str | None = None,
        client: Client = CLIENT,
        is_answered: bool = True,
    ) -> ShareGroupHeartbeatResponse:
        """Raises KafkaError. What is asked of the share coordinator is answered, unless it is to be not."""
        request = ShareGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=topics,
        )
        result: HeartbeatResult = self.submit(
            lambda shard, now_ms, waiter: shard.share.heartbeat(now_ms, client, request)
        ).result()
        if result.initialize is not None:
            self.asked.append(result.initialize)
            if is_answered:
                self.initialized(result.initialize)
        return result.response

    def initialized(self, request: InitializeShareGroupStateRequest) -> None:
        partitions = partitions_of(request)
        self.submit(lambda shard, now_ms, waiter: shard.share.on_initialized(request.group_id, partitions))

    def not_initialized(self, request: InitializeShareGroupStateRequest) -> None:
        partitions = partitions_of(request)
        self.submit(
            lambda shard, now_ms, waiter: shard.share.on_not_initialized(request.group_id, partitions)
        )


def partitions_of(request: InitializeShareGroupStateRequest) -> dict[Uuid, frozenset[int]]:
    return {
        topic.topic_id: frozenset(partition.partition for partition in topic.partitions)
        for topic in request.topics
    }


def assigned(response: ShareGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    if response.assignment is None:
        return None
    return {
        topic.topic_id.lstrip(b"\0").decode(): topic.partitions
        for topic in response.assignment.topic_partitions
    }


def _partition(name: str, index: int) -> records.PartitionRecord:
    return records.PartitionRecord(
        topic_id=topic_id(name), partition_id=index, replicas=[1], isr=[1], leader=1
    )
