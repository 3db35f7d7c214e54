"""Producers of Python beside each other, on the same broker: Moldau's, confluent-kafka, aiokafka,
kafka-python.

All with acks=all, idempotence, and batches of 16 KB that wait for 5 ms; one partition, and a record a call.
Each is a process of its own, sends a tenth untimed, and is measured until everything is acknowledged. Ratios
are taken within one round.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.loads import Sample, Subject, Unshared, child, child_arguments, topic_of

# How many records each gets: enough for seconds, since they differ by far.
_SHARES = {
    "moldau": 1.0,
    "moldau_batch": 2.0,
    "moldau_sync": 1.0,
    "confluent": 1.5,
    "aiokafka": 0.15,
    "python": 0.15,
}
_LINGER_MS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProduce(Unshared):
    name: str
    record_bytes: int
    records: int
    needs_java: bool = False
    on_stub: bool = False

    def run(self, subject: Subject, scale: float) -> Sample:
        broker = subject.running
        sample: Sample = {}
        for client, share in _SHARES.items():
            with topic_of(broker, self.name) as topic:
                made = child(
                    "clients",
                    client=client,
                    bootstrap=broker.bootstrap,
                    topic=topic,
                    records=int(self.records * scale * share),
                    record_bytes=self.record_bytes,
                )
            sample[f"{client}_per_s"] = made["records_per_s"]
            sample[f"{client}_cpu_us"] = made["cpu_us"]
        ours = sample["moldau_per_s"]
        pure = max(sample["aiokafka_per_s"], sample["python_per_s"])
        return sample | {"vs_pure": ours / pure, "vs_confluent": ours / sample["confluent_per_s"]}


def measured(records: int, send: Callable[[int], object]) -> Sample:
    send(records // 10)
    cpu, started = time.process_time(), time.monotonic()
    send(records)
    elapsed, used = time.monotonic() - started, time.process_time() - cpu
    return {"records_per_s": records / elapsed, "cpu_us": used / records * 1e6}


async def measured_on_loop(records: int, send: Callable[[int], object]) -> Sample:
    await send(records // 10)  # type: ignore[misc]
    cpu, started = time.process_time(), time.monotonic()
    await send(records)  # type: ignore[misc]
    elapsed, used = time.monotonic() - started, time.process_time() - cpu
    return {"records_per_s": records / elapsed, "cpu_us": used / records * 1e6}


def moldau(bootstrap: str, topic: str, records: int, value: bytes) -> Sample:
    import uvloop

    from moldau import AsyncProducer

    async def main() -> Sample:
        async with AsyncProducer(bootstrap_servers=bootstrap, linger_ms=_LINGER_MS) as producer:

            async def send(count: int) -> None:
                for _ in range(count):
                    delivery = await producer.send(topic, value)
                await producer.flush()
                delivery.result()
                assert not producer.metrics()["record-error-total"]

            return await measured_on_loop(records, send)

    return uvloop.run(main())


def moldau_batch(bootstrap: str, topic: str, records: int, value: bytes) -> Sample:
    import uvloop

    from moldau import AsyncProducer

    async def main() -> Sample:
        async with AsyncProducer(bootstrap_servers=bootstrap, linger_ms=_LINGER_MS) as producer:

            async def send(count: int) -> None:
                for _ in range(count // 1000):
                    await producer.send_batch(topic, [value] * 1000)
                await producer.flush()
                assert not producer.metrics()["record-error-total"]

            return await measured_on_loop(records, send)

    return uvloop.run(main())


def moldau_sync(bootstrap: str, topic: str, records: int, value: bytes) -> Sample:
    from moldau import Producer

    with Producer(bootstrap_servers=bootstrap, linger_ms=_LINGER_MS) as producer:

        def send(count: int) -> None:
            for _ in range(count):
                producer.send(topic, value)
            producer.flush()
            assert not producer.metrics()["record-error-total"]

        return measured(records, send)


def confluent(bootstrap: str, topic: str, records: int, value: bytes) -> Sample:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": _LINGER_MS,
            "batch.size": 16_384,
            "queue.buffering.max.messages": 300_000,
        }
    )

    def send(count: int) -> None:
        for _ in range(count):
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        if producer.flush(60):
            raise RuntimeError("not delivered")

    return measured(records, send)


def aiokafka(bootstrap: str, topic: str, records: int, value: bytes) -> Sample:
    import uvloop
    from aiokafka import AIOKafkaProducer

    async def main() -> Sample:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=_LINGER_MS
        ) as producer:

            async def send(count: int) -> None:
                for _ in range(count):
                    delivery = await producer.send(topic, value)
                await producer.flush()
                await delivery

            return await measured_on_loop(records, send)

    return uvloop.run(main())


def python(bootstrap: str, topic: str, records: int, value: bytes) -> Sample:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=_LINGER_MS)

    def send(count: int) -> None:
        for _ in range(count):
            delivery = producer.send(topic, value)
        producer.flush()
        delivery.get(60)

    sample = measured(records, send)
    producer.close()
    return sample


_CLIENTS = {
    "moldau": moldau,
    "moldau_batch": moldau_batch,
    "moldau_sync": moldau_sync,
    "confluent": confluent,
    "aiokafka": aiokafka,
    "python": python,
}

if __name__ == "__main__":
    asked = child_arguments()
    act = _CLIENTS[str(asked.pop("client"))]
    record_bytes = int(str(asked.pop("record_bytes")))
    print(json.dumps(act(**asked, value=b"x" * record_bytes)))  # type: ignore[arg-type]
