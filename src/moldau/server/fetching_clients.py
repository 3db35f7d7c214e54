"""How far each client has read of what this broker leads: groups or not, committed or not."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from moldau.replica.fetch_session import FetchSessionCache
from moldau.replica.partition import Partition
from moldau.replica.replicas import Replicas

# Looked at in one turn of the loop.
_POSITIONS_AT_ONCE = 1000


class ClientPosition(NamedTuple):
    client_id: str
    host: str
    partition: Partition
    position: int
    high_watermark: int
    age_ms: int

    @property
    def lag(self) -> int:
        return max(0, self.high_watermark - self.position)


async def client_positions(
    sessions: FetchSessionCache, replicas: Replicas, now_ms: int
) -> list[ClientPosition]:
    """The newest of each client for each partition."""
    newest: dict[tuple[str, str, Partition], tuple[int, int]] = {}
    looked_at = 0
    for positions in sessions.positions(now_ms):
        for reader, topic, index, offset, at_ms in positions:
            by_topic = replicas.by_id if reader.by_topic_id else replicas.by_name
            partition = by_topic.get(topic, {}).get(index)
            if partition is None:
                continue
            key = (reader.client_id, reader.host, partition)
            known = newest.get(key)
            if known is None or known[1] <= at_ms:
                newest[key] = (offset, at_ms)
        looked_at += len(positions)
        if looked_at >= _POSITIONS_AT_ONCE:
            looked_at = 0
            await asyncio.sleep(0)
    return [
        ClientPosition(
            client_id, host, partition, offset, partition.log.high_watermark, max(0, now_ms - at_ms)
        )
        for (client_id, host, partition), (offset, at_ms) in newest.items()
        if partition.is_leader and partition.log is not None
    ]
