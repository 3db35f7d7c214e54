"""A topic's config: its overrides over the broker's options over defaults."""

# ruff: noqa: E501 (a case and its message stay on one line)

from __future__ import annotations

import pytest

from moldau.config.broker import BrokerConfig
from moldau.config.option import ConfigError
from moldau.config.topic import TopicConfig

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}
HOUR_MS = 3_600_000


def broker(**properties: str) -> BrokerConfig:
    return BrokerConfig.parse(NODE | {name.replace("_", "."): text for name, text in properties.items()})


def test_a_topic_without_overrides_has_what_the_broker_says() -> None:
    topic = broker(log_segment_bytes="2000000", message_max_bytes="5", log_cleanup_policy="compact").topic({})
    assert (topic.segment_bytes, topic.max_message_bytes) == (2_000_000, 5)
    assert topic.cleanup_policy == ("compact",)
    assert (topic.compact, topic.delete) == (True, False)


def test_an_untouched_broker_leaves_the_defaults() -> None:
    assert broker().topic({}) == TopicConfig.DEFAULTS


def test_topics_without_overrides_share_one_config() -> None:
    config = broker()
    assert config.topic({}) is config.topic({})


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({"log_retention_hours": "2"}, 2 * HOUR_MS),
        ({"log_retention_hours": "2", "log_retention_minutes": "3"}, 180_000),
        ({"log_retention_hours": "2", "log_retention_minutes": "3", "log_retention_ms": "4"}, 4),
        ({"log_retention_minutes": "-3"}, -1),
        ({"log_retention_hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_goes_first(properties: dict[str, str], retention_ms: int) -> None:
    assert broker(**properties).topic({}).retention_ms == retention_ms


def test_flush_ms_falls_back_to_the_scheduler() -> None:
    assert broker(log_flush_scheduler_interval_ms="7").topic({}).flush_ms == 7
    assert broker(log_flush_scheduler_interval_ms="7", log_flush_interval_ms="9").topic({}).flush_ms == 9


def test_overrides_go_before_the_broker() -> None:
    topic = broker(log_retention_ms="4").topic({"retention.ms": " 7000 ", "cleanup.policy": "compact,delete"})
    assert topic.retention_ms == 7000
    assert (topic.compact, topic.delete) == (True, True)


def test_an_empty_cleanup_policy_keeps_everything() -> None:
    topic = TopicConfig.from_overrides({"cleanup.policy": ""})
    assert (topic.compact, topic.delete) == (False, False)


def test_tests_can_have_small_segments() -> None:
    assert TopicConfig.from_overrides({"internal.segment.bytes": "100"}).segment_bytes == 100
    assert TopicConfig.DEFAULTS.replace(segment_bytes=200).segment_bytes == 200
    assert TopicConfig.DEFAULTS.replace(cleanup_policy=("compact",)).compact


def test_compaction_by_a_deadline_closes_segments_by_then() -> None:
    overrides = {"cleanup.policy": "compact", "max.compaction.lag.ms": "5000"}
    assert TopicConfig.from_overrides(overrides).segment_ms_max == 5000
    assert TopicConfig.DEFAULTS.segment_ms_max == TopicConfig.DEFAULTS.segment_ms


def test_the_level_follows_the_codec() -> None:
    levels = {"compression.gzip.level": "7", "compression.zstd.level": "-5"}
    for codec, level in (("gzip", 7), ("zstd", -5), ("lz4", 9), ("snappy", None), ("producer", None)):
        topic = TopicConfig.from_overrides({"compression.type": codec, **levels})
        assert topic.recompression_level == level


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nope", "1", "Unknown topic config name: nope"),
        ("segment.bytes", "12", "Invalid value 12 for configuration segment.bytes: Value must be at least 1048576"),
        ("cleanup.policy", "foo", "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete"),
        ("retention.ms", "-5", "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
        ("compression.type", "zip", "Invalid value zip for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("min.cleanable.dirty.ratio", "2", "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1"),
        ("preallocate", "yes", "Invalid value yes for configuration preallocate: Expected value to be either true or false"),
        ("remote.storage.enable", "true", "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."),
    ],
)  # fmt: skip
def test_wrong_overrides_are_refused_in_kafkas_words(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        broker().topic({name: text})
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["1:2,3:4", "*", ""])
def test_throttled_replicas_are_pairs_or_all(text: str) -> None:
    TopicConfig.from_overrides({"leader.replication.throttled.replicas": text})
    with pytest.raises(ConfigError):
        TopicConfig.from_overrides({"leader.replication.throttled.replicas": text + ",x"})


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        TopicConfig.from_overrides(
            {"a": "1", "segment.ms": "", "min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}
        )
    assert [problem.name for problem in caught.value.problems] == ["a", "segment.ms", "min.compaction.lag.ms"]


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ({"cleanup.policy": "compact"}, "remote.storage.enable"),
        ({"retention.ms": "5", "local.retention.ms": "6"}, "local.retention.ms"),
        ({"retention.bytes": "5", "local.retention.bytes": "-1"}, "local.retention.bytes"),
        ({"remote.log.copy.disable": "true", "retention.ms": "5", "local.retention.ms": "4"}, "local.retention.ms"),
    ],
)  # fmt: skip
def test_tiering_has_rules_of_its_own(overrides: dict[str, str], name: str) -> None:
    config = broker(remote_log_storage_system_enable="true")
    enabled = {"remote.storage.enable": "true"}
    assert config.topic(enabled).remote_storage_enable
    with pytest.raises(ConfigError) as caught:
        config.topic(enabled | overrides)
    assert [problem.name for problem in caught.value.problems] == [name]


def test_tiering_is_not_turned_off_by_the_way() -> None:
    config = broker(remote_log_storage_system_enable="true")
    current = {"remote.storage.enable": "true"}
    with pytest.raises(ConfigError, match="disable remote storage"):
        config.topic({}, current)
    config.topic({"remote.log.delete.on.disable": "true"}, current)


def test_what_the_log_reads_is_there() -> None:
    topic = TopicConfig.DEFAULTS
    assert topic.segment_bytes == 1 << 30
    assert topic.message_timestamp_after_max_ms == HOUR_MS
    assert topic.message_timestamp_type == "CreateTime"
