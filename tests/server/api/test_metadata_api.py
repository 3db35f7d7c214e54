"""Metadata, with the answers of Apache Kafka 4.3 to the same requests about the same cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from api_cluster import CLUSTER_ID, Broker, broker, directory, partition, topic, topic_id

from moldau.metadata.image import DIRECTORY_LOST, DIRECTORY_UNASSIGNED
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode as E
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

ALL_VERSIONS = range(14)
NOT_ASKED = -(2**31)


@pytest.fixture
def pair() -> Iterator[Broker]:
    with Broker(
        broker(1),
        broker(2),
        topic("one", partition(1), partition(1)),
        topic("two", partition(2)),
        topic("both", partition(1, 2), partition(2, 1)),
        topic("__consumer_offsets", partition(1)),
    ) as made:
        yield made


def metadata(on: Broker, version: int, *names: str | None, listener: str = "PLAINTEXT", **fields: Any) -> Any:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return request(on, version, topics, listener=listener, **fields)


def request(
    on: Broker,
    version: int,
    topics: list[MetadataRequestTopic] | None,
    listener: str = "PLAINTEXT",
    **fields: Any,
) -> MetadataResponse:
    if version >= 4:
        fields.setdefault("allow_auto_topic_creation", False)
    message = MetadataRequest(topics=topics, **fields)
    response: MetadataResponse = on.ask(ApiKey.METADATA, version, message, listener=listener)
    return response


def by_name(response: MetadataResponse) -> dict[str | None, MetadataResponseTopic]:
    return {topic.name: topic for topic in response.topics}


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_all_topics_are_those_of_a_null_list_or_in_version_0_of_an_empty_one(
    pair: Broker, version: int
) -> None:
    everything = request(pair, version, None if version else [])
    assert set(by_name(everything)) == {"one", "two", "both", "__consumer_offsets"}
    assert [topic.is_internal for topic in everything.topics].count(True) == (1 if version else 0)
    if version:
        assert metadata(pair, version).topics == []


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_brokers_are_those_with_an_endpoint_on_the_listener_that_the_client_came_by(
    pair: Broker, version: int
) -> None:
    rack = "r1" if version else None
    plaintext = metadata(pair, version, "one")
    internal = metadata(pair, version, "one", listener="INTERNAL")
    assert plaintext.brokers == [MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092, rack=rack)]
    assert internal.brokers == [
        MetadataResponseBroker(node_id=1, host="localhost", port=9192, rack=rack),
        MetadataResponseBroker(node_id=2, host="localhost", port=9292, rack=None),
    ]
    assert plaintext.cluster_id == (CLUSTER_ID if version >= 2 else None)
    assert plaintext.controller_id == (1 if version else -1)


def test_partitions_tell_of_their_leader_replicas_and_topic(pair: Broker) -> None:
    both = metadata(pair, 12, "both", listener="INTERNAL").topics[0]
    assert (both.error_code, both.topic_id, both.is_internal) == (0, topic_id("both"), False)
    assert both.topic_authorized_operations == NOT_ASKED
    assert [
        (p.error_code, p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
        for p in both.partitions
    ] == [(0, 0, 1, 5, [1, 2], [1, 2]), (0, 1, 2, 5, [2, 1], [2, 1])]
    assert [p.offline_replicas for p in both.partitions] == [[], []]


@pytest.mark.parametrize(
    ("version", "code"), [(0, E.LEADER_NOT_AVAILABLE), (1, 5), (5, 5), (6, E.LISTENER_NOT_FOUND), (13, 72)]
)
def test_a_leader_without_the_listener_is_no_leader(pair: Broker, version: int, code: int) -> None:
    found = metadata(pair, version, "two").topics[0].partitions[0]
    assert (found.error_code, found.leader_id) == (code, -1)
    assert found.replica_nodes == ([2] if version else [])
    assert found.isr_nodes == ([2] if version else [])
    assert found.offline_replicas == ([2] if version >= 5 else [])


def test_version_0_leaves_out_replicas_that_it_could_not_call_offline(pair: Broker) -> None:
    first, second = metadata(pair, 0, "both").topics[0].partitions
    assert (first.error_code, first.leader_id) == (E.REPLICA_NOT_AVAILABLE, 1)
    assert (second.error_code, second.leader_id) == (E.LEADER_NOT_AVAILABLE, -1)
    assert [first.replica_nodes, first.isr_nodes, second.replica_nodes] == [[1], [1], [1]]


def test_a_fenced_broker_is_not_told_and_its_replicas_are_offline() -> None:
    with Broker(
        broker(1),
        broker(2, fenced=True),
        topic("t", partition(1, 2, isr=[1]), partition(2, leader=-1, isr=[])),
    ) as node:
        response = metadata(node, 12, "t", listener="INTERNAL")
        assert [each.node_id for each in response.brokers] == [1]
        first, second = response.topics[0].partitions
        assert (first.error_code, first.offline_replicas, first.replica_nodes) == (0, [2], [1, 2])
        assert (second.error_code, second.leader_id) == (E.LEADER_NOT_AVAILABLE, -1)


def test_no_broker_is_the_controller_while_all_are_fenced() -> None:
    with Broker(broker(1, fenced=True), broker(2, fenced=True)) as node:
        response = metadata(node, 12)
        assert (response.controller_id, response.brokers) == (-1, [])


def test_a_broker_that_is_fenced_itself_names_another_as_the_controller() -> None:
    with Broker(broker(1, fenced=True), broker(2)) as node:
        assert metadata(node, 12).controller_id == 2


def test_a_replica_in_a_directory_that_failed_is_offline() -> None:
    gone = Uuid(b"no-such-director")
    with Broker(
        broker(1),
        topic(
            "t",
            *(partition(1, directories=[where]) for where in (directory(1), gone)),
            *(
                partition(1, directories=[where])
                for where in (DIRECTORY_LOST, DIRECTORY_UNASSIGNED, ZERO_UUID)
            ),
        ),
    ) as node:
        partitions = metadata(node, 12, "t").topics[0].partitions
        assert [p.offline_replicas for p in partitions] == [[], [1], [1], [], []]


def test_a_broker_from_before_directories_had_ids_has_lost_only_what_it_says_it_lost() -> None:
    somewhere = Uuid(b"any-directory-at")
    with Broker(
        broker(1, log_dirs=False),
        topic("t", *(partition(1, directories=[where]) for where in (somewhere, DIRECTORY_LOST))),
    ) as node:
        partitions = metadata(node, 12, "t").topics[0].partitions
        assert [p.offline_replicas for p in partitions] == [[], [1]]


def test_unknown_topics_come_last_each_once_and_say_why(pair: Broker) -> None:
    names = ("nope", "a b", "one", "", "__transaction_state", "nope", "one", "__cluster_metadata")
    response = metadata(pair, 12, *names)
    assert [(t.name, t.error_code, t.is_internal) for t in response.topics] == [
        ("one", 0, False),
        ("nope", E.UNKNOWN_TOPIC_OR_PARTITION, False),
        ("a b", E.INVALID_TOPIC_EXCEPTION, False),
        ("", E.INVALID_TOPIC_EXCEPTION, False),
        ("__transaction_state", E.UNKNOWN_TOPIC_OR_PARTITION, True),
        ("__cluster_metadata", E.UNKNOWN_TOPIC_OR_PARTITION, False),
    ]


# ---------------------------------------------------------------- by id


def with_ids(*topics: tuple[str | None, Uuid]) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name, topic_id=id) for name, id in topics]


def test_topics_by_id_come_after_the_ids_that_nobody_has(pair: Broker) -> None:
    unknown = Uuid(b"x" * 16)
    asked = with_ids((None, topic_id("one")), (None, unknown), (None, topic_id("two")), (None, unknown))
    response = request(pair, 12, asked, include_topic_authorized_operations=True)
    assert [(t.name, t.topic_id, t.error_code) for t in response.topics] == [
        (None, unknown, E.UNKNOWN_TOPIC_ID),
        ("one", topic_id("one"), 0),
        ("two", topic_id("two"), 0),
    ]
    assert [t.topic_authorized_operations for t in response.topics] == [NOT_ASKED, 3576, 3576]


def test_names_beside_an_id_are_not_looked_at(pair: Broker) -> None:
    asked = with_ids(("two", topic_id("one")), ("both", ZERO_UUID), (None, ZERO_UUID))
    assert [t.name for t in request(pair, 13, asked).topics] == ["one"]


@pytest.mark.parametrize("version", [10, 11])
def test_versions_that_only_answer_with_ids_refuse_them_in_requests(pair: Broker, version: int) -> None:
    asked = with_ids(("one", ZERO_UUID), (None, topic_id("two")))
    response = request(pair, version, asked)
    assert (response.brokers, response.cluster_id, response.controller_id) == ([], None, -1)
    assert [(t.error_code, t.name, t.topic_id) for t in response.topics] == [
        (E.INVALID_REQUEST, "one", ZERO_UUID),
        (E.INVALID_REQUEST, "", topic_id("two")),
    ]


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_with_neither_name_nor_id_fails_the_whole(pair: Broker, version: int) -> None:
    response = metadata(pair, version, None, "one")
    assert [(t.error_code, t.name) for t in response.topics] == [(-1, ""), (-1, "one")]
    assert response.error_code == (E.UNKNOWN_SERVER_ERROR if version == 13 else 0)


# ---------------------------------------------------------------- what the client may do


@pytest.mark.parametrize("version", range(8, 14))
def test_without_an_authorizer_everything_is_allowed(pair: Broker, version: int) -> None:
    fields: dict[str, Any] = {"include_cluster_authorized_operations": True} if version <= 10 else {}
    response = metadata(pair, version, "one", "nope", include_topic_authorized_operations=True, **fields)
    assert [t.topic_authorized_operations for t in response.topics] == [3576, 3576]
    assert response.cluster_authorized_operations == (8096 if version <= 10 else NOT_ASKED)


# ---------------------------------------------------------------- creation


@pytest.mark.parametrize("version", [0, 3, 4, 12])
def test_a_topic_that_is_asked_for_is_there_the_next_time(version: int) -> None:
    allow: dict[str, Any] = {"allow_auto_topic_creation": True} if version >= 4 else {}
    with Broker(broker(1), num_partitions="3") as node:
        response = metadata(node, version, "new", "not a name", **allow)
        assert [(t.name, t.error_code) for t in response.topics] == [
            ("new", E.UNKNOWN_TOPIC_OR_PARTITION),
            ("not a name", E.INVALID_TOPIC_EXCEPTION),
        ]
        metadata(node, version, "new", **allow)
        node.settle()
        created = metadata(node, version, "new", **allow).topics[0]
        assert (created.error_code, len(created.partitions)) == (0, 3)
        assert set(node.image.topics) == {"new"}


@pytest.mark.parametrize(("allow", "enable"), [(False, "true"), (True, "false")])
def test_nothing_is_created_unless_both_sides_want_it(allow: bool, enable: str) -> None:
    with Broker(broker(1), auto_create_topics_enable=enable) as node:
        metadata(node, 12, "new", allow_auto_topic_creation=allow)
        request(node, 12, with_ids((None, topic_id("new"))), allow_auto_topic_creation=allow)
        node.settle()
        assert not node.image.topics


def test_what_the_controller_refuses_stays_unknown_and_harms_nobody() -> None:
    with Broker(broker(1), default_replication_factor="3") as node:
        for _ in range(2):
            response = metadata(node, 12, "new", allow_auto_topic_creation=True)
            assert response.topics[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
            node.settle()
        assert not node.image.topics


def test_internal_topics_are_created_as_their_owners_need_them() -> None:
    options: dict[str, Any] = {
        "offsets_topic_replication_factor": "1",
        "offsets_topic_num_partitions": "2",
        "transaction_state_log_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
        "share_coordinator_state_topic_replication_factor": "1",
        "share_coordinator_state_topic_min_isr": "1",
    }
    names = ("__consumer_offsets", "__transaction_state", "__share_group_state")
    with Broker(broker(1), **options) as node:
        metadata(node, 12, *names, allow_auto_topic_creation=True)
        node.settle()
        assert [len(node.image.topics[name].partitions) for name in names] == [2, 50, 50]
        assert [dict(node.image.config(2, name)) for name in names] == [
            {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            },
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": "1",
                "retention.ms": "-1",
                "segment.bytes": "104857600",
            },
        ]
