from __future__ import annotations

import pytest

from moldau.testing.control import Commands, add_command
from moldau.testing.faults import (
    NOTHING,
    Action,
    Delay,
    Fail,
    FaultRules,
    Lose,
    Match,
    api_named,
    error_named,
    mentions,
)
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.fetch import FetchRequest, FetchTopic

FAIL = Fail(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
PRODUCE = Match(api=ApiKey.PRODUCE)


def anything(topic: str) -> bool:
    return True


def test_a_rule_applies_as_often_as_it_says() -> None:
    rules = FaultRules()
    rule = rules.add(PRODUCE, FAIL, 2)
    assert rules.concern(ApiKey.PRODUCE) and not rules.concern(ApiKey.FETCH)
    endings = [rules.decide(ApiKey.PRODUCE, "c", anything).ending for _ in range(3)]
    assert endings == [FAIL, FAIL, None]
    assert rules.hits(rule) == 2
    assert not rules.concern(ApiKey.PRODUCE)


def test_the_first_that_matches_and_one_of_each_kind() -> None:
    rules = FaultRules()
    rules.add(Match(client_id="other"), Lose(), 1)
    rules.add(Match(topic="orders"), Fail(error=ErrorCode.UNKNOWN_TOPIC_ID), 1)
    rules.add(Match(), Delay(seconds=2))
    late = rules.add(PRODUCE, FAIL, 1)
    slower = rules.add(Match(), Delay(seconds=5))
    verdict = rules.decide(ApiKey.PRODUCE, "c", lambda topic: False)
    assert verdict == (2, FAIL)
    assert (rules.hits(late), rules.hits(slower)) == (1, 0)
    assert rules.decide(ApiKey.PRODUCE, "c", lambda topic: topic == "orders").ending == Fail(
        error=ErrorCode.UNKNOWN_TOPIC_ID
    )
    assert rules.decide(ApiKey.PRODUCE, "other", anything).ending == Lose()


def test_a_rule_that_is_gone_does_nothing() -> None:
    rules = FaultRules()
    rule = rules.add(Match(), Delay(seconds=1))
    rules.remove(rule)
    assert rules.decide(ApiKey.FETCH, "c", anything) == NOTHING
    rules.add(Match(), FAIL, 1)
    rules.disk_is_full = True
    rules.clear()
    assert rules.decide(ApiKey.FETCH, "c", anything) == NOTHING
    assert not rules.disk_is_full


@pytest.mark.parametrize(
    ("action", "times"), [(FAIL, 0), (Delay(seconds=0), None), (Delay(seconds=float("nan")), None)]
)
def test_rules_that_make_no_sense(action: Action, times: int | None) -> None:
    with pytest.raises(ValueError):
        FaultRules().add(Match(), action, times)


def test_names() -> None:
    assert api_named("OffsetCommit") is ApiKey.OFFSET_COMMIT
    with pytest.raises(ValueError, match="do you mean 'OffsetCommit'"):
        api_named("offset_commit")
    with pytest.raises(ValueError, match="no API called 'Write'"):
        api_named("Write")
    assert error_named("NOT_COORDINATOR") is error_named(16) is error_named(ErrorCode.NOT_COORDINATOR)
    for nothing in ("NONE", "OOPS", 4711):
        with pytest.raises(ValueError):
            error_named(nothing)


def test_a_request_mentions_a_topic_by_name_or_id() -> None:
    by_name = FetchRequest(topics=[FetchTopic(topic="orders")])
    by_id = FetchRequest(topics=[FetchTopic(topic_id=b"x" * 16)])
    assert mentions(by_name, ("orders", b"x" * 16)) and mentions(by_id, ("orders", b"x" * 16))
    assert not mentions(by_name, ("order", b"y" * 16))


@pytest.mark.parametrize(
    "action", [Fail(error=ErrorCode.NOT_CONTROLLER, whole=True), Delay(seconds=0.5), Lose()]
)
def test_commands_say_the_rule_they_were_made_of(action: Action) -> None:
    rules = FaultRules()
    commands = Commands(rules, front=None)  # type: ignore[arg-type]
    match = Match(api=ApiKey.FETCH, topic="t", client_id="c")
    number = commands.perform(add_command(match, action, 3))["ok"]
    verdict = rules.decide(ApiKey.FETCH, "c", lambda topic: topic == "t")
    assert action in (verdict.ending, Delay(seconds=verdict.delay_s or 1))
    assert commands.perform({"do": "hits", "rule": number}) == {"ok": 1}
    assert commands.perform({"do": "remove", "rule": number}) == {"ok": None}
    assert not rules.concern(ApiKey.FETCH)


def test_what_is_no_command_is_refused() -> None:
    commands = Commands(FaultRules(), front=None)  # type: ignore[arg-type]
    assert "error" in commands.perform({"do": "dance"})
    assert "error" in commands.perform({"do": "add"})
    assert "error" in commands.perform({})
