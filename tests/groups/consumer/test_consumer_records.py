"""The records of a consumer group byte by byte, as Apache Kafka 4.3.0 wrote them for a group of one member
that joined and left."""

from __future__ import annotations

import pytest

from moldau.coordinator.record import CoordinatorRecord, encode_key, encode_value
from moldau.groups.consumer import records
from moldau.groups.consumer.member import Member
from moldau.groups.metadata_hash import MetadataHashes
from moldau.groups.records import RECORD_TYPES, ConsumerGroupMemberMetadataKey
from moldau.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from moldau.metadata.persistent_map import PersistentMap
from moldau.wire.ids import Uuid

GROUP = "gold-new"
MEMBER_ID = "5l1sRSRETzWshZQaDLoBvg"
TOPIC_ID = Uuid(bytes.fromhex("c2b46fde001145a8b882135fe659b907"))
METADATA_HASH = 0x5C375AF33C3B6D24
JOINED = Member(
    member_id=MEMBER_ID,
    epoch=2,
    previous_epoch=0,
    rebalance_timeout_ms=300_000,
    client_id="rdkafka",
    client_host="/127.0.0.1",
    topics=frozenset({"codecs"}),
    assigned={TOPIC_ID: {0: 2}},
)
_KEY_END = "0008676f6c642d6e6577" + "0016" + MEMBER_ID.encode().hex()

WRITTEN = {
    "member": (
        records.member_record(GROUP, JOINED),
        "0005" + _KEY_END,
        "000000000872646b61666b610b2f3132372e302e302e310207636f6465637301000493e00001000100",
    ),
    "group": (
        records.epoch_record(GROUP, 2, METADATA_HASH),
        "00030008676f6c642d6e6577",
        "0000000000020100085c375af33c3b6d24",
    ),
    "target": (
        records.target_record(GROUP, MEMBER_ID, {TOPIC_ID: frozenset({0})}),
        "0007" + _KEY_END,
        "000002c2b46fde001145a8b882135fe659b90702000000000000",
    ),
    "assignment": (
        records.assignment_record(GROUP, 2, 1795030508244),
        "00060008676f6c642d6e6577",
        "000000000002010008000001a1f027e2d4",
    ),
    "current": (
        records.current_record(GROUP, JOINED),
        "0008" + _KEY_END,
        "000000000002000000000002c2b46fde001145a8b882135fe659b907020000000001000502000000020100",
    ),
    "group without members": (
        records.epoch_record(GROUP, 3, 0),
        "00030008676f6c642d6e6577",
        "00000000000300",
    ),
    "gone member": (records.member_tombstone(GROUP, MEMBER_ID), "0005" + _KEY_END, None),
    "gone target": (records.target_tombstone(GROUP, MEMBER_ID), "0007" + _KEY_END, None),
    "gone current": (records.current_tombstone(GROUP, MEMBER_ID), "0008" + _KEY_END, None),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_records_are_those_of_kafka(name: str) -> None:
    record, key, value = WRITTEN[name]
    assert encode_key(record).hex() == key
    encoded = encode_value(record)
    assert (None if encoded is None else encoded.hex()) == value


@pytest.mark.parametrize("name", WRITTEN)
def test_records_of_kafka_are_read(name: str) -> None:
    record, key, value = WRITTEN[name]
    decoded = RECORD_TYPES.decode(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert decoded == record


def test_a_member_record_without_a_word_about_the_protocol_is_that_of_a_classic_member() -> None:
    """Kafka leaves out what is empty, and an empty description of a classic member is its default."""
    _, key, value = WRITTEN["member"]
    assert value is not None
    without = bytes.fromhex(value.removesuffix("01000100") + "00")
    decoded = RECORD_TYPES.decode(bytes.fromhex(key), without)
    assert decoded is not None
    assert isinstance(decoded.key, ConsumerGroupMemberMetadataKey)
    member = Member(member_id=MEMBER_ID).described_by(decoded.value)  # type: ignore[arg-type]
    assert member.is_classic
    assert encode_value(CoordinatorRecord(decoded.key, decoded.value)) == without


def _image(racks: dict[int, str | None], partitions: int = 1) -> ClusterImage:
    brokers = {
        broker: BrokerImage(
            id=broker, epoch=1, incarnation_id=TOPIC_ID, endpoints=(), features={}, rack=rack, fenced=False
        )
        for broker, rack in racks.items()
    }
    partition = PartitionImage(
        replicas=tuple(racks) or (1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0
    )
    topic = TopicImage(
        name="codecs", topic_id=TOPIC_ID, partitions=dict.fromkeys(range(partitions), partition)
    )
    return ClusterImage(topics=PersistentMap({"codecs": topic}), brokers=PersistentMap(brokers))


def test_the_hash_of_the_topics_is_that_of_kafka() -> None:
    assert MetadataHashes().of(["codecs"], _image({1: None})) == METADATA_HASH


def test_topics_that_do_not_exist_do_not_count_in_the_hash() -> None:
    hashes = MetadataHashes()
    assert hashes.of(["codecs", "none"], _image({1: None})) == METADATA_HASH
    assert hashes.of(["none"], _image({1: None})) == 0


def test_the_hash_sees_partitions_and_racks() -> None:
    images = [_image({1: None}), _image({1: None}, 2), _image({1: "a"}), _image({1: "b"}), _image({1: "ab"})]
    assert len({MetadataHashes().of(["codecs"], image) for image in images}) == len(images)
    one, other = _image({1: "a", 2: "b"}), _image({1: "b", 2: "a"})
    assert MetadataHashes().of(["codecs"], one) == MetadataHashes().of(["codecs"], other)


def test_a_topic_that_has_changed_is_hashed_again() -> None:
    hashes = MetadataHashes()
    assert hashes.of(["codecs"], _image({1: None})) != hashes.of(["codecs"], _image({1: None}, 2))
