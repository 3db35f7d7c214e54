"""Administration and metadata, asked of Apache Kafka 4.3 and of Moldau alike: every code and every field is
the same, in every version, for what is in order and for what is not.

A test for each family of APIs. What Moldau knowingly does otherwise (docs/compatibility.md) is not asked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import pytest

from bench.kafka import KafkaServer
from moldau.wire.api import ApiKey
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages import alter_configs, incremental_alter_configs
from moldau.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from moldau.wire.messages.api_versions import ApiVersionsRequest
from moldau.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.wire.messages.describe_cluster import DescribeClusterRequest
from moldau.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from moldau.wire.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from moldau.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from moldau.wire.messages.list_config_resources import ListConfigResourcesRequest
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest
from moldau.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.beside import CLOSED, Pair, Peer, Request
from tests.support.node import MoldauNode, unique_name

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(150),
    pytest.mark.xdist_group("beside kafka"),  # one Kafka is enough
]

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
UNKNOWN_ID = Uuid(b"nowhere to be id")
BAD_NAMES = ("", ".", "..", "a b", "x" * 250, "ü", "a\n")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[Pair]:
    root = tmp_path_factory.mktemp("beside")
    theirs, ours = ([root / f"{name}-{number}" for number in (1, 2)] for name in ("kafka", "moldau"))
    kafka = KafkaServer(theirs[0], properties={"log.dirs": ",".join(map(str, theirs))})
    moldau = MoldauNode(ours[0], {"log.dirs": ",".join(map(str, ours))})
    kafka.launch()
    try:
        with moldau:
            kafka.wait_ready()
            with Pair(Peer(kafka.bootstrap, theirs), Peer(moldau.bootstrap, ours)) as pair:
                topics = [new_topic("one"), new_topic("three", 3), new_topic("a.b")]
                check(pair, [CreateTopicsRequest(topics=topics)], [7])
                for topic in topics:
                    for peer in pair:
                        peer.topic_id(topic.name)
                    # It is there once its leader answers.
                    assert pair.settled(epoch_of(topic.name, topic.num_partitions - 1), 4) == []
                yield pair
    finally:
        kafka.kill()


def new_topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assignments: Iterable[tuple[int, list[int]]] = (),
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def check(pair: Pair, requests: Iterable[Request], versions: Iterable[int], ignoring: str = "") -> None:
    tried = list(versions)
    assert [found for each in requests for found in pair.differences(each, tried, ignoring)] == []


def test_versions_and_features(pair: Pair) -> None:
    names = [
        ("a.b-c", "1.2-SNAPSHOT"),
        ("", "1"),
        ("x", ""),
        ("-x", "1"),
        ("x.", "1"),
        ("a_b", "1"),
        ("x", "1\n"),
    ]
    check(
        pair,
        [
            ApiVersionsRequest(client_software_name=name, client_software_version=version)
            for name, version in names
        ],
        [3, 4],
        ignoring="api_keys finalized_features",
    )


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_an_unknown_version_is_answered_with_the_same_bytes(pair: Pair, version: int) -> None:
    # Behind the client's name there are the header's tags, two empty strings, and tags again.
    frame = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 7, -1) + b"\0\1\1\0"
    theirs, ours = (peer.exchange(frame) for peer in pair)
    assert ours == theirs != CLOSED


def test_a_string_that_older_versions_could_not_carry_closes_the_connection(pair: Pair) -> None:
    for size, is_closed in ((32_767, False), (32_768, True)):
        length = bytes([(size + 1) & 127 | 128, (size + 1) >> 7 & 127 | 128, (size + 1) >> 14])
        # A topic by that name, no tags; three flags, no tags.
        body = b"\2" + length + b"x" * size + b"\0" + b"\0\0\0\0"
        frame = struct.pack(">hhih", ApiKey.METADATA, 9, 7, -1) + b"\0" + body
        assert [peer.exchange(frame) == CLOSED for peer in pair] == [is_closed, is_closed]


@pytest.mark.parametrize(
    ("key", "version"), [(200, 0), (ApiKey.VOTE, 0), (ApiKey.METADATA, 14), (ApiKey.METADATA, -1)]
)
def test_what_was_not_advertised_closes_the_connection(pair: Pair, key: int, version: int) -> None:
    frame = struct.pack(">hhih", key, version, 7, -1) + bytes(40)
    assert [peer.exchange(frame) for peer in pair] == [CLOSED, CLOSED]


def test_metadata(pair: Pair) -> None:
    def named(*names: str | None) -> MetadataRequest:
        topics = [MetadataRequestTopic(name=name) for name in names]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    def ids(*topics: str | Uuid, name: str | None = None) -> Request:
        def request(peer: Peer) -> MetadataRequest:
            found = [peer.topic_id(each) if isinstance(each, str) else each for each in topics]
            asked = [MetadataRequestTopic(name=name, topic_id=id) for id in found]
            return MetadataRequest(topics=asked, allow_auto_topic_creation=False)

        return request

    everything = MetadataRequest(topics=[])
    check(pair, [everything], range(14), ignoring="topics")
    good = [named("one"), named("one", "three", "one"), named("nowhere", "one"), *map(named, BAD_NAMES)]
    check(pair, [*good, named("a b", "one")], range(4, 14))
    for request in good:
        request.include_topic_authorized_operations = True
    check(pair, good, range(8, 14))
    check(pair, [named(None), named(None, "one"), ids("one"), ids("one", name="one")], range(10, 14))
    by_id = [
        ids("one", "one"),
        ids("three", UNKNOWN_ID),
        ids(UNKNOWN_ID, name="one"),
        ids("one", name="three"),
    ]
    check(pair, by_id, range(10, 14))


def test_pages_of_partitions(pair: Pair) -> None:
    def page(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Request:
        return DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=RequestCursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
        )

    requests = [
        *(page("one", "three", limit=limit) for limit in (-1, 0, 1, 2, 3, 4)),
        *(page("three", "zzz", limit=limit) for limit in (2, 3)),
        *(page("one", "three", "uuu", cursor=("three", index)) for index in (-1, 0, 2, 3, 30)),
        *(page("one", "three", cursor=(name, 0)) for name in ("tttt", "one")),
        page("three", "three"),
        page("nowhere", cursor=("nowhere", 0)),
        page("a b", "nowhere"),
    ]
    check(pair, requests, [0])


def test_the_cluster_and_its_quorum(pair: Pair) -> None:
    check(
        pair,
        [
            DescribeClusterRequest(endpoint_type=kind, include_cluster_authorized_operations=operations)
            for kind in (0, 1, 2, 3)
            for operations in (False, True)
        ],
        [1, 2],
    )
    check(pair, [UnregisterBrokerRequest(broker_id=id) for id in (7, -1)], [0])

    def quorum(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
        return DescribeQuorumRequest(
            topics=[
                RequestTopicData(
                    topic_name=name,
                    partitions=[RequestPartitionData(partition_index=index) for index in indexes],
                )
                for name, indexes in topics
            ]
        )

    own = "leader_epoch last_fetch_timestamp last_caught_up_timestamp replica_directory_id port"
    asked = [[0], [1], [0, 0], [0, 1], []]
    check(pair, [quorum(("__cluster_metadata", indexes)) for indexes in asked], range(3), ignoring=own)
    check(
        pair,
        [quorum(), quorum(("one", [0])), quorum(("__cluster_metadata", [0]), ("one", [0]))],
        range(3),
        own,
    )


def test_features(pair: Pair) -> None:
    names = ("metadata.version", "group.version", "transaction.version", "share.version", "nowhere", "")
    requests = [
        UpdateFeaturesRequest(
            validate_only=True,
            feature_updates=[FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)],
        )
        for name in names
        for level in (-1, 0, 1, 2, 25, 29, 30, 31)
        for kind in (0, 1, 2, 3, 4)
    ]
    check(pair, [*requests, UpdateFeaturesRequest(validate_only=True)], [1, 2])


def test_topics_come(pair: Pair) -> None:
    for validate_only in (True, False):
        topics = [
            *(new_topic(name) for name in (*BAD_NAMES, "x" * 249, "one", "a_b", "__cluster_metadata")),
            *(
                new_topic("counted", count, factor)
                for count, factor in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2))
            ),
            new_topic("counted", 10_001),
            *(
                new_topic("placed", -1, -1, assignments)
                for assignments in (
                    [(0, [])],
                    [(0, [7])],
                    [(0, [1, 1])],
                    [(1, [1])],
                    [(0, [1]), (0, [1])],
                    [(0, [1]), (1, [1, 7])],
                    [(0, [1]), (2, [1])],
                )
            ),
            new_topic("placed", 1, -1, [(0, [1])]),
            new_topic("placed", -1, 1, [(0, [1])]),
            new_topic(unique_name(), -1, -1, [(1, [1]), (0, [1])]),
            new_topic("configured", no_such="1"),
            new_topic("configured", retention_ms=None),
        ]
        check(pair, (CreateTopicsRequest(topics=[each], validate_only=validate_only) for each in topics), [7])
        for version in range(2, 8):
            named = [new_topic(unique_name(), 2), new_topic("one"), new_topic("twice"), new_topic("twice")]
            for timeout_ms in (0, 60_000):
                request = CreateTopicsRequest(
                    topics=named, timeout_ms=timeout_ms, validate_only=validate_only
                )
                check(pair, [request], [version])


def test_topics_grow(pair: Pair) -> None:
    def grown(*topics: tuple[str, int, list[list[int]] | None], timeout_ms: int = 60_000) -> Request:
        return CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(
                    name=name,
                    count=count,
                    assignments=assignments
                    and [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments],
                )
                for name, count, assignments in topics
            ],
            timeout_ms=timeout_ms,
            validate_only=True,
        )

    check(
        pair,
        [
            *(grown(("three", count, None)) for count in (-1, 0, 2, 3, 4)),
            *(grown((name, 4, None)) for name in ("nowhere", "a b", "", "__cluster_metadata")),
            *(
                grown(("three", 4, brokers))
                for brokers in ([[1]], [[7]], [[]], [[1], [1]], [[1, 7]], [[1, 1]])
            ),
            grown(("three", 3, [[1]])),
            grown(("three", 4, None), ("three", 5, None), ("one", 2, None)),
            grown(("three", 4, None), timeout_ms=0),
            grown(),
        ],
        range(4),
    )


def test_topics_go(pair: Pair) -> None:
    by_name = [["nowhere"], ["nowhere", "nowhere"], ["one", "one"], ["a b", ""], [], ["__cluster_metadata"]]
    check(pair, [DeleteTopicsRequest(topic_names=names, timeout_ms=60_000) for names in by_name], range(1, 6))
    check(pair, [DeleteTopicsRequest(topic_names=["one"])], range(1, 6))

    def ids(*topics: tuple[str | None, str | Uuid]) -> Request:
        def request(peer: Peer) -> DeleteTopicsRequest:
            states = [
                DeleteTopicState(name=name, topic_id=peer.topic_id(id) if isinstance(id, str) else id)
                for name, id in topics
            ]
            return DeleteTopicsRequest(topics=states, timeout_ms=60_000)

        return request

    neither: tuple[None, Uuid] = (None, ZERO_UUID)
    check(
        pair,
        [
            ids(neither, neither),
            ids(("one", "one")),
            ids(("nowhere", UNKNOWN_ID), (None, UNKNOWN_ID)),
            ids((None, "one"), (None, "one")),
            ids(("one", ZERO_UUID), (None, "one")),
            ids(("one", ZERO_UUID), ("one", ZERO_UUID), (None, "one")),
        ],
        [6],
    )
    name = unique_name()
    check(pair, [CreateTopicsRequest(topics=[new_topic(name)]), ids((None, name))], [6])


TOPIC_VALUES = {
    "retention.ms": ["x", "", " 5 ", "-1", "-2", "1e3", "9223372036854775808", "+5", "1_000", "٣"],
    "segment.bytes": ["1048575", "1048576", "2147483648"],
    "cleanup.policy": ["compact,delete", "", "x", "compact,compact", "delete,", ",", " compact , delete "],
    "min.cleanable.dirty.ratio": ["1", "1.1", "-0.1", "NaN", "Infinity", "0.5f", "1D", "5e-1", ".5", ""],
    "unclean.leader.election.enable": ["TRUE", "yes", ""],
    "compression.type": ["GZIP", "none", " zstd "],
    "compression.gzip.level": ["-1", "0", "10"],
    "compression.zstd.level": ["-131073", "22", "23"],
    "message.timestamp.type": ["LogAppendTime", "createtime"],
    "min.insync.replicas": ["0", "2"],
    "leader.replication.throttled.replicas": ["*", "0:1,1:2", "0:1,", "*,0:1", "0", "x"],
    "remote.storage.enable": ["true"],
    "local.retention.ms": ["-3", "1000"],
    "message.format.version": ["3.0"],
    "internal.segment.bytes": ["100"],
}
BROKER_VALUES = {
    "log.retention.ms": ["x", "0", "-5", "86400000"],
    "log.roll.ms": ["0"],
    "node.id": ["2"],
    "my.plugin": ["1"],
    "num.io.threads": ["0", "3", "4", "16", "17"],
    "num.network.threads": ["7"],
    "log.cleaner.threads": ["0", "3"],
    "message.max.bytes": ["-1"],
    "min.insync.replicas": ["2"],
    "max.connections": ["0", "10"],
    "max.connection.creation.rate": ["0"],
    "max.connections.per.ip": ["0"],
    "ssl.keystore.location": ["/x"],
    "listener.name.plaintext.max.connections": ["x", "5"],
    "listener.name.plaintext.nothing": ["x"],
    "listeners": ["PLAINTEXT://127.0.0.1:1"],
    "log.cleanup.policy": ["x", "compact"],
    "leader.replication.throttled.rate": ["-1", "5"],
    "cordoned.log.dirs": ["/nowhere"],
}
GROUP_VALUES = {
    "consumer.session.timeout.ms": ["44999", "45000", "60001", "x"],
    "consumer.heartbeat.interval.ms": ["4999", "15001"],
    "share.record.lock.duration.ms": ["999", "20000"],
    "share.auto.offset.reset": [
        "earliest",
        "EARLIEST",
        "by_duration:pt1h",
        "BY_DURATION:PT1H",
        "by_duration:P",
    ],
    "share.isolation.level": ["READ_COMMITTED", "read_committed"],
    "streams.num.standby.replicas": ["2", "3"],
    "nothing": ["1"],
}
CLIENT_METRICS_VALUES = {
    "interval.ms": ["99", "100", "3600001", "99999999999", "x"],
    "metrics": ["", "*", "a,", ","],
    "match": [
        "",
        "x=y",
        "client_id",
        "client_id=",
        "client_id=a=b",
        "client_id=[",
        " client_id = a ",
        "client_id=,",
    ],
    "nothing": ["1"],
}
RESOURCES = {
    (TOPIC, "one"): TOPIC_VALUES,
    (BROKER, "1"): BROKER_VALUES,
    (BROKER, ""): BROKER_VALUES,
    (GROUP, "g"): GROUP_VALUES,
    (CLIENT_METRICS, "m"): CLIENT_METRICS_VALUES,
}


def incremental(
    *resources: tuple[int, str, list[tuple[str, int, str | None]]], validate_only: bool = True
) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=type,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name=key, config_operation=operation, value=value
                    )
                    for key, operation, value in changes
                ],
            )
            for type, name, changes in resources
        ],
        validate_only=validate_only,
    )


def replaced(type: int, name: str, **values: str | None) -> Request:
    configs = [
        alter_configs.AlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in values.items()
    ]
    resource = alter_configs.AlterConfigsResource(resource_type=type, resource_name=name, configs=configs)
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=True)


def described(type: int, name: str, *keys: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=type, resource_name=name, configuration_keys=list(keys) or None
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=True)


@pytest.mark.parametrize("resource", RESOURCES, ids=str)
def test_values(pair: Pair, resource: tuple[int, str]) -> None:
    type, name = resource
    changes = [(key, value) for key, values in RESOURCES[resource].items() for value in values]
    check(pair, (incremental((type, name, [(key, SET, value)])) for key, value in changes), [1])
    if type == BROKER:
        check(pair, (incremental((type, name, [(key, APPEND, "x")])) for key in BROKER_VALUES), [1])
        return
    # What was taken is shown alike.
    for key, value in changes:
        check(pair, [incremental((type, name, [(key, SET, value)]), validate_only=False)], [1])
        assert pair.settled(described(type, name), 4) == []
        check(pair, [incremental((type, name, [(key, DELETE, None)]), validate_only=False)], [1])


def test_lists(pair: Pair) -> None:
    policy, throttled = "cleanup.policy", "leader.replication.throttled.replicas"
    for index in range(3):  # until there are more of them than a string may hold
        some = ",".join(f"{index}:{10_000 + broker}" for broker in range(2000))
        check(pair, [incremental((TOPIC, "one", [(throttled, APPEND, some)]), validate_only=False)], [1])
        assert pair.settled(described(TOPIC, "one", throttled), 1) == []
    check(pair, [incremental((TOPIC, "one", [(throttled, DELETE, None)]), validate_only=False)], [1])
    for operation in (APPEND, SUBTRACT):
        for value in ("compact", "compact,delete", "", ",", "x", " compact", "delete,", ",compact"):
            check(pair, [incremental((TOPIC, "one", [(policy, operation, value)]), validate_only=False)], [1])
            assert pair.settled(described(TOPIC, "one", policy), 4) == []
            check(pair, [incremental((TOPIC, "one", [(policy, DELETE, None)]), validate_only=False)], [1])
    assert pair.settled(described(TOPIC, "one"), 4) == []


def test_resources_that_cannot_be_changed(pair: Pair) -> None:
    retention: list[tuple[str, int, str | None]] = [("retention.ms", SET, "5")]
    level: list[tuple[str, int, str | None]] = [("root", SET, "INFO")]
    requests: list[Request] = [
        *(
            incremental((TOPIC, name, retention))
            for name in ("nowhere", "", "a b", "a_b", "__cluster_metadata")
        ),
        *(
            incremental((BROKER, name, [("log.retention.ms", SET, "5")]))
            for name in ("2", "x", "-1", " 1", "+1")
        ),
        *(incremental((type, "x", retention)) for type in (0, 1, 3, 64, -1)),
        *(incremental((LOGGER, name, level)) for name in ("", "2", "x")),
        incremental((TOPIC, "one", retention), (TOPIC, "one", []), (TOPIC, "three", retention)),
        incremental((TOPIC, "one", [*retention, ("retention.ms", DELETE, None)])),
        incremental((TOPIC, "one", [("retention.ms", SET, None), ("x", APPEND, None)])),
        incremental((TOPIC, "one", [("retention.ms", APPEND, "5")])),
        incremental((TOPIC, "one", [("no.such", SUBTRACT, "5")])),
        incremental((LOGGER, "1", [("root", SET, "LOUD")])),
        incremental((LOGGER, "1", [("root", SET, "OFF")])),
        incremental((LOGGER, "1", [("root", DELETE, None)])),
        incremental((LOGGER, "1", [("root", APPEND, "INFO")])),
        incremental((LOGGER, "1", [("no.such.logger", SET, "INFO")])),
        incremental((LOGGER, "1", level), (LOGGER, "1", level)),
        incremental((GROUP, "", [])),
        incremental((CLIENT_METRICS, "", [])),
        incremental(),
    ]
    check(pair, requests, [0, 1])
    many = [(f"my.{number}", SET, "1") for number in range(10_001)]
    check(pair, [incremental((BROKER, "1", [*many]), (TOPIC, "one", retention))], [1])
    legacy = [
        replaced(TOPIC, "one", retention_ms="5"),
        replaced(TOPIC, "one", retention_ms=None),
        *(replaced(TOPIC, name, retention_ms="5") for name in ("nowhere", "", "a b")),
        *(replaced(type, "x") for type in (0, LOGGER, 64)),
        *(replaced(BROKER, name) for name in ("1", "", "2", "x")),
        replaced(BROKER, "1", min_insync_replicas="1"),
    ]
    check(pair, legacy, range(3))


def test_what_can_be_described(pair: Pair) -> None:
    requests = [
        *(described(TOPIC, name) for name in ("one", "nowhere", "", "a b")),
        *(
            described(TOPIC, "one", *keys)
            for keys in (["retention.ms", "no.such"], ["internal.segment.bytes"])
        ),
        *(
            described(BROKER, name, "log.retention.ms", "log.retention.hours")
            for name in ("1", "2", "x", " 1", "")
        ),
        *(described(LOGGER, name, "root") for name in ("", "2", "x")),
        *(described(type, name) for type in (GROUP, CLIENT_METRICS) for name in ("", "nowhere")),
        *(described(type, "x") for type in (0, 3, 64)),
    ]
    check(pair, requests, range(1, 5))
    for request in requests:
        request.include_documentation = True
    check(pair, requests, [3, 4])
    # Both have the same brokers, and no client metrics or groups but those of a moment.
    kinds = ([CLIENT_METRICS], [BROKER], [LOGGER], [BROKER, LOGGER], [0], [3, BROKER], [64])
    check(pair, [ListConfigResourcesRequest(resource_types=list(each)) for each in kinds], [1])


def epoch_of(topic: str, index: int = 0, *, current: int = -1, epoch: int = 0) -> Request:
    partition = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )


def test_epochs(pair: Pair) -> None:
    requests = [
        *(epoch_of("one", current=current) for current in (-2, -1, 0, 1)),
        *(epoch_of("one", epoch=epoch) for epoch in (-5, -1, 0, 1, 2**31 - 1)),
        *(epoch_of("one", index) for index in (-1, 1)),
        *(epoch_of(name) for name in ("nowhere", "", "a b", "__cluster_metadata")),
    ]
    check(pair, requests, [3, 4])


def test_log_directories(pair: Pair) -> None:
    asked = [("nowhere", [0]), ("one", [9]), ("one", [])]
    check(
        pair,
        [DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=t, partitions=p)]) for t, p in asked],
        range(1, 6),
        ignoring="total_bytes usable_bytes",
    )

    def moved(path: str, topic: str, *indexes: int) -> Request:
        topics = [AlterReplicaLogDirTopic(name=topic, partitions=list(indexes))]
        return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])

    check(pair, [moved(path, "one", 0, 7) for path in ("", "relative", "/nowhere")], [1, 2])
