"""Ranges: the partitions of each topic in a row, cut into a piece for each subscriber, as even as can be.

Members come in the same order for every topic. So those who share a subscription to topics of the same size
get the same numbers of each, which is what joins need. Static members come first and in the order of their
instances, whose ids outlive those of members.
"""

from __future__ import annotations

from collections.abc import Mapping

from moldau.groups.assignors.assignment import Assignment, Subscriber
from moldau.wire.ids import Uuid


def assign_ranges(members: Mapping[str, Subscriber], partitions: Mapping[Uuid, int]) -> dict[str, Assignment]:
    in_order = sorted(members, key=lambda member_id: _rank(member_id, members[member_id]))
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in in_order:
        for topic in members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    assigned: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic in sorted(subscribers):
        least, extra = divmod(partitions[topic], len(subscribers[topic]))
        start = 0
        for place, member_id in enumerate(subscribers[topic]):
            end = start + least + (place < extra)
            if end == start:
                break
            assigned[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def _rank(member_id: str, member: Subscriber) -> tuple[bool, str]:
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member_id
