"""A member of a share group: it beats, and is told from which partitions to fetch.

Nothing has to be given back before others get it: whose each record is, leaders of partitions know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from moldau.client.consuming.asking import GROUP_LANE, Ask, Backoff, Effect, may_pass
from moldau.client.consuming.coordinator import Coordinator
from moldau.client.consuming.metadata import Topics
from moldau.client.errors import error_of
from moldau.client.topology import TopicPartition
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.ids import Uuid
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

_JOIN = 0
_LEAVE = -1
_HEARTBEAT_MS = 5000  # until the coordinator tells


class Beat(NamedTuple):
    epoch: int
    topics: frozenset[str]


class ShareMember:
    def __init__(
        self,
        member_id: str,
        coordinator: Coordinator,
        topics: Topics,
        *,
        rack: str | None,
        spread: Callable[[], float],
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        self.member_id = member_id
        self.subscription: frozenset[str] = frozenset()
        self.errors: dict[object, KafkaError] = {}
        self._target: dict[Uuid, tuple[int, ...]] = {}
        self._coordinator = coordinator
        self._topics = topics
        self._rack = rack
        self._backoff = Backoff(retry_backoff_ms, retry_backoff_max_ms, spread)
        self._epoch = _JOIN
        self._told: frozenset[str] | None = None  # the subscription, as far as the coordinator knows it
        self._beat: Beat | None = None
        self._interval_ms = _HEARTBEAT_MS
        self._next_ms = 0

    @property
    def assigned(self) -> list[TopicPartition]:
        names = {topic.topic_id: name for name, topic in self._topics.known.items()}
        return [
            TopicPartition(names[topic_id], index)
            for topic_id, indexes in self._target.items()
            if topic_id in names
            for index in indexes
        ]

    def step(self, now_ms: int) -> tuple[list[Effect], int | None]:
        if not self.subscription or self._beat is not None:
            return [], None
        coordinator = self._coordinator
        if coordinator.error is not None:
            self.errors["coordinator"] = coordinator.error
            return [], None
        if coordinator.node_id is None:
            coordinator.is_needed = True
            return [], None
        is_due = self._next_ms <= now_ms or self._told != self.subscription
        if not is_due or self._backoff.until_ms > now_ms:
            return [], max(self._next_ms, self._backoff.until_ms)
        self._next_ms = now_ms + self._interval_ms
        self._beat = Beat(self._epoch, self.subscription)
        return [self._heartbeat(coordinator.node_id, self._beat)], None

    def leave(self) -> list[Effect]:
        self.subscription = frozenset()
        self._beat = None
        if self._epoch == _JOIN or self._coordinator.node_id is None:
            return []
        return [self._heartbeat(self._coordinator.node_id, Beat(_LEAVE, frozenset()))]

    def _heartbeat(self, node_id: int, beat: Beat) -> Ask:
        is_news = beat.epoch == _JOIN or (beat.epoch > 0 and self._told != beat.topics)
        request = ShareGroupHeartbeatRequest(
            group_id=self._coordinator.group_id,
            member_id=self.member_id,
            member_epoch=beat.epoch,
            rack_id=self._rack if beat.epoch == _JOIN else None,
            subscribed_topic_names=sorted(beat.topics) if is_news else None,
        )
        return Ask(
            self,
            beat,
            node_id,
            ShareGroupHeartbeatRequest,
            lambda _: request,
            ShareGroupHeartbeatResponse,
            lane=GROUP_LANE,
        )

    def on_response(self, now_ms: int, beat: Beat, response: ShareGroupHeartbeatResponse) -> None:
        if beat is not self._beat:
            return
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            self.on_failure(now_ms, beat, error_of(code, response.error_message or "ShareGroupHeartbeat"))
            return
        self._beat = None
        self._coordinator.answered()
        self._backoff.succeeded()
        self._epoch = response.member_epoch
        self._told = beat.topics
        self._interval_ms = response.heartbeat_interval_ms or self._interval_ms
        self._next_ms = now_ms + self._interval_ms
        if response.assignment is not None:
            self._target = {
                each.topic_id: tuple(each.partitions) for each in response.assignment.topic_partitions
            }

    def on_failure(self, now_ms: int, beat: Beat, error: KafkaError) -> None:
        if beat is not self._beat:
            return
        self._beat = None
        self._told = None
        if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._epoch = _JOIN
            self._target = {}
            return
        if not self._coordinator.lost(now_ms, error) and not may_pass(error):
            self.errors["heartbeat"] = error
        self._backoff.failed(now_ms)
