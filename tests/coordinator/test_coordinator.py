"""The coordinator's runtime with a shard that adds numbers, on a log of a simulated disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from moldau.config.topic import TopicConfig
from moldau.coordinator.coordinator import Coordinator
from moldau.coordinator.decision import NOTHING, Decision, Waiter
from moldau.coordinator.record import CoordinatorRecord, RecordTypes
from moldau.coordinator.timers import Timers
from moldau.log.errors import LogDirError
from moldau.log.log import Log
from moldau.log.open_files import OpenFiles
from moldau.log.producer_state import Verification
from moldau.records.control import ControlType, EndTxnMarker
from moldau.replica.partition import Partition
from moldau.sim.simulation import Simulation
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.schema import Message, int64, string

TOPIC = "__consumer_offsets"


class NumberKey(Message, api_key=7, versions="0"):
    name: str = string("0")


class NumberValue(Message, api_key=7, versions="0-1", flexible="1+"):
    number: int = int64("0+")


TYPES = RecordTypes([(NumberKey, NumberValue)])


def number(name: str, value: int | None) -> CoordinatorRecord:
    return CoordinatorRecord(NumberKey(name=name), None if value is None else NumberValue(number=value), 1)


class Numbers:
    """A shard: names and numbers. A negative one cannot be applied, which is a bug in it."""

    record_types = TYPES

    def __init__(self, index: int) -> None:
        self.timers = Timers()
        self.numbers: dict[str, int] = {}
        self.pending: dict[int, dict[str, int]] = {}
        self.waiting: list[Waiter[int]] = []

    def apply(self, record: CoordinatorRecord, producer_id: int) -> None:
        assert isinstance(record.key, NumberKey)
        numbers = self.numbers if producer_id < 0 else self.pending.setdefault(producer_id, {})
        if record.value is None:
            numbers.pop(record.key.name, None)
            return
        assert isinstance(record.value, NumberValue)
        if record.value.number == -1:
            raise ZeroDivisionError
        numbers[record.key.name] = record.value.number

    def apply_marker(self, producer_id: int, *, is_committed: bool) -> None:
        changed = self.pending.pop(producer_id, {})
        if is_committed:
            self.numbers.update(changed)

    def on_loaded(self, now_ms: int) -> Decision[Any]:
        if "alarm" in self.numbers:
            self.timers.set("alarm", now_ms + self.numbers["alarm"], "ring")
        return NOTHING

    def on_timer(self, now_ms: int, event: Any) -> Decision[Any]:
        return Decision(records=[number(str(event), now_ms)])

    def on_unloaded(self) -> Sequence[Waiter[int]]:
        return self.waiting

    def put(self, name: str, value: int, **more: Any) -> Decision[int]:
        return Decision(records=[number(name, value)], reply=value, **more)


class World:
    def __init__(self) -> None:
        self.simulation = Simulation(seed=3)
        self.failures: list[LogDirError] = []
        self.sent: list[tuple[int, Any]] = []
        self.simulation.host("localhost").files.make_dirs("/data")
        self.begin()

    def begin(self, leader_epoch: int = 1) -> None:
        runtime = self.runtime
        log = Log.open(
            runtime.files,
            OpenFiles(),
            "/data",
            f"{TOPIC}-0",
            TOPIC,
            0,
            TopicConfig.DEFAULTS.replace(segment_index_bytes=4096, max_message_bytes=2000),
            now_ms=runtime.clock.now_ms(),
        )
        self.partition = Partition(TOPIC, 0, bytes(16), log)
        self.coordinator: Coordinator[Numbers] = Coordinator(
            runtime,
            TOPIC,
            Numbers,
            self.failures.append,
            load_buffer_bytes=300,
            send=lambda partition, each: self.sent.append((partition.index, each)),
        )
        self.lead(leader_epoch)

    @property
    def runtime(self) -> Any:
        return self.simulation.host("localhost")

    def lead(self, leader_epoch: int) -> None:
        self.partition.become_leader(1, leader_epoch, 1, 1)
        self.in_loop(lambda: self.coordinator.on_role(self.partition))

    def loaded(self) -> World:
        self.simulation.advance(1)
        return self

    def in_loop(self, work: Any) -> Any:
        async def call() -> Any:
            return work()

        return self.simulation.run(call())

    def put(self, name: str, value: int, **more: Any) -> Waiter[int]:
        return self.decide(lambda shard, now_ms, waiter: shard.put(name, value, **more))

    def put_in_transaction(self, name: str, value: int, producer: tuple[int, int]) -> Waiter[int]:
        verification = self.partition.leader_log().producers.begin_verification(
            *producer, -1, 0, supports_epoch_bump=False
        )
        return self.decide(
            lambda shard, now_ms, waiter: shard.put(name, value, producer=producer), verification
        )

    def end(self, producer: tuple[int, int], type: ControlType) -> None:
        self.in_loop(lambda: self.coordinator.end_transaction(0, EndTxnMarker(type, 0), producer, 0))

    def decide(self, decide: Any, verification: Verification | None = None) -> Any:
        return self.in_loop(lambda: self.coordinator.submit(0, decide, verification))

    @property
    def shard(self) -> Numbers:
        return next(shard for _, shard in self.coordinator.shards())

    def hold_back_commits(self) -> None:
        """As if followers had still to fetch: what is appended is not committed."""
        log = self.partition.log
        assert log is not None
        self.held = log.high_watermark
        log_class = type(log)

        class Lagging(log_class):  # type: ignore[misc,valid-type]
            __slots__ = ()

            def advance_high_watermark(this, offset: int) -> bool:
                return log_class.advance_high_watermark(this, min(offset, self.held))

        log.__class__ = Lagging

    def commit(self) -> None:
        log = self.partition.log
        assert log is not None
        self.held = log.log_end_offset
        log.advance_high_watermark(self.held)
        self.in_loop(lambda: self.coordinator.on_high_watermark(self.partition))


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.simulation.close()


def code_of(waiter: Waiter[Any]) -> ErrorCode:
    assert waiter.failure is not None
    return waiter.failure.code


def test_what_was_decided_is_applied_and_answered_at_once(world: World) -> None:
    world.loaded()
    assert world.put("one", 1).result() == 1
    assert world.shard.numbers == {"one": 1}


def test_a_new_leader_replays_the_log(world: World) -> None:
    world.loaded()
    for count in range(100):
        world.put(f"n{count % 7}", count)
    world.decide(lambda shard, now_ms, waiter: Decision(records=[number("n3", None)], reply=0))
    numbers = dict(world.shard.numbers)
    world.in_loop(world.coordinator.close)
    world.begin(leader_epoch=2)
    world.loaded()
    assert world.shard.numbers == numbers
    assert "n3" not in numbers


def test_who_asks_while_it_loads_is_told_so(world: World) -> None:
    world.loaded().put("one", 1)
    world.lead(2)
    with pytest.raises(KafkaError) as raised:
        world.put("one", 2)
    assert raised.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.coordinator.is_loading


def test_who_asks_elsewhere_is_told_so(world: World) -> None:
    world.loaded()
    world.partition.resign(2, 2)
    world.in_loop(lambda: world.coordinator.on_role(world.partition))
    with pytest.raises(KafkaError) as raised:
        world.put("one", 1)
    assert raised.value.code == ErrorCode.NOT_COORDINATOR


def test_the_same_role_again_changes_nothing(world: World) -> None:
    shard = world.loaded().shard
    world.in_loop(lambda: world.coordinator.on_role(world.partition))
    assert world.shard is shard


def test_a_new_epoch_of_the_same_leader_is_a_replay(world: World) -> None:
    shard = world.loaded().shard
    world.put("one", 1)
    world.lead(5)
    world.loaded()
    assert world.shard is not shard
    assert world.shard.numbers == {"one": 1}


def test_those_who_wait_are_told_when_the_leadership_goes(world: World) -> None:
    world.loaded()

    def wait(shard: Numbers, now_ms: int, waiter: Waiter[int]) -> Decision[int]:
        shard.waiting.append(waiter)
        return Decision()

    waiter = world.decide(wait)
    assert not waiter.is_done
    world.partition.resign(2, 2)
    world.in_loop(lambda: world.coordinator.on_role(world.partition))
    assert code_of(waiter) == ErrorCode.NOT_COORDINATOR


def test_those_who_waited_are_answered_with_the_one_who_came_last(world: World) -> None:
    world.loaded()
    waiters: list[Waiter[int]] = []
    waiters.append(world.decide(lambda shard, now_ms, waiter: Decision()))
    last = world.put("one", 1, answers=[(waiters[0], 10)])
    assert (waiters[0].result(), last.result()) == (10, 1)


def test_nobody_hears_of_what_is_not_committed(world: World) -> None:
    world.loaded()
    world.hold_back_commits()
    written = world.put("one", 1)
    read = world.decide(lambda shard, now_ms, waiter: Decision(reply=shard.numbers["one"]))
    assert not written.is_done
    assert not read.is_done  # it speaks of the same
    world.commit()
    assert (written.result(), read.result()) == (1, 1)


def test_what_is_not_committed_when_the_leadership_goes_is_not_answered_as_done(world: World) -> None:
    world.loaded()
    world.hold_back_commits()
    waiter = world.put("one", 1)
    world.partition.resign(2, 2)
    world.in_loop(lambda: world.coordinator.on_role(world.partition))
    assert code_of(waiter) == ErrorCode.NOT_COORDINATOR


def test_what_follows_is_decided_once_the_records_are_committed(world: World) -> None:
    world.loaded()
    told: list[KafkaError | None] = []

    def then(failure: KafkaError | None) -> Decision[int]:
        told.append(failure)
        return Decision(records=[number("two", 2)])

    world.hold_back_commits()
    world.put("one", 1, then=then)
    assert told == []
    world.commit()
    assert told == [None]
    assert world.shard.numbers == {"one": 1, "two": 2}


def test_what_is_to_be_done_elsewhere_is_sent_once_the_records_are_committed(world: World) -> None:
    world.loaded()
    world.hold_back_commits()
    waiter = world.put("one", 1, sends=["markers", "more"])
    assert world.sent == []
    waiter.when_done(lambda: world.sent.append((0, "answer")))
    world.commit()
    assert world.sent == [(0, "answer"), (0, "markers"), (0, "more")]


def test_nothing_is_sent_of_what_was_not_written_or_not_committed(world: World) -> None:
    world.loaded()
    disk = world.simulation.disk("localhost")
    disk.capacity = 0
    full = [world.put("n" * 1500, count, sends=[count]) for count in range(4)]
    assert [each for _, each in world.sent] == [waiter.answer for waiter in full if waiter.failure is None]
    disk.capacity = None
    world.sent.clear()
    world.hold_back_commits()
    world.put("one", 1, sends=["its leadership goes"])
    world.partition.resign(2, 2)
    world.in_loop(lambda: world.coordinator.on_role(world.partition))
    world.commit()
    assert world.sent == []


def test_a_full_disk_refuses_and_changes_nothing(world: World) -> None:
    world.loaded()
    disk = world.simulation.disk("localhost")
    disk.capacity = 0
    long_name = "n" * 1500  # the page that the log ends in takes two of them
    waiters = [world.put(long_name, count) for count in range(4)]
    assert code_of(waiters[3]) == ErrorCode.NOT_COORDINATOR
    written = [waiter.result() for waiter in waiters if waiter.failure is None]
    assert world.shard.numbers == ({long_name: written[-1]} if written else {})
    disk.capacity = None
    assert world.put("one", 3).result() == 3


def test_too_few_replicas_are_told_as_a_coordinator_that_is_not_available(world: World) -> None:
    world.loaded()
    world.partition.become_leader(1, 1, 1, 3)
    log = world.partition.log
    assert log is not None
    log.update_config(log.config.replace(min_insync_replicas=2))
    told: list[KafkaError | None] = []

    def then(failure: KafkaError | None) -> Decision[int]:
        told.append(failure)
        return Decision()

    assert code_of(world.put("one", 1)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.put("one", 1, then=then)
    assert [failure.code for failure in told if failure] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert world.shard.numbers == {}


def test_one_batch_or_none_unless_it_may_be_several(world: World) -> None:
    world.loaded()
    many = [number(f"name-{count}", count) for count in range(200)]
    refused = world.decide(lambda shard, now_ms, waiter: Decision(records=many, reply=1))
    assert code_of(refused) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.shard.numbers == {}
    written = world.decide(lambda shard, now_ms, waiter: Decision(records=many, reply=1, is_atomic=False))
    assert written.result() == 1
    assert len(world.shard.numbers) == 200


def test_a_record_that_cannot_be_applied_is_replayed_not_forgotten(world: World) -> None:
    world.loaded()
    assert code_of(world.put("bad", -1)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.loaded()
    with pytest.raises(KafkaError) as raised:  # nor can it be replayed: the shard stays away
        world.put("one", 1)
    assert raised.value.code == ErrorCode.NOT_COORDINATOR


def test_timers_go_off_in_their_time(world: World) -> None:
    world.loaded()
    start = world.runtime.clock.now_ms()

    def set_timers(shard: Numbers, now_ms: int, waiter: Waiter[int]) -> Decision[int]:
        shard.timers.set("later", now_ms + 5000, "later")
        shard.timers.set("sooner", now_ms + 2000, "sooner")
        return Decision(reply=0)

    world.decide(set_timers)
    world.simulation.advance(1.9)
    assert world.shard.numbers == {}
    world.simulation.advance(10)
    assert [world.shard.numbers[name] - start for name in ("sooner", "later")] == [2000, 5000]


def test_timers_of_what_was_loaded_are_set(world: World) -> None:
    world.loaded()
    world.put("alarm", 3000)
    world.in_loop(world.coordinator.close)
    world.begin(leader_epoch=2)
    world.simulation.advance(10)
    assert "ring" in world.shard.numbers


def test_the_loop_is_not_kept_busy_by_many_timers(world: World) -> None:
    world.loaded()

    def set_timers(shard: Numbers, now_ms: int, waiter: Waiter[int]) -> Decision[int]:
        for count in range(3000):
            shard.timers.set(count, now_ms + 1000, f"t{count}")
        return Decision(reply=0)

    world.decide(set_timers)
    world.simulation.advance(5)
    assert len(world.shard.numbers) == 3000


def test_a_record_of_a_transaction_counts_from_its_marker_on(world: World) -> None:
    world.loaded()
    world.put_in_transaction("one", 1, (9, 0))
    world.put_in_transaction("two", 2, (9, 0))
    assert world.shard.numbers == {}
    assert world.shard.pending == {9: {"one": 1, "two": 2}}
    world.end((9, 0), ControlType.COMMIT)
    world.put_in_transaction("one", 3, (9, 0))
    world.end((9, 0), ControlType.ABORT)
    assert (world.shard.numbers, world.shard.pending) == ({"one": 1, "two": 2}, {})
    world.begin(leader_epoch=2)
    world.loaded()
    assert (world.shard.numbers, world.shard.pending) == ({"one": 1, "two": 2}, {})


def test_what_reads_behind_a_marker_waits_until_that_is_committed(world: World) -> None:
    world.loaded()
    world.put_in_transaction("one", 1, (9, 0))
    world.hold_back_commits()
    world.end((9, 0), ControlType.COMMIT)
    told = world.decide(lambda shard, now_ms, waiter: Decision(reply=dict(shard.numbers)))
    assert not told.is_done
    world.commit()
    assert told.result() == {"one": 1}


def test_records_of_a_transaction_that_nobody_vouches_for_are_not_written(world: World) -> None:
    world.loaded()
    waiter = world.put("one", 1, producer=(9, 0))
    assert waiter.failure is not None and waiter.failure.code is ErrorCode.INVALID_TXN_STATE
    assert world.shard.pending == {}


def test_a_shard_that_is_closed_while_it_loads_stays_closed(world: World) -> None:
    world.in_loop(world.coordinator.close)
    world.loaded()
    assert list(world.coordinator.shards()) == []


def test_waiting_takes_no_task() -> None:
    waiter: Waiter[int] = Waiter()
    done: list[int] = []
    waiter.when_done(lambda: done.append(waiter.result()))
    waiter.give(1)
    waiter.give(2)
    waiter.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert done == [1]
