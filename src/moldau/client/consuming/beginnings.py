"""Where partitions begin to be read: at their committed offsets, or where `auto.offset.reset` says.

Invariant: what comes for a partition counts only in the life that it was asked for in, so that neither an
answer to an old question nor one behind a `seek` moves it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from moldau.client.consuming.asking import Ask, Effect, may_pass, soonest
from moldau.client.consuming.config import ConsumerConfig
from moldau.client.consuming.fetching import Fetching
from moldau.client.consuming.metadata import Topics
from moldau.client.consuming.positions import Partition, Positions, State
from moldau.client.errors import error_of, metadata_is_stale
from moldau.client.topology import TopicPartition
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_LATEST = -1


class Question(NamedTuple):
    node_id: int
    lives: dict[TopicPartition, int]
    timestamps: dict[TopicPartition, int]


class Beginnings:
    def __init__(
        self,
        config: ConsumerConfig,
        positions: Positions,
        fetching: Fetching,
        topics: Topics,
        *,
        spread: Callable[[], float],
        retry_backoff_ms: int,
    ) -> None:
        self._config = config
        self._positions = positions
        self._fetching = fetching
        self._topics = topics
        self._spread = spread
        self._backoff_ms = retry_backoff_ms
        self._asked: dict[TopicPartition, int] = {}
        self._pauses: dict[TopicPartition, int] = {}
        self._late: dict[TopicPartition, int] = {}  # for which nothing is as new as was asked for, by life

    def step(self, now_ms: int) -> tuple[list[Effect], int | None]:
        wakeup_ms: int | None = None
        by_leader: dict[int, Question] = {}
        for partition in self._positions.in_state(State.RESET):
            place = partition.place
            if self._asked.get(place) == partition.life:
                continue
            not_before_ms = self._pauses.get(place, 0)
            if not_before_ms > now_ms:
                wakeup_ms = soonest(wakeup_ms, not_before_ms)
                continue
            timestamp = self._timestamp(now_ms, partition)
            if timestamp is None:
                reason = f"partition {place} has no offset, and auto.offset.reset is none"
                # Kafka's clients have an error of their own for it, which has no code.
                self._fetching.errors[place] = error_of(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
                self._pauses[place] = now_ms + self._backoff_ms
                continue
            info = self._topics.partition(place)
            if info is None or info.leader is None:
                self._topics.stale.add(place.topic)
                continue
            question = by_leader.setdefault(info.leader, Question(info.leader, {}, {}))
            question.lives[place] = partition.life
            question.timestamps[place] = timestamp
            self._asked[place] = partition.life
        return [self._ask(question) for question in by_leader.values()], wakeup_ms

    def _timestamp(self, now_ms: int, partition: Partition) -> int | None:
        if self._late.get(partition.place) == partition.life:
            return _LATEST
        return None if partition.reset is None else partition.reset.at(now_ms)

    def _ask(self, question: Question) -> Ask:
        topics: dict[str, ListOffsetsTopic] = {}
        for place, timestamp in question.timestamps.items():
            topic = topics.setdefault(place.topic, ListOffsetsTopic(name=place.topic))
            topic.partitions.append(
                ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp)
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self._config.is_read_committed,
            topics=list(topics.values()),
            timeout_ms=self._config.default_api_timeout_ms,
        )
        return Ask(
            self, question, question.node_id, ListOffsetsRequest, lambda _: request, ListOffsetsResponse
        )

    def on_response(self, now_ms: int, question: Question, response: ListOffsetsResponse) -> None:
        for place in question.lives:
            self._asked.pop(place, None)
        for topic in response.topics:
            for answer in topic.partitions:
                place = TopicPartition(topic.name, answer.partition_index)
                life = question.lives.get(place)
                partition = self._positions.partitions.get(place)
                if partition is None or partition.life != life or partition.state is not State.RESET:
                    continue
                if answer.error_code:
                    self._on_error(now_ms, place, error_code(answer.error_code))
                elif answer.offset >= 0:
                    self._late.pop(place, None)
                    self._positions.seek(place, answer.offset)
                else:
                    self._late[place] = partition.life

    def on_failure(self, now_ms: int, question: Question, error: KafkaError) -> None:
        for place in question.lives:
            self._asked.pop(place, None)
            self._pause(now_ms, place)
            if may_pass(error):
                self._fetching.failure = error
                self._topics.stale.add(place.topic)
            else:
                self._fetching.errors[place] = error

    def _on_error(self, now_ms: int, place: TopicPartition, code: ErrorCode) -> None:
        error = error_of(code, f"the offsets of partition {place}")
        self._pause(now_ms, place)
        if metadata_is_stale(code):
            self._topics.stale.add(place.topic)
        if code.retriable:
            self._fetching.failure = error
        else:
            self._fetching.errors[place] = error

    def _pause(self, now_ms: int, place: TopicPartition) -> None:
        self._pauses[place] = now_ms + int(self._backoff_ms * self._spread())
