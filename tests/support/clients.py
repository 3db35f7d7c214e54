"""Three clients of other projects behind one narrow face: write some records, read a partition to its end.

Answers for using each library as its documentation says, with timeouts that make a broker that does not
answer a failure within seconds. Knows nothing of Moldau: it is handed an address.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import aiokafka
import confluent_kafka
import kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# What one call may take. Far above what any of them needs on a busy machine.
TIMEOUT_S = 20
RECORD_BYTES_MAX = 4 << 20


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 1_700_000_000_000


class Client(Protocol):
    """`write` gives the offsets in the order of the records; -1 where acks=0 leaves them unknown."""

    def write(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: int | str = "all",
        idempotent: bool = False,
    ) -> list[int]: ...

    def read(
        self,
        bootstrap: str,
        topic: str,
        *,
        partition: int = 0,
        offset: int = 0,
        isolation: str = "read_uncommitted",
    ) -> list[tuple[int, Record]]:
        """From an offset to what is the end for that isolation level when the call is made."""


class Confluent:
    """librdkafka."""

    def producer(self, bootstrap: str, **settings: Any) -> confluent_kafka.Producer:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "message.timeout.ms": TIMEOUT_S * 1000,
                "message.max.bytes": RECORD_BYTES_MAX,
                "linger.ms": 5,
                **named,
            }
        )

    def write(self, bootstrap, topic, records, *, partition=0, codec="none", acks="all", idempotent=False):
        offsets: list[int] = []
        failures: list[confluent_kafka.KafkaError] = []

        def delivered(error, message):
            if error is not None:
                failures.append(error)
            else:
                offset = message.offset()
                offsets.append(-1 if offset is None or offset < 0 else offset)

        producer = self.producer(bootstrap, compression_type=codec, acks=acks, enable_idempotence=idempotent)
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=partition,
                on_delivery=delivered,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
            )
        left = producer.flush(TIMEOUT_S)
        if failures:
            raise confluent_kafka.KafkaException(failures[0])
        assert left == 0, f"{left} records were not delivered in {TIMEOUT_S} s"
        return offsets

    def read(self, bootstrap, topic, *, partition=0, offset=0, isolation="read_uncommitted"):
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "check.crcs": True,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.message.max.bytes": RECORD_BYTES_MAX,
                "fetch.wait.max.ms": 50,
            }
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])
            return self._read_to_end(consumer)
        finally:
            consumer.close()

    def _read_to_end(self, consumer: confluent_kafka.Consumer) -> list[tuple[int, Record]]:
        found = []
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                headers = tuple(message.headers() or ())
                record = Record(message.key(), message.value(), headers, message.timestamp()[1])
                found.append((message.offset(), record))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return found
            else:
                raise confluent_kafka.KafkaException(error)
        raise TimeoutError(f"no end of the partition after {TIMEOUT_S} s and {len(found)} records")


class Aiokafka:
    def write(self, bootstrap, topic, records, *, partition=0, codec="none", acks="all", idempotent=False):
        async def main():
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                acks=acks,
                enable_idempotence=idempotent,
                max_request_size=RECORD_BYTES_MAX,
                linger_ms=5,
            ) as producer:
                sent = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        partition,
                        record.timestamp_ms,
                        list(record.headers),
                    )
                    for record in records
                ]
                stored = [await future for future in sent]
                return [-1 if found is None else found.offset for found in stored]

        return asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))

    def read(self, bootstrap, topic, *, partition=0, offset=0, isolation="read_uncommitted"):
        async def main():
            where = aiokafka.TopicPartition(topic, partition)
            async with aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                enable_auto_commit=False,
                isolation_level=isolation,
                max_partition_fetch_bytes=RECORD_BYTES_MAX,
                fetch_max_wait_ms=50,
            ) as consumer:
                consumer.assign([where])
                end = (await consumer.end_offsets([where]))[where]
                consumer.seek(where, offset)
                found = []
                while await consumer.position(where) < end:
                    for message in (await consumer.getmany(timeout_ms=500)).get(where, []):
                        headers = tuple(message.headers)
                        record = Record(message.key, message.value, headers, message.timestamp)
                        found.append((message.offset, record))
                return found

        return asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


class KafkaPython:
    def write(self, bootstrap, topic, records, *, partition=0, codec="none", acks="all", idempotent=False):
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks,
            enable_idempotence=idempotent,
            max_request_size=RECORD_BYTES_MAX,
            linger_ms=5,
            max_block_ms=TIMEOUT_S * 1000,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(TIMEOUT_S)
            return [future.get(TIMEOUT_S).offset for future in sent]
        finally:
            producer.close(timeout=5)

    def read(self, bootstrap, topic, *, partition=0, offset=0, isolation="read_uncommitted"):
        where = kafka.TopicPartition(topic, partition)
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            group_id=None,
            isolation_level=isolation,
            max_partition_fetch_bytes=RECORD_BYTES_MAX,
            fetch_max_wait_ms=50,
        )
        try:
            consumer.assign([where])
            end = consumer.end_offsets([where])[where]
            consumer.seek(where, offset)
            found = []
            deadline = time.monotonic() + TIMEOUT_S
            while consumer.position(where) < end:
                assert time.monotonic() < deadline, f"only {len(found)} records in {TIMEOUT_S} s"
                for message in consumer.poll(500).get(where, []):
                    headers = tuple(tuple(header) for header in message.headers)
                    found.append(
                        (message.offset, Record(message.key, message.value, headers, message.timestamp))
                    )
            return found
        finally:
            consumer.close()


CLIENTS: dict[str, Client] = {
    "confluent-kafka": Confluent(),
    "aiokafka": Aiokafka(),
    "kafka-python": KafkaPython(),
}
