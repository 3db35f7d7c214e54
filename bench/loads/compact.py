"""Compaction: MB of log a second, from when a topic may be compacted until the cleaner's checkpoint says it
is.

A topic with ten updates of each key, in no order, is filled while it cannot become dirty enough to be
cleaned; then `min.cleanable.dirty.ratio` is lowered. What is counted is the size of the closed segments,
compressed as they are; the active one is nobody's to clean. Both brokers look for something to clean every
0.2 s.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import cramjam
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench import frames, topics
from bench.brokers import Broker
from bench.loads import Sample, Subject, Unshared, child, topic_of

NONE, ZSTD = 0, 4
_SEGMENT_BYTES = 32 << 20
_NEVER, _AT_ONCE = "1.0", "0.01"
_TIMEOUT_S = 300
_POLL_S = 0.005


@dataclass
class Compact(Unshared):
    name: str
    value_bytes: int
    records: int
    keys: int
    codec: int = NONE
    needs_java = False
    on_stub = False
    _runs = 0

    def run(self, subject: Subject, scale: float) -> Sample:
        broker = subject.running
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic, directory = self.filled(broker, admin, scale)
        *closed, _ = sorted(directory.glob("*.log"))
        closed_bytes = sum(path.stat().st_size for path in closed)
        cpu_before, started = broker.cpu_seconds(), time.monotonic()
        allow(admin, topic)
        wait_cleaned(broker, directory, topic)
        elapsed, cpu_s = time.monotonic() - started, broker.cpu_seconds() - cpu_before
        left_bytes = sum(path.stat().st_size for path in sorted(directory.glob("*.log"))[:-1])
        topics.delete(broker.bootstrap, topic)
        return {
            "mb_per_s": closed_bytes / 1e6 / elapsed,
            "cpu_s_per_gb": cpu_s / (closed_bytes / 1e9),
            "left": left_bytes / closed_bytes,
        }

    def filled(self, broker: Broker, admin: AdminClient, scale: float) -> tuple[str, Path]:
        """A new topic with everything in it, and where the broker keeps it."""
        Compact._runs += 1
        topic = f"{self.name}-{Compact._runs}"
        create(admin, topic)
        with frames.connect(broker.bootstrap) as sock:
            write(sock, topic, self.batches(scale))
        [directory] = broker.directory.rglob(f"{topic}-0")
        return topic, directory

    def batches(self, scale: float) -> Iterator[bytes]:
        """The same for every subject. Half of a value does not compress."""
        random = Random(7)
        now_ms = int(time.time() * 1000)
        keys, records = int(self.keys * scale), int(self.records * scale)
        count = topics.BATCH_BYTES // (self.value_bytes + 20)
        filler = b"x" * (self.value_bytes - self.value_bytes // 2)
        for _ in range(records // count):
            noise = random.randbytes(count * (self.value_bytes // 2))
            width = self.value_bytes // 2
            encoded = b"".join(
                frames.keyed_record(
                    number,
                    b"key-%09d" % random.randrange(keys),
                    noise[number * width : (number + 1) * width] + filler,
                )
                for number in range(count)
            )
            if self.codec == ZSTD:
                encoded = bytes(cramjam.zstd.compress(encoded, level=3))
            yield frames.batch_of(encoded, count, now_ms, self.codec)


class LatencyBesideCompaction(Compact):
    """What it costs those who produce and fetch: the latency load while nothing is compacted, and at once
    again while something is, for longer than that takes."""

    seconds = 4

    def run(self, subject: Subject, scale: float) -> Sample:
        broker = subject.running
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic, directory = self.filled(broker, admin, scale)
        idle = self.latency(broker)
        allow(admin, topic)
        busy = self.latency(broker)
        ended_early = is_cleaned(directory, topic)
        wait_cleaned(broker, directory, topic)
        topics.delete(broker.bootstrap, topic)
        if ended_early:
            raise RuntimeError("the compaction was over before the latency was measured")
        return {
            "p50_times": busy["p50_ms"] / idle["p50_ms"],
            "p99_times": busy["p99_ms"] / idle["p99_ms"],
            "p50_ms": busy["p50_ms"],
            "p99_ms": busy["p99_ms"],
        }

    def latency(self, broker: Broker) -> Sample:
        with topic_of(broker, "latency-beside") as topic:
            return child("latency", bootstrap=broker.bootstrap, topic=topic, records=self.seconds * 1000)


def create(admin: AdminClient, topic: str) -> None:
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": _NEVER,
        "segment.bytes": str(_SEGMENT_BYTES),
    }
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)


def allow(admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry("min.cleanable.dirty.ratio", _AT_ONCE, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def write(sock: socket.socket, topic: str, batches: Iterator[bytes]) -> None:
    topics.write_first(sock, topic, frames.produce(topic, next(batches)))
    in_flight = 0
    for batch in batches:
        sock.sendall(frames.produce(topic, batch))
        in_flight += 1
        if in_flight > topics.IN_FLIGHT:
            _check(frames.receive(sock), topic)
            in_flight -= 1
    for _ in range(in_flight):
        _check(frames.receive(sock), topic)


def _check(answer: bytes | bytearray, topic: str) -> None:
    if error := frames.produce_error(answer, topic):
        raise frames.BrokerAnswered("Produce", error)


def wait_cleaned(broker: Broker, directory: Path, topic: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not is_cleaned(directory, topic):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{broker.name} has not cleaned {topic} in {_TIMEOUT_S} s")
        time.sleep(_POLL_S)


def is_cleaned(directory: Path, topic: str) -> bool:
    """Whether the checkpoint has the base of the active segment."""
    active = max(int(path.stem) for path in directory.glob("*.log"))
    checkpoint = directory.parent / "cleaner-offset-checkpoint"
    return checkpoint.exists() and f"{topic} 0 {active}" in checkpoint.read_text().splitlines()
