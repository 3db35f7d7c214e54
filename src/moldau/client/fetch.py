"""Reading records: partitions are assigned with the offset to start at, and records come as they are fetched.

Answerable for positions, one fetch in flight per leader, retries, checksums, and what a reader shall not see:
control records, records before the position, and with read_committed those of aborted transactions. Groups
and commits are not its business.

Invariant: a position only moves past records that are handed out, next or later, or that nobody may see.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from moldau.client.admin import LATEST_TIMESTAMP, Admin, IsolationLevel
from moldau.client.cluster import Cluster, Patience, TopicPartition
from moldau.records.batch import check_crc, iterate_headers
from moldau.records.control import ControlType, read_control
from moldau.records.record import Record, read_records
from moldau.runtime.interfaces import Buffer, Runtime
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

FETCH_BYTES_MAX = 50 << 20
PARTITION_BYTES_MAX = 1 << 20
WAIT_MS_MAX = 500
_TOPIC_ID_VERSION = 13
_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Fetched(NamedTuple):
    """What one fetch brought for a partition, as far as it may be seen; the high watermark is as of then, and
    `next_offset` is the position behind it."""

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
        self._monotonic = runtime.clock.monotonic
        self._cluster = cluster
        self._isolation = isolation
        self._wait_ms_max = wait_ms_max
        self._partition_bytes_max = partition_bytes_max
        self._positions: dict[TopicPartition, int] = {}
        self._patience = Patience(runtime.random, runtime.clock.monotonic, cluster.retry_timeout_s)
        self._fetches: dict[int, asyncio.Task[list[Fetched]]] = {}
        self._ready: deque[Fetched] = deque()
        self._heard_at: dict[int, float] = {}  # when a node's last fetch was answered

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions too, each from its offset."""
        self._positions.update(positions)

    def unassign(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._positions.pop(place, None)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition, given that everything that was fetched is consumed."""
        return dict(self._positions)

    @property
    def failure(self) -> KafkaError | None:
        """What keeps records from coming, as long as it may pass: `poll` raises it when it did not."""
        return self._patience.failure

    def heard_since(self, moment: float) -> bool:
        """Whether all nodes that are being asked have answered since then: if not, that nothing came does not
        mean that there was nothing."""
        return all(self._heard_at.get(leader, -math.inf) >= moment for leader in self._fetches)

    async def close(self) -> None:
        fetches = list(self._fetches.values())
        self._fetches.clear()
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)

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
        deadline = self._monotonic() + timeout_s
        while not self._ready:
            remaining_s = deadline - self._monotonic()
            try:
                await self._start_fetches()
                done, _ = await asyncio.wait(
                    self._fetches.values(), timeout=max(0, remaining_s), return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    return None
                self._collect(done)
                self._patience.reset()
            except KafkaError as error:
                pause_s = self._patience.after(error)
                for topic in {place.topic for place in self._positions}:
                    self._cluster.forget(topic)
                await asyncio.sleep(pause_s)
            if remaining_s <= 0 and not self._ready:
                return None
        return self._ready.popleft()

    async def _start_fetches(self) -> None:
        if not self._positions:
            raise ValueError("no partition is assigned")
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for place in self._positions:
            by_leader[await self._cluster.leader(place)].append(place)
        for leader, places in by_leader.items():
            if leader not in self._fetches:
                self._fetches[leader] = asyncio.create_task(
                    self._fetch(leader, places), name=f"fetch from node {leader}"
                )

    def _collect(self, done: set[asyncio.Task[list[Fetched]]]) -> None:
        failure: KafkaError | None = None
        for leader, fetch in list(self._fetches.items()):
            if fetch not in done:
                continue
            del self._fetches[leader]
            try:
                self._ready.extend(fetch.result())
                self._heard_at[leader] = self._monotonic()
            except KafkaError as error:
                failure = error
        if failure is not None:
            raise failure

    async def _fetch(self, leader: int, places: list[TopicPartition]) -> list[Fetched]:
        connection = await self._cluster.connection_to(leader)
        version = connection.version_of(ApiKey.FETCH)
        names: dict[bytes, str] = {}
        topics: dict[str, FetchTopic] = {}
        for place in places:
            topic = topics.get(place.topic)
            if topic is None:
                topic = topics[place.topic] = FetchTopic()
                if version >= _TOPIC_ID_VERSION:
                    topic.topic_id = (await self._cluster.topic(place.topic)).topic_id
                    names[topic.topic_id] = place.topic
                else:
                    topic.topic = place.topic
            topic.partitions.append(
                FetchPartition(
                    partition=place.partition,
                    fetch_offset=self._positions[place],
                    partition_max_bytes=self._partition_bytes_max,
                )
            )
        request = FetchRequest(
            max_wait_ms=self._wait_ms_max,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=self._isolation,
            topics=list(topics.values()),
        )
        response = await connection.request(request, FetchResponse, version=version)
        if response.error_code:
            raise KafkaError(error_code(response.error_code), f"fetch from {connection.peer}")
        fetched: list[Fetched] = []
        failure: KafkaError | None = None
        for answer in response.responses:
            name = names.get(answer.topic_id, "") if version >= _TOPIC_ID_VERSION else answer.topic
            for data in answer.partitions:
                place = TopicPartition(name, data.partition_index)
                try:
                    records = self._accept(place, data)
                except KafkaError as error:
                    failure = error
                    continue
                if records is not None:
                    fetched.append(records)
        if failure is not None and not fetched:
            raise failure  # else it will be met again
        return fetched

    def _accept(self, place: TopicPartition, data: PartitionData) -> Fetched | None:
        position = self._positions.get(place)
        if position is None:
            return None  # no longer of interest
        code = error_code(data.error_code)
        if code is not ErrorCode.NONE:
            if code in _MOVED:
                self._cluster.forget(place.topic)
            raise KafkaError(code, f"partition {place} at offset {position}")
        if not data.records:
            return None
        aborted = data.aborted_transactions if self._isolation is IsolationLevel.READ_COMMITTED else None
        records: list[Record] = []
        try:
            for next_offset, those in visible_records(data.records, aborted or ()):
                records += [record for record in those if record.offset >= position]
                self._positions[place] = max(next_offset, position)
        except KafkaError:
            # What came before the damage is good; the next fetch starts at the damage.
            if self._positions[place] == position:
                raise
        if self._positions[place] == position:
            return None
        return Fetched(place, records, data.high_watermark, self._positions[place])


def visible_records(
    batches: Buffer, aborted: Iterable[AbortedTransaction] = ()
) -> Iterator[tuple[int, list[Record]]]:
    """For each whole batch, the offset after it and its records; none for control and aborted batches.

    `aborted` is what the broker said about these batches: from its first offset on a producer's transactional
    batches do not count, until the marker that ends the transaction.
    """
    upcoming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
    producers: set[int] = set()  # whose transaction, at this place of the log, will turn out aborted
    view = memoryview(batches)
    for position, header in iterate_headers(view):
        batch = view[position : position + header.size]
        check_crc(batch, header)
        while upcoming and upcoming[0].first_offset <= header.last_offset:
            producers.add(upcoming.popleft().producer_id)
        if header.is_control:
            if header.producer_id in producers and any(
                read_control(record).type is ControlType.ABORT for record in read_records(batch)
            ):
                producers.discard(header.producer_id)
            yield header.next_offset, []
        elif header.is_transactional and header.producer_id in producers:
            yield header.next_offset, []
        else:
            yield header.next_offset, list(read_records(batch))


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
