"""LeaveGroup: one by one or several at once, by member id or, for whoever manages the group, by name."""

from __future__ import annotations

import pytest

from moldau.groups.classic.group import ClassicState
from moldau.wire.errors import ErrorCode
from tests.groups.classic.classic_members import ClassicDriver, error_of

NONE, UNKNOWN, FENCED = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


def test_who_leaves_makes_the_others_rebalance_at_once(driver: ClassicDriver) -> None:
    leader, other = driver.settle(2)
    assert driver.leave(leader) == [(leader, None, NONE)]
    assert driver.group().leader_id == other
    assert driver.beat(other, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_when_the_last_one_leaves_the_group_is_empty(driver: ClassicDriver) -> None:
    [member] = driver.settle(1)
    driver.leave(member)
    group = driver.group()
    assert (group.state, group.generation, group.protocol_name) == (ClassicState.EMPTY, 2, None)
    assert group.protocol_type == "consumer" and driver.timer_count == 0


def test_several_leave_in_one_rebalance(driver: ClassicDriver) -> None:
    first, second, third = driver.settle(3)
    assert [code for *_, code in driver.leave(first, second)] == [NONE, NONE]
    assert driver.send_join(third).result().generation_id == 2


def test_each_is_told_by_itself(driver: ClassicDriver) -> None:
    [member] = driver.settle(1)
    told = driver.leave("nobody", member, member, ("", "no such name"), "")
    assert [code for *_, code in told] == [UNKNOWN, NONE, UNKNOWN, UNKNOWN, UNKNOWN]
    assert told[3][:2] == ("", "no such name")


def test_nothing_changes_when_nobody_has_left(driver: ClassicDriver) -> None:
    driver.settle(1)
    driver.leave("nobody")
    assert driver.group().state is ClassicState.STABLE


def test_static_members_can_be_taken_out_by_name(driver: ClassicDriver) -> None:
    driver.send_join("", instance_id="one")
    driver.send_join("", instance_id="two")
    driver.advance(10_000)
    ids = dict(driver.group().static_members)
    told = driver.leave(("", "one"), (ids["two"], "two"))
    assert told == [("", "one", NONE), (ids["two"], "two", NONE)]
    assert driver.group().is_empty() and driver.group().static_members == {}


def test_a_static_member_under_an_old_id_is_fenced(driver: ClassicDriver) -> None:
    driver.send_join("", instance_id="one")
    driver.advance(10_000)
    assert driver.leave(("old", "one")) == [("old", "one", FENCED)]


def test_who_was_given_an_id_and_changed_its_mind_may_leave(driver: ClassicDriver) -> None:
    [member] = driver.settle(1)
    pending = driver.send_join("").result().member_id
    rejoined = driver.send_join(member)
    assert not rejoined.is_done
    assert driver.leave(pending) == [(pending, None, NONE)]
    assert rejoined.result().generation_id == 2


def test_in_the_first_rebalance_the_others_go_on_waiting(driver: ClassicDriver) -> None:
    (first, joined), (second, other) = driver.send_new(), driver.send_new()
    driver.leave(second)
    assert error_of(other) == UNKNOWN and not joined.is_done
    driver.advance(6000)
    assert [each.member_id for each in joined.result().members] == [first]


def test_a_sync_that_waited_is_let_go_when_its_member_is_taken_out(driver: ClassicDriver) -> None:
    driver.send_join("", instance_id="one")
    driver.send_new()
    driver.advance(10_000)
    leader, other = driver.group().members
    waiting = driver.send_sync(other, 1)
    driver.leave(other)
    assert error_of(waiting) == UNKNOWN
    assert driver.group().leader_id == leader


def test_there_is_nothing_to_leave_where_there_is_no_group(driver: ClassicDriver) -> None:
    assert error_of(driver.send_leave("somebody")) == UNKNOWN
