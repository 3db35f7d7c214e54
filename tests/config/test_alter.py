"""Incremental changes of overrides."""

from __future__ import annotations

import pytest

from moldau.config.alter import Change, Operation, alter_incrementally
from moldau.config.option import ConfigError
from moldau.config.topic import TOPIC_OPTIONS

SET, DELETE, APPEND, SUBTRACT = Operation


def altered(overrides: dict[str, str], *changes: Change) -> dict[str, str]:
    return alter_incrementally(overrides, changes, TOPIC_OPTIONS)


def test_set_and_delete() -> None:
    overrides = {"retention.ms": "1", "segment.ms": "2"}
    changes = (Change("retention.ms", SET, "5"), Change("segment.ms", DELETE), Change("nope", DELETE))
    assert altered(overrides, *changes) == {"retention.ms": "5"}
    assert overrides == {"retention.ms": "1", "segment.ms": "2"}


def test_lists_start_from_the_default() -> None:
    after = altered({}, Change("cleanup.policy", APPEND, "compact"))
    assert after == {"cleanup.policy": "delete,compact"}
    assert altered(after, Change("cleanup.policy", SUBTRACT, "delete")) == {"cleanup.policy": "compact"}


def test_appending_what_is_there_changes_nothing() -> None:
    overrides = {"cleanup.policy": "compact"}
    assert altered(overrides, Change("cleanup.policy", APPEND, "compact,delete,delete")) == {
        "cleanup.policy": "compact,delete"
    }
    assert altered(overrides, Change("cleanup.policy", SUBTRACT, "x")) == overrides


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        # What APPEND makes of these, Kafka's lists refuse for their empty parts.
        ("a", APPEND, "", "a,"),
        ("a", APPEND, ",b", "a,,b"),
        ("a", APPEND, "b,,", "a,b"),
        ("a", APPEND, ",", "a"),
        ("a,,b,", APPEND, "c", "a,b,c"),
        ("a,b,a", SUBTRACT, "a", "b,a"),
        ("a,b,a,a", SUBTRACT, "a,c,a", "b,a"),
        ("a,b", SUBTRACT, "", "a,b"),
    ],
)
def test_lists_are_split_as_java_does(before: str, operation: Operation, value: str, after: str) -> None:
    name = "leader.replication.throttled.replicas"
    assert altered({name: before}, Change(name, operation, value)) == {name: after}


def test_only_lists_can_be_added_to() -> None:
    with pytest.raises(ConfigError) as caught:
        altered({}, Change("segment.ms", APPEND, "1"), Change("nope", SUBTRACT, "1"), Change("a", SET))
    assert [problem.message for problem in caught.value.problems] == [
        "Can't APPEND to key segment.ms because its type is not LIST.",
        "Can't SUBTRACT to key nope because its type is not LIST.",
        "Null value not supported for : a",
    ]
