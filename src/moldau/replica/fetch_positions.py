"""How far readers have come that no fetch session tells of.

Who fetches without a session, and what sessions let go of, is remembered here: a consumer that takes its time
over what it has got leaves that partition out of its fetches until it wants more. What is this old that
nobody would call it reading any more is forgotten, and so are readers that were not heard of for the longest
time when there are too many.

Pure: time is an argument. To record costs one step for each partition that a request names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from moldau.wire.fetch import FetchPartition

EXPIRY_MS = 600_000
POSITIONS_MAX = 50_000


class Reader(NamedTuple):
    """Who fetches. Whether `topic` of what he reads is a raw name or an id is his way to call it."""

    client_id: str
    host: str
    by_topic_id: bool


class Position(NamedTuple):
    """The offset that a reader asked for last, and when."""

    reader: Reader
    topic: bytes
    partition: int
    offset: int
    at_ms: int


class FetchPositions:
    def __init__(self, positions_max: int = POSITIONS_MAX) -> None:
        self._positions_max = positions_max
        self._count = 0
        # Heard of longest ago first.
        self._by_reader: dict[Reader, dict[tuple[bytes, int], tuple[int, int]]] = {}

    def __len__(self) -> int:
        return self._count

    def record(self, reader: Reader, fetched: Iterable[FetchPartition], now_ms: int) -> None:
        known = self._by_reader.pop(reader, None)
        if known is None:
            known = {}
        before = len(known)
        for topic, partition, _, offset, _, _, _ in fetched:
            known[topic, partition] = (offset, now_ms)
        if not known:
            return
        self._by_reader[reader] = known
        self._count += len(known) - before
        while self._count > self._positions_max:
            self._count -= len(self._by_reader.pop(next(iter(self._by_reader))))

    def current(self, now_ms: int) -> Iterator[list[Position]]:
        """Those that count, a list for each reader; the others are forgotten. Between two lists more may be
        recorded."""
        since_ms = now_ms - EXPIRY_MS
        for reader in list(self._by_reader):
            known = self._by_reader.get(reader)
            if known is None:
                continue
            expired = [key for key, (_, at_ms) in known.items() if at_ms < since_ms]
            for key in expired:
                del known[key]
            self._count -= len(expired)
            if not known:
                del self._by_reader[reader]
            yield [
                Position(reader, topic, partition, offset, at_ms)
                for (topic, partition), (offset, at_ms) in known.items()
            ]
