"""Static members (KIP-345): they keep their place while they are away, and take it when they come back."""

from __future__ import annotations

import pytest

from moldau.groups.classic.group import ClassicState
from moldau.wire.errors import ErrorCode, KafkaError
from tests.groups.classic.classic_members import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicDriver,
    error_of,
    subscription,
)

LONG_MS = 10 * REBALANCE_MS


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


def static(driver: ClassicDriver, *names: str, **options: object) -> list[str]:
    """A stable group of them; their ids."""
    joins = [driver.send_join("", instance_id=name, session_ms=LONG_MS, **options) for name in names]
    driver.advance(12_000)
    members = [join.result().member_id for join in joins]
    driver.sync_all(members)
    return members


def back(driver: ClassicDriver, name: str, **options: object):
    return driver.send_join("", instance_id=name, **{"session_ms": LONG_MS, **options})


def test_a_static_member_needs_no_id_to_join(driver: ClassicDriver) -> None:
    [one] = static(driver, "one")
    assert one.startswith("one-") and driver.group().static_members == {"one": one}


def test_who_comes_back_takes_its_place_without_a_rebalance(driver: ClassicDriver) -> None:
    leader, other = static(driver, "one", "two")
    told = back(driver, "two").result()
    assert told.error_code == ErrorCode.NONE and told.member_id not in (leader, other)
    assert (told.generation_id, told.leader, told.members) == (1, leader, [])
    assert driver.group().state is ClassicState.STABLE
    synced = driver.send_sync(told.member_id, 1, instance_id="two").result()
    assert synced.assignment == b"part 1"
    assert driver.beat(leader, 1, instance_id="one") == ErrorCode.NONE


def test_its_new_id_is_written(driver: ClassicDriver) -> None:
    static(driver, "one", "two")
    told = back(driver, "two").result()
    driver.reload()
    assert driver.group().static_members["two"] == told.member_id
    assert driver.group().members[told.member_id].assignment == b"part 1"


def test_a_leader_that_comes_back_is_told_not_to_assign(driver: ClassicDriver) -> None:
    static(driver, "one", "two")
    told = back(driver, "one").result()
    assert told.skip_assignment and told.leader == told.member_id == driver.group().leader_id
    assert {each.group_instance_id for each in told.members} == {"one", "two"}


def test_before_version_9_it_is_not_told_that_it_leads(driver: ClassicDriver) -> None:
    old_id, _ = static(driver, "one", "two")
    told = back(driver, "one", version=8).result()
    assert told.leader == old_id != told.member_id == driver.group().leader_id
    assert told.members == [] and not told.skip_assignment


def test_who_goes_on_under_the_old_id_is_fenced(driver: ClassicDriver) -> None:
    _, old = static(driver, "one", "two")
    back(driver, "two")
    assert driver.beat(old, 1, instance_id="two") == ErrorCode.FENCED_INSTANCE_ID
    assert error_of(driver.send_sync(old, 1, instance_id="two")) == ErrorCode.FENCED_INSTANCE_ID
    assert error_of(driver.send_join(old, instance_id="two")) == ErrorCode.FENCED_INSTANCE_ID
    assert driver.beat(old, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_what_the_old_one_waited_for_is_fenced(driver: ClassicDriver) -> None:
    one, two = static(driver, "one", "two")
    waiting = driver.send_join(two, instance_id="two", protocols=[("range", b"new")], session_ms=LONG_MS)
    again = back(driver, "two")
    assert error_of(waiting) == ErrorCode.FENCED_INSTANCE_ID and waiting.result().member_id == two
    driver.send_join(one, instance_id="one", session_ms=LONG_MS)
    assert again.result().generation_id == 2


def test_while_the_leader_assigns_it_begins_another_rebalance(driver: ClassicDriver) -> None:
    """The assignment to come names its old id."""
    joins = [back(driver, name) for name in ("one", "two")]
    driver.advance(12_000)
    _, two = (join.result().member_id for join in joins)
    waiting = driver.send_sync(two, 1, instance_id="two")
    back(driver, "two")
    assert error_of(waiting) == ErrorCode.FENCED_INSTANCE_ID
    assert driver.group().state is ClassicState.PREPARING_REBALANCE


def test_one_with_other_metadata_that_changes_no_protocol_is_let_in(driver: ClassicDriver) -> None:
    static(driver, "one", "two")
    told = back(driver, "two", protocols=[("range", subscription("new"))]).result()
    assert told.generation_id == 1
    assert driver.group().members[told.member_id].metadata("range") == subscription("new")


def test_what_it_reads_then_is_known(driver: ClassicDriver) -> None:
    static(driver, "one", protocols=[("range", subscription("old"))])
    driver.write_failure = KafkaError(ErrorCode.NOT_COORDINATOR)
    back(driver, "one", protocols=[("range", subscription("new"))])
    assert driver.group().subscribed_topics == {"old"}
    driver.write_failure = None
    back(driver, "one", protocols=[("range", subscription("new"))])
    assert driver.group().subscribed_topics == {"new"}


def test_one_that_would_change_the_protocol_begins_a_rebalance(driver: ClassicDriver) -> None:
    static(driver, "one", protocols=[("range", b""), ("sticky", b"")])
    again = back(driver, "one", protocols=[("sticky", b""), ("range", b"")]).result()
    assert (again.generation_id, again.protocol_name) == (2, "sticky")


def test_one_that_cannot_be_written_is_not_taken_in(driver: ClassicDriver) -> None:
    one, two = static(driver, "one", "two")
    driver.write_failure = KafkaError(ErrorCode.NOT_COORDINATOR)
    refused = back(driver, "one")
    assert error_of(refused) == ErrorCode.NOT_COORDINATOR and refused.result().member_id == ""
    assert driver.beat(one, 1, instance_id="one") == ErrorCode.NONE
    assert driver.group().leader_id == one and set(driver.group().members) == {one, two}
    assert driver.group().awaiting_join_count == 0


def test_it_is_not_told_before_its_new_id_is_committed(driver: ClassicDriver) -> None:
    static(driver, "one", "two")
    driver.is_committing = False
    first, second = back(driver, "two"), back(driver, "two")
    assert not second.is_done
    driver.commit()
    assert error_of(first) == ErrorCode.FENCED_INSTANCE_ID
    assert second.result().member_id == driver.group().static_members["two"]


def test_who_is_away_in_a_rebalance_keeps_its_place(driver: ClassicDriver) -> None:
    one, _ = static(driver, "one", "two")
    _, dynamic = driver.send_new(session_ms=LONG_MS)
    driver.send_join(one, instance_id="one", session_ms=LONG_MS)
    driver.advance(REBALANCE_MS)
    assert dynamic.result().generation_id == 2
    assert "two" in driver.group().static_members


def test_who_is_away_for_longer_than_its_session_is_out(driver: ClassicDriver) -> None:
    driver.send_join("", instance_id="one", session_ms=SESSION_MS)
    driver.advance(12_000)
    driver.sync_all(list(driver.group().members))
    driver.advance(SESSION_MS)
    assert driver.group().static_members == {} and driver.group().is_empty()


def test_one_that_comes_back_has_a_session_of_its_own(driver: ClassicDriver) -> None:
    static(driver, "one", "two")
    driver.advance(LONG_MS // 2)
    told = back(driver, "two", session_ms=SESSION_MS).result()
    driver.advance(SESSION_MS - 1)
    assert driver.beat(told.member_id, 1, instance_id="two") == ErrorCode.NONE
    driver.advance(SESSION_MS)
    assert "two" not in driver.group().static_members


def test_one_that_comes_back_before_it_asked_for_its_assignment_has_to_ask(driver: ClassicDriver) -> None:
    joins = [back(driver, name) for name in ("one", "two")]
    driver.advance(12_000)
    one, two = (join.result().member_id for join in joins)
    driver.send_sync(one, 1, {one: b"x", two: b"y"}, instance_id="one")
    told = back(driver, "two").result()
    driver.send_sync(told.member_id, 1, instance_id="two")
    driver.advance(REBALANCE_MS)
    assert driver.group().state is ClassicState.STABLE


def test_it_keeps_the_client_it_joined_with(driver: ClassicDriver) -> None:
    """As Kafka does: what is described is who took the place first."""
    from moldau.groups.group import Client

    static(driver, "one")
    told = back(driver, "one", client=Client("other", "/10.0.0.1")).result()
    assert driver.group().members[told.member_id].client == Client("client", "/127.0.0.1")
