"""SyncGroup: the leader assigns, everyone learns of it when it is committed."""

from __future__ import annotations

import pytest

from moldau.coordinator.decision import Decision
from moldau.groups.classic.group import ClassicState
from moldau.wire.errors import ErrorCode, KafkaError
from tests.groups.classic.classic_members import REBALANCE_MS, SESSION_MS, ClassicDriver, error_of


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


def joined(driver: ClassicDriver, count: int, **options: object) -> list[str]:
    """New members in their first generation, the leader first; nobody has asked for an assignment."""
    joins = [driver.send_new(**options) for _ in range(count)]
    driver.advance(4 * driver.environment.config.groups.initial_rebalance_delay_ms)
    assert driver.group().state is ClassicState.COMPLETING_REBALANCE
    return [member_id for member_id, _ in joins]


def test_members_wait_for_their_leader(driver: ClassicDriver) -> None:
    leader, other = joined(driver, 2)
    waiting = driver.send_sync(other, 1)
    assert not waiting.is_done
    told = driver.send_sync(leader, 1, {leader: b"mine", other: b"yours"})
    assert (told.result().assignment, waiting.result().assignment) == (b"mine", b"yours")
    assert (told.result().protocol_type, told.result().protocol_name) == ("consumer", "range")
    assert driver.group().state is ClassicState.STABLE


def test_who_asks_later_is_told_what_was_assigned(driver: ClassicDriver) -> None:
    leader, other = joined(driver, 2)
    driver.send_sync(leader, 1, {leader: b"mine", other: b"yours"})
    assert driver.send_sync(other, 1).result().assignment == b"yours"
    assert driver.send_sync(other, 1).result().assignment == b"yours"


def test_who_was_forgotten_has_nothing(driver: ClassicDriver) -> None:
    leader, other = joined(driver, 2)
    driver.send_sync(leader, 1, {"somebody": b"else"})
    assert driver.send_sync(other, 1).result().assignment == b""


def test_nobody_is_told_before_the_assignment_is_committed(driver: ClassicDriver) -> None:
    leader, other = joined(driver, 2)
    driver.is_committing = False
    waiting = [driver.send_sync(other, 1), driver.send_sync(leader, 1, {leader: b"x", other: b"y"})]
    assert driver.group().state is ClassicState.COMPLETING_REBALANCE
    assert not any(each.is_done for each in waiting)
    driver.commit()
    assert [each.result().assignment for each in waiting] == [b"y", b"x"]
    assert driver.shard.classic.completed_rebalances == 1


def test_an_assignment_that_was_overtaken_by_a_rebalance_does_not_count(driver: ClassicDriver) -> None:
    leader, other = joined(driver, 2)
    driver.is_committing = False
    told = driver.send_sync(leader, 1, {leader: b"x", other: b"y"})
    driver.send_join(other, protocols=[("range", b"new")])
    driver.commit()
    assert error_of(told) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.group().state is ClassicState.PREPARING_REBALANCE
    assert all(member.assignment == b"" for member in driver.group().members.values())


def test_an_assignment_of_a_group_that_was_replaced_meanwhile_does_not_count(driver: ClassicDriver) -> None:
    leader, other = joined(driver, 2)
    driver.is_committing = False
    driver.send_sync(leader, 1, {leader: b"x", other: b"y"})
    tombstones = driver.group().tombstones()
    driver.submit(lambda shard, now_ms, waiter: Decision(records=tombstones))
    driver.commit()
    assert driver.shard.classic.completed_rebalances == 0 and driver.timer_count == 0


def test_an_assignment_that_cannot_be_written_begins_another_rebalance(driver: ClassicDriver) -> None:
    leader, other = joined(driver, 2)
    waiting = driver.send_sync(other, 1)
    driver.write_failure = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    told = driver.send_sync(leader, 1, {leader: b"x", other: b"y"})
    assert error_of(told) == error_of(waiting) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.group().state is ClassicState.PREPARING_REBALANCE
    assert len(driver.log) == 1  # of the new group


def test_a_sync_sent_twice_is_answered_twice(driver: ClassicDriver) -> None:
    leader, other = joined(driver, 2)
    lost, again = driver.send_sync(other, 1), driver.send_sync(other, 1)
    assert error_of(lost) == ErrorCode.REBALANCE_IN_PROGRESS
    driver.send_sync(leader, 1, {other: b"yours"})
    assert again.result().assignment == b"yours"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": "no group"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": None, "protocol_name": None}, ErrorCode.NONE),
    ],
)
def test_what_a_member_says_of_its_group_has_to_be_right(
    driver: ClassicDriver, options: dict[str, object], code: ErrorCode
) -> None:
    _, other = driver.settle(2)
    assert error_of(driver.send_sync(**{"member_id": other, "generation": 1, **options})) == code


def test_in_a_rebalance_there_is_nothing_to_ask_for(driver: ClassicDriver) -> None:
    leader, other = driver.settle(2)
    driver.send_join(leader)
    assert error_of(driver.send_sync(other, 1)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_do_not_ask_for_their_assignment_are_out(driver: ClassicDriver) -> None:
    leader, other, silent = joined(driver, 3, session_ms=REBALANCE_MS * 2)
    waiting = driver.send_sync(other, 1)
    driver.send_sync(leader, 1, {leader: b"x"})
    assert waiting.is_done
    driver.advance(REBALANCE_MS)
    assert driver.group().state is ClassicState.PREPARING_REBALANCE
    assert list(driver.group().members) == [leader, other]
    assert driver.beat(silent, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_so_is_a_leader_that_does_not_assign(driver: ClassicDriver) -> None:
    leader, other = joined(driver, 2, session_ms=REBALANCE_MS * 2)
    waiting = driver.send_sync(other, 1)
    driver.advance(REBALANCE_MS)
    assert error_of(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.group().leader_id == other and leader not in driver.group().members


def test_a_group_of_which_nobody_asks_is_empty(driver: ClassicDriver) -> None:
    joined(driver, 2, session_ms=REBALANCE_MS * 2)
    driver.advance(REBALANCE_MS)
    assert driver.group().state is ClassicState.EMPTY and driver.timer_count == 0


def test_when_all_have_asked_nobody_is_looked_for(driver: ClassicDriver) -> None:
    driver.settle(2, session_ms=REBALANCE_MS * 2)
    driver.advance(REBALANCE_MS)
    assert driver.group().state is ClassicState.STABLE


def test_while_it_waits_a_member_need_not_beat(driver: ClassicDriver) -> None:
    leader, other = joined(driver, 2)
    waiting = driver.send_sync(other, 1)
    driver.beat(leader, 1)
    for _ in range(3):
        driver.advance(SESSION_MS - 1)
        assert driver.beat(leader, 1) == ErrorCode.NONE
    driver.send_sync(leader, 1, {other: b"yours"})
    assert waiting.result().assignment == b"yours"
    driver.advance(SESSION_MS - 1)  # its session began anew
    assert driver.beat(other, 1) == ErrorCode.NONE


def test_who_loses_the_leadership_of_the_log_lets_everyone_go(driver: ClassicDriver) -> None:
    leader, other = joined(driver, 2)
    syncing = driver.send_sync(other, 1)
    joining = driver.send_join("", version=3, group_id="another")
    driver.reload()
    assert error_of(syncing) == error_of(joining) == ErrorCode.NOT_COORDINATOR
    # Nothing of the generation was written.
    assert driver.group().state is ClassicState.EMPTY
    assert driver.beat(leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID
