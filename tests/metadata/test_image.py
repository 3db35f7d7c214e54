"""Images against records: round trips through snapshots, deltas that say what changed, transactions."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.metadata import records
from moldau.metadata.delta import InconsistentRecordError, MetadataReplay, apply_records
from moldau.metadata.features import bootstrap_records
from moldau.metadata.framing import decode_record, encode_record
from moldau.metadata.image import (
    DIRECTORY_MIGRATING,
    ClusterImage,
    ConfigResource,
    PartitionImage,
    ProducerIds,
    ResourceType,
)
from moldau.metadata.snapshot import image_records
from moldau.wire.ids import Uuid
from moldau.wire.schema import Message

A, B = Uuid(b"A" * 16), Uuid(b"B" * 16)


def topic(name: str = "a", topic_id: Uuid = A, partitions: int = 1) -> list[Message]:
    return [
        records.TopicRecord(name=name, topic_id=topic_id),
        *(
            records.PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0,
                partition_epoch=0, directories=[B],
            )
            for index in range(partitions)
        ),
    ]  # fmt: skip


def config(name: str, key: str, value: str | None, type: int = ResourceType.TOPIC) -> records.ConfigRecord:
    return records.ConfigRecord(resource_type=type, resource_name=name, name=key, value=value)


class History:
    """Random records that a controller could have written."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.topics: dict[str, Uuid] = {}
        self.partitions: dict[str, int] = {}
        self.brokers: dict[int, int] = {}

    def step(self) -> list[Message]:
        random = self.random
        match random.randrange(12):
            case 0 | 1:
                name = f"t{random.randrange(200)}"
                if name in self.topics:
                    self.partitions.pop(name)
                    return [records.RemoveTopicRecord(topic_id=self.topics.pop(name))]
                self.topics[name] = Uuid(random.randbytes(16))
                self.partitions[name] = random.randrange(1, 4)
                return topic(name, self.topics[name], self.partitions[name])
            case 2 | 3 if self.topics:
                name = random.choice(sorted(self.topics))
                return [config(name, random.choice("kl"), random.choice([None, "1", "2"]))]
            case 4 | 5 if self.topics:
                name = random.choice(sorted(self.topics))
                return [
                    records.PartitionChangeRecord(
                        partition_id=random.randrange(self.partitions[name]),
                        topic_id=self.topics[name],
                        isr=random.choice([None, [], [1, 2]]),
                        leader=random.choice([-2, -1, 2]),
                        replicas=random.choice([None, [1, 2]]),
                        directories=random.choice([None, [A, B]]),
                        eligible_leader_replicas=random.choice([None, [2]]),
                        last_known_elr=random.choice([None, [1]]),
                    )
                ]
            case 6:
                broker = random.randrange(3)
                self.brokers[broker] = epoch = random.randrange(1000)
                ends = [records.BrokerEndpoint(name="P", host="h", port=9092, security_protocol=0)]
                cordoned = random.choice([None, [], [A]])
                return [
                    records.RegisterBrokerRecord(
                        broker_id=broker, broker_epoch=epoch, incarnation_id=A, end_points=ends, rack="r",
                        log_dirs=[A, B], cordoned_log_dirs=cordoned,
                    )
                ]  # fmt: skip
            case 7 if self.brokers:
                broker = random.choice(sorted(self.brokers))
                epoch = self.brokers[broker]
                if random.random() < 0.3:
                    del self.brokers[broker]
                    return [records.UnregisterBrokerRecord(broker_id=broker, broker_epoch=epoch)]
                fenced = random.choice([-1, 0, 1])
                return [
                    records.BrokerRegistrationChangeRecord(
                        broker_id=broker, broker_epoch=epoch, fenced=fenced, in_controlled_shutdown=1
                    )
                ]
            case 8:
                entity = [records.EntityData(entity_type="user", entity_name=random.choice([None, "u"]))]
                remove = random.random() < 0.4
                return [records.ClientQuotaRecord(entity=entity, key="k", value=1.5, remove=remove)]
            case 9:
                name, mechanism = random.choice("xy"), random.choice([1, 2])
                if random.random() < 0.3:
                    return [records.RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)]
                return [records.UserScramCredentialRecord(name=name, mechanism=mechanism, iterations=4096)]
            case 10:
                return [
                    records.ProducerIdsRecord(
                        broker_id=1, broker_epoch=2, next_producer_id=random.getrandbits(20)
                    )
                ]
            case _:
                return [records.AccessControlEntryRecord(id=Uuid(random.randbytes(16)), principal="User:x")]


def known(image: ClusterImage) -> list[object]:
    """Everything of an image but its place in the log."""
    return [
        getattr(image, name)
        for name in ClusterImage.__slots__
        if name not in ("offset", "epoch", "timestamp_ms")
    ]


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 25))
def test_an_image_comes_back_from_its_snapshot_and_does_not_depend_on_batching(
    seed: int, batches: int
) -> None:
    history = History(Random(seed))
    image, _ = apply_records(ClusterImage(), [record.message for record in bootstrap_records()])
    written: list[Message] = []
    batched = MetadataReplay(image)
    for offset in range(batches):
        before = batched.image
        frozen = known(before)
        for message in (message for _ in range(8) for message in history.step()):
            written.append(message)
            batched.apply(message)
        after, delta = batched.publish(offset, 1, 0)
        assert known(before) == frozen
        assert set(delta.topics) == {
            after.topics[name].topic_id
            for name in after.topics
            if before.topics.get(name) is not after.topics[name]
        }
        assert set(delta.deleted_topics) == set(before.topic_names) - set(after.topic_names)
        assert delta.brokers >= {
            id for id in {*before.brokers, *after.brokers} if before.brokers.get(id) != after.brokers.get(id)
        }
        assert delta.configs >= {
            key
            for key in {*before.configs, *after.configs}
            if before.configs.get(key) != after.configs.get(key)
        }
    whole, _ = apply_records(image, written)
    assert known(whole) == known(batched.image)
    frames = [encode_record(*record) for record in image_records(whole)]
    loaded, _ = apply_records(ClusterImage(), [decode_record(frame).message for frame in frames])
    assert known(loaded) == known(whole)
    assert frames == [encode_record(*record) for record in image_records(whole)]


def test_the_delta_names_the_partitions_that_changed_and_no_others() -> None:
    image, created = apply_records(ClusterImage(), topic(partitions=3))
    change = records.PartitionChangeRecord(partition_id=1, topic_id=A, isr=[1, 2], leader=2)
    changed, delta = apply_records(image, [change])
    assert created.topics[A].created and created.topics[A].partitions == {0, 1, 2}
    assert not delta.topics[A].created and delta.topics[A].partitions == {1}
    before, after = image.topics["a"].partitions, changed.topics["a"].partitions
    assert after[0] is before[0]
    assert (after[1].leader, after[1].leader_epoch, after[1].partition_epoch) == (2, 1, 1)


def test_an_unchanged_leader_keeps_its_epoch_and_a_named_one_does_not() -> None:
    image, _ = apply_records(ClusterImage(), topic())
    for leader, epoch in ((-2, 0), (1, 1)):
        change = records.PartitionChangeRecord(partition_id=0, topic_id=A, leader=leader)
        after, _ = apply_records(image, [change])
        partition = after.topics["a"].partitions[0]
        assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, epoch, 1)


def test_deleting_a_topic_takes_its_configuration_along() -> None:
    image, _ = apply_records(ClusterImage(), [*topic(), config("a", "k", "v"), config("", "k", "v", 4)])
    after, delta = apply_records(image, [records.RemoveTopicRecord(topic_id=A)])
    assert set(after.configs) == {ConfigResource(ResourceType.BROKER, "")}
    assert delta.configs == {ConfigResource(ResourceType.TOPIC, "a")}
    assert delta.deleted_topics[A] is image.topics["a"]
    assert not after.topics and not after.topic_names


def test_a_topic_deleted_and_created_again_is_two_topics() -> None:
    image, _ = apply_records(ClusterImage(), topic())
    after, delta = apply_records(image, [records.RemoveTopicRecord(topic_id=A), *topic(topic_id=B)])
    assert set(delta.deleted_topics) == {A} and set(delta.topics) == {B}
    assert after.topics["a"].topic_id == B


def test_a_transaction_counts_when_it_ends() -> None:
    replay = MetadataReplay(ClusterImage())
    replay.apply(records.BeginTransactionRecord(name="x"))
    for message in topic():
        replay.apply(message)
    image, delta = replay.publish(2, 1, 0)
    assert not image.topics and delta.is_empty and replay.in_transaction
    replay.apply(records.EndTransactionRecord())
    image, delta = replay.publish(3, 1, 0)
    assert set(image.topics) == {"a"} and set(delta.topics) == {A}


def test_an_aborted_transaction_never_was() -> None:
    transaction = [records.BeginTransactionRecord(), *topic(), records.AbortTransactionRecord()]
    image, delta = apply_records(ClusterImage(), transaction)
    assert not image.topics and delta.is_empty


def test_clearing_elr_touches_partitions_that_have_one() -> None:
    gone = records.PartitionChangeRecord(
        partition_id=0, topic_id=A, isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1]
    )
    image, _ = apply_records(ClusterImage(), [*topic(partitions=2), *topic("b", B), gone])
    for name in ("a", ""):
        after, delta = apply_records(image, [records.ClearElrRecord(topic_name=name)])
        assert {key: value.partitions for key, value in delta.topics.items()} == {A: {0}}
        assert after.topics["a"].partitions[0].elr == ()


def test_partitions_from_before_directories_had_ids_name_none() -> None:
    record = records.PartitionRecord(partition_id=0, topic_id=A, replicas=[1, 2], isr=[1])
    image, _ = apply_records(ClusterImage(), [records.TopicRecord(name="a", topic_id=A), record])
    assert image.topics["a"].partitions[0].directories == (DIRECTORY_MIGRATING, DIRECTORY_MIGRATING)


@pytest.mark.parametrize(
    "message",
    [
        records.PartitionRecord(partition_id=0, topic_id=B),
        records.PartitionChangeRecord(partition_id=7, topic_id=A),
        records.RemoveTopicRecord(topic_id=B),
        records.TopicRecord(name="a", topic_id=B),
        records.UnregisterBrokerRecord(broker_id=1, broker_epoch=1),
        records.FenceBrokerRecord(id=1, epoch=1),
        records.RemoveAccessControlEntryRecord(id=A),
        records.EndTransactionRecord(),
    ],
)
def test_a_record_that_does_not_fit_is_refused(message: Message) -> None:
    image, _ = apply_records(ClusterImage(), topic())
    with pytest.raises(InconsistentRecordError):
        apply_records(image, [message])


def test_an_empty_image_has_no_records_and_sane_defaults() -> None:
    image = ClusterImage()
    assert list(image_records(image)) == []
    assert image.metadata_version == 7
    assert image.producer_ids == ProducerIds()
    assert image.partition("a", 0) is None and image.topic_by_id(A) is None


def test_directory_of_a_replica() -> None:
    partition = PartitionImage(
        replicas=(1, 2), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0, directories=(A, B)
    )
    assert partition.directory_of(2) == B
