"""DescribeConfigs, against what a running Apache Kafka 4.3 answered for the same properties and changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from moldau.config.broker import BrokerConfig
from moldau.config.describe import (
    ConfigEntry,
    ConfigSource,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_loggers,
    describe_new_topic,
    describe_topic,
)
from moldau.config.option import Type

ANSWERED: dict[str, list[list[Any]]] = json.loads(
    (Path(__file__).parent / "data" / "kafka-4.3-described.json").read_text()
)
BROKER = BrokerConfig.parse(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:23871,CONTROLLER://127.0.0.1:23872",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:23872",
        "log.dirs": "/var/lib/kafka",
        "log.retention.hours": "100",
        "min.insync.replicas": "1",
        "num.partitions": "2",
        "offsets.topic.replication.factor": "1",
    }
).with_dynamic(
    {
        "log.retention.ms": "777000000",
        "log.cleaner.threads": "2",
        "leader.replication.throttled.rate": "1000",
        "some.plugin.property": "p",
        "min.insync.replicas": "1",
    },
    {
        "log.retention.ms": "888000000",
        "listener.name.plaintext.ssl.keystore.password": "secret",
        "listener.name.plaintext.max.connections": "33",
    },
)


def rows(entries: Iterable[ConfigEntry]) -> dict[str, list[Any]]:
    return {
        entry.name: [
            entry.name,
            entry.value,
            entry.source.name,
            entry.sensitive,
            entry.read_only,
            entry.type.name,
            [[synonym.name, synonym.value, synonym.source.name] for synonym in entry.synonyms],
        ]
        for entry in entries
    }


@pytest.mark.parametrize(
    ("resource", "entries"),
    [
        (
            "TOPIC:t",
            describe_topic(
                {"retention.ms": "1000", "cleanup.policy": "compact,delete", "segment.ms": "123456"}, BROKER
            ),
        ),
        ("TOPIC:u", describe_topic({"cleanup.policy": "compact"}, BROKER)),
        ("GROUP:g", describe_group({"consumer.session.timeout.ms": "50000"}, BROKER)),
        ("BROKER:", describe_broker_defaults(BROKER)),
    ],
)
def test_a_resource_is_described_as_kafka_does(resource: str, entries: list[ConfigEntry]) -> None:
    assert rows(entries) == {row[0]: row for row in ANSWERED[resource]}


def test_a_broker_is_described_as_kafka_does() -> None:
    described = rows(describe_broker(BROKER))
    answered = {row[0]: row for row in ANSWERED["BROKER:1"]}
    assert {name: described[name] for name in answered} == answered
    # Kafka's answer is kept without the entries that are nothing but a default.
    for name in described.keys() - answered.keys():
        _, value, source, sensitive, _, _, synonyms = described[name]
        assert source == "DEFAULT_CONFIG"
        assert synonyms == ([] if value is None or sensitive else [[name, value, "DEFAULT_CONFIG"]])


def test_names_can_be_picked() -> None:
    assert [entry.name for entry in describe_topic({}, BROKER, {"segment.ms", "nope"})] == ["segment.ms"]
    assert [entry.name for entry in describe_broker(BROKER, ["node.id"])] == ["node.id"]
    assert len(describe_broker(BROKER, [])) > 300


def test_values_are_shown_as_they_are_understood() -> None:
    overrides = {"retention.ms": " 7000 ", "preallocate": "TRUE", "segment.ms": "no longer valid"}
    entries = {entry.name: entry for entry in describe_topic(overrides, BROKER)}
    assert entries["retention.ms"].value == "7000"
    assert entries["preallocate"].value == "true"
    assert entries["segment.ms"].value == "no longer valid"


def test_a_new_topic_shows_what_was_written_in_any_unit() -> None:
    config = BrokerConfig.parse(
        {
            **BROKER.static,
            "log.retention.minutes": "7",
            "log.roll.ms": " 7200000 ",
            "log.roll.hours": "9",
            "log.cleanup.policy": "compact , delete",
            "log.preallocate": "TRUE",
        }
    ).with_dynamic({"log.segment.bytes": "2000000"}, {})
    entries = describe_new_topic({"flush.ms": " 5"}, config)
    told = {entry.name: (entry.value, entry.source) for entry in entries}
    assert list(told) == sorted(told)
    assert told["retention.ms"] == ("420000", ConfigSource.STATIC_BROKER_CONFIG)
    assert told["segment.ms"] == (" 7200000 ", ConfigSource.STATIC_BROKER_CONFIG)
    assert told["cleanup.policy"] == ("compact , delete", ConfigSource.STATIC_BROKER_CONFIG)
    assert told["preallocate"] == ("TRUE", ConfigSource.STATIC_BROKER_CONFIG)
    assert told["segment.bytes"] == ("2000000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert told["flush.ms"] == (" 5", ConfigSource.TOPIC_CONFIG)
    assert told["segment.jitter.ms"] == ("0", ConfigSource.DEFAULT_CONFIG)
    assert "internal.segment.bytes" not in told


def test_a_group_option_of_no_broker_has_its_default_behind_it() -> None:
    (entry,) = describe_group({"share.isolation.level": "read_committed"}, BROKER, ["share.isolation.level"])
    assert entry.synonyms == (
        ("share.isolation.level", "read_committed", ConfigSource.GROUP_CONFIG),
        ("share.isolation.level", "read_uncommitted", ConfigSource.DEFAULT_CONFIG),
    )


def test_what_is_set_for_a_listener_has_a_type_and_no_documentation() -> None:
    (entry,) = describe_broker(BROKER, ["listener.name.plaintext.max.connections"])
    assert (entry.type, entry.documentation) == (Type.INT, None)


def test_no_secret_is_shown() -> None:
    config = BrokerConfig.parse({**BROKER.static, "ssl.key.password": "hush", "super.users": "User:hush"})
    shown = repr(describe_broker(config)) + repr(config)
    assert "hush" not in shown


def test_internal_options_show_when_set() -> None:
    assert not describe_topic({}, BROKER, ["internal.segment.bytes"])
    (entry,) = describe_topic({"internal.segment.bytes": "100"}, BROKER, ["internal.segment.bytes"])
    assert entry.value == "100"


def test_other_resources() -> None:
    entries = describe_client_metrics({"interval.ms": "100"})
    told = {entry.name: (entry.value, entry.source, len(entry.synonyms)) for entry in entries}
    assert told == {
        "interval.ms": ("100", ConfigSource.CLIENT_METRICS_CONFIG, 1),
        "match": ("", ConfigSource.DEFAULT_CONFIG, 0),
        "metrics": ("", ConfigSource.DEFAULT_CONFIG, 0),
    }
    (entry,) = describe_loggers({"root": "INFO", "x": "DEBUG"}, ["root"])
    assert (entry.value, entry.source) == ("INFO", ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG)
