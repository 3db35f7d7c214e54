"""Members that leave, are silent, do not give up what they should, or are instances that come back."""

from __future__ import annotations

import pytest

from moldau.groups.consumer.member import STATIC_LEAVING_EPOCH
from moldau.wire.errors import ErrorCode, KafkaError
from tests.groups.consumer.consumer_driver import (
    GROUP,
    INTERVAL_MS,
    REBALANCE_MS,
    SESSION_MS,
    ConsumerDriver,
    assigned,
)

ONE = {"instance_id": "one"}


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver({"four": 4})


def test_who_leaves_sets_its_partitions_free(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    response = driver.beat("a", -1)
    assert (response.member_id, response.member_epoch, response.assignment) == ("a", -1, None)
    assert driver.group.state == "Empty"
    assert driver.timer_count == 0
    driver.advance(INTERVAL_MS)
    assert assigned(driver.join("b", "four")) == {driver.ids["four"]: {0, 1, 2, 3}}
    assert driver.failure("c", -1)[0] is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_is_silent_for_a_session_is_out(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    driver.advance(SESSION_MS - 1)
    driver.beat("a", 2)
    driver.advance(SESSION_MS - 1)
    assert not driver.group.is_empty()
    driver.advance(1)
    assert driver.group.is_empty()
    assert driver.group.epoch == 3
    assert driver.failure("a", 2)[0] is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_begins_anew_with_another_coordinator(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    driver.advance(SESSION_MS - 1)
    driver.reload()
    driver.advance(SESSION_MS - 1)
    assert not driver.group.is_empty()
    driver.advance(1)
    assert driver.group.is_empty()


def test_who_keeps_what_it_should_give_up_is_out(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    driver.advance(INTERVAL_MS)
    driver.join("b", "four")
    driver.beat("a", 2)
    for _ in range(REBALANCE_MS // INTERVAL_MS - 1):
        driver.advance(INTERVAL_MS)
        driver.beat("a", 2)
        driver.beat("b", 3)
    assert "a" in driver.group.members
    driver.advance(INTERVAL_MS)
    assert "a" not in driver.group.members
    assert assigned(driver.beat("b", 3)) == {driver.ids["four"]: {0, 1, 2, 3}}


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_who_gave_up_in_time_stays(driver: ConsumerDriver, is_reloaded: bool) -> None:
    driver.join("a", "four")
    driver.advance(INTERVAL_MS)
    driver.join("b", "four")
    driver.beat("a", 2)
    if is_reloaded:
        driver.reload()
    driver.beat("a", 2, owned={driver.ids["four"]: {0, 1}})
    for _ in range(REBALANCE_MS // INTERVAL_MS + 1):
        driver.advance(INTERVAL_MS)
        driver.beat("a", 3)
        driver.beat("b", 3)
    assert "a" in driver.group.members


def test_a_fence_that_cannot_be_written_is_tried_again(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    driver.write_failure = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    driver.advance(SESSION_MS)
    assert not driver.group.is_empty()
    driver.write_failure = None
    driver.advance(1000)
    assert driver.group.is_empty()
    assert driver.timer_count == 0


# ------------------------------------------------------------ instances


def test_an_instance_that_is_back_in_time_has_what_it_had(driver: ConsumerDriver) -> None:
    driver.join("a", "four", **ONE)
    response = driver.beat("a", STATIC_LEAVING_EPOCH, **ONE)
    assert (response.member_id, response.member_epoch) == ("a", STATIC_LEAVING_EPOCH)
    assert not driver.group.is_empty()
    response = driver.join("b", "four", **ONE)
    assert response.member_epoch == 2
    assert assigned(response) == {driver.ids["four"]: {0, 1, 2, 3}}
    assert driver.group.epoch == 2
    assert set(driver.group.members) == {"b"}
    assert driver.failure("a", 2, **ONE)[0] is ErrorCode.FENCED_INSTANCE_ID
    assert driver.failure("a", 2)[0] is ErrorCode.UNKNOWN_MEMBER_ID
    driver.advance(SESSION_MS - 1)
    driver.beat("b", 2, **ONE)


def test_an_instance_that_is_not_back_is_out(driver: ConsumerDriver) -> None:
    driver.join("a", "four", **ONE)
    driver.beat("a", STATIC_LEAVING_EPOCH, **ONE)
    assert driver.failure("a", 2, **ONE)[0] is ErrorCode.FENCED_MEMBER_EPOCH
    driver.advance(SESSION_MS)
    assert driver.group.is_empty()
    assert driver.group.instances == {}


def test_an_instance_that_is_there_is_not_replaced(driver: ConsumerDriver) -> None:
    driver.join("a", "four", **ONE)
    code, message = driver.failure("b", 0, topics=["four"], owned={}, rebalance_timeout_ms=1, **ONE)
    assert code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert message == (
        "Static member b with instance id one cannot join the group because the instance id is owned by a "
        "member."
    )
    # Not even by itself.
    assert driver.failure("a", 0, topics=["four"], owned={}, rebalance_timeout_ms=1, **ONE)[0] is (
        ErrorCode.UNRELEASED_INSTANCE_ID
    )


def test_an_instance_may_come_back_with_another_subscription(driver: ConsumerDriver) -> None:
    driver.create_topic("two", 2)
    driver.join("a", "four", **ONE)
    driver.advance(INTERVAL_MS)
    driver.beat("a", STATIC_LEAVING_EPOCH, **ONE)
    assert assigned(driver.join("b", "two", **ONE)) == {driver.ids["two"]: {0, 1}}


def test_an_instance_may_leave_for_good(driver: ConsumerDriver) -> None:
    driver.join("a", "four", **ONE)
    assert driver.failure("b", -1, **ONE)[0] is ErrorCode.FENCED_INSTANCE_ID
    assert driver.failure("a", -1, instance_id="two")[0] is ErrorCode.UNKNOWN_MEMBER_ID
    driver.beat("a", -1, **ONE)
    assert driver.group.is_empty()


def test_what_an_instance_was_giving_up_is_free_when_it_left(driver: ConsumerDriver) -> None:
    driver.join("a", "four", **ONE)
    driver.advance(INTERVAL_MS)
    driver.join("b", "four")
    driver.beat("a", 2, **ONE)
    driver.beat("a", STATIC_LEAVING_EPOCH, **ONE)
    assert assigned(driver.beat("b", 3)) == {driver.ids["four"]: {2, 3}}


def test_a_group_that_is_deleted_leaves_nothing_behind(driver: ConsumerDriver) -> None:
    driver.join("a", "four")
    with pytest.raises(KafkaError):
        driver.group.check_delete()
    driver.beat("a", -1)
    driver.submit(lambda shard, now_ms, waiter: shard.delete_group(GROUP)).result()
    assert GROUP not in driver.shard.groups.groups
    assert GROUP not in driver.replayed().groups.groups
    driver.grow_topic("four", 5)
    assert driver.join("a", "four").member_epoch == 2
