"""Brokers that join, live, wind down and leave. Partitions change as Apache Kafka 4.3 changes them."""

from __future__ import annotations

from random import Random

import pytest
from cluster import CONFIG, carried_out, cluster, directory

from moldau.controller.brokers import (
    decide_change_log_dirs,
    decide_controlled_shutdown,
    decide_fence_broker,
    decide_register_broker,
    decide_register_controller,
    decide_unfence_broker,
    decide_unregister_broker,
)
from moldau.controller.configs import config_changes
from moldau.controller.decision import Decision
from moldau.controller.directories import decide_assign_replicas_to_dirs
from moldau.controller.producer_ids import decide_allocate_producer_ids
from moldau.controller.topics import decide_create_topics
from moldau.metadata.delta import apply_records
from moldau.metadata.features import METADATA_VERSION_LEVELS, SUPPORTED_FEATURES
from moldau.metadata.image import ClusterImage, ConfigResource, PartitionImage, ResourceType
from moldau.metadata.records import FeatureLevelRecord, PartitionChangeRecord
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from moldau.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from moldau.wire.messages.controller_registration import ControllerRegistrationRequest
from moldau.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest


def with_topic(image: ClusterImage, *replicas: list[int], **options: str) -> ClusterImage:
    topic = CreatableTopic(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(replicas)
        ],
    )
    request = CreateTopicsRequest(topics=[topic])
    image = carried_out(image, decide_create_topics(image, request, config=CONFIG, random=Random(1)))
    overrides = {name.replace("_", "."): value for name, value in options.items()}
    changes = config_changes(image, ConfigResource(ResourceType.TOPIC, "t"), {}, overrides)
    return apply_records(image, changes)[0]


def partition(image: ClusterImage, index: int = 0) -> PartitionImage:
    return image.topics["t"].partitions[index]


def in_short(image: ClusterImage) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    found = partition(image)
    return found.leader, found.isr, found.elr, found.last_known_elr


def registration(
    broker_id: int = 1, incarnation: int = 50, previous_epoch: int = -1, **changes: object
) -> BrokerRegistrationRequest:
    values: dict[str, object] = {
        "cluster_id": "c",
        "listeners": [Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        "features": [
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        "rack": None,
        "log_dirs": [directory(broker_id)],
        **changes,
    }
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        incarnation_id=Uuid(bytes([incarnation]) * 16),
        previous_broker_epoch=previous_epoch,
        **values,  # type: ignore[arg-type]
    )


def register(image: ClusterImage, request: BrokerRegistrationRequest, **options: bool) -> ClusterImage:
    return carried_out(image, decide_register_broker(image, request, cluster_id="c", **options))


# ---------------------------------------------------------------- registration


def test_a_new_broker_is_fenced_and_its_epoch_is_the_offset_of_its_registration() -> None:
    decision = decide_register_broker(cluster(), registration(), cluster_id="c")
    assert decision.reply.broker_epoch == 100
    assert [record.version for record in decision.records] == [4]
    broker = carried_out(cluster(), decision).brokers[1]
    assert (broker.fenced, broker.epoch, broker.log_dirs) == (True, 100, (directory(1),))
    assert broker.features["metadata.version"] == (7, 30)
    assert broker.endpoint("PLAINTEXT") is not None and broker.endpoint("OTHER") is None


def test_registering_again_in_the_same_life_keeps_the_epoch_and_the_state() -> None:
    image = cluster(1)
    after = register(image, registration(incarnation=1, rack="r"), has_session=True)
    assert (after.brokers[1].epoch, after.brokers[1].fenced, after.brokers[1].rack) == (1, False, "r")


def test_a_new_life_has_a_new_epoch_and_starts_fenced() -> None:
    after = register(cluster(1), registration(previous_epoch=1))
    assert (after.brokers[1].epoch, after.brokers[1].fenced) == (100, True)


def test_the_image_is_what_the_records_say_before_directories_had_ids_too() -> None:
    levels = [FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION_LEVELS["3.6-IV2"])]
    image, _ = apply_records(cluster(), levels)
    after = register(image, registration())
    assert after.brokers[1].log_dirs == ()
    assert decide_change_log_dirs(after, 1, 100, offline=[directory(1)]).records == []


NEVER = Feature(name="metadata.version", min_supported_version=1, max_supported_version=5)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (registration(cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (registration(2), ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        (registration(is_migrating_zk_broker=True), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (registration(log_dirs=[]), ErrorCode.INVALID_REGISTRATION),
        (registration(log_dirs=[directory(1)] * 2), ErrorCode.INVALID_REGISTRATION),
        (registration(log_dirs=[Uuid(bytes(15) + b"\x05")]), ErrorCode.INVALID_REGISTRATION),
        (registration(log_dirs=[directory(2)]), ErrorCode.INVALID_REGISTRATION),
        (registration(features=[]), ErrorCode.UNSUPPORTED_VERSION),
        (registration(features=[NEVER]), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_broker_that_may_not_join(request_: BrokerRegistrationRequest, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        decide_register_broker(cluster(2), request_, cluster_id="c", has_session=True)
    assert raised.value.code == code


# ---------------------------------------------------------------- a single broker's partitions


def test_the_partitions_of_a_lone_broker_wait_for_it_over_a_controlled_shutdown() -> None:
    image = with_topic(cluster(1), [1])
    decision = decide_controlled_shutdown(image, 1, 1)
    assert decision.reply is True
    assert [record.version for record in decision.records] == [1, 2]
    down = carried_out(image, decision)
    assert down.brokers[1].in_controlled_shutdown
    assert in_short(down) == (-1, (), (1,), (1,))
    assert decide_controlled_shutdown(down, 1, 1).records == []

    again = register(down, registration(previous_epoch=1))
    assert in_short(again) == (-1, (), (1,), (1,))
    decision = decide_unfence_broker(again, 1, 100)
    change = decision.records[1].message
    assert isinstance(change, PartitionChangeRecord)
    assert (change.isr, change.leader, change.eligible_leader_replicas, change.last_known_elr) == (
        [1],
        1,
        [],
        [],
    )
    up = carried_out(again, decision)
    assert in_short(up) == (1, (1,), (), ())
    assert (partition(up).leader_epoch, partition(up).partition_epoch) == (2, 2)
    assert partition(up).leader_recovery_state == 0


def test_an_unclean_restart_counts_as_in_sync_with_nobody_and_recovers_from_the_last_leader() -> None:
    image = with_topic(cluster(1), [1])
    again = register(image, registration())
    assert in_short(again) == (-1, (), (), (1,))
    up = carried_out(again, decide_unfence_broker(again, 1, 100))
    assert in_short(up) == (1, (1,), (), ())
    assert partition(up).leader_recovery_state == 1


def test_fencing_takes_the_lead_away_before_it_fences() -> None:
    image = with_topic(cluster(1), [1])
    decision = decide_fence_broker(image, 1, 1)
    assert isinstance(decision.records[0].message, PartitionChangeRecord)
    after = carried_out(image, decision)
    assert after.brokers[1].fenced and in_short(after) == (-1, (), (1,), (1,))
    assert decide_fence_broker(after, 1, 1).records == []
    assert decide_unfence_broker(image, 1, 1).records == []


def test_without_elr_the_last_in_sync_replica_stays_in_sync() -> None:
    image = with_topic(cluster(1, elr=False), [1])
    down = carried_out(image, decide_fence_broker(image, 1, 1))
    assert in_short(down) == (-1, (1,), (), ())
    assert in_short(carried_out(down, decide_unfence_broker(down, 1, 1))) == (1, (1,), (), ())


# ---------------------------------------------------------------- several brokers


def test_another_replica_in_sync_takes_over() -> None:
    image = with_topic(cluster(1, 2, 3), [1, 2, 3], [2, 3, 1])
    after = carried_out(image, decide_fence_broker(image, 1, 1))
    assert in_short(after) == (2, (2, 3), (), ())
    # Not its leader: its epoch stays.
    assert (partition(after, 1).leader, partition(after, 1).isr, partition(after, 1).leader_epoch) == (
        2,
        (2, 3),
        0,
    )


def test_below_min_isr_who_leaves_stays_eligible() -> None:
    image = with_topic(cluster(1, 2), [1, 2], min_insync_replicas="2")
    after = carried_out(image, decide_fence_broker(image, 1, 1))
    assert in_short(after) == (2, (2,), (1,), ())
    gone = carried_out(after, decide_fence_broker(after, 2, 2))
    assert in_short(gone) == (-1, (), (1, 2), (2,))
    # The eligible one that comes back first leads.
    back = carried_out(gone, decide_unfence_broker(gone, 1, 1))
    assert in_short(back) == (1, (1,), (2,), ())


def test_nobody_leads_whom_it_could_lose_records_with_unless_that_is_allowed() -> None:
    for allowed, leader in (("false", -1), ("true", 2)):
        image = with_topic(
            cluster(1, 2, fenced=[2], elr=False), [1, 2], unclean_leader_election_enable=allowed
        )
        image = carried_out(image, decide_unfence_broker(image, 2, 2))
        assert partition(image).isr == (1,)
        after = carried_out(image, decide_fence_broker(image, 1, 1))
        assert partition(after).leader == leader
        assert partition(after).leader_recovery_state == (1 if allowed == "true" else 0)


def test_a_failed_directory_takes_along_what_lies_in_it() -> None:
    image = with_topic(cluster(1, 2), [1, 2], [2, 1])
    broker = image.brokers[1]
    decision = decide_change_log_dirs(image, 1, 1, offline=[directory(1), Uuid(b"?" * 16)], cordoned=[])
    after = carried_out(image, decision)
    assert partition(after).leader == 2
    assert after.brokers[1].cordoned_log_dirs == ()
    assert decide_change_log_dirs(after, 1, broker.epoch, cordoned=[]).records == []


LOST = Uuid(b"lost-" + bytes(11))


def in_two_directories(directory_id: Uuid) -> ClusterImage:
    """Broker 1 leads its one replica in one of its two directories."""
    image = register(cluster(), registration(log_dirs=[directory(1), LOST]))
    image = carried_out(image, decide_unfence_broker(image, 1, 100))
    return carried_out(with_topic(image, [1]), assign(with_topic(image, [1]), directory_id))


def assign(image: ClusterImage, directory_id: Uuid) -> Decision[AssignReplicasToDirsResponse]:
    topic = RequestTopicData(
        topic_id=image.topics["t"].topic_id, partitions=[RequestPartitionData(partition_index=0)]
    )
    request = AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=image.brokers[1].epoch,
        directories=[RequestDirectoryData(id=directory_id, topics=[topic])],
    )
    return decide_assign_replicas_to_dirs(image, request)


def restarted(image: ClusterImage, *log_dirs: Uuid, is_clean: bool) -> ClusterImage:
    """The broker in its next life, with these directories."""
    epoch = image.brokers[1].epoch
    if is_clean:
        image = carried_out(image, decide_controlled_shutdown(image, 1, epoch))
        image = carried_out(image, decide_fence_broker(image, 1, epoch))
    request = registration(incarnation=51, previous_epoch=epoch if is_clean else -1, log_dirs=list(log_dirs))
    image = register(image, request)
    return carried_out(image, decide_unfence_broker(image, 1, image.brokers[1].epoch))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("elr", [True, False])
def test_a_broker_leads_nothing_in_a_directory_that_it_comes_back_without(is_clean: bool, elr: bool) -> None:
    for lies_in, leader in ((LOST, -1), (directory(1), 1)):
        image = in_two_directories(lies_in)
        if not elr:
            levels = [FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)]
            image, _ = apply_records(image, levels)
        broken = restarted(image, directory(1), is_clean=is_clean)
        assert partition(broken).leader == leader
        mended = restarted(broken, directory(1), LOST, is_clean=True)
        assert (partition(mended).leader, partition(mended).isr) == (1, (1,))


def test_a_replica_that_turns_out_to_lie_in_a_failed_directory_loses_its_lead() -> None:
    image = in_two_directories(directory(1))
    image = carried_out(image, decide_change_log_dirs(image, 1, 100, offline=[LOST]))
    assert partition(image).leader == 1
    after = carried_out(image, assign(image, LOST))
    assert partition(after).directories == (LOST,)
    assert in_short(after) == (-1, (), (1,), (1,))


def test_a_replica_that_found_another_directory_leads_again() -> None:
    """Its directory is gone for good, and the broker began anew elsewhere."""
    image = restarted(in_two_directories(LOST), directory(1), is_clean=True)
    assert partition(image).leader == -1
    after = carried_out(image, assign(image, directory(1)))
    assert (partition(after).leader, partition(after).isr) == (1, (1,))
    assert assign(after, directory(1)).records == []


def test_an_unregistered_broker_is_in_no_isr() -> None:
    image = with_topic(cluster(1, 2), [1, 2])
    decision = decide_unregister_broker(image, UnregisterBrokerRequest(broker_id=1))
    after = carried_out(image, decision)
    assert 1 not in after.brokers and in_short(after) == (2, (2,), (), ())
    with pytest.raises(KafkaError) as raised:
        decide_unregister_broker(after, UnregisterBrokerRequest(broker_id=1))
    assert raised.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_broker_of_an_earlier_life_is_not_listened_to() -> None:
    for decide in (decide_fence_broker, decide_unfence_broker, decide_controlled_shutdown):
        for broker_id, epoch in ((1, 7), (9, 1)):
            with pytest.raises(KafkaError) as raised:
                decide(cluster(1), broker_id, epoch)
            assert raised.value.code == ErrorCode.STALE_BROKER_EPOCH


# ---------------------------------------------------------------- controllers and producer ids


def test_a_controller_registers() -> None:
    image = cluster()
    request = ControllerRegistrationRequest(controller_id=3, incarnation_id=Uuid(b"i" * 16))
    after = carried_out(image, decide_register_controller(image, request))
    assert after.controllers[3].incarnation_id == b"i" * 16


def test_blocks_of_producer_ids_follow_each_other() -> None:
    image, starts = cluster(1), []
    for _ in range(3):
        decision = decide_allocate_producer_ids(
            image, AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)
        )
        starts.append((decision.reply.producer_id_start, decision.reply.producer_id_len))
        image = carried_out(image, decision)
    assert starts == [(0, 1000), (1000, 1000), (2000, 1000)]
    with pytest.raises(KafkaError) as raised:
        decide_allocate_producer_ids(image, AllocateProducerIdsRequest(broker_id=1, broker_epoch=2))
    assert raised.value.code == ErrorCode.STALE_BROKER_EPOCH
