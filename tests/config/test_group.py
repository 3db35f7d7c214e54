"""Groups and client metrics subscriptions: options that are set on them."""

# ruff: noqa: E501 (a case and its message stay on one line)

from __future__ import annotations

import pytest

from moldau.config.client_metrics import ClientMetricsConfig
from moldau.config.group import GroupConfig, reset_back_ms
from moldau.config.option import ConfigError
from tests.config.test_topic import broker


def test_a_group_has_what_the_broker_says() -> None:
    config = broker(group_consumer_session_timeout_ms="50000")
    group = config.group({"share.auto.offset.reset": "earliest"})
    assert isinstance(group, GroupConfig)
    assert group.consumer_session_timeout_ms == 50_000
    assert group.share_auto_offset_reset == "earliest"
    assert group.share_isolation_level == "read_uncommitted"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nope", "1", "Unknown group config name: nope"),
        ("consumer.session.timeout.ms", "1", "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ("share.heartbeat.interval.ms", "99999", "share.heartbeat.interval.ms must be less than or equal to group.share.max.heartbeat.interval.ms"),
        ("streams.num.standby.replicas", "3", "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas"),
        ("share.delivery.count.limit", "x", "Invalid value x for configuration share.delivery.count.limit: Not a number of type INT"),
    ],
)  # fmt: skip
def test_a_group_keeps_within_the_brokers_limits(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        broker().group({name: text})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "in_effect"), [("1000", 45_000), ("50000", 50_000), ("99999", 60_000), ("x", 45_000)]
)
def test_what_was_set_on_a_group_is_brought_within_limits(text: str, in_effect: int) -> None:
    """They may have changed since."""
    group = broker().group_in_effect({"consumer.session.timeout.ms": text, "nope": "1"})
    assert group.consumer_session_timeout_ms == in_effect
    assert group.consumer_heartbeat_interval_ms == 5000


@pytest.mark.parametrize(
    "text", ["latest", "by_duration:PT1H30M", "by_duration:P2DT0.5S", "by_duration:pt1h"]
)
def test_offset_resets(text: str) -> None:
    assert broker().group({"share.auto.offset.reset": text}).share_auto_offset_reset == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "EARLIEST",
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:-PT1H",
        "BY_DURATION:PT1H",
    ],
)
def test_other_offset_resets_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        broker().group({"share.auto.offset.reset": text})


@pytest.mark.parametrize(
    ("text", "back_ms"),
    [
        ("latest", None),
        ("earliest", None),
        ("by_duration:PT0.5S", 500),
        ("by_duration:P1DT2H3M4S", 93_784_000),
        ("by_duration:pt1m", 60_000),
    ],
)
def test_an_offset_reset_may_go_some_time_back(text: str, back_ms: int | None) -> None:
    assert reset_back_ms(text) == back_ms


def test_a_subscription() -> None:
    config = ClientMetricsConfig.from_overrides(
        {"metrics": "org.apache.kafka.producer.,x", "interval.ms": "100", "match": "client_id=a.*"}
    )
    assert config.metrics == ("org.apache.kafka.producer.", "x")
    assert (config.interval_ms, config.match) == (100, ("client_id=a.*",))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nope", "1"),
        ("interval.ms", "99"),
        ("match", "client=x"),
        ("match", "client_id"),
        ("match", "client_id=("),
        ("match", "client_id="),
        ("match", "client_id=a=b"),
        ("metrics", "a,"),
        ("metrics", ","),
    ],
)
def test_a_wrong_subscription_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClientMetricsConfig.from_overrides({name: text})
    assert [problem.name for problem in caught.value.problems] == [name]
