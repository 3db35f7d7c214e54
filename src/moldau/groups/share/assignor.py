"""The assignor of share groups, which Kafka calls simple: who is to take records from which partitions.

Many members may share a partition. Each partition has as many as it takes for all members to have one,
members differ by one partition at most, and what a member has it keeps if that allows. Members that subscribe
to different topics are assigned topic by topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from moldau.wire.ids import Uuid

Assignment = Mapping[Uuid, frozenset[int]]

_TopicPartition = tuple[Uuid, int]

NAME = "simple"
NO_PARTITIONS: Assignment = MappingProxyType({})


def assign(
    subscriptions: Mapping[str, frozenset[Uuid]],
    current: Mapping[str, Assignment],
    assignable: Mapping[Uuid, frozenset[int]],
) -> dict[str, Assignment]:
    """What each of the members is to have; `assignable` may have topics that nobody subscribes to, too."""
    held: dict[str, dict[_TopicPartition, None]] = {
        member_id: dict.fromkeys(
            (topic_id, partition)
            for topic_id, partitions in current.get(member_id, {}).items()
            for partition in sorted(partitions)
        )
        for member_id in subscriptions
    }
    assigned: dict[str, list[_TopicPartition]] = {member_id: [] for member_id in subscriptions}
    for topics, members in _scopes(subscriptions):
        targets = [
            (topic_id, partition)
            for topic_id in sorted(topics)
            for partition in sorted(assignable.get(topic_id, ()))
        ]
        for member_id, share in _assign(targets, members, held).items():
            assigned[member_id] += share
    return {member_id: _by_topic(share) for member_id, share in assigned.items()}


def _scopes(
    subscriptions: Mapping[str, frozenset[Uuid]],
) -> Iterable[tuple[frozenset[Uuid], Sequence[str]]]:
    """Topics that are assigned together, and the members that share them."""
    members = list(subscriptions)
    if len(set(subscriptions.values())) <= 1:
        return [(subscriptions[members[0]], members)] if members else []
    topics = dict.fromkeys(
        topic_id for subscribed in subscriptions.values() for topic_id in sorted(subscribed)
    )
    return [
        (frozenset((topic_id,)), [each for each in members if topic_id in subscriptions[each]])
        for topic_id in topics
    ]


def _assign(
    targets: Sequence[_TopicPartition],
    members: Sequence[str],
    held: Mapping[str, Mapping[_TopicPartition, None]],
) -> dict[str, dict[_TopicPartition, None]]:
    if not targets:
        return {member_id: {} for member_id in members}
    sharing = -(-len(members) // len(targets))
    quotas = _quotas(sharing * len(targets), members)
    known = set(targets)
    owner_counts = dict.fromkeys(targets, 0)
    kept: dict[str, dict[_TopicPartition, None]] = {}
    for member_id in members:
        of_member = kept[member_id] = {}
        for target in held[member_id]:
            is_wanted = target in known and owner_counts[target] < sharing
            if is_wanted and len(of_member) < quotas[member_id]:
                of_member[target] = None
                owner_counts[target] += 1
    unfilled = [each for each in members if len(kept[each]) < quotas[each]]
    for target in targets:
        while owner_counts[target] < sharing:
            taker = next((each for each in unfilled if target not in kept[each]), None)
            if taker is None:
                break  # all who could take more have it already
            kept[taker][target] = None
            owner_counts[target] += 1
            unfilled.remove(taker)
            if len(kept[taker]) < quotas[taker]:
                unfilled.append(taker)  # others have their turn first
    return kept


def _quotas(count: int, members: Sequence[str]) -> dict[str, int]:
    """How many each gets of `count`, which the first members round up."""
    ends = [-(-count * index // len(members)) for index in range(len(members) + 1)]
    return {member_id: ends[index + 1] - ends[index] for index, member_id in enumerate(members)}


def _by_topic(share: Iterable[_TopicPartition]) -> Assignment:
    topics: dict[Uuid, set[int]] = {}
    for topic_id, partition in share:
        topics.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
