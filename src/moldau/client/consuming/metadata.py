"""What a consumer knows of the cluster's topics, and when it asks again."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from moldau.client.consuming.asking import Backoff, Effect, RefreshMetadata
from moldau.client.errors import error_of
from moldau.client.topology import PartitionInfo, TopicInfo, TopicPartition
from moldau.wire.errors import ErrorCode, KafkaError

_NOT_THERE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE})


class Topics:
    """`known` are those that there are; `stale` those of which something was wrong, to be asked for anew;
    `missing` those that the cluster said there are not."""

    def __init__(
        self, *, age_ms: int, retry_backoff_ms: int, retry_backoff_max_ms: int, spread: Callable[[], float]
    ) -> None:
        self.known: dict[str, TopicInfo] = {}
        self.stale: set[str] = set()
        self.missing: set[str] = set()
        self.errors: dict[object, KafkaError] = {}
        self.failure: KafkaError | None = None
        self.refresh_count = 0
        self._age_ms = age_ms
        self._backoff = Backoff(retry_backoff_ms, retry_backoff_max_ms, spread)
        self._told_ms: int | None = None  # when all that was wanted was told
        self._told: frozenset[str] | None = frozenset()
        self._asked: frozenset[str] | bool | None = False

    def partition(self, place: TopicPartition) -> PartitionInfo | None:
        topic = self.known.get(place.topic)
        return None if topic is None else topic.partition(place.partition)

    def matching(self, pattern: re.Pattern[str], *, with_internal: bool) -> frozenset[str]:
        return frozenset(
            name
            for name, topic in self.known.items()
            if (with_internal or not topic.is_internal) and pattern.fullmatch(name)
        )

    def step(self, now_ms: int, wanted: Collection[str] | None) -> tuple[list[Effect], int | None]:
        """`wanted` None is all topics."""
        if self._asked is not False or (wanted is not None and not wanted):
            return [], None
        names = None if wanted is None else frozenset(wanted)
        is_news = self._told is not None and (names is None or not names <= self._told)
        is_due = self._told_ms is None or now_ms >= self._told_ms + self._age_ms
        if not (is_news or is_due or self.stale or (names is not None and self.missing & names)):
            return [], (self._told_ms or 0) + self._age_ms
        if self._backoff.until_ms > now_ms and not is_news:
            return [], self._backoff.until_ms
        self._asked = names
        return [RefreshMetadata(None if names is None else tuple(sorted(names)))], None

    def on_metadata(
        self, now_ms: int, topics: Mapping[str, TopicInfo], errors: Mapping[str, ErrorCode]
    ) -> None:
        asked, self._asked = self._asked, False
        assert not isinstance(asked, bool), "nobody asked"
        self.failure = None
        self.refresh_count += 1
        self.known = dict(topics) if asked is None else {**self.known, **topics}
        self.missing = set()
        for name, code in errors.items():
            self.known.pop(name, None)
            if code in _NOT_THERE:
                self.missing.add(name)
            elif not code.retriable:
                self.errors[name] = error_of(code, f"topic {name!r}")
        self._told, self._told_ms = asked, now_ms
        has_leaders = all(each.leader is not None for topic in topics.values() for each in topic.partitions)
        if self.missing or self.stale or not has_leaders:
            self._backoff.failed(now_ms)
        else:
            self._backoff.succeeded()
        self.stale.clear()

    def on_failure(self, now_ms: int, error: KafkaError) -> None:
        self._asked = False
        self._backoff.failed(now_ms)
        self.failure = error
