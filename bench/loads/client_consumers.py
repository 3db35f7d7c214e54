"""Consumers of Python beside each other, on the same broker and the same records: Moldau's, confluent-kafka,
aiokafka (whose records are decoded in C), kafka-python.

One partition from its beginning on, assigned, without commits; keys, and values of different sizes. Each is a
process of its own, and is measured from its first poll to its last record. Ratios are taken within one round.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from bench.loads import Sample, Subject, Unshared, child, child_arguments, topic_of

_CLIENTS_MEASURED = ("moldau", "moldau_columns", "moldau_sync", "confluent", "aiokafka", "python")
_POLL_RECORDS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConsume(Unshared):
    name: str
    record_bytes: int
    records: int
    needs_java: bool = False
    on_stub: bool = False

    def run(self, subject: Subject, scale: float) -> Sample:
        broker = subject.running
        sample: Sample = {}
        records = int(self.records * scale)
        with topic_of(broker, self.name) as topic:
            fill(broker.bootstrap, topic, records, self.record_bytes)
            for client in _CLIENTS_MEASURED:
                made = child(
                    "client_consumers",
                    client=client,
                    bootstrap=broker.bootstrap,
                    topic=topic,
                    records=records,
                )
                sample[f"{client}_per_s"] = made["records_per_s"]
                sample[f"{client}_cpu_us"] = made["cpu_us"]
        ours, theirs = sample["moldau_cpu_us"], sample
        return sample | {
            "cpu_python_vs_ours": theirs["python_cpu_us"] / ours,
            "cpu_aiokafka_vs_ours": theirs["aiokafka_cpu_us"] / ours,
            "cpu_confluent_vs_ours": theirs["confluent_cpu_us"] / ours,
        }


def fill(bootstrap: str, topic: str, records: int, record_bytes: int) -> None:
    """Values between half and one and a half times the size."""
    from moldau import Producer

    random = Random(1)
    values = [bytes(random.randint(record_bytes // 2, record_bytes * 3 // 2)) for _ in range(1000)]
    keys = [b"key %d" % number for number in range(1000)]
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(records // 1000):
            producer.send_batch(topic, values, keys=keys, partition=0)


class Measure:
    """From the first poll to the last record."""

    def __init__(self, records: int) -> None:
        self.records = self.left = records // 1000 * 1000
        self._cpu, self._started = time.process_time(), time.monotonic()

    def sample(self) -> Sample:
        elapsed, used = time.monotonic() - self._started, time.process_time() - self._cpu
        return {"records_per_s": self.records / elapsed, "cpu_us": used / self.records * 1e6}


def moldau(bootstrap: str, topic: str, records: int, *, columns: bool = False) -> Sample:
    import uvloop

    from moldau import AsyncConsumer

    async def main() -> Sample:
        async with AsyncConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=_POLL_RECORDS
        ) as consumer:
            consumer.assign([(topic, 0)])
            measure = Measure(records)
            while measure.left > 0:
                if columns:
                    measure.left -= sum(map(len, await consumer.poll_columns()))
                else:
                    measure.left -= len(await consumer.poll())
            return measure.sample()

    return uvloop.run(main())


def moldau_columns(bootstrap: str, topic: str, records: int) -> Sample:
    return moldau(bootstrap, topic, records, columns=True)


def moldau_sync(bootstrap: str, topic: str, records: int) -> Sample:
    from moldau import Consumer

    options = {"auto_offset_reset": "earliest", "max_poll_records": _POLL_RECORDS}
    with Consumer(bootstrap_servers=bootstrap, **options) as consumer:
        consumer.assign([(topic, 0)])
        measure = Measure(records)
        while measure.left > 0:
            measure.left -= len(consumer.poll())
        return measure.sample()


def confluent(bootstrap: str, topic: str, records: int) -> Sample:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    measure = Measure(records)
    while measure.left > 0:
        measure.left -= len(consumer.consume(_POLL_RECORDS, 1))
    sample = measure.sample()
    consumer.close()
    return sample


def aiokafka(bootstrap: str, topic: str, records: int) -> Sample:
    import uvloop
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def main() -> Sample:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            measure = Measure(records)
            while measure.left > 0:
                polled = await consumer.getmany(timeout_ms=1000, max_records=_POLL_RECORDS)
                measure.left -= sum(map(len, polled.values()))
            return measure.sample()

    return uvloop.run(main())


def python(bootstrap: str, topic: str, records: int) -> Sample:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    measure = Measure(records)
    while measure.left > 0:
        polled = consumer.poll(1000, max_records=_POLL_RECORDS)
        measure.left -= sum(map(len, polled.values()))
    sample = measure.sample()
    consumer.close()
    return sample


_CLIENTS: dict[str, Callable[..., Sample]] = {
    "moldau": moldau,
    "moldau_columns": moldau_columns,
    "moldau_sync": moldau_sync,
    "confluent": confluent,
    "aiokafka": aiokafka,
    "python": python,
}

if __name__ == "__main__":
    asked = child_arguments()
    act = _CLIENTS[str(asked.pop("client"))]
    print(json.dumps(act(**asked)))
