"""A shard whose cluster has topics, and members of the consumer protocol that are asked for heartbeats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from moldau.coordinator.decision import Waiter
from moldau.groups.consumer.group import ConsumerGroup
from moldau.groups.group import Client
from moldau.groups.records import RECORD_TYPES
from moldau.groups.shard import GroupShard
from moldau.metadata.delta import apply_records
from moldau.metadata.image import ResourceType
from moldau.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from moldau.wire.schema import Message
from tests.groups.shard_driver import CLIENT, ShardDriver

GROUP = "group"
HEARTBEAT_MS = 5000
SESSION_MS = 45_000
REBALANCE_MS = 60_000
INTERVAL_MS = 1000
"""Between two assignments of a group."""

Owned = dict[Uuid, set[int]]


class ConsumerDriver(ShardDriver):
    """Topics are named and have a number of partitions; their ids are made of their names and of how many
    there were before them."""

    def __init__(self, topics: dict[str, int] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.ids: dict[str, Uuid] = {}
        self._topic_count = 0
        for name, partitions in (topics or {}).items():
            self.create_topic(name, partitions)

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def target(self, member_id: str) -> Owned:
        return {topic: set(indexes) for topic, indexes in self.group.targets.get(member_id, {}).items()}

    # ------------------------------------------------------------ the cluster

    def create_topic(self, name: str, partitions: int) -> None:
        self._topic_count += 1
        self.ids[name] = Uuid(f"{name[:12]:12}{self._topic_count:04}".encode())
        self._change(
            TopicRecord(name=name, topic_id=self.ids[name]), *self._partitions(name, range(partitions))
        )

    def grow_topic(self, name: str, partitions: int) -> None:
        known = len(self.environment.image.topics[name].partitions)
        self._change(*self._partitions(name, range(known, partitions)))

    def delete_topic(self, name: str) -> None:
        self._change(RemoveTopicRecord(topic_id=self.ids.pop(name)))

    def configure_group(self, name: str, value: str) -> None:
        self._change(
            ConfigRecord(resource_type=ResourceType.GROUP, resource_name=GROUP, name=name, value=value)
        )

    def _partitions(self, name: str, indexes: range) -> list[Message]:
        return [
            PartitionRecord(
                partition_id=index,
                topic_id=self.ids[name],
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
            )
            for index in indexes
        ]

    def _change(self, *changes: Message) -> None:
        image, delta = apply_records(self.environment.image, changes)
        self.environment.image = _later(image)
        self._carry_out(self.shard.on_image(self.now_ms, delta), None)

    # ------------------------------------------------------------ the log

    def replayed_compacted(self, *, keeps_tombstones: bool) -> GroupShard:
        """Another shard, on what compaction leaves of the log: of each key the last record, at its place."""
        last = {bytes(key): place for place, (key, _) in enumerate(self.log)}
        shard = GroupShard(0, self.environment)
        for place, (key, value) in enumerate(self.log):
            if last[bytes(key)] == place and (value is not None or keeps_tombstones):
                record = RECORD_TYPES.decode(key, value)
                assert record is not None
                shard.apply(record, -1)
        return shard

    # ------------------------------------------------------------ heartbeats

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        """Raises KafkaError."""
        return self.send_heartbeat(member_id, epoch, **fields).result()

    def send_heartbeat(
        self, member_id: str, epoch: int, *, client: Client = CLIENT, **fields: Any
    ) -> Waiter[Any]:
        """`owned` is what the member says it owns, by topic."""
        owned: Owned | None = fields.pop("owned", None)
        if owned is not None:
            fields["topic_partitions"] = [
                RequestTopicPartitions(topic_id=topic, partitions=sorted(indexes))
                for topic, indexes in owned.items()
                if indexes
            ]
        if "topics" in fields:
            fields["subscribed_topic_names"] = fields.pop("topics")
        if "regex" in fields:
            fields["subscribed_topic_regex"] = fields.pop("regex")
        request = ConsumerGroupHeartbeatRequest(
            group_id=fields.pop("group_id", GROUP), member_id=member_id, member_epoch=epoch, **fields
        )

        def decide(shard: GroupShard, now_ms: int, waiter: Any) -> Any:
            return shard.consumer_group_heartbeat(now_ms, client, request)

        return self.submit(decide)

    def join(self, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        fields.setdefault("rebalance_timeout_ms", REBALANCE_MS)
        if topics or "regex" not in fields:
            fields["topics"] = list(topics)
        response: ConsumerGroupHeartbeatResponse = self.beat(member_id, 0, owned={}, **fields)
        return response

    def failure(self, member_id: str, epoch: int, **fields: Any) -> tuple[ErrorCode, str | None]:
        try:
            response = self.beat(member_id, epoch, **fields)
        except KafkaError as failure:
            return failure.code, failure.message
        raise AssertionError(f"answered with {response}")

    def topic_of(self, member_id: str, name: str) -> set[int]:
        """The partitions of a topic that the member is assigned."""
        return set(self.group.members[member_id].assigned.get(self.ids[name], {}))


def _later(image: Any) -> Any:
    """Its offset tells it from the one before."""
    return replace(image, offset=image.offset + 1)


def assigned(response: ConsumerGroupHeartbeatResponse) -> Owned:
    """What the response assigns; fails if it says nothing of that."""
    assert response.assignment is not None
    return {each.topic_id: set(each.partitions) for each in response.assignment.topic_partitions}


def snapshot(group: ConsumerGroup) -> dict[str, Any]:
    """Everything about a group that its records say."""
    hidden = {"_index", "_seen_at_epoch"}
    return {name: value for name, value in vars(group).items() if name not in hidden}


def check_owners(group: ConsumerGroup) -> None:
    """No partition has two members, by what the coordinator knows."""
    owners: dict[tuple[Uuid, int], str] = {}
    for member in group.members.values():
        for partitions in (member.assigned, member.pending_revocation):
            for topic, indexes in partitions.items():
                for index in indexes:
                    assert owners.setdefault((topic, index), member.member_id) == member.member_id
                    assert group.is_owned(topic, index)
    assert sum(map(len, group._owners.values())) == len(owners)
