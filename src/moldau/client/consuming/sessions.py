"""The client's half of a fetch session (KIP-227): a broker remembers what is fetched, and is told changes
only.

Invariant: `_told` is what the broker has, if it has the session at all; whenever that is in doubt, the next
request says everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moldau.client.topology import TopicPartition
from moldau.wire.errors import ErrorCode
from moldau.wire.ids import Uuid
from moldau.wire.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

_EPOCH_COUNT = (1 << 31) - 1

SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Wanted(NamedTuple):
    """What is asked of a partition."""

    topic_id: Uuid
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int


class FetchSession:
    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self._told: dict[TopicPartition, Wanted] = {}

    def begin_request(
        self, wanted: Mapping[TopicPartition, Wanted]
    ) -> tuple[dict[TopicPartition, Wanted], list[tuple[TopicPartition, Uuid]]]:
        """What is to be said of what is wanted, and what to be forgotten. The broker counts as told."""
        if self.epoch == 0:
            self._told = dict(wanted)
            return dict(wanted), []
        changed = {place: each for place, each in wanted.items() if self._told.get(place) != each}
        forgotten = [
            (place, before.topic_id)
            for place, before in self._told.items()
            if place not in wanted or wanted[place].topic_id != before.topic_id
        ]
        self._told = dict(wanted)
        return changed, forgotten

    def on_answer(self, session_id: int, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = 0
            self.epoch = 0
        elif session_id == 0:
            self.session_id = self.epoch = 0  # the broker keeps none
        else:
            self.session_id = session_id
            self.epoch = self.epoch % _EPOCH_COUNT + 1

    def on_failure(self) -> None:
        """Nobody knows whether the request came: the next one replaces the session."""
        self.epoch = 0


def by_topic(wanted: Mapping[TopicPartition, Wanted], *, with_last_epochs: bool = True) -> list[FetchTopic]:
    topics: dict[tuple[str, Uuid], FetchTopic] = {}
    for place, each in wanted.items():
        key = (place.topic, each.topic_id)
        if key not in topics:
            topics[key] = FetchTopic(topic=place.topic, topic_id=each.topic_id)
        topics[key].partitions.append(
            FetchPartition(
                partition=place.partition,
                current_leader_epoch=each.current_leader_epoch,
                fetch_offset=each.fetch_offset,
                last_fetched_epoch=each.last_fetched_epoch if with_last_epochs else -1,
                partition_max_bytes=each.max_bytes,
            )
        )
    return list(topics.values())


def forgotten_topics(forgotten: list[tuple[TopicPartition, Uuid]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, Uuid], ForgottenTopic] = {}
    for place, topic_id in forgotten:
        key = (place.topic, topic_id)
        if key not in topics:
            topics[key] = ForgottenTopic(topic=place.topic, topic_id=topic_id)
        topics[key].partitions.append(place.partition)
    return list(topics.values())
