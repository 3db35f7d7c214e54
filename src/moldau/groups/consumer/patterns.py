"""The patterns that members of a group subscribe to: which are to be resolved when, and what comes of it.

Matching takes a while where there are many topics, so it is done apart from the heartbeat that asks for it;
the group's epoch rises when it is known that the topics of a pattern have changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from enum import Enum, auto
from typing import NamedTuple

from moldau.coordinator.decision import NOTHING, Decision
from moldau.coordinator.record import CoordinatorRecord
from moldau.coordinator.timers import Timers
from moldau.groups.consumer import records
from moldau.groups.consumer.group import ConsumerGroup
from moldau.groups.consumer.rebalance import Change, Rebalances
from moldau.groups.consumer.regex import Resolution, check_regex
from moldau.groups.environment import GroupEnvironment
from moldau.groups.group import GroupStore

# Between two looks at all topics for one group.
_REFRESH_INTERVAL_MIN_MS = 10_000


class ResolveRegexes(NamedTuple):
    """The timer's event: some more topics are to be matched."""

    resolution: Resolution


class RegexChange(Enum):
    NONE = auto()
    UPDATED = auto()
    RESOLVED = auto()
    """It is known already which topics it stands for, so an assignment is due."""


class Patterns:
    def __init__(
        self, groups: GroupStore, timers: Timers, environment: GroupEnvironment, rebalances: Rebalances
    ) -> None:
        self._groups = groups
        self._timers = timers
        self._environment = environment
        self._rebalances = rebalances
        # The offset of the newest metadata that has a topic which no pattern was matched with.
        self._new_topics_at = -1

    def on_new_topics(self) -> None:
        self._new_topics_at = self._environment.image.offset

    def update(self, now_ms: int, change: Change) -> RegexChange:
        """What the member's change means for the patterns of its group. Raises KafkaError for what is no
        pattern."""
        group, old, new = change.group, change.old.regex, change.new.regex
        if not old and not new and not group.subscribed_regexes:
            return RegexChange.NONE
        result, is_new = RegexChange.NONE, False
        if old != new:
            result = RegexChange.UPDATED
            if new and not group.regex_members(new):
                check_regex(new)
                is_new = True
            elif not new or new in group.regexes:
                result = RegexChange.RESOLVED
            if old and group.regex_members(old) == 1:
                change.records.append(records.regex_tombstone(group.group_id, old))
                change.dropped_regex = old
        if is_new or group.subscribed_regexes:
            self._refresh(now_ms, group, _subscribed(group, old, new), is_due=is_new)
        return result

    def _refresh(
        self, now_ms: int, group: ConsumerGroup, subscribed: Collection[str], *, is_due: bool
    ) -> None:
        timer = (ResolveRegexes, group.group_id)
        if not subscribed or timer in self._timers:
            return
        image = self._environment.image
        interval_ms = self._environment.config.groups.consumer_regex_refresh_interval_ms
        newest = next(iter(group.regexes.values()), None)
        if newest is None:
            is_due = True
        else:
            if now_ms <= newest.resolved_ms + _REFRESH_INTERVAL_MIN_MS:
                return
            is_due = (
                is_due
                or len(subscribed) != len(group.regexes)
                or newest.version < self._new_topics_at
                or now_ms > newest.resolved_ms + interval_ms
            )
        if is_due:
            resolution = Resolution(group.group_id, subscribed, image.topics, image.offset, now_ms)
            self._timers.set(timer, now_ms, ResolveRegexes(resolution))

    def on_resolve(self, now_ms: int, event: ResolveRegexes) -> Decision[None]:
        resolution = event.resolution
        if not resolution.go_on():
            self._timers.set((ResolveRegexes, resolution.group_id), now_ms, event)
            return NOTHING
        group = self._groups.get(resolution.group_id)
        if not isinstance(group, ConsumerGroup):
            return NOTHING
        written: list[CoordinatorRecord] = []
        without: list[Collection[str]] = []
        instead: list[Collection[str]] = []
        is_due = False
        for regex, resolved in resolution.result().items():
            if not group.regex_members(regex):
                continue
            known = group.regexes.get(regex)
            topics = frozenset() if known is None else known.topics
            if topics != resolved.topics:
                is_due = True
                without.append(topics)
                instead.append(resolved.topics)
            written.append(records.regex_record(group.group_id, regex, resolved))
        metadata_hash = self._rebalances.hash_of(group.topics_if(without, instead))
        if is_due or metadata_hash != group.metadata_hash:
            epoch = group.epoch + 1
            written.append(records.epoch_record(group.group_id, epoch, metadata_hash))
            self._rebalances.rebalances += 1
            group.saw_topics(epoch)
        return Decision(records=written)


def _subscribed(group: ConsumerGroup, old: str, new: str) -> list[str]:
    """With the member's change."""
    counts = Counter({regex: group.regex_members(regex) for regex in group.subscribed_regexes})
    if old:
        counts[old] -= 1
    if new:
        counts[new] += 1
    return [regex for regex, count in counts.items() if count > 0]
