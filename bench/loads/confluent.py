"""librdkafka through confluent-kafka, with its default batching."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.loads import Sample, Subject, Unshared, child, child_arguments, topic_of
from bench.loads.shared_topic import SharedTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfluentProduce(Unshared):
    name: str
    record_bytes: int
    records: int
    needs_java: bool = False
    on_stub: bool = True

    def run(self, subject: Subject, scale: float) -> Sample:
        broker = subject.running
        records = int(self.records * scale)
        with topic_of(broker, self.name) as topic:
            cpu_before = broker.cpu_seconds()
            sample = child(
                "confluent",
                action="produce",
                bootstrap=broker.bootstrap,
                topic=topic,
                records=records,
                record_bytes=self.record_bytes,
            )
            cpu_s = broker.cpu_seconds() - cpu_before
        return sample | {"cpu_s_per_gb": cpu_s / (records * 1.1 * self.record_bytes / 1e9)}


class ConfluentConsume(SharedTopic):
    name = "consume-confluent"

    def measure(self, subject: Subject, topic: str, records: int, scale: float) -> Sample:
        bootstrap = subject.running.bootstrap
        return child("confluent", action="consume", bootstrap=bootstrap, topic=topic, records=records)


def produce(bootstrap: str, topic: str, records: int, record_bytes: int) -> Sample:
    """Acks=1; a tenth more records go first, untimed."""
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "1", "queue.buffering.max.messages": 1_000_000}
    )
    value = b"x" * record_bytes

    def send(count: int) -> None:
        for _ in range(count):
            while True:
                try:
                    producer.produce(topic, value, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.01)
        if producer.flush(60) or failed:
            raise RuntimeError(f"not delivered: {failed[:1]}")

    send(records // 10)
    started = time.monotonic()
    send(records)
    return {"records_per_s": records / (time.monotonic() - started)}


def consume(bootstrap: str, topic: str, records: int) -> Sample:
    """From the first record on, in lists of up to 10,000."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "check.crcs": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    got, size, started = 0, 0, 0.0
    while got < records:
        messages = consumer.consume(10_000, timeout=20)
        if not messages:
            raise TimeoutError(f"no record for 20 s after {got} of {records}")
        if not started:
            started = time.monotonic()  # the first list is the connection's warm-up, and is not counted
        else:
            size += sum(len(message) for message in messages)
        got += len(messages)
    elapsed = time.monotonic() - started
    consumer.close()
    return {"mb_per_s": size / 1e6 / elapsed}


if __name__ == "__main__":
    asked = child_arguments()
    act = {"produce": produce, "consume": consume}[str(asked.pop("action"))]
    print(json.dumps(act(**asked)))  # type: ignore[operator]
