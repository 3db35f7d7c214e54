"""Reading given partitions from given offsets, on a cluster at hand: a consumer without group and options,
for commands and tests that come to an end.

Answerable for how long a failure may last: it passes within the cluster's `retry_timeout_s`, or it is raised.
Everything else is the consumer's rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.client.admin import LATEST_TIMESTAMP, Admin, IsolationLevel
from moldau.client.cluster import Cluster, TopicPartition
from moldau.client.config import ConnectionConfig
from moldau.client.consume import ConsumeDriver
from moldau.client.consuming.config import ConsumerConfig
from moldau.client.consuming.machine import Machine
from moldau.client.consuming.positions import State
from moldau.records.record import Record
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import KafkaError

PARTITION_BYTES_MAX = 1 << 20
WAIT_MS_MAX = 500
_RECORDS_MAX = 1 << 20  # all that waits here, which is bounded in bytes


class Fetched(NamedTuple):
    """What came of a partition, as far as it may be seen; the high watermark is as of then. `next_offset` is
    the position behind it."""

    place: TopicPartition
    records: list[Record]
    high_watermark: int
    next_offset: int


class Fetcher:
    """Use as an async iterator, or call `poll`.

    fetcher = Fetcher(runtime, cluster)
    fetcher.assign({TopicPartition("orders", 0): 0})
    async for fetched in fetcher:
        ...
    """

    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        wait_ms_max: int = WAIT_MS_MAX,
        partition_bytes_max: int = PARTITION_BYTES_MAX,
    ) -> None:
        options = {
            "auto.offset.reset": "none",
            "isolation.level": isolation.name.lower(),
            "fetch.max.wait.ms": str(wait_ms_max),
            "max.partition.fetch.bytes": str(partition_bytes_max),
            "allow.auto.create.topics": "false",
        }
        random = runtime.random
        self._machine = Machine(
            ConsumerConfig.parse(options, []),
            ConnectionConfig.parse({"bootstrap.servers": "of the cluster"}, []),
            spread=lambda: random.uniform(0.8, 1.2),
            member_id="",
            assignors=(),
        )
        self._clock = runtime.clock
        self._patience_s = cluster.retry_timeout_s
        self._driver = ConsumeDriver(runtime, cluster, self._machine, lambda change: None)
        self._ready: deque[Fetched] = deque()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions too, each from its offset."""
        self._machine.positions.add(positions, State.RESET)
        for place, offset in positions.items():
            self._machine.positions.seek(place, offset)
        self._driver.wake()

    def unassign(self, places: Iterable[TopicPartition]) -> None:
        gone = set(places)
        self._machine.positions.remove(gone)
        self._machine.fetching.forget(gone)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition, given that everything that was fetched is consumed."""
        partitions = self._machine.positions.partitions
        return {place: partition.fetch_offset for place, partition in partitions.items()}

    @property
    def failure(self) -> KafkaError | None:
        """What keeps records from coming, as long as it may pass: `poll` raises it when it did not."""
        return self._machine.failure

    def heard_since(self, moment: float) -> bool:
        """Whether all nodes that are being asked have answered since then: if not, that nothing came does not
        mean that there was nothing."""
        ago_ms = int((self._clock.monotonic() - moment) * 1000)
        return self._machine.fetching.heard_since(self._clock.now_ms() - ago_ms)

    async def close(self) -> None:
        await self._driver.close()

    def __aiter__(self) -> Fetcher:
        return self

    async def __anext__(self) -> Fetched:
        while True:
            fetched = await self.poll(3600)
            if fetched is not None:
                return fetched

    async def poll(self, timeout_s: float) -> Fetched | None:
        """What is there or comes first; None if nothing came in time (`failure` may tell why). May have no
        records, where a position moved past things that are not to be seen."""
        if not self._machine.positions.partitions:
            raise ValueError("no partition is assigned")
        if not self._ready:
            taken = await self._driver.poll(
                timeout_s, _RECORDS_MAX, patience_s=self._patience_s, with_hidden=True
            )
            self._ready.extend(
                Fetched(
                    partition.place,
                    list(columns.records()),
                    partition.high_watermark,
                    partition.position,
                )
                for partition, columns in taken
            )
        return self._ready.popleft() if self._ready else None


async def starting_offsets(
    admin: Admin, places: Iterable[TopicPartition], timestamp: int, isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    """Where to start reading: EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, or the first record at or after a time;
    where there is none yet, the end."""
    places = list(places)
    found = await admin.list_offsets(dict.fromkeys(places, timestamp), isolation)
    late = [place for place in places if found[place].offset is None]
    if late:
        found |= await admin.list_offsets(dict.fromkeys(late, LATEST_TIMESTAMP), isolation)
    return {place: found[place].offset or 0 for place in places}
