"""How far groups and clients are behind, as metrics.

There may be any number of either, so each has a bound: those most behind are shown, and how many are not.
"""

from __future__ import annotations

from heapq import nlargest
from typing import NamedTuple

from moldau.server.fetching_clients import client_positions
from moldau.server.metrics import catalog
from moldau.server.metrics.chunks import in_chunks
from moldau.server.metrics.page import Page
from moldau.server.services import Services
from moldau.wire.errors import KafkaError

_GROUPS_AT_ONCE = 50


class _Committed(NamedTuple):
    lag: int | None
    group_id: str
    topic: str
    partition: int
    offset: int


async def add_client_positions(page: Page, services: Services) -> None:
    now_ms = services.runtime.clock.now_ms()
    shown = found = await client_positions(services.fetch_sessions, services.replicas, now_ms)
    if len(found) > catalog.CLIENT_SERIES_MAX:
        shown = nlargest(catalog.CLIENT_SERIES_MAX, found, key=lambda each: each.lag)
    async for chunk in in_chunks(shown):
        for each in chunk:
            labels = (each.client_id, each.host, each.partition.topic, str(each.partition.index))
            page.add(catalog.CLIENT_POSITION, each.position, *labels)
            page.add(catalog.CLIENT_LAG, each.lag, *labels)
    page.add(catalog.CLIENT_POSITIONS_LEFT_OUT, len(found) - len(shown))


async def add_group_lags(page: Page, services: Services) -> None:
    """Of the groups that this broker coordinates; the lag where it leads the partition, too."""
    try:
        shards = list(services.groups.shards())
    except KafkaError:
        return  # still being loaded
    found: list[_Committed] = []
    for shard in shards:
        async for group_ids in in_chunks(list(shard.groups.groups), _GROUPS_AT_ONCE):
            for group_id in group_ids:
                for topic, partitions in shard.offsets.of_group(group_id).items():
                    for index, committed in partitions.items():
                        lag = _lag(services, topic, index, committed.offset)
                        found.append(_Committed(lag, group_id, topic, index, committed.offset))
    shown = found
    if len(found) > catalog.GROUP_SERIES_MAX:
        shown = nlargest(
            catalog.GROUP_SERIES_MAX, found, key=lambda each: -1 if each.lag is None else each.lag
        )
    async for chunk in in_chunks(shown):
        for lag, group_id, topic, index, offset in chunk:
            labels = (group_id, topic, str(index))
            page.add(catalog.GROUP_OFFSET, offset, *labels)
            if lag is not None:
                page.add(catalog.GROUP_LAG, lag, *labels)
    page.add(catalog.GROUP_OFFSETS_LEFT_OUT, len(found) - len(shown))


def _lag(services: Services, topic: str, index: int, offset: int) -> int | None:
    partition = services.replicas.get(topic, index)
    if partition is None or partition.log is None or not partition.is_leader:
        return None
    return partition.log.high_watermark - offset
