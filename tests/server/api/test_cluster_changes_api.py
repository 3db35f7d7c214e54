"""The APIs that change the cluster: what the handlers add to the decisions, which have their own tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from api_cluster import Broker, broker, partition, topic, topic_id

from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode as E
from moldau.wire.errors import KafkaError
from moldau.wire.ids import ZERO_UUID
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest
from moldau.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

TIMED_OUT = [(E.REQUEST_TIMED_OUT, None)]


@pytest.fixture
def node() -> Iterator[Broker]:
    with Broker(broker(1), broker(2, fenced=True), topic("old", partition(1))) as made:
        yield made


# ---------------------------------------------------------------- create topics


def create(
    on: Broker, version: int, *names: str, timeout_ms: int = 1000, partitions: int = 2, **fields: Any
) -> Any:
    configs = [CreatableTopicConfig(name="retention.ms", value=" 1000 ")]
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        for name in names
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, **fields)
    return on.ask(ApiKey.CREATE_TOPICS, version, request).topics


@pytest.mark.parametrize("version", range(2, 8))
def test_a_created_topic_is_told_as_far_as_the_version_goes(node: Broker, version: int) -> None:
    created, existing = create(node, version, "new", "old")
    assert len(node.image.topics["new"].partitions) == 2
    assert (created.error_code, created.error_message) == (0, None)
    assert created.topic_id == (node.image.topics["new"].topic_id if version >= 7 else ZERO_UUID)
    assert (created.num_partitions, created.replication_factor) == ((2, 1) if version >= 5 else (-1, -1))
    retention = [(c.value, c.config_source) for c in created.configs if c.name == "retention.ms"]
    assert retention == ([(" 1000 ", 1)] if version >= 5 else [])
    names = [config.name for config in created.configs]
    assert names == sorted(names)
    assert (existing.error_code, existing.error_message) == (36, "Topic 'old' already exists.")
    assert (existing.num_partitions, existing.configs) == (-1, [])


def test_validation_creates_nothing_and_tells_what_would_be(node: Broker) -> None:
    result = create(node, 7, "new", validate_only=True)[0]
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert set(node.image.topics) == {"old"}


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_who_gives_no_time_gets_no_change(node: Broker, timeout_ms: int) -> None:
    results = create(node, 7, "new", timeout_ms=timeout_ms)
    assert [(result.error_code, result.error_message) for result in results] == TIMED_OUT
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="old")], timeout_ms=timeout_ms)
    deleted = node.ask(ApiKey.DELETE_TOPICS, 6, request).responses
    assert [(result.error_code, result.error_message) for result in deleted] == TIMED_OUT
    added = add(node, 3, timeout_ms=timeout_ms)
    assert [(result.error_code, result.error_message) for result in added] == TIMED_OUT
    assert {name: len(topic.partitions) for name, topic in node.image.topics.items()} == {"old": 1}


def test_a_request_that_is_too_large_fails_for_each_topic(node: Broker) -> None:
    results = create(node, 7, "a", "b", partitions=6000)
    refused = (E.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    assert [(result.error_code, result.error_message) for result in results] == [refused, refused]
    assert set(node.image.topics) == {"old"}


# ---------------------------------------------------------------- delete topics


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name(node: Broker, version: int) -> None:
    request = DeleteTopicsRequest(topic_names=["old", "nope"], timeout_ms=1000)
    results = {each.name: each for each in node.ask(ApiKey.DELETE_TOPICS, version, request).responses}
    assert results["old"].error_code == 0
    assert results["nope"].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    message = "This server does not host this topic-partition."
    assert results["nope"].error_message == (message if version >= 5 else None)
    assert not node.image.topics


def test_a_topic_is_deleted_by_id(node: Broker) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id("old"))], timeout_ms=1000)
    result = node.ask(ApiKey.DELETE_TOPICS, 6, request).responses[0]
    assert (result.name, result.topic_id, result.error_code) == ("old", topic_id("old"), 0)
    assert not node.image.topics


@pytest.mark.parametrize("version", range(1, 7))
def test_where_deletion_is_disabled_each_topic_says_so(version: int) -> None:
    with Broker(broker(1), topic("old", partition(1)), delete_topic_enable="false") as node:
        request = DeleteTopicsRequest(topic_names=["old", "nope"], timeout_ms=1000)
        if version == 6:
            named = [DeleteTopicState(name="old"), DeleteTopicState(topic_id=topic_id("nope"))]
            request = DeleteTopicsRequest(topics=named, timeout_ms=1000)
        results = node.ask(ApiKey.DELETE_TOPICS, version, request).responses
        code = E.TOPIC_DELETION_DISABLED if version >= 3 else E.INVALID_REQUEST
        assert {result.error_message for result in results} == {None}
        request.timeout_ms = 0
        assert node.ask(ApiKey.DELETE_TOPICS, version, request).responses == results
        assert [result.error_code for result in results] == [code, code]
        assert [result.name for result in results] == ["old", None if version == 6 else "nope"]
        assert set(node.image.topics) == {"old"}


# ---------------------------------------------------------------- create partitions


def add(on: Broker, version: int, count: int = 3, **fields: Any) -> Any:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="old", count=count, assignments=None)],
        **{"timeout_ms": 1000, **fields},
    )
    return on.ask(ApiKey.CREATE_PARTITIONS, version, request).results


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(node: Broker, version: int) -> None:
    assert add(node, version, validate_only=True)[0].error_code == 0
    assert len(node.image.topics["old"].partitions) == 1
    assert add(node, version)[0].error_code == 0
    assert len(node.image.topics["old"].partitions) == 3
    again = add(node, version)[0]
    assert (again.error_code, again.error_message) == (37, "Topic already has 3 partition(s).")


# ---------------------------------------------------------------- features and brokers


def update(on: Broker, version: int, feature: str, level: int, **fields: Any) -> Any:
    key = FeatureUpdateKey(feature=feature, max_version_level=level, **fields)
    return on.ask(ApiKey.UPDATE_FEATURES, version, UpdateFeaturesRequest(feature_updates=[key]))


@pytest.mark.parametrize("version", range(3))
def test_features_are_updated_together_and_told_one_by_one_before_version_2(
    node: Broker, version: int
) -> None:
    node.quorum = OneQuorum()
    response = update(node, version, "group.version", 1)
    assert (response.error_code, response.error_message) == (0, None)
    told = [(result.feature, result.error_code, result.error_message) for result in response.results]
    assert told == ([("group.version", 0, "NONE")] if version < 2 else [])
    refused = update(node, version, "nope", 1)
    assert (refused.error_code, refused.results) == (E.INVALID_UPDATE_VERSION, [])


def test_version_0_cannot_downgrade_whatever_it_allows(node: Broker) -> None:
    node.quorum = OneQuorum()
    response = update(node, 0, "group.version", 0, allow_downgrade=True)
    assert response.error_code == E.INVALID_UPDATE_VERSION
    assert update(node, 1, "group.version", 0, upgrade_type=2).error_code == 0
    assert "group.version" not in node.image.features


class OneQuorum:
    kraft_version = 1


def test_a_broker_is_unregistered_once(node: Broker) -> None:
    request = UnregisterBrokerRequest(broker_id=2)
    response = node.ask(ApiKey.UNREGISTER_BROKER, 0, request)
    assert (response.error_code, response.error_message) == (0, "")
    assert set(node.image.brokers) == {1}
    with pytest.raises(KafkaError, match="Broker ID 2 is not currently registered") as caught:
        node.ask(ApiKey.UNREGISTER_BROKER, 0, request)
    assert caught.value.code == E.BROKER_ID_NOT_REGISTERED
