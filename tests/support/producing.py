"""Records for tests that are not about the producer: written in one call, which tells where they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from moldau.client.cluster import Cluster
from moldau.client.delivery import BatchMetadata
from moldau.client.producer import AsyncProducer
from moldau.records.record import Header
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import KafkaError


class Message(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp: int | None = None


class Writer:
    """A producer on a cluster at hand, that gives up when the cluster would."""

    def __init__(self, runtime: Runtime, cluster: Cluster, **options: Any) -> None:
        request_ms = int(cluster._request_timeout_s * 1000)
        patience_ms = int(cluster.retry_timeout_s * 1000)
        options.setdefault("linger_ms", 0)
        options.setdefault("request_timeout_ms", request_ms)
        options.setdefault("delivery_timeout_ms", max(patience_ms, request_ms))
        options.setdefault("max_block_ms", max(patience_ms, 1000))
        if not patience_ms:
            options.setdefault("retries", 0)
        self.producer = AsyncProducer(runtime=runtime, cluster=cluster, **options)

    async def produce(self, topic: str, messages: Iterable[Message]) -> list[BatchMetadata]:
        """Write `messages` and wait; raises the first error when all have had their outcome."""
        await self.producer.start()
        deliveries = [
            await self.producer.send(
                topic,
                message.value,
                key=message.key,
                partition=message.partition,
                headers=message.headers,
                timestamp_ms=message.timestamp,
            )
            for message in messages
        ]
        await self.producer.flush()
        failures = [error for error in (delivery.exception() for delivery in deliveries) if error]
        if failures:
            raise failures[0]
        runs: list[BatchMetadata] = []
        open_runs: dict[int, int] = {}  # by partition, which one may go on
        for delivery in deliveries:
            written = delivery.result()
            number = open_runs.get(written.partition)
            if number is not None:
                run = runs[number]
                follows = run.base_offset < 0 or written.offset == run.base_offset + run.record_count
                if follows:
                    runs[number] = run._replace(record_count=run.record_count + 1)
                    continue
            open_runs[written.partition] = len(runs)
            runs.append(BatchMetadata(topic, written.partition, written.offset, 1))
        return runs

    async def close(self) -> None:
        try:
            await self.producer.close(timeout_s=0)
        except KafkaError:
            pass


async def produce(
    runtime: Runtime, cluster: Cluster, topic: str, messages: Iterable[Message], **options: Any
) -> list[BatchMetadata]:
    writer = Writer(runtime, cluster, **options)
    try:
        return await writer.produce(topic, messages)
    finally:
        await writer.close()
