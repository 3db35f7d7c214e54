"""Heartbeats, and what happens without them."""

from __future__ import annotations

import pytest

from moldau.groups.classic.group import ClassicState
from moldau.wire.errors import ErrorCode
from tests.groups.classic.classic_members import REBALANCE_MS, SESSION_MS, ClassicDriver, error_of


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


def test_a_member_that_beats_stays(driver: ClassicDriver) -> None:
    [member] = driver.settle(1)
    for _ in range(10):
        driver.advance(SESSION_MS - 1)
        assert driver.beat(member, 1) == ErrorCode.NONE


def test_a_member_that_is_silent_is_out_and_the_others_rebalance(driver: ClassicDriver) -> None:
    silent, other = driver.settle(2)
    driver.advance(SESSION_MS - 1)
    driver.beat(other, 1)
    driver.advance(1)
    assert driver.group().state is ClassicState.PREPARING_REBALANCE
    assert list(driver.group().members) == [other] and driver.group().leader_id == other
    assert driver.beat(silent, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.beat(other, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.send_join(other).result().generation_id == 2


def test_a_group_of_which_all_are_silent_is_empty(driver: ClassicDriver) -> None:
    driver.settle(3)
    driver.advance(SESSION_MS)
    assert driver.group().state is ClassicState.EMPTY
    assert (driver.group().generation, driver.group().leader_id) == (2, None)
    assert driver.timer_count == 0


def test_a_member_that_joins_as_the_last_one_ends_the_rebalance_of_who_is_silent(
    driver: ClassicDriver,
) -> None:
    silent, other = driver.settle(2)
    driver.advance(SESSION_MS // 2)
    rejoined = driver.send_join(other, protocols=[("range", b"new")])
    driver.advance(SESSION_MS // 2)
    assert silent not in driver.group().members
    assert rejoined.result().leader == other


def test_while_its_join_waits_a_member_need_not_beat(driver: ClassicDriver) -> None:
    slow, other = driver.settle(2)
    rejoined = driver.send_join(other, protocols=[("range", b"new")])
    for _ in range(5):
        driver.advance(SESSION_MS - 1)
        driver.beat(slow, 1)
    assert not rejoined.is_done and other in driver.group().members
    driver.send_join(slow)
    driver.advance(SESSION_MS - 1)  # a new session began with the generation
    assert driver.beat(other, 2) == ErrorCode.NONE


def test_beats_count_while_the_leader_assigns(driver: ClassicDriver) -> None:
    leader, other = driver.settle(2)
    driver.send_join(other, protocols=[("range", b"new")])
    driver.send_join(leader)
    assert driver.group().state is ClassicState.COMPLETING_REBALANCE
    assert driver.beat(leader, 2) == driver.beat(other, 2) == ErrorCode.NONE
    driver.advance(SESSION_MS - 1)
    assert driver.beat(leader, 2) == driver.beat(other, 2) == ErrorCode.NONE
    driver.advance(SESSION_MS)
    assert driver.group().state is ClassicState.EMPTY


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": "no group"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_a_beat_says_has_to_be_right(
    driver: ClassicDriver, options: dict[str, object], code: ErrorCode
) -> None:
    [member] = driver.settle(1)
    assert driver.beat(**{"member_id": member, "generation": 1, **options}) == code


def test_a_pending_member_cannot_beat(driver: ClassicDriver) -> None:
    pending = driver.send_join("").result().member_id
    assert driver.beat(pending, 0) == ErrorCode.UNKNOWN_MEMBER_ID


def test_sessions_begin_anew_where_a_group_is_loaded(driver: ClassicDriver) -> None:
    members = driver.settle(2)
    driver.advance(SESSION_MS - 1)
    driver.reload()
    assert driver.group().state is ClassicState.STABLE
    driver.advance(SESSION_MS - 1)
    assert [driver.beat(member, 1) for member in members] == [ErrorCode.NONE] * 2
    driver.advance(SESSION_MS)
    assert driver.group().state is ClassicState.EMPTY


def test_a_session_is_as_long_as_the_last_join_said(driver: ClassicDriver) -> None:
    [member] = driver.settle(1)
    driver.send_join(member, session_ms=3 * SESSION_MS)
    driver.sync_all([member])
    driver.advance(3 * SESSION_MS - 1)
    assert driver.beat(member, 2) == ErrorCode.NONE


def test_static_members_alone_are_waited_for_until_their_sessions_are_over(driver: ClassicDriver) -> None:
    """Nobody is there to lead a new generation, and nobody has gone for good."""
    driver.send_join("", instance_id="one", session_ms=4 * REBALANCE_MS)
    driver.send_join("", instance_id="two", session_ms=4 * REBALANCE_MS)
    driver.advance(10_000)
    one, two = driver.sync_all(list(driver.group().members))
    driver.send_join("", protocols=[("range", b"new")], version=3, session_ms=6000)
    dynamic = driver.group().members.keys() - {one, two}
    driver.leave(*dynamic)
    driver.advance(2 * REBALANCE_MS)
    assert driver.group().state is ClassicState.PREPARING_REBALANCE
    assert list(driver.group().members) == [one, two]
    driver.advance(2 * REBALANCE_MS)
    assert driver.group().state is ClassicState.EMPTY


def test_a_join_that_waited_is_let_go_when_its_member_leaves(driver: ClassicDriver) -> None:
    _, other = driver.settle(2)
    waiting = driver.send_join(other, protocols=[("range", b"new")])
    driver.leave(other)
    assert error_of(waiting) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("rebalance_ms", [0, -1])
def test_static_members_that_allow_no_time_are_looked_for_now_and_then(
    driver: ClassicDriver, rebalance_ms: int
) -> None:
    """And not in every millisecond of their sessions."""
    for name in ("one", "two"):
        driver.send_join("", instance_id=name)
    driver.advance(10_000)
    driver.sync_all(list(driver.group().members))
    for name in ("one", "two"):
        driver.send_join("", instance_id=name, rebalance_ms=rebalance_ms, session_ms=30_000)
    driver.leave(driver.send_new()[0])
    began_ms = driver.now_ms
    driver.advance(20_000)
    assert driver.group().state is ClassicState.PREPARING_REBALANCE
    assert driver.expired_count <= 1 + (driver.now_ms - began_ms) // 1000
    driver.advance(20_000)
    assert driver.group().is_empty()


def test_who_commits_offsets_is_alive(driver: ClassicDriver) -> None:
    [member] = driver.settle(1)
    for _ in range(3):
        driver.advance(SESSION_MS - 1)
        driver.shard.classic.on_offset_commit(driver.now_ms, driver.group(), member)
    assert driver.beat(member, 1) == ErrorCode.NONE
