"""Members of share groups that talk to a simulated node, each on a connection of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

from moldau.coordinator.decision import Waiter
from moldau.net.connection import Connection
from moldau.records.record import read_records
from moldau.server.api import APIS
from moldau.server.context import RequestContext
from moldau.wire.messages import find_coordinator, incremental_alter_configs
from moldau.wire.messages import share_acknowledge as acks
from moldau.wire.messages import share_fetch as fetches
from moldau.wire.messages import share_group_heartbeat as heartbeats
from moldau.wire.schema import Message
from tests.server.sim_node import SimNode

OPTIONS = {
    "offsets_topic_num_partitions": "2",
    "offsets_topic_replication_factor": "1",
    "share_coordinator_state_topic_num_partitions": "2",
    "share_coordinator_state_topic_replication_factor": "1",
    "share_coordinator_state_topic_min_isr": "1",
    "group_share_assignment_interval_ms": "0",
}
GROUP = "group"
_MODULES = {api.key: api.module for api in APIS}


class ClientConnection:
    """What handlers see of a connection."""

    def __init__(self) -> None:
        self.client_id = "client"
        self.peer_host = "localhost"
        self.peer_port = 40_000
        self.state = "PLAINTEXT"
        self.closed = False
        self.on_closed: Any = None
        self.at_close: Any = None

    def close(self) -> None:
        self.closed = True
        for told in (self.on_closed, self.at_close):
            if told is not None:
                told()


class ShareClient:
    def __init__(self, node: SimNode, member_id: str = "member", group_id: str = GROUP) -> None:
        self.node = node
        self.member_id = member_id
        self.group_id = group_id
        self.connection = ClientConnection()
        self.epoch = 0
        self.session_epoch = 0

    def start(self, request: Message, version: int) -> Any:
        """The answer, or who waits for it."""

        async def handled() -> Any:
            handle = import_module(f"moldau.server.api.{_MODULES[type(request).API_KEY]}").handle
            context = RequestContext(self.node.services, cast(Connection, self.connection), version)
            answer = handle(context, request)
            return await answer if inspect.isawaitable(answer) else answer

        return self.node.run(handled())

    def call(self, request: Message, version: int) -> Any:
        """Raises KafkaError."""
        answer = self.start(request, version)
        if not isinstance(answer, Waiter):
            return answer
        for _ in range(1000):
            if answer.is_done:
                self.connection.on_closed = None
                return answer.result()
            self.node.run(asyncio.sleep(0.05))
        raise AssertionError(f"no answer to {request}")

    # ------------------------------------------------------------ the group

    def heartbeat(self, topics: list[str] | None = None, epoch: int | None = None) -> Any:
        response = self.call(
            heartbeats.ShareGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.epoch if epoch is None else epoch,
                subscribed_topic_names=topics,
            ),
            1,
        )
        self.epoch = response.member_epoch
        self.node.run(asyncio.sleep(0.5))  # what it sets off is behind its answer
        return response

    def join(self, *topics: str) -> Any:
        self.heartbeat(list(topics), 0)
        return self.heartbeat()

    # ------------------------------------------------------------ records

    def fetch_request(
        self,
        topic: str,
        *indexes: int,
        acknowledge: Sequence[tuple[int, int, int]] = (),
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        records_max: int = 500,
        epoch: int | None = None,
        **more: Any,
    ) -> fetches.ShareFetchRequest:
        batches = [
            fetches.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in acknowledge
        ]
        return fetches.ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch if epoch is None else epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=more.pop("max_bytes", 1 << 20),
            max_records=records_max,
            batch_size=records_max,
            topics=[
                fetches.FetchTopic(
                    topic_id=self.topic_id(topic),
                    partitions=[
                        fetches.FetchPartition(partition_index=index, acknowledgement_batches=batches)
                        for index in indexes
                    ],
                )
            ]
            if indexes
            else [],
            **more,
        )

    def topic_id(self, topic: str) -> Any:
        return self.node.services.image().topics[topic].topic_id

    def fetch(self, topic: str, *indexes: int, version: int = 2, **more: Any) -> Any:
        response = self.call(self.fetch_request(topic, *indexes, **more), version)
        if more.get("epoch") is None:
            self.session_epoch += 1
        return response

    def acknowledge(
        self,
        topic: str,
        index: int,
        *batches: tuple[int, int, int],
        epoch: int | None = None,
        **more: Any,
    ) -> Any:
        response = self.call(
            acks.ShareAcknowledgeRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                share_session_epoch=self.session_epoch if epoch is None else epoch,
                topics=[
                    acks.AcknowledgeTopic(
                        topic_id=self.topic_id(topic),
                        partitions=[
                            acks.AcknowledgePartition(
                                partition_index=index,
                                acknowledgement_batches=[
                                    acks.AcknowledgementBatch(
                                        first_offset=first, last_offset=last, acknowledge_types=[kind]
                                    )
                                    for first, last, kind in batches
                                ],
                            )
                        ],
                    )
                ],
                **more,
            ),
            2,
        )
        if epoch is None:
            self.session_epoch += 1
        return response


def prepared(node: SimNode, *, topic: str = "t", partitions: int = 1, **options: str) -> ShareClient:
    """The node has a topic and its coordinators, the group starts at the beginning, and a member is in it."""
    node.create_topic(topic, partitions=partitions)
    request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
    node.call(request, 6)
    node.simulation.advance(1)
    set_options(node, share_auto_offset_reset="earliest", **options)
    client = ShareClient(node)
    client.join(topic)
    return client


def set_options(node: SimNode, **options: str) -> None:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=32,
        resource_name=GROUP,
        configs=[
            incremental_alter_configs.AlterableConfig(
                name=name.replace("_", "."), config_operation=0, value=value
            )
            for name, value in options.items()
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    response = node.call(request, 1)
    assert [(each.error_code, each.error_message) for each in response.responses] == [(0, None)]


def acquired(response: Any) -> dict[int, list[tuple[int, int, int]]]:
    """By partition: first and last offsets, and how often they were delivered."""
    return {
        partition.partition_index: [
            (run.first_offset, run.last_offset, run.delivery_count) for run in partition.acquired_records
        ]
        for topic in response.responses
        for partition in topic.partitions
        if partition.acquired_records
    }


def offsets(response: Any) -> list[int]:
    found = []
    for topic in response.responses:
        for partition in topic.partitions:
            data = bytes(partition.records)
            while data:
                size = int.from_bytes(data[8:12], "big") + 12
                found += [record.offset for record in read_records(data[:size])]
                data = data[size:]
    return found


def errors(response: Any) -> dict[int, int]:
    return {
        partition.partition_index: partition.error_code or getattr(partition, "acknowledge_error_code", 0)
        for topic in response.responses
        for partition in topic.partitions
    }
