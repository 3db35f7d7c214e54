"""Groups of a cluster of two brokers: each is asked about its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster, TopicPartition, parse_addresses
from moldau.client.group_admin import GroupAdmin, end_offsets
from moldau.client.group_description import FetchPosition, GroupDescription
from moldau.client.lag import group_lags
from moldau.sim.runtime import SimRuntime
from moldau.sim.simulation import Simulation
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages import find_coordinator, metadata, offset_commit
from moldau.wire.messages.list_groups import FetchedPartition, FetchedTopic, FetchingClient
from moldau.wire.schema import Message
from tests.client.fake_broker import FakeBroker
from tests.client.fake_groups import FakeGroups, FakeMember

Scenario = Callable[["Two", GroupAdmin], Awaitable[None]]


class Two:
    """Node 1 has the group `a`, node 2 the groups `b` and `c`. Nobody knows which has `lost`."""

    def __init__(self, simulation: Simulation) -> None:
        self.brokers = [FakeBroker(simulation.host(host), host=host) for host in ("one", "two")]
        self.one, self.two = (FakeGroups(broker) for broker in self.brokers)
        self.one.add("a", committed={("orders", 0): 5})
        self.two.add("b", type="consumer", state="Stable", members=[FakeMember("m", "me", {"orders": [1]})])
        self.two.add("c", type="share", protocol_type="share", committed={("orders", 1): 2})
        for broker in self.brokers:
            broker.add_topic("orders", 2)
            broker.overrides[ApiKey.METADATA] = self.metadata
            broker.overrides[ApiKey.FIND_COORDINATOR] = self.coordinators

    def metadata(self, request: metadata.MetadataRequest) -> Message:
        wanted = [topic.name or "" for topic in request.topics or ()]
        return metadata.MetadataResponse(
            brokers=[
                metadata.MetadataResponseBroker(node_id=number, host=broker.host, port=broker.port)
                for number, broker in enumerate(self.brokers, 1)
            ],
            controller_id=1,
            topics=[self.brokers[0]._topic_metadata(name) for name in wanted],
        )

    def coordinators(self, request: find_coordinator.FindCoordinatorRequest) -> Message:
        return find_coordinator.FindCoordinatorResponse(
            coordinators=[self.coordinator(key) for key in request.coordinator_keys]
        )

    def coordinator(self, key: str) -> find_coordinator.Coordinator:
        if key == "lost":
            return find_coordinator.Coordinator(
                key=key, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="no"
            )
        number = 1 if key == "a" else 2
        where = self.brokers[number - 1]
        return find_coordinator.Coordinator(
            key=key, node_id=number, host=where.host, port=where.port, error_message=None
        )


def simulate(scenario: Scenario) -> None:
    with Simulation(seed=1) as simulation:
        two = Two(simulation)

        async def main() -> None:
            runtime: SimRuntime = simulation.host("client")
            async with Cluster(runtime, parse_addresses("one:9092")) as cluster:
                await scenario(two, GroupAdmin(cluster))

        simulation.run(main())


def test_groups_of_all_brokers_are_listed() -> None:
    async def scenario(two: Two, groups: GroupAdmin) -> None:
        found = await groups.list_groups()
        assert [(group.group_id, group.type) for group in found] == [
            ("a", "Classic"),
            ("b", "Consumer"),
            ("c", "Share"),
        ]

    simulate(scenario)


def test_each_group_is_described_by_its_coordinator_and_fails_alone() -> None:
    async def scenario(two: Two, groups: GroupAdmin) -> None:
        found = await groups.describe(["a", "lost", "b", "nope", "c", "a"])
        assert list(found) == ["a", "lost", "b", "nope", "c"]
        described = {name: each for name, each in found.items() if isinstance(each, GroupDescription)}
        assert {name: (each.type, each.coordinator.node_id) for name, each in described.items()} == {
            "a": ("Classic", 1),
            "b": ("Consumer", 2),
            "c": ("Share", 2),
        }
        codes = {name: each.code for name, each in found.items() if isinstance(each, KafkaError)}
        assert codes == {
            "lost": ErrorCode.GROUP_AUTHORIZATION_FAILED,
            "nope": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert two.brokers[0].asked(ApiKey.DESCRIBE_GROUPS)[0].groups == ["a"]
        assert two.brokers[1].asked(ApiKey.DESCRIBE_GROUPS)[0].groups == ["nope"]

    simulate(scenario)


def test_a_coordinator_that_moves_is_found_again() -> None:
    async def scenario(two: Two, groups: GroupAdmin) -> None:
        place, answers = TopicPartition("orders", 0), [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]

        def commit(request: Any) -> Message:
            partition = offset_commit.OffsetCommitResponsePartition(
                partition_index=0, error_code=answers.pop(0)
            )
            return offset_commit.OffsetCommitResponse(
                topics=[offset_commit.OffsetCommitResponseTopic(name="orders", partitions=[partition])]
            )

        two.brokers[0].overrides[ApiKey.OFFSET_COMMIT] = commit
        assert await groups.alter_offsets("a", {place: 3}) == {}
        assert answers == []

    simulate(scenario)


@pytest.mark.parametrize(
    ("code", "is_of_group"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, True), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False)],
)
def test_what_is_wrong_with_the_group_is_told_once(code: ErrorCode, is_of_group: bool) -> None:
    async def scenario(two: Two, groups: GroupAdmin) -> None:
        partitions = [
            offset_commit.OffsetCommitResponsePartition(partition_index=index, error_code=code)
            for index in (0, 1)
        ]
        topic = offset_commit.OffsetCommitResponseTopic(name="orders", partitions=partitions)
        two.brokers[0].overrides[ApiKey.OFFSET_COMMIT] = lambda request: offset_commit.OffsetCommitResponse(
            topics=[topic]
        )
        wanted = {TopicPartition("orders", index): 1 for index in (0, 1)}
        if is_of_group:
            with pytest.raises(KafkaError) as caught:
                await groups.alter_offsets("a", wanted)
            assert caught.value.code is code
        else:
            failures = await groups.alter_offsets("a", wanted)
            assert {place: failure.code for place, failure in failures.items()} == dict.fromkeys(wanted, code)

    simulate(scenario)


def test_positions_come_from_the_brokers_that_tell() -> None:
    async def scenario(two: Two, groups: GroupAdmin) -> None:
        assert await groups.fetch_positions() is None
        partition = FetchedPartition(index=1, position=4, high_watermark=9, age_ms=7)
        topic = FetchedTopic(name="orders", partitions=[partition])
        two.two.clients = [FetchingClient(client_id="me", host="h", topics=[topic])]
        assert await groups.fetch_positions() == [
            FetchPosition(
                client_id="me",
                host="h",
                place=TopicPartition("orders", 1),
                position=4,
                high_watermark=9,
                age_ms=7,
            )
        ]

    simulate(scenario)


def test_old_brokers_are_asked_for_one_group_at_a_time() -> None:
    async def scenario(two: Two, groups: GroupAdmin) -> None:
        two.one.is_old()
        two.one.add("d", committed={("orders", 1): 8})
        broker = two.brokers[0]
        broker.overrides[ApiKey.FIND_COORDINATOR] = lambda request: find_coordinator.FindCoordinatorResponse(
            node_id=1, host=broker.host, port=broker.port, error_message=None
        )
        found = await groups.offsets(["a", "d"])
        assert {
            name: {place: each.offset for place, each in offsets.items()}
            for name, offsets in found.items()
            if not isinstance(offsets, KafkaError)
        } == {"a": {TopicPartition("orders", 0): 5}, "d": {TopicPartition("orders", 1): 8}}
        assert [request.group_id for request in broker.asked(ApiKey.OFFSET_FETCH)] == ["a", "d"]

    simulate(scenario)


def test_lag_is_counted_where_both_ends_are_known() -> None:
    async def scenario(two: Two, groups: GroupAdmin) -> None:
        two.one.groups["a"].committed |= {("gone", 0): 3, ("orders", 7): 3}
        described = {
            name: each
            for name, each in (await groups.describe(["a", "b", "c"])).items()
            if isinstance(each, GroupDescription)
        }
        admin = Admin(groups._cluster)
        lags = await group_lags(admin, groups, described)
        told = {
            name: [(str(row.place), row.current, row.end, row.lag) for row in rows]
            for name, rows in lags.items()
            if not isinstance(rows, KafkaError)
        }
        assert told == {
            "a": [("gone-0", 3, None, None), ("orders-0", 5, 0, -5), ("orders-7", 3, None, None)],
            "b": [("orders-1", None, 0, None)],
            "c": [("orders-1", 2, 0, 1)],
        }
        assert await end_offsets(admin, []) == {}

    simulate(scenario)
