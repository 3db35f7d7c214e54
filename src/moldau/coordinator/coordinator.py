"""Runs the machines of one coordinator: one shard for each partition of its topic that this broker leads.

A shard decides; here is what it takes to carry that out. Its records are written to the partition, then
applied, and when they are committed the replies leave. To become the leader is to replay the partition; to
stop being it is to drop the shard. Nothing of a shard is anywhere else.

Everything runs on the loop, so a decision is carried out before the next one is taken: there is nothing to
lock. A shard whose log cannot be replayed does not answer, and says why in the broker's log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from moldau.coordinator.decision import NOTHING, Decision, Waiter
from moldau.coordinator.record import Encodable, Pair, RecordTypes
from moldau.coordinator.timers import Timers
from moldau.log.batch_scan import read_marker
from moldau.log.errors import LogDirError
from moldau.log.producer_state import Verification
from moldau.records.batch import NO_SEQUENCE, iterate_headers
from moldau.records.builder import build_pairs
from moldau.records.compression import Codec
from moldau.records.control import ControlType, EndTxnMarker, build_end_txn_batch
from moldau.records.record import Record, read_records
from moldau.replica.partition import Partition
from moldau.runtime.interfaces import Runtime, Timer
from moldau.wire.codec import ProtocolError
from moldau.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

# While a partition is replayed, and while many timers are due, requests get their turn after this long.
TURN_S = 0.005
# Of what a batch may hold, the part that is left to what is not records: headers, and sizes that grow.
_BATCH_SLACK_BYTES = 1024
# More than what a record has besides its key and its value.
_RECORD_OVERHEAD_BYTES = 30


class Shard(Protocol):
    record_types: RecordTypes
    timers: Timers
    applied_offset: int
    """Where in the log the record is that is being applied."""

    def apply(self, record: Any, producer_id: int) -> None:
        """Never refuses. Takes what its decisions hold, and `CoordinatorRecord`s of a replay. With a producer
        id the record counts from `apply_marker` on, or never."""
        ...

    def apply_marker(self, producer_id: int, *, is_committed: bool) -> None: ...

    def on_loaded(self, now_ms: int) -> Decision[Any]:
        """All that the log holds was applied: timers are to be set, what cannot stay is to be ended."""
        ...

    def on_timer(self, now_ms: int, event: Any) -> Decision[Any]: ...

    def on_unloaded(self) -> Sequence[Waiter[Any]]:
        """The leadership is lost, and with it everything here. Who still waits is told."""
        ...


S = TypeVar("S", bound=Shard)
R = TypeVar("R")
Decide = Callable[[S, int, Waiter[R]], Decision[R]]
"""A shard, the time and the one who asks; raises KafkaError where nothing has happened."""


class _State(Enum):
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()


class _Replica(Generic[S]):
    """A shard and the partition that it is a replay of."""

    __slots__ = ("armed_ms", "leader_epoch", "partition", "shard", "state", "timer", "uncommitted")

    def __init__(self, partition: Partition, shard: S) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.shard = shard
        self.state = _State.LOADING
        # In the order of the log: the offset to be committed, and what happens then.
        self.uncommitted: deque[tuple[int, Decision[Any], Waiter[Any] | None]] = deque()
        self.timer: Timer | None = None
        self.armed_ms = 0  # when `timer` goes off, if there is one


class Coordinator(Generic[S]):
    def __init__(
        self,
        runtime: Runtime,
        topic: str,
        make_shard: Callable[[int], S],
        on_log_dir_failure: Callable[[LogDirError], None],
        *,
        load_buffer_bytes: int,
        codec: Codec = Codec.NONE,
        send: Callable[[Partition, Any], None] | None = None,
    ) -> None:
        self.topic = topic
        self._send = send
        self._runtime = runtime
        self._make_shard = make_shard
        self._on_log_dir_failure = on_log_dir_failure
        self._load_buffer_bytes = load_buffer_bytes
        self._codec = codec
        self._replicas: dict[int, _Replica[S]] = {}

    # ------------------------------------------------------------ what is asked

    def submit(self, index: int, decide: Decide[S, R], verification: Verification | None = None) -> Waiter[R]:
        """Have the shard of a partition decide, and carry it out. Raises KafkaError if it is not here, or if
        `decide` does; then nothing has happened. `verification` lets in the first records of a
        transaction."""
        replica = self._active(index)
        waiter: Waiter[R] = Waiter()
        decision = decide(replica.shard, self._runtime.clock.now_ms(), waiter)
        self._carry_out(replica, decision, waiter, verification)
        self._arm(replica)
        return waiter

    def submit_to_all(self, decide: Callable[[S, int], Decision[Any]]) -> None:
        """For what concerns every shard that is here, such as a deleted topic. Who is still loading learns of
        it in `on_loaded`."""
        for replica in list(self._replicas.values()):
            if replica.state is _State.ACTIVE:
                self._carry_out(replica, decide(replica.shard, self._runtime.clock.now_ms()), None)
                self._arm(replica)

    def end_transaction(
        self, index: int, marker: EndTxnMarker, producer: tuple[int, int], transaction_version: int
    ) -> None:
        """Write the marker to a partition, and let what the transaction wrote there count, or vanish. Raises
        KafkaError if the shard is not here, or if the log refuses the marker."""
        replica = self._active(index)
        partition, shard = replica.partition, replica.shard
        now_ms = self._runtime.clock.now_ms()
        producer_id, producer_epoch = producer
        batch = build_end_txn_batch(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp=now_ms
        )
        appended = partition.append_marker(memoryview(bytearray(batch)), now_ms, transaction_version)
        try:
            shard.apply_marker(producer_id, is_committed=marker.type is ControlType.COMMIT)
        except Exception:
            # Our bug, and as with records: only a replay can tell what the shard should be.
            log.exception("%s: a marker cannot be applied", partition)
            self._reload(replica)
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None
        of_partition = partition.log
        if of_partition is not None and of_partition.high_watermark <= appended.last_offset:
            replica.uncommitted.append((appended.last_offset, NOTHING, None))

    def shards(self) -> Iterator[tuple[int, S]]:
        """Those that answer, to look at."""
        for index, replica in self._replicas.items():
            if replica.state is _State.ACTIVE:
                yield index, replica.shard

    @property
    def is_loading(self) -> bool:
        return any(replica.state is _State.LOADING for replica in self._replicas.values())

    def _active(self, index: int) -> _Replica[S]:
        replica = self._replicas.get(index)
        if replica is None or replica.state is _State.FAILED:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if replica.state is _State.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return replica

    # ------------------------------------------------------------ leadership

    def on_role(self, partition: Partition) -> None:
        """The role or the log of a replica of the topic has changed."""
        replica = self._replicas.get(partition.index)
        is_here = partition.is_leader and partition.log is not None
        if replica is not None and not (is_here and replica.leader_epoch == partition.leader_epoch):
            self._unload(replica)
            replica = None
        if is_here and replica is None:
            replica = _Replica(partition, self._make_shard(partition.index))
            self._replicas[partition.index] = replica
            self._runtime.spawn(self._load(replica), f"load {partition}")

    def on_high_watermark(self, partition: Partition) -> None:
        """More of the partition is committed."""
        replica = self._replicas.get(partition.index)
        if replica is not None:
            self._release(replica)

    def close(self) -> None:
        """Everyone who waits is told to look for another coordinator."""
        for replica in list(self._replicas.values()):
            self._unload(replica)

    def _unload(self, replica: _Replica[S]) -> None:
        del self._replicas[replica.partition.index]
        if replica.timer is not None:
            replica.timer.cancel()
        waiting = [*replica.shard.on_unloaded()]
        for _, decision, waiter in replica.uncommitted:
            waiting += [each for each, _ in decision.answers]
            if waiter is not None:
                waiting.append(waiter)
        replica.uncommitted.clear()
        for waiter in waiting:
            waiter.fail(KafkaError(ErrorCode.NOT_COORDINATOR))

    def _is_here(self, replica: _Replica[S]) -> bool:
        return self._replicas.get(replica.partition.index) is replica

    async def _load(self, replica: _Replica[S]) -> None:
        partition, clock = replica.partition, self._runtime.clock
        begun_at = clock.monotonic()
        try:
            count = await self._replay(replica)
        except Exception as error:
            if self._is_here(replica):
                log.error("%s cannot be replayed, and its coordinator does not answer: %r", partition, error)
                replica.state = _State.FAILED
            return
        if not self._is_here(replica):
            return
        log.info("replayed %d records of %s in %.3f s", count, partition, clock.monotonic() - begun_at)
        replica.state = _State.ACTIVE
        self._carry_out(replica, replica.shard.on_loaded(clock.now_ms()), None)
        self._arm(replica)

    async def _replay(self, replica: _Replica[S]) -> int:
        """Applies the whole log; how many records that were."""
        of_partition, clock, count = replica.partition.log, self._runtime.clock, 0
        assert of_partition is not None
        offset = of_partition.log_start_offset
        turn_ends_at = clock.monotonic() + TURN_S
        while offset < of_partition.high_watermark and self._is_here(replica):
            found = of_partition.read(offset, self._load_buffer_bytes, limit=of_partition.high_watermark)
            data = memoryview(
                await self._runtime.run_blocking(found.file.read_at, found.count, found.position)
            )
            start = offset
            for position, header in iterate_headers(data):
                if header.size > len(data) - position:
                    break
                batch = data[position : position + header.size]
                offset = header.next_offset
                if header.is_control:
                    self._replay_marker(replica.shard, batch, header.producer_id)
                else:
                    producer_id = header.producer_id if header.is_transactional else -1
                    for record in read_records(batch):
                        self._replay_record(replica, record, producer_id)
                        count += 1
                if clock.monotonic() > turn_ends_at:
                    await asyncio.sleep(0)
                    turn_ends_at = clock.monotonic() + TURN_S
            if offset == start:
                raise ProtocolError(f"no whole batch at offset {offset}")
        return count

    def _replay_record(self, replica: _Replica[S], record: Record, producer_id: int) -> None:
        if record.key is None:
            raise ProtocolError(f"the record at {record.offset} of {replica.partition} has no key")
        decoded = replica.shard.record_types.decode(record.key, record.value)
        if decoded is None:
            log.warning("passing over a record of unknown type at %d of %s", record.offset, replica.partition)
        else:
            replica.shard.applied_offset = record.offset
            replica.shard.apply(decoded, producer_id)

    def _replay_marker(self, shard: S, batch: memoryview, producer_id: int) -> None:
        found = read_marker(batch)
        if found is not None:
            shard.apply_marker(producer_id, is_committed=found[0].type is ControlType.COMMIT)

    # ------------------------------------------------------------ carrying out

    def _carry_out(
        self,
        replica: _Replica[S],
        decision: Decision[Any],
        waiter: Waiter[Any] | None,
        verification: Verification | None = None,
    ) -> None:
        offset = -1
        if decision.records:
            try:
                offset = self._write(replica, decision, verification)
            except KafkaError as failure:
                self._refuse(replica, decision, waiter, failure)
                return
        elif replica.uncommitted:
            # The reply may speak of what is not committed yet.
            offset = replica.uncommitted[-1][0]
        of_partition = replica.partition.log
        if offset >= 0 and (of_partition is None or of_partition.high_watermark <= offset):
            replica.uncommitted.append((offset, decision, waiter))
            return
        self._finish(replica, decision, waiter)

    def _finish(self, replica: _Replica[S], decision: Decision[Any], waiter: Waiter[Any] | None) -> None:
        if waiter is not None and decision.reply is not None:
            waiter.give(decision.reply)
        for waiting, answer in decision.answers:
            if isinstance(answer, KafkaError):
                waiting.fail(answer)
            else:
                waiting.give(answer)
        if self._send is not None:
            for each in decision.sends:
                if self._is_here(replica):
                    self._send(replica.partition, each)
        if decision.then is not None and self._is_here(replica):
            self._carry_out(replica, decision.then(None), None)

    def _refuse(
        self,
        replica: _Replica[S],
        decision: Decision[Any],
        waiter: Waiter[Any] | None,
        failure: KafkaError,
    ) -> None:
        """The records are not written, so that nothing of what was decided has happened; or not all of it,
        where it may happen in parts."""
        if isinstance(failure, LogDirError):
            self._on_log_dir_failure(failure)
        told = as_coordinator_tells(failure)
        if decision.then is not None:
            if self._is_here(replica):
                self._carry_out(replica, decision.then(told), waiter)
            return
        if waiter is not None:
            waiter.fail(told)
        for waiting, _ in decision.answers:
            waiting.fail(told)

    def _release(self, replica: _Replica[S]) -> None:
        while replica.uncommitted and self._is_here(replica):
            of_partition = replica.partition.log
            offset, decision, waiter = replica.uncommitted[0]
            if of_partition is None or of_partition.high_watermark <= offset:
                return
            replica.uncommitted.popleft()
            self._finish(replica, decision, waiter)
        if self._is_here(replica):
            self._arm(replica)

    def _write(self, replica: _Replica[S], decision: Decision[Any], verification: Verification | None) -> int:
        """Writes and applies the records; the offset of the last one."""
        partition, shard = replica.partition, replica.shard
        now_ms = self._runtime.clock.now_ms()
        producer_id, producer_epoch = decision.producer
        offset = -1
        for records, pairs in self._batches(replica, decision):
            batch = build_pairs(
                pairs,
                now_ms,
                codec=self._codec,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                # Without a producer id Kafka's builder leaves 0 here; with one, there is no sequence.
                base_sequence=0 if producer_id < 0 else NO_SEQUENCE,
                is_transactional=producer_id >= 0,
            )
            appended = partition.append_as_coordinator(memoryview(batch), now_ms, verification=verification)
            offset = appended.last_offset
            try:
                for at_offset, record in enumerate(records, appended.base_offset):
                    shard.applied_offset = at_offset
                    shard.apply(record, producer_id)
            except Exception:
                # Our bug. The log holds what the shard does not: only a replay can tell what it should be.
                log.exception("%s: a record cannot be applied", partition)
                self._reload(replica)
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None
        return offset

    def _batches(
        self, replica: _Replica[S], decision: Decision[Any]
    ) -> Sequence[tuple[Sequence[Encodable], Sequence[Pair]]]:
        """What goes into each batch: the records, and their bytes."""
        records = decision.records
        pairs = [record.encode() for record in records]
        if decision.is_atomic or len(pairs) == 1:
            return ((records, pairs),)
        of_partition = replica.partition.log
        room = _BATCH_SLACK_BYTES
        if of_partition is not None:
            room = max(room, of_partition.config.max_message_bytes - _BATCH_SLACK_BYTES)
        batches = []
        start = batch_bytes = 0
        for end, (key, value) in enumerate(pairs):
            size = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
            if end > start and batch_bytes + size > room:
                batches.append((records[start:end], pairs[start:end]))
                start, batch_bytes = end, 0
            batch_bytes += size
        batches.append((records[start:], pairs[start:]))
        return batches

    def _reload(self, replica: _Replica[S]) -> None:
        if self._is_here(replica):
            self._unload(replica)
            self.on_role(replica.partition)

    # ------------------------------------------------------------ timers

    def _arm(self, replica: _Replica[S]) -> None:
        next_ms = replica.shard.timers.next_ms()
        if next_ms is None or (replica.timer is not None and replica.armed_ms <= next_ms):
            return
        if not self._is_here(replica):
            return
        if replica.timer is not None:
            replica.timer.cancel()
        wait_ms = max(0, next_ms - self._runtime.clock.now_ms())
        replica.armed_ms = next_ms
        replica.timer = self._runtime.call_later(wait_ms / 1000, partial(self._on_timer, replica))

    def _on_timer(self, replica: _Replica[S]) -> None:
        replica.timer = None
        clock = self._runtime.clock
        turn_ends_at = clock.monotonic() + TURN_S
        while self._is_here(replica) and clock.monotonic() <= turn_ends_at:
            now_ms = clock.now_ms()
            event = replica.shard.timers.take_due(now_ms)
            if event is None:
                break
            try:
                self._carry_out(replica, replica.shard.on_timer(now_ms, event), None)
            except Exception:
                # Our bug; the other timers of this shard are to go off all the same.
                log.exception("%s: %r failed", replica.partition, event)
        self._arm(replica)


def as_coordinator_tells(failure: KafkaError) -> KafkaError:
    """An error of the log, as Kafka's coordinators tell it to clients that know nothing of their log."""
    match failure.code:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, failure.message)
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return KafkaError(ErrorCode.NOT_COORDINATOR, failure.message)
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, failure.message)
    return failure
