"""Members of groups: consumers of other projects behind one narrow face.

Each polls in a thread of its own until it is stopped, commits what it got, and tells what it has. Whoever
waits for something is woken by every step of any member. Knows nothing of Moldau: it is handed an address.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple, Protocol

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
from aiokafka.coordinator.assignors import range as aiokafka_range
from aiokafka.coordinator.assignors import roundrobin as aiokafka_roundrobin
from aiokafka.errors import KafkaError as AiokafkaError
from kafka.coordinator.assignors import cooperative_sticky as kafka_sticky
from kafka.coordinator.assignors import range as kafka_range
from kafka.coordinator.assignors import roundrobin as kafka_roundrobin

import moldau
from bench.kafka import end_process, kafka_classpath
from tests.support.clients import Confluent as Producers

# What a test may wait for one thing. Far above what any of them needs on a busy machine.
TIMEOUT_S = 40
POLL_MS = 50
HEARTBEAT_MS = 150
PARTITIONS = 6
"""Of the topic of a group."""
EVERY_PARTITION = frozenset(range(PARTITIONS))

_KAFKA_PYTHON = {
    "range": kafka_range.RangePartitionAssignor,
    "roundrobin": kafka_roundrobin.RoundRobinPartitionAssignor,
    "cooperative-sticky": kafka_sticky.CooperativeStickyAssignor,
}
_AIOKAFKA = {
    "range": aiokafka_range.RangePartitionAssignor,
    "roundrobin": aiokafka_roundrobin.RoundRobinPartitionAssignor,
}


class Settings(NamedTuple):
    bootstrap: str
    group_id: str
    topic: str
    assignor: str = "range"
    """None in particular for the consumer protocol."""
    instance_id: str | None = None
    session_ms: int = 6000
    protocol: str = "classic"


class Got(NamedTuple):
    partition: int
    offset: int
    value: bytes


class Consumer(Protocol):
    """A library's. A commit that comes when the group has gone on is dropped, as the next one covers it."""

    def poll(self) -> list[Got]: ...
    def commit(self) -> None: ...
    def assignment(self) -> set[int]: ...
    def close(self) -> list[Got]:
        """What it got and committed, and nobody has asked for."""
        ...


class Confluent:
    def __init__(self, settings: Settings) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": settings.bootstrap,
            "group.id": settings.group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "group.protocol": settings.protocol,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if settings.protocol == "classic":
            config |= {
                "session.timeout.ms": settings.session_ms,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "partition.assignment.strategy": settings.assignor,
            }
        if settings.instance_id is not None:
            config["group.instance.id"] = settings.instance_id
        self._consumer = confluent_kafka.Consumer(config)
        self._consumer.subscribe([settings.topic])

    def poll(self) -> list[Got]:
        messages = self._consumer.consume(500, POLL_MS / 1000)
        return [
            Got(message.partition(), message.offset(), message.value())
            for message in messages
            if message.error() is None
        ]

    def commit(self) -> None:
        with suppress(confluent_kafka.KafkaException):
            self._consumer.commit(asynchronous=False)

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> list[Got]:
        self._consumer.close()
        return []


class KafkaPython:
    def __init__(self, settings: Settings) -> None:
        self._consumer = kafka.KafkaConsumer(
            settings.topic,
            bootstrap_servers=settings.bootstrap,
            group_id=settings.group_id,
            group_instance_id=settings.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=settings.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=50,
            retry_backoff_ms=50,
            reconnect_backoff_max_ms=200,
            partition_assignment_strategy=(_KAFKA_PYTHON[settings.assignor],),
        )
        # A leader that hears of its topic between two assignments forgets the join that it has under way,
        # does not beat any more, and is thrown out of the group. So it has to know the topic before it joins.
        until = time.monotonic() + TIMEOUT_S
        while not self._consumer.partitions_for_topic(settings.topic):
            assert time.monotonic() < until, f"kafka-python does not find {settings.topic}"

    def poll(self) -> list[Got]:
        polled = self._consumer.poll(POLL_MS)
        return [
            Got(message.partition, message.offset, message.value)
            for messages in polled.values()
            for message in messages
        ]

    def commit(self) -> None:
        with suppress(kafka.errors.KafkaError):
            self._consumer.commit()

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> list[Got]:
        self._consumer.close(autocommit=False)
        return []


class Aiokafka:
    """Its loop runs while it is polled, which is most of the time."""

    def __init__(self, settings: Settings) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start(settings))

    async def _start(self, settings: Settings) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(
            settings.topic,
            bootstrap_servers=settings.bootstrap,
            group_id=settings.group_id,
            group_instance_id=settings.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=settings.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=50,
            partition_assignment_strategy=(_AIOKAFKA[settings.assignor],),
        )
        await self._consumer.start()

    def poll(self) -> list[Got]:
        polled = self._runner.run(self._consumer.getmany(timeout_ms=POLL_MS))
        return [
            Got(message.partition, message.offset, message.value)
            for messages in polled.values()
            for message in messages
        ]

    def commit(self) -> None:
        with suppress(AiokafkaError):
            self._runner.run(self._consumer.commit())

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> list[Got]:
        self._runner.run(self._consumer.stop())
        self._runner.close()
        return []


class Moldau:
    def __init__(self, settings: Settings) -> None:
        options: dict[str, Any] = {"group_protocol": settings.protocol}
        if settings.protocol == "classic":
            options |= {
                "session_timeout_ms": settings.session_ms,
                "heartbeat_interval_ms": HEARTBEAT_MS,
                "partition_assignment_strategy": settings.assignor,
            }
        self._consumer = moldau.Consumer(
            bootstrap_servers=settings.bootstrap,
            group_id=settings.group_id,
            group_instance_id=settings.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
            reconnect_backoff_max_ms=200,
            metadata_max_age_ms=1000,
            **options,
        )
        self._consumer.start()
        self._consumer.subscribe([settings.topic])

    def poll(self) -> list[Got]:
        records = self._consumer.poll(POLL_MS / 1000)
        return [Got(record.partition, record.offset, record.value) for record in records]

    def commit(self) -> None:
        with suppress(moldau.KafkaError):
            self._consumer.commit()

    def assignment(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> list[Got]:
        self._consumer.close()
        return []


class Java:
    """Kafka's VerifiableConsumer, a process that tells what becomes of it in lines of JSON. What it got it
    commits by itself."""

    _ASSIGNORS: ClassVar = {
        "range": "RangeAssignor",
        "roundrobin": "RoundRobinAssignor",
        "cooperative-sticky": "CooperativeStickyAssignor",
    }

    def __init__(self, settings: Settings) -> None:
        command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", kafka_classpath()]
        command += ["org.apache.kafka.tools.VerifiableConsumer", "--verbose"]
        command += ["--bootstrap-server", settings.bootstrap, "--topic", settings.topic]
        command += ["--group-id", settings.group_id, "--group-protocol", settings.protocol.upper()]
        properties = "fetch.max.wait.ms=50\nreconnect.backoff.max.ms=200\n"
        if settings.protocol == "classic":
            assignor = self._ASSIGNORS[settings.assignor]
            command += ["--session-timeout", str(settings.session_ms)]
            command += ["--assignment-strategy", f"org.apache.kafka.clients.consumer.{assignor}"]
            properties += f"heartbeat.interval.ms={HEARTBEAT_MS}\n"
        if settings.instance_id is not None:
            command += ["--group-instance-id", settings.instance_id]
        self._directory = TemporaryDirectory()
        config = Path(self._directory.name) / "consumer.properties"
        config.write_text(properties)
        self._process = subprocess.Popen(
            [*command, "--command-config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._printed = b""
        self._partitions: set[int] = set()

    def poll(self) -> list[Got]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], POLL_MS / 1000)[0]:
            return []
        chunk = os.read(self._process.stdout.fileno(), 1 << 16)
        assert chunk, "the consumer has ended"
        return self._read(chunk)

    def _read(self, chunk: bytes) -> list[Got]:
        *lines, self._printed = (self._printed + chunk).split(b"\n")
        # What it says of a failure is not JSON; it goes on, or ends.
        events = [json.loads(line) for line in lines if line.startswith(b"{")]
        return [got for event in events if (got := self._on_event(event)) is not None]

    def _on_event(self, event: dict[str, Any]) -> Got | None:
        match event["name"]:
            case "record_data":
                return Got(event["partition"], event["offset"], event["value"].encode())
            case "partitions_assigned":
                self._partitions |= {each["partition"] for each in event["partitions"]}
            case "partitions_revoked":
                self._partitions -= {each["partition"] for each in event["partitions"]}
        return None

    def commit(self) -> None:
        pass

    def assignment(self) -> set[int]:
        return self._partitions

    def close(self) -> list[Got]:
        assert self._process.stdout is not None
        self._process.terminate()
        with self._process.stdout as output:
            rest = output.read()
        end_process(self._process, signal.SIGTERM, TIMEOUT_S)
        self._directory.cleanup()
        return self._read(rest)


LIBRARIES: dict[str, Callable[[Settings], Consumer]] = {
    "confluent-kafka": Confluent,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
    "moldau": Moldau,
}
WITH_JAVA = {**LIBRARIES, "java": Java}


class Member:
    """`partitions` are those that it has, `history` those that it had, one after the other, and `got` what it
    was given."""

    def __init__(self, name: str, library: str, settings: Settings, news: threading.Condition) -> None:
        self.name = name
        self.settings = settings
        self.partitions: frozenset[int] = frozenset()
        self.history: list[frozenset[int]] = []
        self.got: list[Got] = []
        self.failure: BaseException | None = None
        self._news = news
        self._make = WITH_JAVA[library]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self.name} does not stop"

    def _run(self) -> None:
        try:
            consumer = self._make(self.settings)
            try:
                while not self._stop.is_set():
                    self._step(consumer)
            finally:
                rest = consumer.close()
            with self._news:
                self.got += rest
        except BaseException as failure:
            self.failure = failure
        finally:
            with self._news:
                self.partitions = frozenset()
                self._news.notify_all()

    def _step(self, consumer: Consumer) -> None:
        polled = consumer.poll()
        if polled:
            consumer.commit()
        partitions = frozenset(consumer.assignment())
        with self._news:
            self.got += polled
            if partitions != self.partitions:
                self.partitions = partitions
                self.history.append(partitions)
            self._news.notify_all()


class Members:
    """Those of one group. Also a context manager, which they all leave with."""

    def __init__(self, bootstrap: str, group_id: str, topic: str) -> None:
        self.settings = Settings(bootstrap, group_id, topic)
        self.all: list[Member] = []
        self._news = threading.Condition()

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.all:
            member.leave()

    def join(self, library: str, **settings: Any) -> Member:
        name = f"{library} {len(self.all)}"
        member = Member(name, library, self.settings._replace(**settings), self._news)
        self.all.append(member)
        return member

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        with self._news:
            is_so_now = self._news.wait_for(lambda: is_so() or any(self._failures()), TIMEOUT_S)
        for failure in self._failures():
            raise failure
        shares = {member.name: (sorted(member.partitions), len(member.got)) for member in self.all}
        assert is_so_now, f"not in {TIMEOUT_S} s: {what}; {shares}"

    def wait_shared(self, among: Sequence[Member]) -> None:
        """Until these have all partitions, each of them some, and nobody one that another has."""

        def is_shared() -> bool:
            shares = [member.partitions for member in among]
            return (
                all(shares)
                and sum(map(len, shares)) == len(EVERY_PARTITION)
                and frozenset().union(*shares) == EVERY_PARTITION
            )

        self.wait_for(is_shared, f"{[member.name for member in among]} share the partitions")

    def wait_delivered(self, count: int) -> None:
        """Each of the first records of a writer, at least once."""
        numbers = {b"%d" % number for number in range(count)}
        self.wait_for(lambda: numbers <= self.delivered().keys(), f"{count} records were delivered")

    def delivered(self) -> Counter[bytes]:
        with self._news:
            return Counter(got.value for member in self.all for got in member.got)

    def _failures(self) -> list[BaseException]:
        return [member.failure for member in self.all if member.failure is not None]


class Writer:
    """Numbers for all partitions. As a context manager it writes until it is left."""

    def __init__(self, members: Members) -> None:
        self.sent = 0
        self._topic = members.settings.topic
        self._producer = Producers().producer(
            members.settings.bootstrap,
            enable_idempotence=True,
            message_timeout_ms=60_000,
            reconnect_backoff_max_ms=200,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer")

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.flush()

    def write(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(self._topic, b"%d" % self.sent, partition=self.sent % PARTITIONS)
            self.sent += 1
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(TIMEOUT_S) == 0

    def _run(self) -> None:
        while not self._stop.wait(0.002):
            self.write(2)


def write(members: Members, count: int) -> None:
    writer = Writer(members)
    writer.write(count)
    writer.flush()
