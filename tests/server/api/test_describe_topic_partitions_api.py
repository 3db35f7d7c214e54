"""DescribeTopicPartitions: pages and cursors, with the answers of Apache Kafka 4.3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from api_cluster import Broker, broker, partition, topic, topic_id
from hypothesis import given
from hypothesis import strategies as st

from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode as E
from moldau.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    RequestCursor,
    TopicRequest,
)

Page = list[tuple[str | None, int, list[int]]]
SIZES = {"b": 3, "a": 1, "c": 2}


def make(**options: Any) -> Broker:
    topics = [topic(name, *(partition(1) for _ in range(size))) for name, size in SIZES.items()]
    return Broker(broker(1), *topics, **options)


@pytest.fixture
def node() -> Iterator[Broker]:
    with make() as made:
        yield made


def describe(
    on: Broker, names: Sequence[str] = (), limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else RequestCursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response: DescribeTopicPartitionsResponse = on.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
    return response


def page(response: DescribeTopicPartitionsResponse) -> tuple[Page, tuple[str, int] | None]:
    cursor = response.next_cursor
    return (
        [(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in response.topics],
        None if cursor is None else (cursor.topic_name, cursor.partition_index),
    )


def test_all_topics_come_by_name(node: Broker) -> None:
    assert page(describe(node)) == ([("a", 0, [0]), ("b", 0, [0, 1, 2]), ("c", 0, [0, 1])], None)


def test_a_partition_tells_who_may_lead_it() -> None:
    content = topic("t", partition(2, leader=-1, isr=[], eligible_leader_replicas=[2], last_known_elr=[1]))
    with Broker(
        broker(1), broker(2, fenced=True), content, topic("__consumer_offsets", partition(1))
    ) as node:
        internal, described = describe(node).topics
        assert (internal.is_internal, described.is_internal) == (True, False)
        assert (described.topic_id, described.topic_authorized_operations) == (topic_id("t"), 3576)
        found = described.partitions[0]
        # Without a code, although there is no leader.
        assert (found.error_code, found.leader_id, found.leader_epoch) == (0, -1, 5)
        assert (found.replica_nodes, found.isr_nodes, found.offline_replicas) == ([2], [], [2])
        assert (found.eligible_leader_replicas, found.last_known_elr) == ([2], [1])


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (2, ([("a", 0, [0]), ("b", 0, [0])], ("b", 1))),
        (4, ([("a", 0, [0]), ("b", 0, [0, 1, 2])], ("c", 0))),
        (6, ([("a", 0, [0]), ("b", 0, [0, 1, 2]), ("c", 0, [0, 1])], None)),
        (0, ([("a", 0, [0])], ("b", 0))),
        (-1, ([("a", 0, [0])], ("b", 0))),
    ],
)
def test_a_page_ends_with_a_cursor_to_what_is_missing(
    node: Broker, limit: int, expected: tuple[Page, tuple[str, int] | None]
) -> None:
    assert page(describe(node, limit=limit)) == expected


def test_the_broker_has_a_limit_of_its_own() -> None:
    with make(max_request_partition_size_limit="2") as node:
        assert page(describe(node, limit=2000)) == ([("a", 0, [0]), ("b", 0, [0])], ("b", 1))


def test_unknown_topics_take_no_room_and_a_cursor_may_point_to_one(node: Broker) -> None:
    unknown, invalid = E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_TOPIC_EXCEPTION
    names = ("c", "bb", "a b", "bb", "zz")
    assert page(describe(node, names, limit=2)) == (
        [("a b", invalid, []), ("bb", unknown, []), ("c", 0, [0, 1])],
        ("zz", 0),
    )


@pytest.mark.parametrize(
    ("names", "cursor", "expected"),
    [
        (("a", "b"), ("b", 1), [("b", 0, [1, 2])]),
        (("a", "b"), ("b", 3), [("b", 0, [])]),
        (("a", "b"), ("b", 2**31 - 1), [("b", 0, [])]),
        (("b", "ab"), ("ab", 1), [("ab", E.UNKNOWN_TOPIC_OR_PARTITION, []), ("b", 0, [0, 1, 2])]),
        ((), ("b", 2), [("b", 0, [2]), ("c", 0, [0, 1])]),
        ((), ("bb", 1), [("c", 0, [0, 1])]),
        ((), ("zz", 0), []),
    ],
)
def test_a_cursor_is_where_to_begin(
    node: Broker, names: tuple[str, ...], cursor: tuple[str, int], expected: Page
) -> None:
    assert page(describe(node, names, cursor=cursor)) == (expected, None)


@pytest.mark.parametrize("cursor", [("a", -1), ("zz", 0), ("", 0)])
def test_a_cursor_that_is_not_of_the_request_fails_each_topic(node: Broker, cursor: tuple[str, int]) -> None:
    refused = E.INVALID_REQUEST
    assert page(describe(node, ("b", "a"), cursor=cursor)) == ([("b", refused, []), ("a", refused, [])], None)


@given(limit=st.integers(1, 7), named=st.booleans())
def test_pages_together_are_everything_once(limit: int, named: bool) -> None:
    with make() as node:
        seen: list[tuple[str | None, int]] = []
        cursor: tuple[str, int] | None = None
        while True:
            topics, cursor = page(describe(node, tuple(SIZES) if named else (), limit, cursor))
            found = [(name, index) for name, _, indexes in topics for index in indexes]
            assert 0 < len(found) <= limit
            seen += found
            if cursor is None:
                break
        assert seen == [(name, index) for name in sorted(SIZES) for index in range(SIZES[name])]
