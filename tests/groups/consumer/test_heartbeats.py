"""What heartbeats do: epochs, assignments, and refusals."""

from __future__ import annotations

import pytest

from moldau.groups.assignors.catalog import offered
from moldau.groups.consumer.member import MemberState
from moldau.groups.consumer.request import check_heartbeat
from moldau.groups.group import Client
from moldau.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.groups.consumer.consumer_driver import (
    GROUP,
    HEARTBEAT_MS,
    INTERVAL_MS,
    ConsumerDriver,
    assigned,
    snapshot,
)


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver({"four": 4, "two": 2}, group_consumer_max_size=4)


def settle(driver: ConsumerDriver) -> None:
    """Every member gives up what it has to, and takes what is free, until nothing is left to do."""
    for _ in range(6):
        driver.advance(INTERVAL_MS)
        for member_id, member in list(driver.group.members.items()):
            owned = {topic: set(indexes) for topic, indexes in member.assigned.items()}
            driver.beat(member_id, member.epoch, owned=owned)


def test_the_first_member_has_everything_at_once(driver: ConsumerDriver) -> None:
    response = driver.join("a", "four", "none such")
    assert assigned(response) == {driver.ids["four"]: {0, 1, 2, 3}}
    assert (response.member_id, response.member_epoch) == ("a", 2)
    assert response.heartbeat_interval_ms == HEARTBEAT_MS
    assert driver.group.state == "Stable"


def test_joining_writes_what_kafka_writes_in_its_order(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    assert [type(record.key) for record in driver.records()] == [
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ]
    written = len(driver.log)
    driver.beat("a", -1)
    assert [type(record.key) for record in driver.records()[written:]] == [
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
    ]


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_tells_nothing(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    written = len(driver.log)
    assert driver.beat("a", 2).assignment is None
    assert len(driver.log) == written


def test_who_has_no_id_is_given_one(driver: ConsumerDriver) -> None:
    one, two = driver.join("", "four"), driver.join("", "four")
    assert one.member_id != two.member_id
    assert set(driver.group.members) == {one.member_id, two.member_id}


def test_a_member_is_described_anew_when_it_is_at_another_place(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    driver.beat("a", 2, client=Client("other", "/10.0.0.1"))
    assert driver.group.members["a"].client_host == "/10.0.0.1"
    assert driver.group.epoch == 2


def test_a_partition_is_given_when_it_was_given_up(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    driver.advance(INTERVAL_MS)
    assert assigned(driver.join("b", "four")) == {}
    assert driver.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    assert assigned(driver.beat("a", 2)) == {driver.ids["four"]: {0, 1}}
    assert driver.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    # It says nothing, or that it still has one of them.
    assert driver.beat("a", 2).member_epoch == 2
    assert driver.beat("a", 2, owned={driver.ids["four"]: {0, 1, 2}}).member_epoch == 2
    assert driver.beat("b", 3).assignment is None
    assert driver.beat("a", 2, owned={driver.ids["four"]: {0, 1}}).member_epoch == 3
    assert assigned(driver.beat("b", 3)) == {driver.ids["four"]: {2, 3}}
    assert driver.group.state == "Stable"


def test_who_can_get_it_back_gets_it_back(driver: ConsumerDriver) -> None:
    """A member that is giving up partitions may be assigned them again before it has."""
    driver.join("a", "four")
    driver.advance(INTERVAL_MS)
    driver.join("b", "four")
    driver.beat("a", 2)
    driver.advance(INTERVAL_MS)
    driver.beat("b", -1)
    driver.beat("a", 2)
    response = driver.beat("a", 2, owned={driver.ids["four"]: {0, 1}})
    assert assigned(response) == {driver.ids["four"]: {0, 1, 2, 3}}
    assert driver.group.members["a"].state is MemberState.STABLE


def test_two_who_come_within_the_interval_share_one_assignment(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    assert driver.join("b", "four").member_epoch == 2
    assert driver.join("c", "four").member_epoch == 2
    assert (driver.group.epoch, driver.group.assignment_epoch) == (4, 2)
    assert driver.group.state == "Assigning"
    driver.advance(INTERVAL_MS - 1)
    assert driver.beat("b", 2).member_epoch == 2
    driver.advance(1)
    assert driver.beat("b", 2).member_epoch == 4
    assert driver.group.assignment_epoch == 4


def test_the_interval_may_be_set_on_the_group(driver: ConsumerDriver) -> None:
    driver.configure_group("consumer.assignment.interval.ms", "0")
    driver.join("a", "four")
    assert driver.join("b", "four").member_epoch == 3


def test_session_and_heartbeat_interval_may_be_set_on_the_group(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    driver.configure_group("consumer.heartbeat.interval.ms", "6000")
    driver.configure_group("consumer.session.timeout.ms", "50000")
    assert driver.beat("a", 2).heartbeat_interval_ms == 6000
    driver.advance(49_999)
    assert "a" in driver.group.members
    driver.advance(1)
    assert driver.group.is_empty()


def test_other_subscriptions_raise_the_epoch_and_take_back_at_once(driver: ConsumerDriver) -> None:
    driver.join("a", "four", "two")
    four, two = driver.ids["four"], driver.ids["two"]
    response = driver.beat("a", 2, topics=["four"])
    assert assigned(response) == {four: {0, 1, 2, 3}}
    assert driver.group.epoch == 3
    assert driver.group.assignment_epoch == 2
    assert driver.group.members["a"].pending_revocation.keys() == {two}
    assert driver.beat("a", 2, owned={four: {0, 1, 2, 3}}).member_epoch == 2
    driver.advance(INTERVAL_MS)
    assert driver.beat("a", 2).member_epoch == 3


@pytest.mark.parametrize("change", ["grow_topic", "create_topic", "delete_topic"])
def test_what_happens_to_topics_is_seen_at_the_next_heartbeat(driver: ConsumerDriver, change: str) -> None:
    driver.join("a", "four", "new")
    driver.advance(INTERVAL_MS)
    four = driver.ids["four"]
    match change:
        case "grow_topic":
            driver.grow_topic("four", 5)
            assert assigned(driver.beat("a", 2)) == {four: {0, 1, 2, 3, 4}}
        case "create_topic":
            driver.create_topic("new", 1)
            assert assigned(driver.beat("a", 2)) == {four: {0, 1, 2, 3}, driver.ids["new"]: {0}}
        case "delete_topic":
            driver.delete_topic("four")
            assert assigned(driver.beat("a", 2)) == {}
    assert driver.group.epoch == 3


def test_topics_of_others_are_nothing_to_a_group(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    driver.grow_topic("two", 3)
    driver.create_topic("three", 3)
    driver.beat("a", 2)
    assert driver.group.epoch == 2


def test_a_topic_that_was_made_anew_is_another_one(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    driver.advance(INTERVAL_MS)
    driver.delete_topic("four")
    driver.create_topic("four", 4)
    driver.beat("a", 2)
    driver.beat("a", 2, owned={})
    settle(driver)
    assert driver.topic_of("a", "four") == {0, 1, 2, 3}


def test_changes_of_topics_that_happened_while_nobody_was_coordinator_are_seen(
    driver: ConsumerDriver,
) -> None:
    driver.join("a", "four")
    driver.advance(INTERVAL_MS)
    driver.grow_topic("four", 6)
    driver.reload()
    assert assigned(driver.beat("a", 2)) == {driver.ids["four"]: set(range(6))}


def test_the_obsolete_metadata_of_older_releases_is_removed(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    driver.write(ConsumerGroupPartitionMetadataKey(group_id=GROUP), ConsumerGroupPartitionMetadataValue())
    driver.reload()
    assert driver.group.has_partition_metadata
    driver.beat("a", 2)
    assert not driver.group.has_partition_metadata
    assert not driver.replayed().groups.groups[GROUP].has_partition_metadata  # type: ignore[attr-defined]


def test_most_members_choose_the_assignor(driver: ConsumerDriver) -> None:
    driver.join("a", "four", "two", server_assignor="range")
    settle(driver)
    driver.join("b", "four", "two", server_assignor="range")
    settle(driver)
    assert driver.topic_of("a", "four") == {0, 1}
    assert driver.topic_of("a", "two") == {0}
    assert driver.group.preferred_assignor() == "range"


def test_a_group_may_be_full(driver: ConsumerDriver) -> None:
    for member_id in "abcd":
        driver.join(member_id, "four")
    code, message = driver.failure("e", 0, topics=["four"], owned={}, rebalance_timeout_ms=1)
    assert code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert message == "The consumer group has reached its maximum capacity of 4 members."
    driver.join("a", "four")


def test_what_could_not_be_written_has_not_happened(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    before = snapshot(driver.replayed().groups.groups[GROUP])  # type: ignore[arg-type]
    driver.advance(INTERVAL_MS)
    driver.grow_topic("four", 8)
    driver.write_failure = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert driver.failure("b", 0, topics=["four"], owned={}, rebalance_timeout_ms=1)[0] is (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    assert snapshot(driver.group) == before
    driver.write_failure = None
    # The topic has grown all the same, and is looked at again.
    assert assigned(driver.beat("a", 2)) == {driver.ids["four"]: set(range(8))}


# ------------------------------------------------------------ epochs


def in_state(driver: ConsumerDriver, state: MemberState) -> str:
    """A member that is in the state; the group has come to epoch 3."""
    driver.join("a", "four")
    driver.advance(INTERVAL_MS)
    driver.join("b", "four")
    driver.beat("a", 2)
    if state is MemberState.STABLE:
        driver.beat("a", 2, owned={driver.ids["four"]: {0, 1}})
    member_id = "b" if state is MemberState.UNRELEASED_PARTITIONS else "a"
    assert driver.group.members[member_id].state is state
    return member_id


EVERY_STATE = [MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS]


@pytest.mark.parametrize("state", EVERY_STATE)
def test_epochs_of_others_are_fenced_in_every_state(driver: ConsumerDriver, state: MemberState) -> None:
    member_id = in_state(driver, state)
    known = driver.group.members[member_id].epoch
    for epoch, word in ((known + 1, "greater"), (99, "greater"), (1, "smaller")):
        code, message = driver.failure(member_id, epoch, owned={})
        assert code is ErrorCode.FENCED_MEMBER_EPOCH
        assert message is not None and word in message
    assert driver.group.members[member_id].state is state


@pytest.mark.parametrize("state", EVERY_STATE)
def test_who_joins_again_is_told_what_it_has_in_every_state(
    driver: ConsumerDriver, state: MemberState
) -> None:
    member_id = in_state(driver, state)
    has = {topic: set(indexes) for topic, indexes in driver.group.members[member_id].assigned.items()}
    response = driver.join(member_id, "four")
    assert assigned(response) == has
    assert response.member_epoch == 3


@pytest.mark.parametrize("state", EVERY_STATE)
def test_who_goes_is_gone_in_every_state(driver: ConsumerDriver, state: MemberState) -> None:
    member_id = in_state(driver, state)
    driver.beat(member_id, -1)
    (left,) = driver.group.members
    driver.advance(INTERVAL_MS)
    driver.beat(left, driver.group.members[left].epoch, owned={})
    driver.beat(left, driver.group.members[left].epoch, owned={})
    assert driver.topic_of(left, "four") == {0, 1, 2, 3}


@pytest.mark.parametrize("state", EVERY_STATE)
def test_another_coordinator_goes_on_in_every_state(driver: ConsumerDriver, state: MemberState) -> None:
    in_state(driver, state)
    before = snapshot(driver.group)
    driver.reload()
    assert snapshot(driver.group) == before
    settle(driver)
    assert driver.group.state == "Stable"
    assert (driver.topic_of("a", "four"), driver.topic_of("b", "four")) == ({0, 1}, {2, 3})


def test_the_epoch_before_is_taken_from_who_owns_no_more_than_it_has(driver: ConsumerDriver) -> None:
    in_state(driver, MemberState.STABLE)
    four = driver.ids["four"]
    assert driver.beat("a", 2, owned={four: {0}}).member_epoch == 3
    assert driver.failure("a", 2, owned={four: {0, 2}})[0] is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.failure("a", 2)[0] is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_in_a_state_of_a_later_release_has_to_begin_anew(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    record = driver.records()[-1]
    record.value.state = 77  # type: ignore[union-attr]
    driver.write(record.key, record.value)
    driver.reload()
    assert driver.group.members["a"].state is MemberState.UNKNOWN
    assert driver.failure("a", 2)[0] is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.join("a", "four").member_epoch == 2
    assert driver.group.members["a"].state is MemberState.STABLE


# ------------------------------------------------------------ requests


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": " "}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
        (
            {"server_assignor": "theirs"},
            "ServerAssignor theirs is not supported. Supported assignors: uniform, range.",
        ),
    ],
)
def test_requests_that_are_wrong_by_themselves(fields: dict[str, object], message: str) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=["four"],
        topic_partitions=[],
    )
    check_heartbeat(request, 1, offered(("uniform", "range")))
    for name, value in fields.items():
        setattr(request, name, value)
    with pytest.raises(KafkaError) as caught:
        check_heartbeat(request, 1, offered(("uniform", "range")))
    assert caught.value.message == message


def test_ids_are_given_to_those_who_ask_in_the_first_version() -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_epoch=0, rebalance_timeout_ms=1, subscribed_topic_names=[], topic_partitions=[]
    )
    check_heartbeat(request, 0, [])
    with pytest.raises(KafkaError):
        check_heartbeat(request, 1, [])


def test_groups_that_are_not_there_or_of_another_kind(driver: ConsumerDriver) -> None:
    assert driver.failure("a", 1) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Consumer group {GROUP} not found.",
    )
    assert driver.failure("a", -1) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {GROUP} not found.")
    driver.shard.classic.create_group(GROUP)
    wrong = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {GROUP} is not a consumer group."
    assert driver.failure("a", 1) == wrong
    assert driver.failure("a", -1) == wrong
    # Without members it becomes one.
    driver.join("a", "four")
