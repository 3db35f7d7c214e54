from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pytest

from moldau.client.admin import (
    LATEST_TIMESTAMP,
    Admin,
    AlterConfig,
    ConfigOperation,
    ConfigSource,
    NewTopic,
    ResourceType,
)
from moldau.client.cluster import Address, Cluster, TopicPartition, parse_addresses
from moldau.sim.runtime import SimRuntime
from moldau.sim.simulation import Simulation
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tests.client.fake_broker import FakeBroker

Scenario = Callable[[SimRuntime, FakeBroker, Cluster], Awaitable[None]]


def simulate(scenario: Scenario, bootstrap: str = "broker:9092") -> None:
    with Simulation(seed=1) as simulation:
        broker = FakeBroker(simulation.host("broker"), host="broker")

        async def main() -> None:
            runtime = simulation.host("client")
            async with Cluster(runtime, parse_addresses(bootstrap)) as cluster:
                await scenario(runtime, broker, cluster)

        simulation.run(main())


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [Address("a", 1)]),
        ("a, b:2 ,", [Address("a", 9092), Address("b", 2)]),
        ("[::1]:3,[fe80::1]", [Address("::1", 3), Address("fe80::1", 9092)]),
    ],
)
def test_bootstrap_lists_are_read(text: str, addresses: list[Address]) -> None:
    assert parse_addresses(text) == addresses
    assert parse_addresses(",".join(map(str, addresses))) == addresses


@pytest.mark.parametrize(
    "text", ["", ",", "a:", "a:b", "a:0", "a:65536", ":9092", "::1:9092", "[::1", "[::1]9"]
)
def test_bad_bootstrap_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is"):
        parse_addresses(text)


def test_bootstrap_goes_on_to_the_first_node_that_answers() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        view = await cluster.refresh([])
        assert (view.cluster_id, list(view.nodes)) == ("fake", [1])

    simulate(scenario, bootstrap="broker:9,broker:9092")


def test_a_node_is_connected_to_once() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        broker.add_topic("a", 2)
        await cluster.refresh()
        assert await cluster.leader(TopicPartition("a", 1)) == 1
        assert await cluster.connection_to(1) is await cluster.connection_to_any()
        assert await cluster.connection_to_controller() is await cluster.connection_to_any()
        assert len(broker.streams) == 1

    simulate(scenario)


def test_a_lost_connection_is_made_again() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        (await cluster.connection_to_any()).close()
        broker.add_topic("a")
        assert list((await Admin(cluster).describe_topics()).topics) == ["a"]
        assert len(broker.streams) == 2

    simulate(scenario)


def test_passing_errors_are_tried_again_until_time_is_up() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        def refuse(_: object) -> CreateTopicsResponse:
            result = CreatableTopicResult(
                name="a", error_code=ErrorCode.NOT_CONTROLLER, error_message=None, configs=None
            )
            return CreateTopicsResponse(topics=[result])

        broker.overrides[ApiKey.CREATE_TOPICS] = refuse
        began = runtime.clock.monotonic()
        with pytest.raises(KafkaError) as caught:
            await Admin(cluster).create_topic(NewTopic(name="a"))
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert cluster.retry_timeout_s - 2 < runtime.clock.monotonic() - began <= cluster.retry_timeout_s
        attempts = len(broker.asked(ApiKey.CREATE_TOPICS))
        assert 50 < attempts < 80  # about one a second, after a quicker start

    simulate(scenario)


def test_what_does_not_pass_soon_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        refusal = CreateTopicsResponse(
            topics=[CreatableTopicResult(name="a", error_code=ErrorCode.NOT_CONTROLLER, configs=None)]
        )

        def refuse_once(_: object) -> CreateTopicsResponse:
            del broker.overrides[ApiKey.CREATE_TOPICS]
            return refusal

        broker.overrides[ApiKey.CREATE_TOPICS] = refuse_once
        await Admin(cluster).create_topic(NewTopic(name="a"))
        assert caplog.messages == []
        broker.overrides[ApiKey.CREATE_TOPICS] = lambda _: refusal
        with pytest.raises(KafkaError):
            await Admin(cluster).create_topic(NewTopic(name="a"))
        (message,) = caplog.messages
        assert re.fullmatch("NOT_CONTROLLER: topic 'a'; trying again for 5[5-7] s", message)

    simulate(scenario)


def test_an_advertised_address_that_does_not_answer_is_named_as_such() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        broker.add_topic("a")
        broker.port = 9999
        cluster.retry_timeout_s = 1
        with pytest.raises(KafkaError, match=r"broker:9999: .* \(the address that node 1 advertises\)"):
            await Admin(cluster).list_offsets({TopicPartition("a", 0): LATEST_TIMESTAMP})

    simulate(scenario)


def test_final_errors_are_not_tried_again() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        broker.add_topic("a")
        with pytest.raises(KafkaError, match="already exists"):
            await Admin(cluster).create_topic(NewTopic(name="a"))
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await Admin(cluster).delete_topic("b")
        assert len(broker.asked(ApiKey.CREATE_TOPICS)) == len(broker.asked(ApiKey.DELETE_TOPICS)) == 1

    simulate(scenario)


@pytest.mark.parametrize("version", [5, 6])
def test_a_topic_lives_through_its_admin_operations(version: int) -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker, cluster: Cluster) -> None:
        broker.versions_max[ApiKey.DELETE_TOPICS] = version
        admin = Admin(cluster)
        await admin.create_topic(NewTopic(name="a", partitions=2, configs={"retention.ms": "5"}))
        await admin.create_partitions("a", 3)
        await admin.alter_configs(
            ResourceType.TOPIC,
            "a",
            [
                AlterConfig(name="segment.ms", operation=ConfigOperation.SET, value="7"),
                AlterConfig(name="retention.ms", operation=ConfigOperation.DELETE),
            ],
        )
        view = await admin.describe_topics(["a", "b"])
        assert [partition.index for partition in view.topics["a"].partitions] == [0, 1, 2]
        assert view.errors == {"b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        configs = await admin.describe_configs(ResourceType.TOPIC, "a")
        assert [(entry.name, entry.value, entry.source) for entry in configs] == [
            ("cleanup.policy", "delete", ConfigSource.DEFAULT),
            ("segment.ms", "7", ConfigSource.TOPIC),
        ]
        places = [TopicPartition("a", index) for index in range(3)]
        offsets = await admin.list_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
        assert [offsets[place].offset for place in places] == [0, 0, 0]
        await admin.delete_topic("a")
        assert broker.topics == {}

    simulate(scenario)
