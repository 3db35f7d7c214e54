"""The load of `moldau perf consume`: all that a topic has, as fast as it can be read.

What reads is behind `Reader`, which is all that a run knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from moldau.client.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Admin, IsolationLevel
from moldau.client.cluster import Cluster, TopicPartition
from moldau.client.fetch import Fetcher, starting_offsets
from moldau.client.group_admin import GroupAdmin
from moldau.perf.measure.consuming import Consumed
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import ErrorCode, KafkaError

_POLL_S = 0.1


class Piece(NamedTuple):
    """What was read at once. Bytes are those of keys and values."""

    records: int
    bytes: int


class Reader(Protocol):
    async def start(self) -> None:
        """Get partitions; from here on there may be something to read."""
        ...

    async def poll(self, timeout_s: float) -> Piece | None: ...
    async def close(self) -> None: ...
    def metrics(self) -> Mapping[str, float]:
        """Of those that Kafka has in `consumer-fetch-manager-metrics`."""
        ...


class FetchingReader:
    """Reads all partitions of topics itself. Of a group it takes where to start, and leaves there how far
    it has come; it is no member, so the group has to be without any."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        topics: list[str],
        *,
        group: str | None = None,
        from_latest: bool = False,
        fetch_size: int = 1 << 20,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._group = group
        self._from_latest = from_latest
        self._monotonic = runtime.clock.monotonic
        self._fetcher = Fetcher(runtime, cluster, partition_bytes_max=fetch_size)
        self._started_s = 0.0
        self._records = 0
        self._bytes = 0
        self._fetches = 0
        self._lag_max = float("nan")

    async def start(self) -> None:
        places: list[TopicPartition] = []
        for name in self._topics:
            topic = await self._cluster.topic(name)
            places += [TopicPartition(name, partition.index) for partition in topic.partitions]
        timestamp = LATEST_TIMESTAMP if self._from_latest else EARLIEST_TIMESTAMP
        starts = await starting_offsets(
            Admin(self._cluster), places, timestamp, IsolationLevel.READ_UNCOMMITTED
        )
        if self._group is not None:
            committed = (await GroupAdmin(self._cluster).offsets([self._group]))[self._group]
            if not isinstance(committed, KafkaError):
                starts |= {place: at.offset for place, at in committed.items() if place in starts}
            elif committed.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise committed
        self._fetcher.assign(starts)
        self._started_s = self._monotonic()

    async def poll(self, timeout_s: float) -> Piece | None:
        fetched = await self._fetcher.poll(timeout_s)
        if fetched is None:
            return None
        size = sum(len(record.key or b"") + len(record.value or b"") for record in fetched.records)
        self._records += len(fetched.records)
        self._bytes += size
        self._fetches += 1
        if fetched.records:
            lag = float(fetched.high_watermark - fetched.records[-1].offset - 1)
            # NaN is not less than anything.
            self._lag_max = self._lag_max if self._lag_max >= lag else lag
        return Piece(len(fetched.records), size)

    async def close(self) -> None:
        positions = self._fetcher.positions
        await self._fetcher.close()
        if self._group is not None and positions:
            for failure in (await GroupAdmin(self._cluster).alter_offsets(self._group, positions)).values():
                raise failure

    def metrics(self) -> Mapping[str, float]:
        elapsed_s = max(self._monotonic() - self._started_s, 1e-9)
        return {
            "bytes-consumed-rate": self._bytes / elapsed_s,
            "bytes-consumed-total": float(self._bytes),
            "fetch-rate": self._fetches / elapsed_s,
            "fetch-total": float(self._fetches),
            "records-consumed-rate": self._records / elapsed_s,
            "records-consumed-total": float(self._records),
            "records-lag-max": self._lag_max,
            "records-per-request-avg": self._records / self._fetches if self._fetches else float("nan"),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeLoad:
    """`timeout_ms` without a record end it, and so does the last of `records`."""

    records: int
    timeout_ms: int = 10_000
    interval_ms: int = 5000


class ConsumeRun:
    """One run of a load. May be looked at while it goes on. `on_interval(part)` is told of every stretch of
    `interval_ms`, at its end."""

    def __init__(
        self,
        runtime: Runtime,
        reader: Reader,
        load: ConsumeLoad,
        on_interval: Callable[[int, Consumed], None],
    ) -> None:
        self._clock = runtime.clock
        self._reader = reader
        self._load = load
        self._on_interval = on_interval
        self.records = 0
        self.bytes = 0
        self.start_ms = 0
        self.rebalance_ms = 0
        self.timed_out = False

    def whole(self, now_ms: int) -> Consumed:
        return Consumed(
            elapsed_ms=now_ms - self.start_ms,
            rebalance_ms=self.rebalance_ms,
            records=self.records,
            bytes=self.bytes,
        )

    async def run(self) -> Consumed:
        load, now_ms = self._load, self._clock.now_ms
        self.start_ms = reported_ms = consumed_ms = now_ms()
        await self._reader.start()
        self.rebalance_ms = rebalance_ms = now_ms() - self.start_ms
        records = bytes = 0  # at the last report
        while self.records < load.records:
            piece = await self._reader.poll(_POLL_S)
            at_ms = now_ms()
            if piece is not None and piece.records:
                consumed_ms = at_ms
                self.records += piece.records
                self.bytes += piece.bytes
                if at_ms - reported_ms >= load.interval_ms:
                    part = Consumed(
                        elapsed_ms=at_ms - reported_ms,
                        rebalance_ms=rebalance_ms,
                        records=self.records - records,
                        bytes=self.bytes - bytes,
                    )
                    self._on_interval(at_ms, part)
                    reported_ms, rebalance_ms = at_ms, 0
                    records, bytes = self.records, self.bytes
            elif at_ms - consumed_ms > load.timeout_ms:
                self.timed_out = True
                break
        return self.whole(now_ms())
