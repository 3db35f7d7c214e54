"""What a consumer group tells of itself, and what it lets be done with its offsets."""

from __future__ import annotations

import pytest

from moldau.groups.group import GroupType
from moldau.wire.errors import ErrorCode, KafkaError
from tests.groups.consumer.consumer_driver import GROUP, INTERVAL_MS, ConsumerDriver


@pytest.fixture
def driver() -> ConsumerDriver:
    driver = ConsumerDriver({"four": 4})
    driver.join("a", "four", instance_id="one", rack_id="rack")
    driver.advance(INTERVAL_MS)
    driver.join("b", "four", regex="f.*r")
    driver.beat("a", 2, instance_id="one")
    return driver


def commit(
    driver: ConsumerDriver, member_id: str, epoch: int, *partitions: int, version: int = 9, **kind: bool
) -> ErrorCode:
    try:
        check = driver.group.check_offset_commit(
            member_id, None, epoch, is_transactional=kind.get("is_transactional", False), version=version
        )
        for partition in partitions:
            if check is not None:
                check("four", driver.ids["four"], partition)
    except KafkaError as failure:
        return failure.code
    return ErrorCode.NONE


def test_it_describes_itself(driver: ConsumerDriver) -> None:
    described = driver.submit(lambda shard, now_ms, waiter: shard.describe_consumer_group(GROUP)).result()
    assert (described.group_id, described.group_state) == (GROUP, "Reconciling")
    assert (described.group_epoch, described.assignment_epoch, described.assignor_name) == (3, 3, "uniform")
    one, two = described.members
    assert (one.member_id, one.instance_id, one.rack_id, one.member_epoch) == ("a", "one", "rack", 2)
    assert (one.subscribed_topic_names, two.subscribed_topic_regex, one.member_type) == (["four"], "f.*r", 1)
    # What it has to give up it still has.
    assert [each.partitions for each in one.assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert [each.partitions for each in one.target_assignment.topic_partitions] == [[0, 1]]
    assert [(each.topic_name, each.partitions) for each in two.target_assignment.topic_partitions] == [
        ("four", [2, 3])
    ]
    assert two.assignment.topic_partitions == []


def test_other_groups_are_not_described(driver: ConsumerDriver) -> None:
    driver.shard.classic.create_group("classic")
    for group_id, message in (
        ("none", "Group none not found."),
        ("classic", "Group classic is not a consumer group."),
    ):
        with pytest.raises(KafkaError) as caught:
            driver.submit(lambda shard, now, waiter, of=group_id: shard.describe_consumer_group(of)).result()
        assert (caught.value.code, caught.value.message) == (ErrorCode.GROUP_ID_NOT_FOUND, message)


def test_it_is_a_group_like_the_others(driver: ConsumerDriver) -> None:
    group = driver.group
    assert (group.type, group.protocol_type) == (GroupType.CONSUMER, "consumer")
    assert group.is_subscribed_to("four") and not group.is_subscribed_to("two")
    assert group.offset_expiration_base_ms("four", 7) == 7
    with pytest.raises(KafkaError):
        group.check_delete()


def test_members_commit_under_their_epoch(driver: ConsumerDriver) -> None:
    assert commit(driver, "a", 2, 0) is ErrorCode.NONE
    assert commit(driver, "a", 3, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(driver, "x", 2, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver, "", -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver, "a", 2, 0, version=8) is ErrorCode.UNSUPPORTED_VERSION


def test_an_earlier_epoch_will_do_for_what_a_member_has_had_since_then(driver: ConsumerDriver) -> None:
    driver.beat("a", 2, instance_id="one", owned={driver.ids["four"]: {0, 1}})
    driver.beat("b", 3)
    assert commit(driver, "a", 2, 0, 1) is ErrorCode.NONE
    assert commit(driver, "a", 2, 0, 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(driver, "a", 1, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(driver, "b", 2, 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(driver, "b", 3, 2) is ErrorCode.NONE
    driver.reload()
    assert commit(driver, "a", 2, 0, 1) is ErrorCode.NONE


def test_what_is_being_given_up_may_be_committed(driver: ConsumerDriver) -> None:
    driver.beat("a", 2, instance_id="one", owned={driver.ids["four"]: {0, 1}})
    driver.beat("a", 3, instance_id="one", topics=[])
    member = driver.group.members["a"]
    assert (member.epoch, dict(member.assigned)) == (3, {})
    assert commit(driver, "a", 2, 0) is ErrorCode.NONE


def test_producers_that_know_no_members_commit_in_transactions(driver: ConsumerDriver) -> None:
    assert commit(driver, "", -1, 0, is_transactional=True) is ErrorCode.NONE
    assert commit(driver, "a", 2, 0, is_transactional=True, version=3) is ErrorCode.NONE
    assert commit(driver, "a", 9, 0, is_transactional=True, version=3) is ErrorCode.STALE_MEMBER_EPOCH


def test_anybody_commits_for_a_group_without_members(driver: ConsumerDriver) -> None:
    driver.beat("a", -1, instance_id="one")
    driver.beat("b", -1)
    assert commit(driver, "", -1, 0) is ErrorCode.NONE
    assert commit(driver, "a", 2, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    driver.group.check_delete()


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, None),
        ("a", 2, None),
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_members_fetch_under_their_epoch(
    driver: ConsumerDriver, member_id: str | None, epoch: int, code: ErrorCode | None
) -> None:
    if code is None:
        driver.group.check_offset_fetch(member_id, epoch)
    else:
        with pytest.raises(KafkaError) as caught:
            driver.group.check_offset_fetch(member_id, epoch)
        assert caught.value.code is code
