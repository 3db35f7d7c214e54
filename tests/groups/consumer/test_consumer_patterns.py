"""Subscriptions by pattern: matched apart from heartbeats, kept as records, looked at again."""

from __future__ import annotations

import pytest

from moldau.groups.consumer import regex
from moldau.groups.consumer.patterns import ResolveRegexes
from moldau.groups.records import ConsumerGroupRegularExpressionKey
from moldau.wire.errors import ErrorCode
from tests.groups.consumer.consumer_driver import GROUP, INTERVAL_MS, ConsumerDriver, assigned

REFRESH_MS = 600_000


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver({"orders": 2, "orders-eu": 1, "users": 1})


def test_the_topics_of_a_pattern_are_found_apart_from_the_heartbeat(driver: ConsumerDriver) -> None:
    response = driver.join("a", regex="orders.*")
    assert assigned(response) == {}
    driver.advance(0)
    assert driver.group.regexes["orders.*"].topics == {"orders", "orders-eu"}
    driver.advance(INTERVAL_MS)
    assert assigned(driver.beat("a", response.member_epoch)) == {
        driver.ids["orders"]: {0, 1},
        driver.ids["orders-eu"]: {0},
    }


def test_a_pattern_matches_whole_names(driver: ConsumerDriver) -> None:
    driver.join("a", regex="orders")
    driver.advance(0)
    assert driver.group.regexes["orders"].topics == {"orders"}


def test_names_and_patterns_add_up(driver: ConsumerDriver) -> None:
    response = driver.join("a", "users", regex="orders-.*")
    driver.advance(INTERVAL_MS)
    assert set(assigned(driver.beat("a", response.member_epoch))) == {
        driver.ids["users"],
        driver.ids["orders-eu"],
    }


def test_a_pattern_that_is_known_is_assigned_at_once(driver: ConsumerDriver) -> None:
    driver.join("a", regex="orders.*")
    driver.advance(INTERVAL_MS)
    driver.join("b", regex="orders.*")
    assert sum(map(len, driver.target("b").values())) == 1


def test_what_is_no_pattern_is_refused(driver: ConsumerDriver) -> None:
    code, message = driver.failure("a", 0, regex="[", owned={}, rebalance_timeout_ms=1)
    assert code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert message == "SubscribedTopicRegex `[` is not a valid regular expression: missing closing ]."
    assert GROUP not in driver.shard.groups.groups


def test_a_pattern_that_takes_others_forever_takes_no_time(driver: ConsumerDriver) -> None:
    driver.create_topic("a" * 200, 1)
    driver.join("a", regex="(a*)*(a*)*(a*)*b")
    driver.advance(0)
    assert driver.group.regexes["(a*)*(a*)*(a*)*b"].topics == frozenset()


def test_a_pattern_goes_with_its_last_member(driver: ConsumerDriver) -> None:
    for member_id in "ab":
        driver.join(member_id, regex="orders.*")
    driver.advance(0)
    driver.beat("a", -1)
    assert set(driver.group.regexes) == {"orders.*"}
    driver.beat("b", driver.group.members["b"].epoch, regex="users")
    assert "orders.*" not in driver.group.regexes
    assert not driver.group.is_subscribed_to("orders")
    driver.beat("b", -1)
    assert driver.group.regexes == {}
    keys = [record.key for record in driver.records() if record.value is None]
    gone = [key.regular_expression for key in keys if isinstance(key, ConsumerGroupRegularExpressionKey)]
    assert gone == ["orders.*", "users"]


def test_a_member_may_go_back_to_names(driver: ConsumerDriver) -> None:
    response = driver.join("a", regex="orders.*")
    driver.advance(INTERVAL_MS)
    driver.beat("a", response.member_epoch)
    driver.advance(INTERVAL_MS)
    driver.beat("a", driver.group.members["a"].epoch, regex="", topics=["users"])
    driver.advance(INTERVAL_MS)
    driver.beat("a", driver.group.members["a"].epoch, owned={})
    assert driver.topic_of("a", "users") == {0}
    assert driver.group.regexes == {}


def test_new_topics_are_matched_though_not_at_once(driver: ConsumerDriver) -> None:
    driver.join("a", regex="orders.*")
    driver.advance(INTERVAL_MS)
    driver.beat("a", driver.group.members["a"].epoch)
    driver.create_topic("orders-us", 1)
    driver.beat("a", driver.group.members["a"].epoch)
    driver.advance(9_000 - INTERVAL_MS)
    assert "orders-us" not in driver.group.topics
    driver.advance(1_001)
    driver.beat("a", driver.group.members["a"].epoch)
    driver.advance(0)
    assert "orders-us" in driver.group.topics
    driver.beat("a", driver.group.members["a"].epoch)
    assert driver.topic_of("a", "orders-us") == {0}


def test_patterns_are_matched_again_after_a_while(driver: ConsumerDriver) -> None:
    driver.join("a", regex="orders.*")
    driver.advance(0)
    resolved_ms = driver.group.regexes["orders.*"].resolved_ms
    epoch = driver.group.epoch
    for _ in range(REFRESH_MS // 40_000 + 1):
        driver.advance(40_000)
        driver.beat("a", driver.group.members["a"].epoch)
    driver.advance(0)
    assert driver.group.regexes["orders.*"].resolved_ms >= resolved_ms + REFRESH_MS
    assert driver.group.epoch == epoch


def test_many_topics_are_matched_a_part_at_a_time(
    driver: ConsumerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regex, "MATCHES_AT_ONCE", 2)
    driver.join("a", regex="orders.*")
    event = driver.shard.timers.take_due(driver.now_ms)
    assert isinstance(event, ResolveRegexes)
    assert driver.shard.on_timer(driver.now_ms, event).records == ()
    driver.advance(0)
    assert driver.group.regexes["orders.*"].topics == {"orders", "orders-eu"}


def test_a_resolution_whose_group_is_gone_is_dropped(driver: ConsumerDriver) -> None:
    driver.join("a", regex="orders.*")
    driver.beat("a", -1)
    driver.submit(lambda shard, now_ms, waiter: shard.delete_group(GROUP)).result()
    written = len(driver.log)
    driver.advance(INTERVAL_MS)
    assert len(driver.log) == written


def test_a_pattern_is_resolved_again_by_another_coordinator_if_it_was_not(driver: ConsumerDriver) -> None:
    driver.join("a", regex="orders.*")
    driver.reload()
    driver.beat("a", driver.group.members["a"].epoch)
    driver.advance(0)
    assert driver.group.regexes["orders.*"].topics == {"orders", "orders-eu"}
