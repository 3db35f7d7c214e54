"""Every event in every state, and any events in a row: nothing is raised but what a client is told, nobody
who asked is forgotten, and the log knows what it has to."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.coordinator.decision import NOTHING, Decision, Waiter
from moldau.groups.classic.group import ClassicState
from moldau.groups.shard import GroupShard
from moldau.metadata.delta import Delta
from moldau.wire.errors import ErrorCode, KafkaError
from tests.groups.classic.classic_invariants import check, check_replayed
from tests.groups.classic.classic_members import GROUP, ClassicDriver, subscription

NAMES = ("one", "two")
PROTOCOLS = (
    [("range", subscription("a"))],
    [("range", subscription("b")), ("sticky", b"s")],
    [("sticky", b"s"), ("range", subscription("a"))],
    [("other", b"")],
    [("range", b"unreadable"), ("range", b"twice")],
)


class Watched(ClassicDriver):
    """Looks after each event that nobody who asked is forgotten."""

    def __init__(self, **properties: object) -> None:
        self.asked: list[Waiter[Any]] = []
        self.has_lost_a_write = False
        self.seen: set[str] = {"nobody"}
        super().__init__(group_max_size=4, **properties)

    def submit(self, decide: Callable[[GroupShard, int, Waiter[Any]], Decision[Any]]) -> Waiter[Any]:
        waiter = super().submit(decide)
        self.asked.append(waiter)
        return waiter

    def member(self, random: Random) -> str:
        """Of the group, or who was, or is about to be; or nobody."""
        group = self.shard.groups.get(GROUP)
        if group is not None:
            self.seen.update(self.group().members, self.group().pending_members)
        return random.choice(sorted(self.seen))

    def check(self) -> None:
        self.asked = [waiter for waiter in self.asked if not waiter.is_done]
        group = self.shard.groups.get(GROUP)
        if group is None:
            assert self.asked == [] and self.timer_count == 0
            return
        check(self.group(), self.shard)
        if self.is_committing:
            assert {*map(id, self.asked)} == {*map(id, self.group().waiting())}
        if not self.has_lost_a_write:
            check_replayed(self.group(), self.replayed().groups.get(GROUP))


def join_unknown(driver: Watched, random: Random) -> None:
    driver.send_join("", protocols=random.choice(PROTOCOLS), version=random.choice((0, 3, 4, 9)))


def join_static(driver: Watched, random: Random) -> None:
    driver.send_join(
        "",
        instance_id=random.choice(NAMES),
        protocols=random.choice(PROTOCOLS),
        version=random.choice((5, 8, 9)),
    )


def join_known(driver: Watched, random: Random) -> None:
    member_id = driver.member(random)
    driver.send_join(member_id, instance_id=instance_of(driver, member_id, random), **described(random))


def described(random: Random) -> dict[str, Any]:
    return {
        "protocols": random.choice(PROTOCOLS),
        "session_ms": random.choice((6000, 30_000)),
        "rebalance_ms": random.choice((0, 1000, 60_000)),
        "protocol_type": random.choice(("consumer", "consumer", "consumer", "connect", "")),
    }


def instance_of(driver: Watched, member_id: str, random: Random) -> str | None:
    """Its own, mostly."""
    if random.random() < 0.2:
        return random.choice((None, *NAMES))
    group = driver.shard.groups.get(GROUP)
    member = driver.group().members.get(member_id) if group is not None else None
    return None if member is None else member.instance_id


def generation_of(driver: Watched, random: Random) -> int:
    known = driver.group().generation if driver.shard.groups.get(GROUP) is not None else 0
    return known if random.random() < 0.9 else random.choice((-1, 0, known + 1))


def sync(driver: Watched, random: Random) -> None:
    member_id = driver.member(random)
    group = driver.shard.groups.get(GROUP)
    members = driver.group().members if group is not None else {}
    driver.send_sync(
        member_id,
        generation_of(driver, random),
        {each: random.randbytes(2) for each in members if random.random() < 0.8},
        instance_id=instance_of(driver, member_id, random),
        protocol_type=random.choice(("consumer", "consumer", None, "connect")),
        protocol_name=random.choice((None, None, "range", "other")),
    )


def sync_of_leader(driver: Watched, random: Random) -> None:
    group = driver.shard.groups.get(GROUP)
    if group is not None and driver.group().leader_id is not None:
        driver.send_sync(
            driver.group().leader_id,
            driver.group().generation,
            dict.fromkeys(driver.group().members, b"x"),
            protocol_name=None,
            protocol_type=None,
        )


def beat(driver: Watched, random: Random) -> None:
    member_id = driver.member(random)
    instance_id = instance_of(driver, member_id, random)
    driver.send_beat(member_id, generation_of(driver, random), instance_id=instance_id)


def leave(driver: Watched, random: Random) -> None:
    if driver.shard.groups.get(GROUP) is None:
        return
    who = [
        random.choice([driver.member(random), ("", random.choice(NAMES)), (driver.member(random), "one")])
        for _ in range(random.choice((0, 1, 1, 2)))
    ]
    driver.send_leave(*who)


def commit_offset(driver: Watched, random: Random) -> None:
    """Only the checks, and that the member is alive."""
    if driver.shard.groups.get(GROUP) is None:
        return
    group, member_id = driver.group(), driver.member(random)

    def decide(shard: GroupShard, now_ms: int, waiter: Waiter[Any]) -> Decision[Any]:
        group.check_offset_commit(
            member_id,
            instance_of(driver, member_id, random),
            generation_of(driver, random),
            is_transactional=random.random() < 0.5,
            version=9,
        )
        shard.classic.on_offset_commit(now_ms, group, member_id)
        return Decision(reply=group.described())

    driver.submit(decide)


def describe(driver: Watched, random: Random) -> None:
    driver.describe(version=random.choice((5, 6)))


def delete(driver: Watched, random: Random) -> None:
    if driver.shard.groups.get(GROUP) is not None and driver.group().is_empty():
        driver.delete()
        driver.asked.pop()  # it asks for no answer


def wait_a_little(driver: Watched, random: Random) -> None:
    driver.advance(random.choice((0, 1000, 5999)))


def wait_for_the_next_timer(driver: Watched, random: Random) -> None:
    next_ms = driver.shard.timers.next_ms()
    if driver.timer_count and next_ms is not None:
        driver.advance(max(0, next_ms - driver.now_ms))


def wait_long(driver: Watched, random: Random) -> None:
    driver.advance(random.choice((60_000, 400_000)))


def reload(driver: Watched, random: Random) -> None:
    driver.reload()


def lose_a_write(driver: Watched, random: Random) -> None:
    driver.write_failure = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    before = len(driver.log)
    random.choice((join_unknown, join_static, join_known, sync_of_leader, leave, wait_long))(driver, random)
    assert len(driver.log) == before
    driver.has_lost_a_write = True
    driver.write_failure = None


def commit_late(driver: Watched, random: Random) -> None:
    driver.is_committing = False
    for _ in range(random.choice((1, 2, 3))):
        random.choice((join_static, join_known, join_unknown, sync_of_leader, leave, beat))(driver, random)
    driver.commit()


def change_of_the_cluster(driver: Watched, random: Random) -> None:
    assert driver.shard.classic.on_image(driver.now_ms, Delta()) is NOTHING


EVENTS = (
    join_unknown,
    join_static,
    join_known,
    sync,
    sync_of_leader,
    beat,
    leave,
    commit_offset,
    describe,
    delete,
    wait_a_little,
    wait_for_the_next_timer,
    wait_long,
    reload,
    lose_a_write,
    commit_late,
    change_of_the_cluster,
)


# ---------------------------------------------------------------- every event in every state


def _no_group(driver: Watched) -> None:
    pass


def _pending(driver: Watched) -> None:
    driver.send_join("")


def _initial(driver: Watched) -> None:
    driver.send_new()
    driver.send_join("", instance_id="one")


def _completing(driver: Watched) -> None:
    _initial(driver)
    driver.advance(6000)


def _partly_synced(driver: Watched) -> None:
    _completing(driver)
    driver.send_sync(driver.group().static_members["one"], 1)


def _stable(driver: Watched) -> None:
    _completing(driver)
    driver.sync_all(list(driver.group().members))


def _stable_with_someone_silent(driver: Watched) -> None:
    _completing(driver)
    sync_of_leader(driver, Random(0))


def _preparing(driver: Watched) -> None:
    _stable(driver)
    driver.send_join("", version=3)


def _preparing_with_someone_pending(driver: Watched) -> None:
    _stable(driver)
    driver.send_join("")
    driver.send_join(driver.group().leader_id or "")


def _left(driver: Watched) -> None:
    _stable(driver)
    driver.leave(*driver.group().members)


def _loaded(driver: Watched) -> None:
    _stable(driver)
    driver.reload()


STATES = {
    _no_group: None,
    _pending: ClassicState.EMPTY,
    _initial: ClassicState.PREPARING_REBALANCE,
    _completing: ClassicState.COMPLETING_REBALANCE,
    _partly_synced: ClassicState.COMPLETING_REBALANCE,
    _stable: ClassicState.STABLE,
    _stable_with_someone_silent: ClassicState.STABLE,
    _preparing: ClassicState.PREPARING_REBALANCE,
    _preparing_with_someone_pending: ClassicState.PREPARING_REBALANCE,
    _left: ClassicState.EMPTY,
    _loaded: ClassicState.STABLE,
}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__.strip("_"))
def test_every_event_in_every_state(state: Callable[[Watched], None]) -> None:
    for event in EVENTS:
        for seed in range(12):  # which member, which generation, which protocols
            driver = Watched()
            state(driver)
            group = driver.shard.groups.get(GROUP)
            assert (group and group.state) == STATES[state]
            driver.check()
            event(driver, Random(seed))
            driver.check()


# ---------------------------------------------------------------- any events in a row


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 1 << 16)), max_size=60))
def test_any_events_in_a_row(events: list[tuple[Callable[[Watched, Random], None], int]]) -> None:
    driver = Watched()
    for event, seed in events:
        event(driver, Random(seed))
        driver.check()
    # Whoever still waits is answered in the end.
    driver.advance(4_000_000)
    driver.check()
    assert driver.asked == []
