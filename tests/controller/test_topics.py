"""Creating and deleting topics, and adding partitions, with the outcomes and messages of Apache Kafka 4.3."""

from __future__ import annotations

from random import Random

import pytest
from cluster import CONFIG, carried_out, cluster, config, directory

from moldau.controller.decision import RECORDS_MAX
from moldau.controller.topics import decide_create_partitions, decide_create_topics, decide_delete_topics
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

ONE = cluster(1)


def wanted(name: str = "t", partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def assigned(*assignments: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> CreatableTopic:
    topic = wanted(partitions=partitions, factor=factor)
    topic.assignments = [CreatableReplicaAssignment(partition_index=i, broker_ids=b) for i, b in assignments]
    return topic


def create(image: ClusterImage, *topics: CreatableTopic) -> tuple[ClusterImage, list[CreatableTopicResult]]:
    request = CreateTopicsRequest(topics=list(topics))
    # Not the same topic ids for each request.
    decision = decide_create_topics(image, request, config=CONFIG, random=Random(len(image.topics)))
    return carried_out(image, decision), decision.reply.topics


def create_one(image: ClusterImage, topic: CreatableTopic) -> tuple[ClusterImage, CreatableTopicResult]:
    after, (result,) = create(image, topic)
    return after, result


def test_a_new_topic_has_its_partitions_led_by_the_broker_that_lives() -> None:
    image, result = create_one(ONE, wanted(partitions=2, retention_ms="5000"))
    topic = image.topics["t"]
    assert (result.error_code, result.topic_id) == (0, topic.topic_id)
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert image.config(2, "t") == {"retention.ms": "5000"}
    for index in (0, 1):
        partition = topic.partitions[index]
        assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == (directory(1),)


def test_the_reply_tells_the_whole_configuration_in_order() -> None:
    _, result = create_one(ONE, wanted(retention_ms="5000"))
    assert result.configs is not None
    names = [entry.name for entry in result.configs]
    assert names == sorted(names) and "cleanup.policy" in names
    (retention,) = [entry for entry in result.configs if entry.name == "retention.ms"]
    assert (retention.value, retention.config_source) == ("5000", 1)


def test_who_may_not_describe_learns_no_configuration() -> None:
    request = CreateTopicsRequest(topics=[wanted()])
    decision = decide_create_topics(ONE, request, config=CONFIG, random=Random(5), describable=())
    (result,) = decision.reply.topics
    assert (result.error_code, result.configs) == (0, [])
    assert result.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_records_are_topic_then_configuration_then_partitions() -> None:
    request = CreateTopicsRequest(topics=[wanted(retention_ms="1", partitions=2)])
    decision = decide_create_topics(ONE, request, config=CONFIG, random=Random(5))
    assert [(type(record.message), record.version) for record in decision.records] == [
        (TopicRecord, 0), (ConfigRecord, 0), (PartitionRecord, 2), (PartitionRecord, 2)
    ]  # fmt: skip


def test_defaults_come_from_the_configuration() -> None:
    ours = config(num_partitions="4", default_replication_factor="2")
    request = CreateTopicsRequest(topics=[wanted(partitions=-1, factor=-1)])
    decision = decide_create_topics(cluster(1, 2, 3), request, config=ours, random=Random(5))
    (result,) = decision.reply.topics
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_validation_only_tells_what_would_be_and_does_nothing() -> None:
    request = CreateTopicsRequest(topics=[wanted(), wanted("no", partitions=0)], validate_only=True)
    decision = decide_create_topics(ONE, request, config=CONFIG, random=Random(5))
    assert decision.records == []
    assert [topic.error_code for topic in decision.reply.topics] == [0, ErrorCode.INVALID_PARTITIONS]


E = ErrorCode


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (wanted(""), E.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        (wanted("."), E.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
        (
            wanted("a" * 250),
            E.INVALID_TOPIC_EXCEPTION,
            f"Topic name is invalid: the length of '{'a' * 250}' is longer than the max allowed length 249",
        ),
        (
            wanted("a b"),
            E.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'",
        ),
        (
            wanted("__cluster_metadata"),
            E.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            wanted(factor=2),
            E.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be "
            "reached because only 1 broker(s) are registered or some brokers have all their log directories "
            "cordoned.",
        ),
        (
            wanted(factor=0),
            E.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            wanted(partitions=0),
            E.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            wanted(retention_ms=None),
            E.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (wanted(nope="1"), E.INVALID_CONFIG, "Unknown topic config name: nope"),
        (
            assigned((0, [1]), partitions=1),
            E.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            assigned((0, [1]), factor=1),
            E.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            assigned((0, [1]), (0, [1])),
            E.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            assigned((0, [])),
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            assigned((0, [7])),
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
        (
            assigned((0, [1, 1])),
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            assigned((1, [1])),
            E.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
    ],
)
def test_what_cannot_be_created_says_why(topic: CreatableTopic, code: ErrorCode, message: str) -> None:
    image, result = create_one(ONE, topic)
    assert (ErrorCode(result.error_code), result.error_message) == (code, message)
    assert not image.topics


def test_replica_lists_of_different_lengths_are_refused() -> None:
    _, result = create_one(cluster(1, 2), assigned((0, [1, 2]), (1, [1])))
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "1 replica(s), but this is not consistent" in str(result.error_message)


def test_a_topic_exists_once_and_its_metric_name_too() -> None:
    image, _ = create(ONE, wanted("a.b"))
    _, results = create(image, wanted("a.b"), wanted("a_b"), wanted("ab"))
    assert [(result.error_code, result.error_message) for result in results] == [
        (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists."),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b"),
        (0, None),
    ]


def test_a_name_twice_in_a_request_is_an_error_and_the_others_are_created() -> None:
    image, results = create(ONE, wanted("x"), wanted("y"), wanted("x"))
    assert [(result.name, result.error_code) for result in results] == [
        ("y", 0),
        ("x", ErrorCode.INVALID_REQUEST),
    ]
    assert results[1].error_message == "Duplicate topic name."
    assert set(image.topics) == {"y"}


def test_no_live_broker_takes_no_topic() -> None:
    _, result = create_one(cluster(1, fenced=[1]), wanted())
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or have all their "
        "log directories cordoned.",
    )
    _, result = create_one(cluster(1, fenced=[1]), assigned((0, [1])))
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_fenced_replica_is_not_in_sync() -> None:
    image, _ = create_one(cluster(1, 2, fenced=[1]), assigned((0, [1, 2])))
    partition = image.topics["t"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2), (2,), 2)


def test_a_request_has_a_bound() -> None:
    """All of it is too large, or none of it; topics and configurations are records, as partitions are."""
    for partitions, message in (
        (RECORDS_MAX - 1, "Unable to perform excessively large batch operation."),
        (RECORDS_MAX, "Excessively large number of partitions per request."),
    ):
        with pytest.raises(KafkaError, match=message) as caught:
            create(ONE, wanted("a", partitions=partitions), wanted("b", partitions=1))
        assert caught.value.code == ErrorCode.POLICY_VIOLATION
    _, results = create(ONE, wanted("a", partitions=RECORDS_MAX - 3), wanted("b", partitions=1))
    assert [result.error_code for result in results] == [0, 0]


# ---------------------------------------------------------------- delete


def delete(
    image: ClusterImage, request: DeleteTopicsRequest, version: int = 6
) -> tuple[ClusterImage, list[tuple[object, ...]]]:
    decision = decide_delete_topics(image, request, version=version, config=CONFIG)
    results = [(result.name, result.topic_id, result.error_code) for result in decision.reply.responses]
    return carried_out(image, decision), results


def test_topics_are_deleted_by_name_and_by_id() -> None:
    image, _ = create(ONE, wanted("a", retention_ms="1"), wanted("b"), wanted("c"))
    a, b = image.topics["a"].topic_id, image.topics["b"].topic_id
    states = [DeleteTopicState(name="a"), DeleteTopicState(topic_id=b)]
    after, results = delete(image, DeleteTopicsRequest(topics=states))
    assert set(after.topics) == {"c"} and not after.configs
    assert sorted(results) == [("a", a, 0), ("b", b, 0)]
    after, results = delete(image, DeleteTopicsRequest(topic_names=["a", "c"]), version=5)
    assert set(after.topics) == {"b"}


def test_what_cannot_be_deleted_says_why() -> None:
    image, _ = create(ONE, wanted("a"), wanted("b"))
    a, nowhere = image.topics["a"].topic_id, Uuid(b"x" * 16)
    b = image.topics["b"].topic_id
    states = [
        DeleteTopicState(),
        DeleteTopicState(name="a", topic_id=a),
        DeleteTopicState(topic_id=nowhere),
        DeleteTopicState(name="nowhere"),
        DeleteTopicState(name="twice"),
        DeleteTopicState(name="twice"),
        DeleteTopicState(name="b"),
        DeleteTopicState(topic_id=b),
    ]
    after, results = delete(image, DeleteTopicsRequest(topics=states))
    assert set(after.topics) == {"a", "b"}
    assert set(results) == {
        (None, ZERO_UUID, ErrorCode.INVALID_REQUEST),
        ("a", a, ErrorCode.INVALID_REQUEST),
        (None, nowhere, ErrorCode.UNKNOWN_TOPIC_ID),
        ("nowhere", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("twice", ZERO_UUID, ErrorCode.INVALID_REQUEST),
        ("b", b, ErrorCode.INVALID_REQUEST),
    }


@pytest.mark.parametrize(("version", "code"), [(2, E.INVALID_REQUEST), (3, E.TOPIC_DELETION_DISABLED)])
def test_deletion_can_be_disabled(version: int, code: ErrorCode) -> None:
    ours = config(delete_topic_enable="false")
    with pytest.raises(KafkaError) as raised:
        decide_delete_topics(ONE, DeleteTopicsRequest(topic_names=["a"]), version=version, config=ours)
    assert raised.value.code == code


# ---------------------------------------------------------------- partitions


def add(
    image: ClusterImage, count: int, assignments: list[list[int]] | None = None
) -> tuple[ClusterImage, ErrorCode]:
    topic = CreatePartitionsTopic(name="t", count=count, assignments=None)
    if assignments is not None:
        topic.assignments = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments]
    decision = decide_create_partitions(image, CreatePartitionsRequest(topics=[topic]), random=Random(3))
    return carried_out(image, decision), ErrorCode(decision.reply.results[0].error_code)


def test_partitions_are_added_behind_the_others() -> None:
    image, _ = create(cluster(1, 2), wanted(factor=2))
    after, code = add(image, 3)
    assert code == 0
    assert sorted(after.topics["t"].partitions) == [0, 1, 2]
    assert all(len(partition.replicas) == 2 for partition in after.topics["t"].partitions.values())
    after, code = add(image, 2, [[2, 1]])
    assert (code, after.topics["t"].partitions[1].leader) == (0, 2)


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (1, None, E.INVALID_PARTITIONS),
        (0, None, E.INVALID_PARTITIONS),
        (3, [[1, 2]], E.INVALID_REPLICA_ASSIGNMENT),
        (2, [[1]], E.INVALID_REPLICA_ASSIGNMENT),
        (2, [[1, 9]], E.INVALID_REPLICA_ASSIGNMENT),
        (RECORDS_MAX + 2, None, E.POLICY_VIOLATION),
    ],
)
def test_partitions_that_cannot_be_added(
    count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    image, _ = create(cluster(1, 2), wanted(factor=2))
    after, outcome = add(image, count, assignments)
    assert outcome == code
    assert after.topics["t"].partitions == image.topics["t"].partitions


def test_partitions_of_no_topic_and_of_one_named_twice() -> None:
    topics = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ("no", "x", "x")]
    decision = decide_create_partitions(ONE, CreatePartitionsRequest(topics=topics), random=Random(3))
    assert [(result.name, result.error_code) for result in decision.reply.results] == [
        ("x", ErrorCode.INVALID_REQUEST),
        ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
