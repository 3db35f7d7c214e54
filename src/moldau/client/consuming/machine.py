"""A consumer's rules as one: what it is subscribed to, and what its parts want next.

Answerable for how the parts hang together: whose partitions are read, which topics have to be known, which
metadata of a pattern make a subscription. Each part has its own rules.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from moldau.client.config import ConnectionConfig
from moldau.client.consuming.asking import Change, Effect, soonest
from moldau.client.consuming.assignors import ClassicAssignor
from moldau.client.consuming.beginnings import Beginnings
from moldau.client.consuming.classic import ClassicMember
from moldau.client.consuming.commits import Commits
from moldau.client.consuming.config import ConsumerConfig
from moldau.client.consuming.coordinator import Coordinator
from moldau.client.consuming.fetching import Fetching, Taken
from moldau.client.consuming.membership import ConsumerMember, Subscription
from moldau.client.consuming.metadata import Topics
from moldau.client.consuming.positions import Positions, State
from moldau.client.producing.operations import GroupMetadata
from moldau.client.topology import TopicInfo, TopicPartition
from moldau.wire.errors import ErrorCode, KafkaError


class Machine:
    def __init__(
        self,
        config: ConsumerConfig,
        connection: ConnectionConfig,
        *,
        spread: Callable[[], float],
        member_id: str,
        assignors: Sequence[ClassicAssignor],
    ) -> None:
        backoff_ms, backoff_max_ms = connection.retry_backoff_ms, connection.retry_backoff_max_ms
        self.config = config
        self.positions = Positions()
        self.topics = Topics(
            age_ms=connection.metadata_max_age_ms,
            retry_backoff_ms=backoff_ms,
            retry_backoff_max_ms=backoff_max_ms,
            spread=spread,
        )
        self.fetching = Fetching(
            config,
            self.positions,
            self.topics,
            spread=spread,
            retry_backoff_ms=backoff_ms,
            retry_backoff_max_ms=backoff_max_ms,
            replica_age_ms=connection.metadata_max_age_ms,
        )
        self.beginnings = Beginnings(
            config, self.positions, self.fetching, self.topics, spread=spread, retry_backoff_ms=backoff_ms
        )
        self.wakeup_ms: int | None = None
        self.subscription = Subscription()
        self._is_assigned = False  # by the program itself
        self._pattern: re.Pattern[str] | None = None
        self._matched_at = -1
        self.coordinator: Coordinator | None = None
        self.commits: Commits | None = None
        self.member: ClassicMember | ConsumerMember | None = None
        if config.group_id is None:
            return
        self.coordinator = Coordinator(
            config.group_id, spread=spread, retry_backoff_ms=backoff_ms, retry_backoff_max_ms=backoff_max_ms
        )
        if config.is_classic:
            self.member = ClassicMember(
                config,
                self.positions,
                self.coordinator,
                self.topics,
                assignors,
                spread=spread,
                retry_backoff_ms=backoff_ms,
                retry_backoff_max_ms=backoff_max_ms,
            )
        else:
            self.member = ConsumerMember(
                config,
                self.positions,
                self.coordinator,
                self.topics,
                member_id,
                spread=spread,
                retry_backoff_ms=backoff_ms,
                retry_backoff_max_ms=backoff_max_ms,
            )
        self.commits = Commits(
            config,
            self.positions,
            self.coordinator,
            self,
            spread=spread,
            retry_backoff_ms=backoff_ms,
            retry_backoff_max_ms=backoff_max_ms,
        )

    # What is read -----------------------------------------------------------------------------------------

    @property
    def creates_topics(self) -> bool:
        return self.config.allow_auto_create_topics

    @property
    def commits_by_itself(self) -> bool:
        return self.config.enable_auto_commit

    def subscribe(self, topics: Collection[str], pattern: str | None) -> None:
        """As a member of the group, from the next poll on."""
        if self.member is None:
            raise ValueError("a subscription needs a group.id")
        if self._is_assigned:
            raise ValueError("partitions are assigned: a consumer has either those or a subscription")
        self.subscription = Subscription(frozenset(topics), pattern)
        self._pattern = None
        if isinstance(self.member, ConsumerMember):
            self.member.subscription = self.subscription
        elif pattern is not None:
            self._pattern = re.compile(pattern)
            self._matched_at = -1
            self.member.subscription = frozenset()
        else:
            self.member.subscription = frozenset(topics)

    def assign(self, places: Iterable[TopicPartition]) -> None:
        """Exactly these, whatever others in the group do."""
        if self.subscription:
            raise ValueError("there is a subscription: a consumer has either that or assigned partitions")
        places = list(dict.fromkeys(places))
        gone = [place for place in self.positions.partitions if place not in set(places)]
        self._let_go(gone)
        self._is_assigned = bool(places)
        self.positions.set(places, State.NEW if self.commits is not None else State.RESET)
        for partition in self.positions.in_state(State.RESET):
            partition.reset = partition.reset or self.config.reset

    def unsubscribe(self, reason: str) -> list[Effect]:
        """The changes that go before, as `give_back` makes them, have been told."""
        effects = [] if self.member is None else self.member.leave(reason)
        self.subscription = Subscription()
        self._pattern = None
        self._is_assigned = False
        if isinstance(self.member, ConsumerMember):
            self.member.subscription = self.subscription
        elif self.member is not None:
            self.member.subscription = frozenset()
            self.member.needed_topics = frozenset()
        self._let_go(list(self.positions.partitions))
        return effects

    def give_back(self) -> None:
        if self.member is not None:
            self.member.give_back()

    def rejoin(self) -> None:
        if isinstance(self.member, ClassicMember):
            self.member.rejoin()

    def _let_go(self, places: Collection[TopicPartition]) -> None:
        self.positions.remove(places)
        self.fetching.forget(places)
        if self.commits is not None:
            self.commits.forget(places)

    @property
    def changes(self) -> deque[Change]:
        return deque() if self.member is None else self.member.holding.changes

    def begin_change(self) -> Change:
        assert self.member is not None
        return self.member.holding.begin_change()

    def end_change(self) -> None:
        assert self.member is not None
        change = self.member.holding.end_change()
        gone = [place for place in change.places if place not in self.positions]
        self._let_go(gone)

    # Polls ------------------------------------------------------------------------------------------------

    def begin_poll(self, now_ms: int) -> None:
        self.positions.came_back()
        if self.member is not None:
            self.member.on_poll(now_ms, is_polling=True)

    def end_poll(self, now_ms: int) -> None:
        if self.member is not None:
            self.member.on_poll(now_ms, is_polling=False)

    @property
    def has_news(self) -> bool:
        return bool(self.changes) or self.fetching.has_news or any(self._errors())

    def take(self, limit: int, places: Collection[TopicPartition] | None = None) -> list[Taken]:
        for errors in self._errors():
            if errors:
                raise errors.pop(next(iter(errors)))
        return self.fetching.take(limit, places)

    @property
    def failure(self) -> KafkaError | None:
        """What keeps records from coming, as long as it may pass."""
        parts = (self.topics, self.coordinator, self.commits, self.fetching)
        return next((part.failure for part in parts if part is not None and part.failure is not None), None)

    def _errors(self) -> list[dict[object, KafkaError]]:
        parts = (self.topics, self.commits, self.member)
        return [part.errors for part in parts if part is not None]

    # What is to be done -----------------------------------------------------------------------------------

    def step(self, now_ms: int) -> list[Effect]:
        self._match()
        effects, wakeup_ms = self.topics.step(now_ms, self._wanted_topics())
        parts = (self.member, self.commits, self.coordinator, self.beginnings, self.fetching)
        for part in parts:
            if part is not None:
                more, at_ms = part.step(now_ms)
                effects += more
                wakeup_ms = soonest(wakeup_ms, at_ms)
        self.wakeup_ms = wakeup_ms
        return effects

    def _match(self) -> None:
        """What a pattern says of the topics that there are; as the classic protocol has it, here."""
        if self._pattern is None or self._matched_at == self.topics.refresh_count:
            return
        if self.topics.refresh_count:
            assert isinstance(self.member, ClassicMember)
            self._matched_at = self.topics.refresh_count
            with_internal = not self.config.exclude_internal_topics
            self.member.subscription = self.topics.matching(self._pattern, with_internal=with_internal)

    def _wanted_topics(self) -> Collection[str] | None:
        if self._pattern is not None:
            return None
        member = self.member
        if isinstance(member, ConsumerMember) and member.wants_all_topics:
            return None
        wanted = {place.topic for place in self.positions.partitions}
        wanted |= self.subscription.topics
        if isinstance(member, ClassicMember):
            wanted |= member.needed_topics
        return wanted

    def on_metadata(
        self, now_ms: int, topics: Mapping[str, TopicInfo], errors: Mapping[str, ErrorCode]
    ) -> None:
        self.topics.on_metadata(now_ms, topics, errors)

    # As the member that commits ---------------------------------------------------------------------------

    @property
    def metadata(self) -> GroupMetadata:
        assert self.member is not None
        return self.member.metadata

    @property
    def may_commit_by_itself(self) -> bool:
        return self._is_assigned or (self.member is not None and self.member.may_commit_by_itself)

    @property
    def may_commit(self) -> bool:
        return not self.subscription or bool(self.metadata.member_id)

    def on_commit_error(self, now_ms: int, who: GroupMetadata, code: ErrorCode) -> None:
        assert self.member is not None
        self.member.on_commit_error(now_ms, who, code)
