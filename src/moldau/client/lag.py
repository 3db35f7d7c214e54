"""How far groups are behind: what they have committed, against where the partitions end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.client.admin import Admin
from moldau.client.cluster import TopicPartition
from moldau.client.group_admin import GroupAdmin, end_offsets
from moldau.client.group_description import SHARE, CommittedOffset, GroupDescription, GroupMember, ShareOffset
from moldau.wire.errors import KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """`current` is what was committed, or where a share group begins; None where there is nothing yet. `end`
    is None for a partition that is gone or has no leader; `lag` where either is."""

    place: TopicPartition
    current: int | None
    end: int | None
    lag: int | None
    member: GroupMember | None = None


async def group_lags(
    admin: Admin, groups: GroupAdmin, descriptions: Mapping[str, GroupDescription]
) -> dict[str, list[PartitionLag] | KafkaError]:
    """For each group the partitions that it has committed or that a member has, by topic and partition."""
    shares = [group_id for group_id, group in descriptions.items() if group.type == SHARE]
    others = [group_id for group_id in descriptions if group_id not in set(shares)]
    committed = await groups.offsets(others)
    starts = await groups.share_offsets(shares)
    places = {
        place
        for found in (*committed.values(), *starts.values())
        if not isinstance(found, KafkaError)
        for place in found
    }
    places |= {place for group_id in others for place, _ in _assigned(descriptions[group_id])}
    ends = await end_offsets(admin, places)
    lags: dict[str, list[PartitionLag] | KafkaError] = {}
    for group_id, group in descriptions.items():
        if group.type == SHARE:
            of_share = starts[group_id]
            lags[group_id] = of_share if isinstance(of_share, KafkaError) else _of_share_group(of_share, ends)
        else:
            found = committed[group_id]
            lags[group_id] = found if isinstance(found, KafkaError) else _of_group(group, found, ends)
    return lags


def _of_group(
    group: GroupDescription,
    committed: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
) -> list[PartitionLag]:
    members: dict[TopicPartition, GroupMember] = dict(_assigned(group))
    rows = []
    for place in sorted(committed.keys() | members.keys()):
        current = committed[place].offset if place in committed else None
        end = ends.get(place)
        lag = end - current if end is not None and current is not None else None
        rows.append(PartitionLag(place=place, current=current, end=end, lag=lag, member=members.get(place)))
    return rows


def _of_share_group(
    starts: Mapping[TopicPartition, ShareOffset], ends: Mapping[TopicPartition, int]
) -> list[PartitionLag]:
    """What was acknowledged beyond the start of a share group is not lag, which only its broker can tell."""
    return [
        PartitionLag(place=place, current=start.start_offset, end=ends.get(place), lag=start.lag)
        for place, start in sorted(starts.items())
    ]


def _assigned(group: GroupDescription) -> list[tuple[TopicPartition, GroupMember]]:
    return [(place, member) for member in group.members for place in member.assignment]
