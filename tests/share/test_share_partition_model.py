"""A share partition against what an obvious one would do: a dictionary with an entry for each record.

Members fetch, acknowledge, go, and are too slow; writes fail; the leader starts again with what was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from moldau.share.batches import StateBatch, combined
from moldau.share.partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Change,
    Limits,
    SharePartition,
    Write,
)
from moldau.wire.errors import KafkaError
from tests.share.share_samples import header

AVAILABLE, ACQUIRED, DONE = "available", "acquired", "done"
MEMBERS = "abc"


@dataclass
class Record:
    state: str = AVAILABLE
    count: int = 0
    owner: str = ""
    deadline_ms: int = 0


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.limits = Limits(
            lock_duration_ms=100,
            delivery_count_limit=self.random.choice([2, 5]),
            record_locks_max=self.random.choice([20, 1000]),
        )
        self.now_ms = 0
        self.batches: list[tuple[int, int]] = []
        end = 0
        for _ in range(12):
            first = end + (self.random.random() < 0.2) * self.random.randint(1, 3)  # compaction leaves holes
            end = first + self.random.randint(1, 8)
            self.batches.append((first, end - 1))
        self.end = end
        self.records = {offset: Record() for first, last in self.batches for offset in range(first, last + 1)}
        self.written = Write(0, 0, [])
        self.partition = self.loaded()

    def loaded(self) -> SharePartition:
        return SharePartition(
            start_offset=self.written.start_offset,
            state_epoch=0,
            leader_epoch=0,
            batches=self.written.batches,
        )

    # ------------------------------------------------------------ what happens

    def step(self) -> None:
        member = self.random.choice(MEMBERS)
        roll = self.random.random()
        if roll < 0.4:
            self.fetch(member)
        elif roll < 0.75:
            self.acknowledge(member)
        elif roll < 0.85:
            self.release(member)
        elif roll < 0.97:
            self.now_ms += self.random.randint(1, 60)
            self.expire()
        else:
            self.restart()
        self.check()

    def fetch(self, member: str) -> None:
        offset = self.partition.next_fetch_offset
        if not self.partition.can_acquire(self.limits):
            return
        headers = [header(first, last) for first, last in self.batches if last >= offset]
        headers = headers[: self.random.randint(1, 4)]
        records_max = self.random.randint(1, 12)
        is_exact = self.random.random() < 0.5
        got = self.partition.acquire(
            self.now_ms,
            member,
            offset,
            headers,
            self.limits,
            records_max=records_max,
            batch_size=self.random.randint(1, 10),
            is_record_limit=is_exact,
        )
        offsets = [each for run in got for each in range(run.first, run.last + 1)]
        assert len(set(offsets)) == len(offsets)
        assert not is_exact or len(offsets) <= records_max
        counts = {each: run.delivery_count for run in got for each in range(run.first, run.last + 1)}
        for each in offsets:
            record = self.records.get(each)
            if record is not None:
                assert record.state == AVAILABLE
                record.state, record.owner = ACQUIRED, member
                record.count += 1
                record.deadline_ms = self.now_ms + self.limits.lock_duration_ms
                assert record.count == counts[each] <= self.limits.delivery_count_limit
        if headers and headers[0].base_offset <= offset:
            assert got

    def acknowledge(self, member: str) -> None:
        owned = sorted(each for each, record in self.records.items() if record.owner == member)
        if not owned:
            return
        first = self.random.choice(owned)
        last = self.random.choice([each for each in owned if each >= first])
        types = [
            self.random.choice([ACCEPT, ACCEPT, RELEASE, REJECT, RENEW])
            if each in self.records
            else self.random.choice([GAP, ACCEPT])
            for each in range(first, last + 1)
        ]
        if self.random.random() < 0.5:
            types = [types[0]]
        acknowledgement = Acknowledgement(first, last, types)
        try:
            change = self.partition.acknowledge(self.now_ms, member, [acknowledgement], self.limits)
        except KafkaError:
            # Something in between is not its own, or no record; locks before that may have been renewed.
            assert set(range(max(first, self.partition.start_offset), last + 1)) - set(owned)
            self.renew(member, first, last, types)
            return
        is_written = self.random.random() < 0.8
        for index, each in enumerate(range(first, last + 1)):
            record = self.records.get(each)
            if record is None or each < self.partition.start_offset:
                continue
            assert record.owner == member
            kind = types[min(index, len(types) - 1)]
            if kind == RENEW:
                record.deadline_ms = self.now_ms + self.limits.lock_duration_ms
            elif is_written:
                self.finish(record, is_done=kind != RELEASE)
        self.complete(change, is_written)

    def renew(self, member: str, first: int, last: int, types: list[int]) -> None:
        for run in self.partition.in_flight:
            for each in range(run.first, run.last + 1):
                record = self.records.get(each)
                if record is not None and record.owner == member and run.deadline_ms:
                    record.deadline_ms = run.deadline_ms

    def release(self, member: str) -> None:
        change = self.partition.release(member, self.limits)
        is_written = self.random.random() < 0.8
        for record in self.records.values():
            if record.owner == member and is_written:
                self.finish(record, is_done=False)
        self.complete(change, is_written)

    def complete(self, change: Change, is_written: bool) -> None:
        if change.batches:
            write = self.partition.to_write(change.batches)
            if is_written:
                self.persist(write)
        self.partition.complete(change, self.now_ms, self.limits, is_written=is_written)

    def persist(self, write: Write) -> None:
        start = write.start_offset
        self.written = Write(
            start, write.delivery_complete_count, combined(self.written.batches, write.batches, start)
        )

    def expire(self) -> None:
        for record in self.records.values():
            if record.state == ACQUIRED and record.deadline_ms <= self.now_ms:
                self.finish(record, is_done=False)
        next_ms = self.partition.next_deadline_ms
        if next_ms is not None and next_ms <= self.now_ms:
            write = self.partition.expire(self.now_ms, self.limits)
            if write is not None:
                self.persist(write)

    def finish(self, record: Record, *, is_done: bool) -> None:
        is_done = is_done or record.count >= self.limits.delivery_count_limit
        record.state, record.owner = DONE if is_done else AVAILABLE, ""

    def restart(self) -> None:
        self.partition = self.loaded()
        states = {
            each: batch for batch in self.written.batches for each in range(batch.first, batch.last + 1)
        }
        for each, record in self.records.items():
            known = states.get(each)
            if each < self.partition.start_offset or (known is not None and known.state != 0):
                assert record.state == DONE
            else:
                record.state, record.owner = AVAILABLE, ""
                record.count = 0 if known is None else known.delivery_count

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        partition = self.partition
        seen: dict[int, tuple[str, str, int]] = {}
        last = partition.start_offset - 1
        for run in partition.in_flight:
            assert run.first > last and run.last >= run.first
            last = run.last
            assert run.transition is None
            state = DONE if run.is_done else run.state.name.lower()
            for each in range(run.first, run.last + 1):
                seen[each] = state, run.member_id, run.delivery_count
        for each, record in self.records.items():
            if each < partition.start_offset:
                assert record.state == DONE, each
            elif each in seen:
                state, owner, count = seen[each]
                assert (state, owner) == (record.state, record.owner), each
                assert state == DONE or count == record.count, each
            else:
                assert (record.state, record.count) == (AVAILABLE, 0), each
        available = [
            each
            for each, record in self.records.items()
            if each >= partition.start_offset and record.state == AVAILABLE
        ]
        # Behind records there may be offsets without any, of which nobody has been told yet.
        assert partition.next_fetch_offset <= min(available, default=self.end)


@pytest.mark.parametrize("seed", range(60))
def test_no_record_is_two_members_and_none_is_lost(seed: int) -> None:
    world = World(seed)
    world.check()
    for _ in range(300):
        world.step()
    # Whatever happened, members that do their work come to the end.
    for _ in range(2000):
        if world.partition.next_fetch_offset >= world.end and not world.partition.in_flight:
            break
        world.now_ms += 20
        world.expire()
        for member in MEMBERS:
            world.fetch(member)
            owned = sorted(each for each, record in world.records.items() if record.owner == member)
            for each in owned:
                change = world.partition.acknowledge(
                    world.now_ms, member, [Acknowledgement(each, each, [ACCEPT])], world.limits
                )
                world.finish(world.records[each], is_done=True)
                world.complete(change, True)
    assert all(record.state == DONE for record in world.records.values())
    assert world.partition.start_offset == world.end
    assert world.loaded().start_offset <= world.end


def test_what_was_written_is_what_comes_back() -> None:
    for seed in range(20):
        world = World(seed)
        for _ in range(200):
            world.step()
            again = world.loaded()
            kept = [StateBatch(run.first, run.last, run.state, run.delivery_count) for run in again.in_flight]
            assert all(batch in kept or batch.last < again.start_offset or _is_joined(batch, kept)
                       for batch in world.written.batches)  # fmt: skip


def _is_joined(batch: StateBatch, kept: list[StateBatch]) -> bool:
    return any(each.first <= batch.first and batch.last <= each.last for each in kept) or not kept
