"""As many partitions for one member as for another, and no more moves than that takes.

Where all members subscribe to the same, sizes differ by one at most, and only what a member has too much of
moves. Where subscriptions differ, a partition moves as long as it makes two sizes more alike.

Everything is done in an order that depends on the arguments alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from moldau.groups.assignors.assignment import Assignment, Subscriber
from moldau.wire.ids import Uuid

# Overlapping subscriptions may take many rounds to the last bit of balance, which is not worth it: each
# round takes away about half of what is left.
_ROUNDS_MAX = 16


def assign_uniformly(
    members: Mapping[str, Subscriber], partitions: Mapping[Uuid, int]
) -> dict[str, Assignment]:
    if not members:
        return {}
    draft = _Draft(members, partitions)
    if len({member.topics for member in members.values()}) == 1:
        _assign_alike(draft)
    else:
        _assign_each_its_own(draft)
    return draft.assignments()


class _Draft:
    """What members keep, and what is free; members and topics by their place in an order."""

    def __init__(self, members: Mapping[str, Subscriber], partitions: Mapping[Uuid, int]) -> None:
        self.members = members
        self.member_ids = list(members)
        topics: set[Uuid] = set()
        for subscription in {member.topics for member in members.values()}:
            topics |= subscription
        self.free: dict[Uuid, set[int]] = {topic: set(range(partitions[topic])) for topic in sorted(topics)}
        self.held: list[dict[Uuid, set[int]]] = []
        self.sizes: list[int] = []
        for member in members.values():
            held = {}
            for topic in sorted(member.assigned.keys() & member.topics):
                # What is not free any more belongs to somebody else, or is gone.
                kept = self.free[topic].intersection(member.assigned[topic])
                if kept:
                    self.free[topic] -= kept
                    held[topic] = kept
            self.held.append(held)
            self.sizes.append(sum(map(len, held.values())))

    def give(self, place: int, topic: Uuid, partition: int) -> None:
        self.held[place].setdefault(topic, set()).add(partition)
        self.sizes[place] += 1

    def take(self, place: int, topic: Uuid) -> int:
        """The last partition of the topic that the member has."""
        held = self.held[place][topic]
        partition = max(held)
        held.discard(partition)
        if not held:
            del self.held[place][topic]
        self.sizes[place] -= 1
        return partition

    def release(self, place: int, count: int) -> None:
        """Frees the last `count` partitions that the member has, if that is above zero."""
        for topic in reversed(list(self.held[place])):
            if count <= 0:
                return
            partitions = sorted(self.held[place][topic])
            kept = max(0, len(partitions) - count)
            self.free[topic].update(partitions[kept:])
            self.held[place][topic] = set(partitions[:kept])
            if not kept:
                del self.held[place][topic]
            self.sizes[place] -= len(partitions) - kept
            count -= len(partitions) - kept

    def assignments(self) -> dict[str, Assignment]:
        return {
            member_id: {topic: frozenset(partitions) for topic, partitions in held.items()}
            for member_id, held in zip(self.member_ids, self.held, strict=True)
        }


def _assign_alike(draft: _Draft) -> None:
    total = sum(draft.sizes) + sum(map(len, draft.free.values()))
    least, extra = divmod(total, len(draft.sizes))
    # Who has more already is the first to be allowed one more than the least.
    by_size = sorted(range(len(draft.sizes)), key=lambda place: -draft.sizes[place])
    quotas = [least] * len(draft.sizes)
    for place in by_size[:extra]:
        quotas[place] += 1
    for place, quota in enumerate(quotas):
        draft.release(place, draft.sizes[place] - quota)
    free = ((topic, partition) for topic in draft.free for partition in sorted(draft.free[topic]))
    for place, quota in enumerate(quotas):
        for _ in range(quota - draft.sizes[place]):
            draft.give(place, *next(free))


def _assign_each_its_own(draft: _Draft) -> None:
    subscribers: dict[Uuid, list[int]] = {topic: [] for topic in draft.free}
    for place, member in enumerate(draft.members.values()):
        for topic in member.topics:
            subscribers[topic].append(place)
    counts = {topic: len(draft.free[topic]) for topic in draft.free}
    for held in draft.held:
        for topic, partitions in held.items():
            counts[topic] += len(partitions)
    # The fuller its subscribers get by a topic alone, the less can be made up for later.
    in_order = sorted(
        draft.free,
        key=lambda topic: (-counts[topic] / len(subscribers[topic]), len(subscribers[topic]), topic),
    )
    for topic in in_order:
        _spread(draft, topic, subscribers[topic])
    for _ in range(_ROUNDS_MAX):
        if not sum(_balance(draft, topic, subscribers[topic]) for topic in in_order):
            break


def _spread(draft: _Draft, topic: Uuid, subscribers: list[int]) -> None:
    """Gives what is free of a topic to whoever has least."""
    if not draft.free[topic]:
        return
    least = [(draft.sizes[place], place) for place in subscribers]
    heapify(least)
    for partition in sorted(draft.free[topic]):
        _, place = heappop(least)
        draft.give(place, topic, partition)
        heappush(least, (draft.sizes[place], place))


def _balance(draft: _Draft, topic: Uuid, subscribers: list[int]) -> int:
    """Moves partitions of a topic from who has most to who has least; how many that were."""
    sizes = draft.sizes
    least = [(sizes[place], place) for place in subscribers]
    most = [(-sizes[place], place) for place in subscribers if topic in draft.held[place]]
    heapify(least)
    heapify(most)
    moves = 0
    while most:
        size, giver = most[0]
        if -size != sizes[giver] or topic not in draft.held[giver]:
            heappop(most)
            continue
        size, taker = least[0]
        if size != sizes[taker]:
            heappop(least)
            continue
        if sizes[giver] - sizes[taker] < 2:
            break
        draft.give(taker, topic, draft.take(giver, topic))
        moves += 1
        for place in (giver, taker):
            heappush(least, (sizes[place], place))
            heappush(most, (-sizes[place], place))
    return moves
