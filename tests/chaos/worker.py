"""A client that transacts until it is told to stop, as a process that may be killed or paused at any moment.

`python -m tests.chaos.worker '<settings as JSON>'`. Everything it does goes to the history, each event with
one write to its file: an intention before the deed, an outcome after it. It ends by itself when its library
says that it cannot go on, and leaves it to whoever started it to start a successor.

- A writer writes transactions of a few records to several partitions, and aborts some of them.
- A copier consumes, transforms and produces: for each record it reads it writes one, and where its group
  goes on, in one transaction.
- A reader reads all partitions, committed records only, and now and then goes back.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos import history
from tests.chaos.history import Place, Position

IN, OUT = "in", "out"
PARTITIONS = 3
GROUP = "copiers"
TRANSACTION_TIMEOUT_MS = 6000
# One try; a call that comes back because it took so long is repeated.
CALL_TIMEOUT_S = 5
COPIED_AT_ONCE_MAX = 10

IN_PLACES = [Place(IN, partition) for partition in range(PARTITIONS)]
OUT_PLACES = [Place(OUT, partition) for partition in range(PARTITIONS)]

CONNECTION = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "socket.timeout.ms": 5000,
    "topic.metadata.refresh.interval.ms": 2000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    kind: str
    slot: int
    life: int
    """The how many-eth process in this slot."""
    bootstrap: str
    history: str
    seed: int
    group_protocol: str = "classic"
    is_static: bool = False
    """Whether a copier's successor is the same member of the group."""

    @property
    def transactional_id(self) -> str:
        return f"{self.kind}-{self.slot}"

    @property
    def name(self) -> str:
        return f"{self.transactional_id}/{self.life}"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.chaos.worker", json.dumps(asdict(self))]


class Worker:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.random = Random(f"{settings.seed} {settings.name}")
        self.is_stopping = False
        self._file = os.open(settings.history, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)

    def tell(self, kind: Callable[..., history.Event], **fields: Any) -> None:
        os.write(self._file, history.to_line(kind(at=time.monotonic(), by=self.settings.name, **fields)))

    def stop(self, *_: object) -> None:
        self.is_stopping = True

    def until_it_does(self, call: Callable[[float], object]) -> None:
        """A call that its library says may be repeated goes on where it was."""
        while True:
            try:
                call(CALL_TIMEOUT_S)
                return
            except KafkaException as failure:
                self.tell(history.Troubled, text=str(failure))
                if not failure.args[0].retriable():
                    raise


class Transactor(Worker):
    """What writers and copiers have in common."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.producer = Producer(
            {
                "bootstrap.servers": settings.bootstrap,
                "transactional.id": settings.transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": self.random.choice((0, 5)),
                **CONNECTION,
            }
        )
        self._count = 0
        since = time.monotonic()
        self.until_it_does(self.producer.init_transactions)
        self.tell(history.Initialized, transactional_id=settings.transactional_id, since=since)

    def transact(self, work: Callable[[str], None], *, commits: bool = True) -> bool:
        """Whether what `work` did is committed. Raises when the producer cannot go on."""
        name = f"{self.settings.name}:{self._count}"
        self._count += 1
        self.producer.begin_transaction()
        try:
            work(name)
            if commits:
                self.tell(
                    history.Committing, transaction=name, transactional_id=self.settings.transactional_id
                )
                self.until_it_does(self.producer.commit_transaction)
                self.tell(history.Committed, transaction=name)
                return True
        except KafkaException as failure:
            self.tell(history.Troubled, text=f"{name}: {failure}")
            if not (failure.args[0].txn_requires_abort() or failure.args[0].retriable()):
                raise
        self.until_it_does(self.producer.abort_transaction)
        self.tell(history.Aborted, transaction=name)
        return False

    def write(self, transaction: str, place: Place, value: str, source: Position | None = None) -> None:
        self.tell(history.Writing, transaction=transaction, place=place, value=value, source=source)
        self.producer.produce(place.topic, value, partition=place.partition, on_delivery=self._on_delivery)
        self.producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        # Of what was stored before a connection broke the library may never have learned the offset.
        if error is None and (offset := message.offset()) is not None and offset >= 0:
            position = Position(message.topic(), message.partition(), offset)
            self.tell(history.Stored, position=position, value=message.value().decode())


class Writer(Transactor):
    def run(self) -> None:
        while not self.is_stopping:
            self.transact(self._write_some, commits=self.random.random() < 0.75)

    def _write_some(self, transaction: str) -> None:
        # Most transactions are short; some keep readers waiting for their end.
        pause_s = self.random.choice((0, 0, 0, 0.02, 0.1))
        for number in range(self.random.randint(1, 8)):
            self.write(transaction, self.random.choice(IN_PLACES), f"{transaction}.{number}")
            self.producer.poll(self.random.uniform(0, pause_s))


class Copier(Transactor):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        config = {
            "bootstrap.servers": settings.bootstrap,
            "group.id": GROUP,
            "group.protocol": settings.group_protocol,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            **CONNECTION,
        }
        if settings.group_protocol == "classic":
            config |= {
                "session.timeout.ms": 3000,
                "heartbeat.interval.ms": 300,
                "partition.assignment.strategy": "range",
            }
        if settings.is_static:
            config["group.instance.id"] = f"member-{settings.slot}"
        self.consumer = Consumer(config)
        self._batch: list[Message] = []

    def run(self) -> None:
        self.consumer.subscribe([IN], on_revoke=self._forget, on_lost=self._forget)
        while not self.is_stopping:
            self._poll()
            if self._batch and not self.transact(self._copy, commits=self.random.random() < 0.85):
                self._go_back()
            self._batch.clear()
        self.consumer.close()

    def _forget(self, _: Consumer, revoked: Sequence[TopicPartition]) -> None:
        """What was polled of these before another member got them is for that one to copy. Those that stay
        go on where they are, and so what was polled of them is kept."""
        places = {Place(each.topic, each.partition) for each in revoked}
        self._batch = [each for each in self._batch if Place(each.topic(), each.partition()) not in places]

    def _poll(self) -> None:
        """Until the batch is full, or there is a pause."""
        for _ in range(self.random.randint(1, COPIED_AT_ONCE_MAX)):
            message = self.consumer.poll(0.1)
            if message is None:
                return
            if message.error() is None:
                self._batch.append(message)
            elif message.error().fatal():
                # As when a predecessor still has this one's place in the group.
                raise KafkaException(message.error())
            else:
                self.tell(history.Troubled, text=str(message.error()))

    def _copy(self, transaction: str) -> None:
        ends: dict[Place, int] = {}
        for message in self._batch:
            source = Position(message.topic(), message.partition(), message.offset())
            ends[source.place] = source.offset + 1
            value = f"{transaction}.{source.partition}.{source.offset}"
            self.write(transaction, Place(OUT, source.partition), value, source)
        offsets = tuple(Position(*place, offset) for place, offset in ends.items())
        self.tell(history.SendingOffsets, transaction=transaction, group=GROUP, offsets=offsets)
        # Not repeated: librdkafka may never come back from the second try after a connection was lost.
        self.producer.send_offsets_to_transaction(
            [TopicPartition(*offset) for offset in offsets],
            self.consumer.consumer_group_metadata(),
            TRANSACTION_TIMEOUT_MS / 1000,
        )

    def _go_back(self) -> None:
        """To where the group is, which is where the batch began."""
        firsts: dict[Place, int] = {}
        for message in self._batch:
            firsts.setdefault(Place(message.topic(), message.partition()), message.offset())
        for place, offset in firsts.items():
            try:
                self.consumer.seek(TopicPartition(*place, offset))
            except KafkaException as failure:
                # No longer ours: whoever gets it begins where the group is.
                if failure.args[0].code() != KafkaError._STATE:
                    raise


class Reader(Worker):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.consumer = Consumer(
            {
                "bootstrap.servers": settings.bootstrap,
                "group.id": "readers",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
                **CONNECTION,
            }
        )

    def run(self) -> None:
        # Each lap begins somewhere in what was read: reading all of it again and again takes ever longer.
        ends = dict.fromkeys((*IN_PLACES, *OUT_PLACES), 0)
        while not self.is_stopping:
            starts = [Position(*place, self.random.randint(0, end)) for place, end in ends.items()]
            for start in starts:
                self.tell(history.Sought, position=start)
            self.consumer.assign([TopicPartition(*start) for start in starts])
            self._read(ends, for_s=self.random.uniform(1, 10))
        self.consumer.close()

    def _read(self, ends: dict[Place, int], for_s: float) -> None:
        end = time.monotonic() + for_s
        while not self.is_stopping and time.monotonic() < end:
            for message in self.consumer.consume(200, 0.1):
                if message.error() is not None:
                    self.tell(history.Troubled, text=str(message.error()))
                    continue
                position = Position(message.topic(), message.partition(), message.offset())
                ends[position.place] = max(ends[position.place], position.offset + 1)
                self.tell(history.Read, position=position, value=message.value().decode())


KINDS: dict[str, type[Writer | Copier | Reader]] = {"writer": Writer, "copier": Copier, "reader": Reader}


def main(arguments: Sequence[str]) -> int:
    settings = Settings(**json.loads(arguments[0]))
    try:
        worker = KINDS[settings.kind](settings)
        signal.signal(signal.SIGTERM, worker.stop)
        worker.run()
    except KafkaException as failure:
        line = history.to_line(
            history.Troubled(at=time.monotonic(), by=settings.name, text=f"ends: {failure}")
        )
        with Path(settings.history).open("ab") as file:
            file.write(line)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
