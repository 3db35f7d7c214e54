from __future__ import annotations

import json

from moldau.wire.ids import uuid_to_string
from tests.cli.conftest import moldau
from tests.client.fake_broker import FakeBroker


def test_topics_are_listed(broker: FakeBroker) -> None:
    broker.add_topic("payments", 12)
    topic = broker.add_topic("a")
    result = moldau("topic", "list")
    assert result.exit_code == 0
    assert result.output == (
        "TOPIC     PARTITIONS  REPLICAS  INTERNAL\n"
        "a                  1         1  no\n"
        "payments          12         1  no\n"
    )
    assert json.loads(moldau("topic", "list", "--json").output)[0] == {
        "name": "a",
        "topic_id": uuid_to_string(topic.topic_id),
        "internal": False,
        "partition_count": 1,
        "replication_factor": 1,
    }


def test_no_topics_are_an_empty_list(broker: FakeBroker) -> None:
    assert moldau("topic", "list").output == ""
    assert json.loads(moldau("topic", "list", "--json").output) == []


def test_topics_are_created(broker: FakeBroker) -> None:
    result = moldau("topic", "create", "a", "b", "--partitions", "3", "--config", "retention.ms=5")
    assert (result.exit_code, result.output) == (0, "created topic a\ncreated topic b\n")
    assert (len(broker.topics["a"].logs), broker.topics["b"].configs) == (3, {"retention.ms": "5"})


def test_what_was_done_as_json(broker: FakeBroker) -> None:
    result = moldau("topic", "create", "a", "b", "--partitions", "3", "--json")
    assert [(each["name"], each["outcome"]) for each in json.loads(result.output)] == [
        ("a", "created"),
        ("b", "created"),
    ]
    assert json.loads(moldau("topic", "alter", "a", "--partitions", "4", "--json").output) == [
        {"name": "a", "outcome": "altered"}
    ]
    result = moldau("topic", "delete", "a", "nope", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, [{"name": "a", "outcome": "deleted"}])
    assert "nope" in result.stderr


def test_the_rest_is_created_when_one_is_there(broker: FakeBroker) -> None:
    broker.add_topic("a")
    result = moldau("topic", "create", "a", "b")
    assert (result.exit_code, result.stdout) == (1, "created topic b\n")
    assert result.stderr == "moldau: topic 'a': TOPIC_ALREADY_EXISTS: Topic 'a' already exists.\n"
    assert moldau("topic", "create", "a", "b", "--if-not-exists").exit_code == 0


def test_validating_creates_nothing(broker: FakeBroker) -> None:
    assert moldau("topic", "create", "a", "--validate-only").output == "could create topic a\n"
    assert broker.topics == {}


def test_topics_are_deleted(broker: FakeBroker) -> None:
    broker.add_topic("a")
    result = moldau("topic", "delete", "b", "a")
    assert (result.exit_code, result.stdout) == (1, "deleted topic a\n")
    assert result.stderr == "moldau: topic 'b': UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'b'\n"
    assert moldau("topic", "delete", "b", "--if-exists").exit_code == 0


def test_topics_are_altered(broker: FakeBroker) -> None:
    topic = broker.add_topic("a")
    topic.configs["retention.ms"] = "5"
    result = moldau(
        "topic",
        "alter",
        "a",
        "--partitions",
        "4",
        "--config",
        "segment.ms=7",
        "--delete-config",
        "retention.ms",
    )
    assert (result.exit_code, result.output) == (0, "altered topic a\n")
    assert (len(topic.logs), topic.configs) == (4, {"segment.ms": "7"})
    assert moldau("topic", "alter", "a", "--partitions", "2").exit_code == 1
    assert moldau("topic", "alter", "a").exit_code == 2


def test_topics_are_described(broker: FakeBroker) -> None:
    topic = broker.add_topic("a", 2)
    topic.configs["retention.ms"] = "5"
    result = moldau("topic", "describe", "a", "--offsets")
    assert (result.exit_code, result.output) == (
        0,
        f"topic a  id {uuid_to_string(topic.topic_id)}\n"
        "  PARTITION  LEADER  LEADER EPOCH  REPLICAS  ISR  OFFLINE  FIRST OFFSET  END OFFSET\n"
        "          0       1             0         1    1  -                   0           0\n"
        "          1       1             0         1    1  -                   0           0\n"
        "  retention.ms=5\n",
    )
    (described,) = json.loads(moldau("topic", "describe", "--all-configs", "--json").output)
    assert described["configs"] == {"cleanup.policy": "delete", "retention.ms": "5"}
    assert described["partitions"][1] == {
        "partition": 1,
        "leader": 1,
        "leader_epoch": 0,
        "replicas": [1],
        "isr": [1],
        "offline": [],
    }


def test_what_is_not_there_is_told_after_what_is(broker: FakeBroker) -> None:
    broker.add_topic("a")
    result = moldau("topic", "describe", "b", "a", "--json")
    assert result.exit_code == 1
    assert [topic["name"] for topic in json.loads(result.stdout)] == ["a"]
    assert result.stderr == "moldau: UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'b'\n"
    assert moldau("topic", "describe", "b", "--if-exists").exit_code == 0
