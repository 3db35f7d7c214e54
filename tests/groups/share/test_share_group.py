from __future__ import annotations

import pytest

from moldau.groups.group import Client
from moldau.groups.records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    TopicInfo,
    TopicPartitionsInfo,
)
from moldau.groups.share.protocol import check_heartbeat
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.groups.share.share_members import GROUP, ShareDriver, assigned, topic_id


@pytest.fixture
def driver() -> ShareDriver:
    driver = ShareDriver(group_share_assignment_interval_ms=0)
    driver.create_topic("t", 2)
    return driver


def code_of(work: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        work()  # type: ignore[operator]
    return caught.value.code


def joined(driver: ShareDriver, member: str, topics: list[str]) -> int:
    """Its epoch, once it is assigned what it can be."""
    epoch = driver.heartbeat(member, 0, topics).member_epoch
    return driver.heartbeat(member, epoch).member_epoch


def test_the_first_member_waits_for_the_state_of_its_partitions(driver: ShareDriver) -> None:
    first = driver.heartbeat("a", 0, ["t"])
    assert (first.member_epoch, assigned(first), first.heartbeat_interval_ms) == (2, {}, 5000)
    [request] = driver.asked
    assert request.group_id == GROUP
    assert [(topic.topic_id, [(p.partition, p.state_epoch, p.start_offset) for p in topic.partitions]) for
            topic in request.topics] == [(topic_id("t"), [(0, 2, -1), (1, 2, -1)])]  # fmt: skip
    second = driver.heartbeat("a", 2)
    assert (second.member_epoch, assigned(second)) == (3, {"t": [0, 1]})
    third = driver.heartbeat("a", 3)
    assert (third.member_epoch, assigned(third)) == (3, None)


def test_records_are_written_in_kafkas_order(driver: ShareDriver) -> None:
    driver.heartbeat("a", 0, ["t"])
    assert [type(record.key) for record in driver.records()] == [
        ShareGroupMemberMetadataKey,
        ShareGroupMetadataKey,
        ShareGroupTargetAssignmentMemberKey,
        ShareGroupTargetAssignmentMetadataKey,
        ShareGroupCurrentMemberAssignmentKey,
        ShareGroupStatePartitionMetadataKey,
        ShareGroupStatePartitionMetadataKey,
    ]
    info = TopicPartitionsInfo(topic_id=topic_id("t"), topic_name="t", partitions=[0, 1])
    assert [record.value for record in driver.records()[-2:]] == [
        ShareGroupStatePartitionMetadataValue(initializing_topics=[info]),
        ShareGroupStatePartitionMetadataValue(initialized_topics=[info]),
    ]


def test_a_heartbeat_without_news_writes_nothing(driver: ShareDriver) -> None:
    epoch = joined(driver, "a", ["t"])
    before = len(driver.log)
    driver.heartbeat("a", epoch)
    assert len(driver.log) == before


def test_members_share_partitions(driver: ShareDriver) -> None:
    for member in "abc":
        joined(driver, member, ["t"])
    group = driver.shard.share.find(GROUP)
    found = [target.get(topic_id("t"), frozenset()) for target in group.targets.values()]
    assert [len(each) for each in found] == [2, 1, 1]
    assert frozenset().union(*found) == {0, 1}


def test_a_lost_response_may_be_asked_for_again(driver: ShareDriver) -> None:
    driver.heartbeat("a", 0, ["t"])
    driver.heartbeat("a", 2)
    again = driver.heartbeat("a", 2)
    assert (again.member_epoch, assigned(again)) == (3, None)


def test_epochs_that_never_were_are_fenced(driver: ShareDriver) -> None:
    joined(driver, "a", ["t"])
    assert code_of(lambda: driver.heartbeat("a", 4)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert code_of(lambda: driver.heartbeat("a", 1)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_who_is_unknown_is_told_so(driver: ShareDriver) -> None:
    assert code_of(lambda: driver.heartbeat("a", 1)) is ErrorCode.GROUP_ID_NOT_FOUND
    joined(driver, "a", ["t"])
    assert code_of(lambda: driver.heartbeat("b", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(lambda: driver.heartbeat("b", -1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_is_gone_and_its_partitions_are_for_others(driver: ShareDriver) -> None:
    epoch = joined(driver, "a", ["t"])
    driver.heartbeat("b", 0, ["t"])
    left = driver.heartbeat("b", -1)
    assert (left.member_id, left.member_epoch) == ("b", -1)
    assert list(driver.shard.share.find(GROUP).members) == ["a"]
    assert assigned(driver.heartbeat("a", epoch)) is None  # it has all of them already
    assert driver.timer_count == 1


def test_a_silent_member_is_taken_out(driver: ShareDriver) -> None:
    joined(driver, "a", ["t"])
    driver.advance(44_999)
    assert not driver.shard.share.find(GROUP).is_empty()
    driver.advance(1)
    assert driver.shard.share.find(GROUP).state == "Empty"


def test_sessions_go_on_after_a_reload(driver: ShareDriver) -> None:
    joined(driver, "a", ["t"])
    driver.advance(30_000)
    driver.reload()
    driver.advance(44_999)
    assert not driver.shard.share.find(GROUP).is_empty()
    driver.advance(1)
    assert driver.shard.share.find(GROUP).is_empty()


def test_a_group_has_room_for_so_many(driver: ShareDriver) -> None:
    driver = ShareDriver(group_share_max_size=1)
    driver.heartbeat("a", 0, ["t"])
    assert code_of(lambda: driver.heartbeat("b", 0, ["t"])) is ErrorCode.GROUP_MAX_SIZE_REACHED
    driver.heartbeat("a", 0, ["t"])


def test_a_topic_that_comes_later_is_assigned(driver: ShareDriver) -> None:
    epoch = joined(driver, "a", ["t", "later"])
    driver.create_topic("later")
    epoch = driver.heartbeat("a", epoch).member_epoch
    found = driver.heartbeat("a", epoch)
    assert assigned(found) == {"t": [0, 1], "later": [0]}


def test_partitions_that_are_added_get_a_state_and_are_assigned(driver: ShareDriver) -> None:
    epoch = joined(driver, "a", ["t"])
    driver.add_partition("t", 2)
    epoch = driver.heartbeat("a", epoch).member_epoch
    assert [p.partition for p in driver.asked[-1].topics[0].partitions] == [2]
    assert assigned(driver.heartbeat("a", epoch)) == {"t": [0, 1, 2]}


def test_a_deleted_topic_is_neither_assigned_nor_remembered(driver: ShareDriver) -> None:
    driver.create_topic("other")
    epoch = joined(driver, "a", ["t", "other"])
    driver.delete_topic("t")
    assert assigned(driver.heartbeat("a", epoch)) == {"other": [0]}
    assert driver.shard.share.states.initialized(GROUP) == {topic_id("other"): frozenset({0})}


def test_a_changed_subscription_counts_at_once(driver: ShareDriver) -> None:
    driver.create_topic("other")
    epoch = joined(driver, "a", ["t", "other"])
    assert assigned(driver.heartbeat("a", epoch, ["other"])) == {"other": [0]}


def test_assignments_keep_their_distance() -> None:
    driver = ShareDriver(group_share_assignment_interval_ms=1000)
    driver.create_topic("t", 1)
    epoch = driver.heartbeat("a", 0, ["t"]).member_epoch
    driver.advance(999)
    assert assigned(driver.heartbeat("a", epoch)) is None
    driver.advance(1)
    assert assigned(driver.heartbeat("a", epoch)) == {"t": [0]}


def test_a_state_that_does_not_come_is_asked_for_again(driver: ShareDriver) -> None:
    epoch = driver.heartbeat("a", 0, ["t"], is_answered=False).member_epoch
    driver.heartbeat("a", epoch)
    assert len(driver.asked) == 1
    driver.advance(30_000)
    driver.heartbeat("a", epoch)
    assert len(driver.asked) == 2


def test_a_state_that_could_not_be_had_is_asked_for_again(driver: ShareDriver) -> None:
    epoch = driver.heartbeat("a", 0, ["t"], is_answered=False).member_epoch
    driver.not_initialized(driver.asked[0])
    epoch = driver.heartbeat("a", epoch).member_epoch
    assert len(driver.asked) == 2
    assert assigned(driver.heartbeat("a", epoch)) == {"t": [0, 1]}


def test_who_the_client_is_is_kept(driver: ShareDriver) -> None:
    epoch = joined(driver, "a", ["t"])
    driver.heartbeat("a", epoch, rack="r", client=Client("me", "/10.0.0.1"))
    described = driver.submit(lambda shard, now_ms, waiter: shard.share.describe(GROUP)).result()
    [member] = described.members
    assert (member.rack_id, member.client_id, member.client_host) == ("r", "me", "/10.0.0.1")


def test_a_description_tells_epochs_and_assignments(driver: ShareDriver) -> None:
    epoch = joined(driver, "a", ["t"])
    found = driver.submit(lambda shard, now_ms, waiter: shard.share.describe(GROUP)).result()
    assert (found.group_state, found.assignor_name) == ("Stable", "simple")
    assert (found.group_epoch, found.assignment_epoch) == (epoch, epoch)
    [topic] = found.members[0].assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("t", [0, 1])
    assert found.members[0].subscribed_topic_names == ["t"]


def test_a_reloaded_shard_is_as_it_was(driver: ShareDriver) -> None:
    for member in "ab":
        joined(driver, member, ["t"])
    driver.heartbeat("b", -1)
    before = driver.shard.share.find(GROUP)
    after = driver.replayed().share.find(GROUP)
    for field in ("epoch", "metadata_hash", "assignment_epoch", "members", "targets", "topics"):
        assert getattr(after, field) == getattr(before, field)
    assert driver.replayed().share.states.of(GROUP) == driver.shard.share.states.of(GROUP)


def test_a_group_with_members_is_not_deleted(driver: ShareDriver) -> None:
    joined(driver, "a", ["t"])
    deletion = driver.submit(lambda shard, now_ms, waiter: shard.share.delete_states(GROUP))
    assert deletion.failure is not None and deletion.failure.code is ErrorCode.NON_EMPTY_GROUP


def test_before_a_group_is_deleted_its_states_are(driver: ShareDriver) -> None:
    joined(driver, "a", ["t"])
    driver.heartbeat("a", -1)
    request = driver.submit(lambda shard, now_ms, waiter: shard.share.delete_states(GROUP)).result()
    assert [(data.topic_id, [p.partition for p in data.partitions]) for data in request.topics] == [
        (topic_id("t"), [0, 1])
    ]
    assert driver.records()[-1].value == ShareGroupStatePartitionMetadataValue(
        deleting_topics=[TopicInfo(topic_id=topic_id("t"), topic_name="t")]
    )
    # An attempt that was left undone is done with the next one.
    request = driver.submit(lambda shard, now_ms, waiter: shard.share.delete_states(GROUP)).result()
    assert len(request.topics) == 1
    driver.submit(lambda shard, now_ms, waiter: shard.delete_group(GROUP)).result()
    assert driver.shard.groups.get(GROUP) is None
    assert driver.replayed().groups.get(GROUP) is None
    assert driver.shard.share.states.get(GROUP) is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
    ],
)
def test_requests_that_make_no_sense_are_refused(fields: dict[str, object], problem: str) -> None:
    sound = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"]}
    with pytest.raises(KafkaError) as caught:
        check_heartbeat(ShareGroupHeartbeatRequest(**{**sound, **fields}))  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, problem)
    check_heartbeat(ShareGroupHeartbeatRequest(**sound))  # type: ignore[arg-type]
