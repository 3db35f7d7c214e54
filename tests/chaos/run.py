"""A run: a broker, clients as processes, and a seed that says who is killed or paused when.

Answers for starting what ends, for bringing all to a rest in the end (every transaction ended, every record
copied), and for the whole history, which it keeps in one file. What is wrong with that is the checker's to
say. What cannot be brought to a rest is a failure of its own, `Stuck`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, Protocol

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from bench.kafka import KafkaServer
from tests.chaos import history
from tests.chaos.checker import summary
from tests.chaos.history import Event, Place, Position, merged, read_lines, to_line
from tests.chaos.worker import GROUP, IN, IN_PLACES, OUT, OUT_PLACES, PARTITIONS, Settings
from tests.support.clients import Confluent
from tests.support.node import MoldauNode

WRITERS, COPIERS, READERS = 3, 2, 2
PROPERTIES = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
# That a broker is away is no news here.
QUIET = {"log_level": 0}
# For one thing to come to its end when nothing is in its way any more.
REST_S = 90
# A client that has nothing to tell for so long, while nothing is in its way, has hung.
HUNG_S = 20
# How much must have happened, and how long a run goes on beyond its time until it has.
COMMITTED_MIN, COPIED_MIN, EXTRA_S = 50, 50, 120


class Stuck(Exception):
    """Something did not come to its end, though nothing was in its way."""


class Broker(Protocol):
    bootstrap: str

    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


def broker(directory: Path, *, is_kafka: bool) -> Broker:
    if is_kafka:
        return KafkaServer(directory / "data", properties=PROPERTIES)
    return MoldauNode(directory / "data", PROPERTIES)


@dataclass(slots=True)
class Slot:
    """A part that one process plays at a time; those it has replaced may be paused and come back."""

    settings: Callable[[int], Settings]
    life: int = 0
    process: subprocess.Popen[bytes] | None = None
    zombies: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        if self.process is not None:
            self.process.wait()
        self.life += 1
        with Path(self.settings(self.life).history).with_suffix(".stderr").open("ab") as errors:
            self.process = subprocess.Popen(
                self.settings(self.life).command(), stdin=subprocess.DEVNULL, stderr=errors
            )

    @property
    def name(self) -> str:
        return self.settings(self.life).name

    @property
    def transactional_id(self) -> str:
        return self.settings(self.life).transactional_id

    def revive(self) -> bool:
        """Whether a process had ended that now has a successor."""
        if self.process is None or self.process.poll() is None:
            return False
        self.start()
        return True

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def processes(self) -> Iterator[subprocess.Popen[bytes]]:
        if self.process is not None:
            yield self.process
        yield from self.zombies


class Run:
    """One run in a directory of its own, which keeps all that is left of it."""

    def __init__(self, seed: int, directory: Path, *, is_kafka: bool = False) -> None:
        self.random = Random(seed)
        self.directory = directory
        self.broker = broker(directory, is_kafka=is_kafka)
        self._files = directory / "histories"
        self._files.mkdir(parents=True)
        self._own: list[Event] = []
        protocol = self.random.choice(("classic", "consumer"))
        is_static = self.random.random() < 0.5
        self._do(f"copiers use the {protocol} protocol, {'static' if is_static else 'dynamic'} members")
        self.slots = [
            Slot(
                lambda life, kind=kind, slot=slot: Settings(
                    kind=kind,
                    slot=slot,
                    life=life,
                    bootstrap=self.broker.bootstrap,
                    history=str(self._files / f"{kind}-{slot}-{life}"),
                    seed=seed,
                    group_protocol=protocol,
                    is_static=is_static,
                )
            )
            for kind, slots in (("writer", WRITERS), ("copier", COPIERS), ("reader", READERS))
            for slot in range(slots)
        ]

    def _of(self, *kinds: str) -> list[Slot]:
        return [slot for slot in self.slots if slot.settings(slot.life).kind in kinds]

    def run(self, seconds: float) -> list[Event]:
        """The history, whole; also in `history.jsonl`."""
        try:
            with self._running_broker(), self._ended_processes():
                self._create_topics()
                for slot in self.slots:
                    slot.start()
                self._disturb(seconds)
                self._rest()
        finally:
            events = self.history()
            (self.directory / "history.jsonl").write_bytes(b"".join(map(to_line, events)))
        return events

    def history(self) -> list[Event]:
        files = (path for path in self._files.iterdir() if path.suffix != ".stderr")
        return merged([self._own, *(read_lines(path.read_bytes()) for path in files)])

    # -- While it goes on

    def _disturb(self, seconds: float) -> None:
        deeds: list[tuple[int, Callable[[], None]]] = [
            (3, self._kill_client),
            (2, self._pause_client),
            (2, self._resume_client),
            (2, self._replace_paused),
            (1, self._kill_broker),
            (1, self._stop_broker),
            (1, self._pause_broker),
        ]
        begin = time.monotonic()
        while True:
            elapsed_s = time.monotonic() - begin
            if elapsed_s > seconds and self._has_enough():
                return
            if elapsed_s > seconds + EXTRA_S:
                raise Stuck(f"too little happened in {elapsed_s:.0f} s: {summary(self.history())}")
            (deed,) = self.random.choices([deed for _, deed in deeds], [weight for weight, _ in deeds])
            deed()
            # What the disturbed go on with is a part of the run.
            time.sleep(self.random.uniform(0.1, 1.5))
            for slot in self.slots:
                slot.revive()

    def _has_enough(self) -> bool:
        events = self.history()
        copied = sum(isinstance(event, history.Writing) and event.source is not None for event in events)
        committed = sum(isinstance(event, history.Committed) for event in events)
        return committed >= COMMITTED_MIN and copied >= COPIED_MIN

    def _kill_client(self) -> None:
        slot = self.random.choice(self.slots)
        self._do(f"kill {slot.name}")
        slot.signal(signal.SIGKILL)
        slot.start()

    def _pause_client(self) -> None:
        slot = self.random.choice(self.slots)
        self._do(f"pause {slot.name}")
        slot.signal(signal.SIGSTOP)

    def _resume_client(self) -> None:
        slot = self.random.choice(self.slots)
        self._resume(slot)

    def _replace_paused(self) -> None:
        """Another takes over from one who does not know that it was away, and comes back."""
        slot = self.random.choice(self._of("writer", "copier"))
        self._do(f"replace {slot.name}")
        slot.signal(signal.SIGSTOP)
        assert slot.process is not None
        slot.zombies.append(slot.process)
        slot.process = None
        slot.start()

    def _resume(self, slot: Slot) -> None:
        self._do(f"resume {slot.name} and {len(slot.zombies)} before it")
        for process in slot.processes():
            process.send_signal(signal.SIGCONT)

    def _kill_broker(self) -> None:
        self._do("kill the broker")
        self.broker.kill()
        self.broker.start()
        self._do("the broker is back")

    def _stop_broker(self) -> None:
        self._do("stop the broker")
        self.broker.stop()
        self.broker.start()
        self._do("the broker is back")

    def _pause_broker(self) -> None:
        self._do("pause the broker")
        os.kill(self.broker.pid, signal.SIGSTOP)
        time.sleep(self.random.uniform(0.1, 1.5))
        os.kill(self.broker.pid, signal.SIGCONT)

    # -- At the end

    def _rest(self) -> None:
        """Every transaction ends, every record is copied; then all is read."""
        self._do("all shall end")
        for slot in self.slots:
            self._resume(slot)
        self._end("writer")
        self._take_ids("writer")
        for place in IN_PLACES:
            self._read_finally(place)
        for slot in self._of("copier"):
            self._await_end(slot, slot.zombies)  # else one that has hung keeps its place in the group
        self._until(self._all_is_copied, "the copiers have not copied everything")
        self._end("copier")
        self._take_ids("copier")
        self._end("reader")
        for place in OUT_PLACES:
            self._read_finally(place)
        offsets = tuple(Position(*place, offset) for place, offset in self._group_offsets().items())
        self._tell(history.GroupFinally, group=GROUP, offsets=offsets)

    def _end(self, kind: str) -> None:
        for slot in self._of(kind):
            slot.signal(signal.SIGTERM)
        for slot in self._of(kind):
            self._await_end(slot, slot.processes())

    def _await_end(self, slot: Slot, processes: Iterable[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            if not _ends(process):
                self._do(f"kill {slot.transactional_id}, {process.pid}, which does not end")
                process.kill()
                process.wait()

    def _take_ids(self, kind: str) -> None:
        """What nobody will end is aborted when its transactional id gets another owner."""
        for slot in self._of(kind):
            transactional_id = slot.transactional_id
            config = {"bootstrap.servers": self.broker.bootstrap, "transactional.id": transactional_id}
            since = time.monotonic()
            Producer(config).init_transactions(REST_S)
            self._tell(history.Initialized, transactional_id=transactional_id, since=since)

    def _read_finally(self, place: Place) -> None:
        self._until(
            lambda: self._end_offset(place, committed=True) == self._end_offset(place, committed=False),
            f"{place} has a transaction that does not end",
            may_fail=True,
        )
        found = Confluent().read(
            self.broker.bootstrap, place.topic, partition=place.partition, isolation="read_committed"
        )
        self._tell(
            history.Finally,
            place=place,
            records=tuple((offset, (record.value or b"").decode()) for offset, record in found),
            last_stable_offset=self._end_offset(place, committed=True),
            high_watermark=self._end_offset(place, committed=False),
        )

    def _end_offset(self, place: Place, *, committed: bool) -> int:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(*place): OffsetSpec.latest()}
        (future,) = self._admin.list_offsets(asked, isolation_level=level).values()
        return int(future.result(REST_S).offset)

    def _all_is_copied(self) -> bool:
        ends = {
            event.place: event.records[-1][0] + 1
            for event in self._own
            if isinstance(event, history.Finally) and event.records
        }
        offsets = self._group_offsets()
        for slot in self._of("copier"):
            # It may end by itself until the last moment, as when another has its place in the group.
            if not slot.revive() and self._has_hung(slot):
                self._do(f"kill {slot.name}, which has hung")
                slot.signal(signal.SIGKILL)
        return all(offsets[place] >= end for place, end in ends.items())

    @staticmethod
    def _has_hung(slot: Slot) -> bool:
        """Whether it has told nothing for long. librdkafka can wait for ever for an answer that was lost with
        a connection; what the broker does must show with a client that is well."""
        path = Path(slot.settings(slot.life).history)
        return path.exists() and time.time() - path.stat().st_mtime > HUNG_S

    def _group_offsets(self) -> dict[Place, int]:
        asked = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(*place) for place in IN_PLACES])
        (future,) = self._admin.list_consumer_group_offsets([asked], require_stable=True).values()
        found = {
            Place(each.topic, each.partition): max(each.offset, -1)
            for each in future.result(REST_S).topic_partitions
        }
        return {place: found[place] for place in IN_PLACES}

    # -- Below

    @contextmanager
    def _running_broker(self) -> Iterator[None]:
        self.broker.start()
        try:
            yield
        finally:
            self.broker.kill()

    @contextmanager
    def _ended_processes(self) -> Iterator[None]:
        try:
            yield
        finally:
            for slot in self.slots:
                for process in slot.processes():
                    process.kill()
                    process.wait()

    def _create_topics(self) -> None:
        topics = [NewTopic(name, PARTITIONS, 1) for name in (IN, OUT)]
        for future in self._admin.create_topics(topics).values():
            future.result(REST_S)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap, **QUIET})

    def _tell(self, kind: Callable[..., Event], **fields: Any) -> None:
        self._own.append(kind(at=time.monotonic(), by="run", **fields))

    def _do(self, text: str) -> None:
        self._tell(history.Done, text=text)

    def _until(self, condition: Callable[[], bool], otherwise: str, *, may_fail: bool = False) -> None:
        deadline = time.monotonic() + REST_S
        while not condition():
            if time.monotonic() > deadline:
                if may_fail:
                    return
                raise Stuck(f"{otherwise} after {REST_S} s")
            time.sleep(0.1)


def _ends(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(HUNG_S)
    except subprocess.TimeoutExpired:
        return False
    return True
