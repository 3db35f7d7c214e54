"""What tests do with topics: create and delete them, write a few records, read what is there.

The one place of this room that knows `moldau.client`. Coroutines, for any runtime: `nodes.py` calls them
from threads, `world.py` on virtual time.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from moldau.client.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Admin, IsolationLevel, NewTopic
from moldau.client.cluster import Cluster, TopicPartition, parse_addresses
from moldau.client.fetch import Fetcher, starting_offsets
from moldau.client.producer import AsyncProducer
from moldau.runtime.interfaces import Runtime
from moldau.testing.front import HELPER_CLIENT_ID
from moldau.wire.errors import ErrorCode, KafkaError

RETRY_TIMEOUT_S = 15.0
COLLECT_TIMEOUT_S = 10.0
_OPTIONS = {
    "linger.ms": 0,
    "request.timeout.ms": int(RETRY_TIMEOUT_S * 1000),
    "delivery.timeout.ms": int(RETRY_TIMEOUT_S * 1000),
    "max.block.ms": int(RETRY_TIMEOUT_S * 1000),
}

Data = bytes | str | None
Headers = Mapping[str, Data] | Sequence[tuple[str, Data]]


class Record(NamedTuple):
    """A record as it was read. `text` and `json` say what its value is."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def text(self) -> str:
        return (self.value or b"").decode()

    @property
    def json(self) -> Any:
        return json.loads(self.value or b"null")


class TopicClient:
    """Connected to one cluster from when it is first used; `close` ends that."""

    def __init__(self, runtime: Runtime, bootstrap: str) -> None:
        self._runtime = runtime
        self._cluster = Cluster(
            runtime,
            parse_addresses(bootstrap),
            client_id=HELPER_CLIENT_ID,
            retry_timeout_s=RETRY_TIMEOUT_S,
        )
        self._admin = Admin(self._cluster)

    def close(self) -> None:
        self._cluster.close()

    async def topics(self) -> list[str]:
        """All but those that the cluster keeps for itself, sorted."""
        view = await self._admin.describe_topics()
        return sorted(name for name, topic in view.topics.items() if not topic.is_internal)

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        await self._admin.create_topic(NewTopic(name=name, partitions=partitions, configs=configs))

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Those that are gone already are fine."""
        for name in names:
            try:
                await self._admin.delete_topic(name)
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise

    async def delete_topics_but(self, kept: Collection[str]) -> None:
        await self.delete_topics([name for name in await self.topics() if name not in kept])

    async def produce(
        self,
        topic: str,
        values: Sequence[Data],
        key: Data,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> None:
        self._cluster.forget(topic)  # it may have been deleted since, and come up again
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        encoded = tuple((name, _bytes(value)) for name, value in pairs)
        count = len(values)
        # A producer of its own: its sequences must not outlive a topic that is deleted between two calls.
        async with AsyncProducer(_OPTIONS, runtime=self._runtime, cluster=self._cluster) as producer:
            deliveries = await producer.send_batch(
                topic,
                [_bytes(value) for value in values],
                keys=None if key is None else [_bytes(key)] * count,
                headers=[encoded] * count if encoded else None,
                partition=partition,
                timestamps_ms=None if timestamp is None else [timestamp] * count,
            )
            await deliveries

    async def collect(
        self, topic: str, count: int | None, timeout_s: float, read_committed: bool
    ) -> list[Record]:
        """From the beginning on: `count` records, which may have to come yet; without it what is there.
        Raises TimeoutError."""
        self._cluster.forget(topic)
        isolation = IsolationLevel(1 if read_committed else 0)
        records: list[Record] = []
        try:
            async with asyncio.timeout(timeout_s):
                info = await self._cluster.retrying(lambda: self._cluster.topic(topic), topics=[topic])
                places = [TopicPartition(topic, part.index) for part in info.partitions]
                ends = {} if count is not None else await self._ends(places, isolation)
                starts = await starting_offsets(self._admin, places, EARLIEST_TIMESTAMP, isolation)
                fetcher = Fetcher(self._runtime, self._cluster, isolation=isolation, wait_ms_max=100)
                fetcher.assign(starts)
                try:
                    behind = {place for place, end in ends.items() if starts[place] < end}
                    while len(records) < count if count is not None else behind:
                        fetched = await fetcher.poll(1.0)
                        if fetched is None:
                            continue
                        place = fetched.place
                        end = ends.get(place, math.inf)
                        records += [
                            Record(topic, place.partition, *record)
                            for record in fetched.records
                            if record.offset < end
                        ]
                        if fetched.next_offset >= end:
                            behind.discard(place)
                finally:
                    await fetcher.close()
        except TimeoutError:
            wanted = "the end" if count is None else f"{count} records"
            raise TimeoutError(
                f"{topic}: waited {timeout_s:g} s for {wanted}, {len(records)} came: {_shown(records)}"
            ) from None
        return records if count is None else records[:count]

    async def _ends(
        self, places: Sequence[TopicPartition], isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        found = await self._admin.list_offsets(dict.fromkeys(places, LATEST_TIMESTAMP), isolation)
        return {place: at.offset or 0 for place, at in found.items()}


def _bytes(data: Data) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _shown(records: Sequence[Record]) -> str:
    shown = ", ".join(repr(record.value) for record in records[:5])
    return f"{shown}, …" if len(records) > 5 else shown or "nothing"
