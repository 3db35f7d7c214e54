"""A member of a group of the consumer protocol (KIP-848): it beats, and the coordinator tells what it is
to have.

Answerable for what each heartbeat says (all of it after a join or a failure, else only what has changed), and
for coming to what the coordinator wants: give back what it takes away, then take what it gives, then say so.
What becomes of the assignment is a queue of `changes` that the program is told in `poll`.

Invariants: one heartbeat is in flight. The coordinator is told that the member has a partition no more only
when the program has finished with it; so nobody else gets it before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from moldau.client.consuming.asking import (
    GROUP_LANE,
    Ask,
    Backoff,
    Effect,
    may_pass,
    soonest,
)
from moldau.client.consuming.config import ConsumerConfig
from moldau.client.consuming.coordinator import Coordinator
from moldau.client.consuming.holding import Holding
from moldau.client.consuming.metadata import Topics
from moldau.client.consuming.positions import Positions
from moldau.client.errors import error_of
from moldau.client.producing.operations import GroupMetadata
from moldau.client.topology import TopicPartition
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)

_JOIN = 0
_LEAVE = -1
_LEAVE_FOR_A_WHILE = -2  # of static members
_HEARTBEAT_MS = 5000  # until the coordinator tells
_REGEX_FROM = 1


class Subscription(NamedTuple):
    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    def __bool__(self) -> bool:
        return bool(self.topics) or self.pattern is not None


class Beat(NamedTuple):
    """A heartbeat in flight: what of it is new, to be said again if nobody knows whether it came."""

    epoch: int
    said: dict[str, Any]


class ConsumerMember:
    def __init__(
        self,
        config: ConsumerConfig,
        positions: Positions,
        coordinator: Coordinator,
        topics: Topics,
        member_id: str,
        *,
        spread: Callable[[], float],
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        self.holding = Holding(positions)
        self.errors: dict[object, KafkaError] = {}
        self.subscription = Subscription()
        self.is_polling = False
        self.polled_ms: int | None = None
        self.wants_all_topics = False
        """Whether a topic was assigned that is not known by its id."""
        self._config = config
        self._positions = positions
        self._coordinator = coordinator
        self._topics = topics
        self._member_id = member_id
        self._backoff = Backoff(retry_backoff_ms, retry_backoff_max_ms, spread)
        self._epoch = _JOIN
        self._is_member = False
        self._target: dict[Uuid, tuple[int, ...]] | None = None
        self._said: dict[str, Any] = {}
        self._beat: Beat | None = None
        self._interval_ms = _HEARTBEAT_MS
        self._next_ms = 0
        self._is_over = False
        self._is_leaving = False
        self._ids: dict[str, Uuid] = {}  # of the topics that are owned

    @property
    def metadata(self) -> GroupMetadata:
        group_id, instance_id = self._coordinator.group_id, self._config.group_instance_id
        if not self._is_member:
            return GroupMetadata(group_id, group_instance_id=instance_id)
        return GroupMetadata(group_id, self._epoch, self._member_id, instance_id)

    @property
    def may_commit_by_itself(self) -> bool:
        return self._is_member

    # What the program does --------------------------------------------------------------------------------

    def on_poll(self, now_ms: int, *, is_polling: bool) -> None:
        self.polled_ms = now_ms
        self.is_polling = is_polling

    def give_back(self) -> None:
        """Everything, before the member leaves."""
        self._is_leaving = True
        self.holding.give_back(has_lost=not self._is_member)

    def leave(self, reason: str) -> list[Effect]:
        effects: list[Effect] = []
        if self._is_member and self._coordinator.node_id is not None:
            epoch = _LEAVE if self._config.group_instance_id is None else _LEAVE_FOR_A_WHILE
            effects = [self._heartbeat(self._coordinator.node_id, epoch, {})]
        self._is_leaving = False
        self._forget_membership()
        self.holding.changes.clear()
        return effects

    # What is to be done -----------------------------------------------------------------------------------

    def step(self, now_ms: int) -> tuple[list[Effect], int | None]:
        if self._is_over:
            self.holding.lose()
            return [], None
        effects: list[Effect] = []
        has_stopped = (
            self.polled_ms is not None
            and not self.is_polling
            and now_ms - self.polled_ms >= self._config.max_poll_interval_ms
        )
        if has_stopped and self._is_member:
            effects += self.leave("max.poll.interval.ms")
        self._reconcile()
        expires_ms = None
        if self.polled_ms is not None and not self.is_polling and self._is_member:
            expires_ms = self.polled_ms + self._config.max_poll_interval_ms
        if has_stopped or self.polled_ms is None or not self.subscription or self._beat is not None:
            return effects, expires_ms
        if not self._is_member:
            if self._is_leaving:
                return effects, expires_ms
            self.holding.lose()
            if self.holding.changes:
                return effects, expires_ms
        coordinator = self._coordinator
        if coordinator.error is not None:
            self.errors["coordinator"] = coordinator.error
            return effects, expires_ms
        if coordinator.node_id is None:
            coordinator.is_needed = True
            return effects, expires_ms
        says = self._says()
        news = {name: value for name, value in says.items() if self._said.get(name, self) != value}
        is_due = self._next_ms <= now_ms or bool(news) or not self._is_member
        if not is_due or self._backoff.until_ms > now_ms:
            return effects, soonest(expires_ms, max(self._next_ms, self._backoff.until_ms))
        self._next_ms = now_ms + self._interval_ms
        self._said = says
        epoch = self._epoch if self._is_member else _JOIN
        effects.append(self._heartbeat(coordinator.node_id, epoch, news))
        return effects, expires_ms

    def _says(self) -> dict[str, Any]:
        """All that a heartbeat may say of the member."""
        names, pattern = self.subscription
        owned: dict[Uuid, list[int]] = {}
        for place in sorted(self.holding.owned):
            owned.setdefault(self._ids.get(place.topic, ZERO_UUID), []).append(place.partition)
        said: dict[str, Any] = {
            "rebalance_timeout_ms": self._config.max_poll_interval_ms,
            "instance_id": self._config.group_instance_id,
            "rack_id": self._config.client_rack or None,
            "server_assignor": self._config.group_remote_assignor,
            "topic_partitions": owned,
        }
        if pattern is None or self._said.get("subscribed_topic_names"):
            said["subscribed_topic_names"] = sorted(names)
        if pattern is not None or self._said.get("subscribed_topic_regex"):
            said["subscribed_topic_regex"] = pattern or ""
        return said

    def _heartbeat(self, node_id: int, epoch: int, news: dict[str, Any]) -> Ask:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._coordinator.group_id, member_id=self._member_id, member_epoch=epoch
        )
        for name, value in news.items():
            if name == "topic_partitions":
                value = [
                    RequestTopicPartitions(topic_id=topic_id, partitions=indexes)
                    for topic_id, indexes in value.items()
                ]
            setattr(request, name, value)
        # Also what has not changed, where the coordinator looks the member up by it.
        request.instance_id = self._config.group_instance_id
        beat = Beat(epoch, news)
        if epoch >= 0:
            self._beat = beat
        return Ask(
            self,
            beat,
            node_id,
            ConsumerGroupHeartbeatRequest,
            lambda _: request,
            ConsumerGroupHeartbeatResponse,
            lane=GROUP_LANE,
        )

    def _reconcile(self) -> None:
        """One step towards what the coordinator wants, when the program has been told of the last one."""
        self.wants_all_topics = False
        if self._target is None or self.holding.changes or not self._is_member or self._is_leaving:
            return
        names = {topic.topic_id: name for name, topic in self._topics.known.items()}
        names |= {topic_id: name for name, topic_id in self._ids.items()}
        self.wants_all_topics = any(topic_id not in names for topic_id in self._target)
        wanted = frozenset(
            TopicPartition(names[topic_id], index)
            for topic_id, indexes in self._target.items()
            if topic_id in names
            for index in indexes
        )
        self._ids = {names[topic_id]: topic_id for topic_id in self._target if topic_id in names} | {
            place.topic: self._ids[place.topic] for place in self.holding.owned if place.topic in self._ids
        }
        revoked, added = self.holding.owned - wanted, wanted - self.holding.owned
        if revoked:
            self.holding.revoke(revoked)
        if added:
            self.holding.assign(added)

    # What comes back --------------------------------------------------------------------------------------

    def on_response(self, now_ms: int, beat: Beat, response: ConsumerGroupHeartbeatResponse) -> None:
        if beat is not self._beat:
            return  # of a life that is over
        self._beat = None
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            self._on_error(now_ms, error_of(code, response.error_message or "ConsumerGroupHeartbeat"))
            return
        self._coordinator.answered()
        self._backoff.succeeded()
        self._is_member = True
        self._epoch = response.member_epoch
        self._member_id = response.member_id or self._member_id
        self._interval_ms = response.heartbeat_interval_ms or self._interval_ms
        self._next_ms = now_ms + self._interval_ms
        if response.assignment is not None:
            self._on_target(response.assignment)

    def _on_target(self, assignment: Assignment) -> None:
        is_first = self._target is None
        self._target = {each.topic_id: tuple(each.partitions) for each in assignment.topic_partitions}
        if is_first and not self._target and not self.holding.changes and not self._is_leaving:
            self.holding.assign(())  # the program is told that it is a member

    def on_failure(self, now_ms: int, beat: Beat, error: KafkaError) -> None:
        if beat is not self._beat:
            return
        self._beat = None
        self._on_error(now_ms, error)

    def on_commit_error(self, now_ms: int, who: GroupMetadata, code: ErrorCode) -> None:
        """The heartbeats will tell."""
        self._next_ms = now_ms

    def _on_error(self, now_ms: int, error: KafkaError) -> None:
        self._said = {}  # nobody knows what came: the next one says all
        match error.code:
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_MEMBER_EPOCH:
                self._forget_membership()
                return
            case ErrorCode.FENCED_INSTANCE_ID | ErrorCode.UNRELEASED_INSTANCE_ID:
                self._is_over = True
                self._forget_membership()
                self.errors["fenced"] = error
                self.holding.lose()
                return
        if not self._coordinator.lost(now_ms, error) and not may_pass(error):
            self.errors["heartbeat"] = error
        self._backoff.failed(now_ms)

    def _forget_membership(self) -> None:
        """What it had may be somebody else's already."""
        self._is_member = False
        self._epoch = _JOIN
        self._target = None
        self._said = {}
        self._beat = None
        self.holding.stop_reading()
