"""The rules of a share consumer as one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping

from moldau.client.config import ConnectionConfig
from moldau.client.consuming.asking import Change, Effect, soonest
from moldau.client.consuming.coordinator import Coordinator
from moldau.client.consuming.metadata import Topics
from moldau.client.sharing.config import ShareConsumerConfig
from moldau.client.sharing.fetching import Acquired, ShareFetching
from moldau.client.sharing.member import ShareMember
from moldau.client.topology import TopicInfo, TopicPartition
from moldau.wire.errors import ErrorCode, KafkaError


class ShareMachine:
    creates_topics = False
    commits_by_itself = False

    def __init__(
        self,
        config: ShareConsumerConfig,
        connection: ConnectionConfig,
        *,
        spread: Callable[[], float],
        member_id: str,
    ) -> None:
        pauses = {
            "retry_backoff_ms": connection.retry_backoff_ms,
            "retry_backoff_max_ms": connection.retry_backoff_max_ms,
        }
        self.config = config
        self.topics = Topics(age_ms=connection.metadata_max_age_ms, spread=spread, **pauses)
        self.coordinator = Coordinator(config.group_id, spread=spread, **pauses)
        rack = config.client_rack or None
        self.member = ShareMember(
            member_id, self.coordinator, self.topics, rack=rack, spread=spread, **pauses
        )
        self.fetching = ShareFetching(
            config, config.group_id, member_id, self.topics, spread=spread, **pauses
        )
        self.commits = self.fetching
        self.changes: deque[Change] = deque()  # none: a share group takes nothing away
        self.wakeup_ms: int | None = None

    def begin_change(self) -> Change:
        raise AssertionError("nothing is ever taken away")

    def end_change(self) -> None:
        raise AssertionError("nothing is ever taken away")

    def begin_poll(self, now_ms: int) -> None:
        self.fetching.is_wanted = True

    def end_poll(self, now_ms: int) -> None:
        self.fetching.is_wanted = False

    @property
    def has_news(self) -> bool:
        return bool(self.fetching.acquired) or any(self._errors())

    def take(self, limit: int, places: Collection[TopicPartition] | None = None) -> list[Acquired]:
        """All that was acquired in one fetch: the limit has been the broker's."""
        for errors in self._errors():
            if errors:
                raise errors.pop(next(iter(errors)))
        taken = list(self.fetching.acquired)
        self.fetching.acquired.clear()
        return taken

    @property
    def failure(self) -> KafkaError | None:
        parts = (self.topics, self.coordinator, self.fetching)
        return next((part.failure for part in parts if part.failure is not None), None)

    def _errors(self) -> list[dict[object, KafkaError]]:
        return [self.topics.errors, self.member.errors, self.fetching.errors]

    def step(self, now_ms: int) -> list[Effect]:
        effects, wakeup_ms = self.topics.step(now_ms, self.member.subscription)
        self.fetching.assigned = self.member.assigned
        for part in (self.member, self.coordinator, self.fetching):
            more, at_ms = part.step(now_ms)
            effects += more
            wakeup_ms = soonest(wakeup_ms, at_ms)
        self.wakeup_ms = wakeup_ms
        return effects

    def on_metadata(
        self, now_ms: int, topics: Mapping[str, TopicInfo], errors: Mapping[str, ErrorCode]
    ) -> None:
        self.topics.on_metadata(now_ms, topics, errors)
