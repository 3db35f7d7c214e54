"""Transactions of one log: what readers of what is committed see, and what is left of it after crashes and
truncations. The model knows batches and markers only."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import pytest
from log_samples import LOG_DIR, NOW_MS, append, batch, config, headers_from, open_log

from moldau.log.log import AppendOrigin, Log
from moldau.log.open_files import OpenFiles
from moldau.log.producer_snapshot import decode_snapshot
from moldau.log.producer_state import ProducerEntry
from moldau.records.control import ControlType, EndTxnMarker, build_end_txn_batch
from moldau.sim.cuts import every_power_cut
from moldau.sim.files import SimFileSystem
from moldau.wire.errors import KafkaError

SMALL = config(segment_bytes=700, flush_messages=2**62)
PRODUCERS = 3


class Step(NamedTuple):
    """A batch of a transaction, plain records of nobody (producer -1), or a marker."""

    producer: int
    count: int = 1
    end: ControlType | None = None


class Told(NamedTuple):
    last_stable_offset: int
    open: dict[int, int]
    """First offsets by producer."""
    aborted: list[tuple[int, int, int]]
    """Producer, first offset and marker, in the order of markers."""
    committed: set[int]
    """Offsets of records that a reader of what is committed gets."""


def any_steps(seed: int, count: int) -> list[Step]:
    random = Random(seed)
    steps = []
    for _ in range(count):
        producer = random.randrange(-1, PRODUCERS)
        if producer >= 0 and random.random() < 0.4:
            steps.append(Step(producer, 1, random.choice((ControlType.COMMIT, ControlType.ABORT))))
        else:
            steps.append(Step(producer, random.randint(1, 3)))
    return steps


def write(log: Log, steps: Sequence[Step], sequences: dict[int, int]) -> None:
    for step in steps:
        if step.end is not None:
            write_marker(log, step.producer, step.end)
        elif step.producer < 0:
            append(log, batch(step.count))
        else:
            sequence = sequences.get(step.producer, 0)
            sequences[step.producer] = sequence + step.count
            append(
                log,
                batch(
                    step.count,
                    producer_id=step.producer,
                    producer_epoch=0,
                    sequence=sequence,
                    is_transactional=True,
                ),
            )
        log.advance_high_watermark(log.log_end_offset)


def write_marker(log: Log, producer: int, end: ControlType) -> None:
    ending = build_end_txn_batch(
        EndTxnMarker(end, 0), producer_id=producer, producer_epoch=0, timestamp=NOW_MS
    )
    log.append_as_leader(memoryview(bytearray(ending)), 0, NOW_MS, origin=AppendOrigin.COORDINATOR)


def model(steps: Sequence[Step], end_offset: int) -> Told:
    """Of the steps that end at or below the offset; one has to end there."""
    offset = 0
    open_at: dict[int, int] = {}
    records: dict[int, list[int]] = {}
    committed: set[int] = set()
    aborted: list[tuple[int, int, int]] = []
    for step in steps:
        if offset == end_offset:
            break
        if step.end is not None:
            first = open_at.pop(step.producer, None)
            mine = records.pop(step.producer, [])
            if first is not None and step.end is ControlType.ABORT:
                aborted.append((step.producer, first, offset))
            else:
                committed.update(mine)
        elif step.producer < 0:
            committed.update(range(offset, offset + step.count))
        else:
            open_at.setdefault(step.producer, offset)
            records.setdefault(step.producer, []).extend(range(offset, offset + step.count))
        offset += step.count
    assert offset == end_offset, "the log ends inside a batch"
    stable = min(open_at.values(), default=end_offset)
    return Told(stable, open_at, aborted, {each for each in committed if each < stable})


def told(log: Log) -> Told:
    """The same of a log, as a fetch of what is committed tells it to a client."""
    log.advance_high_watermark(log.log_end_offset)
    stable = log.last_stable_offset
    found = log.aborted_transactions(0, log.log_end_offset)
    aborted = [(each.producer_id, each.first_offset, each.last_offset) for each in found]
    waiting = sorted((first, producer) for producer, first, _ in aborted)
    skipped: set[int] = set()
    committed: set[int] = set()
    for header in headers_from(log):
        if header.base_offset >= stable:
            break
        while waiting and waiting[0][0] <= header.base_offset:
            skipped.add(waiting.pop(0)[1])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif header.producer_id not in skipped:
            committed.update(range(header.base_offset, header.next_offset))
    return Told(stable, open_in(log.producers.producers), aborted, committed)


def open_in(producers: dict[int, ProducerEntry]) -> dict[int, int]:
    return {id: entry.txn_first_offset for id, entry in producers.items() if entry.txn_first_offset >= 0}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_told_is_what_was_written(files: SimFileSystem, seed: int) -> None:
    steps = any_steps(seed, 40)
    log = open_log(files, SMALL)
    sequences: dict[int, int] = {}
    for number, step in enumerate(steps):
        write(log, [step], sequences)
        assert told(log) == model(steps[: number + 1], log.log_end_offset)
    for offset in range(log.log_end_offset):
        for end in range(offset, log.log_end_offset + 1):
            mentioned = {
                (each.first_offset, each.last_offset) for each in log.aborted_transactions(offset, end)
            }
            assert mentioned >= {
                (first, last)
                for _, first, last in model(steps, log.log_end_offset).aborted
                if first < end and last >= offset
            }


@pytest.mark.parametrize("seed", range(4))
def test_after_any_power_cut_the_log_is_one_that_was(seed: int) -> None:
    """Segments roll, snapshots and transaction indexes are written, some of it is synced."""
    steps = any_steps(seed, 14)
    flushed: list[int] = []

    def scenario(files: SimFileSystem) -> None:
        flushed.clear()
        log, sequences = open_log(files, SMALL), {}
        for number in range(0, len(steps), 5):
            write(log, steps[number : number + 5], sequences)
            log.flush(NOW_MS)
            flushed.append(log.log_end_offset)
        log.close()

    def check(files: SimFileSystem) -> None:
        recovered = open_log(files, SMALL)
        assert recovered.log_end_offset >= (flushed[-1] if flushed else 0)
        assert told(recovered) == model(steps, recovered.log_end_offset)
        # It goes on: markers for what is open, and all of it is decided.
        for producer in list(told(recovered).open):
            write_marker(recovered, producer, ControlType.ABORT)
        recovered.advance_high_watermark(recovered.log_end_offset)
        assert recovered.last_stable_offset == recovered.log_end_offset

    def prepare(files: SimFileSystem) -> None:
        files.make_dirs(LOG_DIR)
        files.sync_dir("/")

    every_power_cut(scenario, check, prepare=prepare, seeds=range(2))


@pytest.mark.parametrize("seed", range(10))
def test_what_is_truncated_was_never_there(files: SimFileSystem, seed: int) -> None:
    """Markers, too: a transaction whose marker is gone is open again."""
    steps = any_steps(seed, 30)
    log = open_log(files, SMALL)
    write(log, steps, {})
    ends = [header.next_offset for header in headers_from(log)]
    for offset in sorted(Random(seed).sample(ends, 5), reverse=True):
        log.truncate_to(offset, NOW_MS)
        log.advance_high_watermark(offset)
        assert told(log) == model(steps, offset)


@pytest.mark.parametrize("seed", range(5))
def test_a_snapshot_says_what_is_open(files: SimFileSystem, seed: int) -> None:
    steps = any_steps(seed, 30)
    log = open_log(files, SMALL)
    write(log, steps, {})
    names = [name for name in files.list_dir(f"{LOG_DIR}/topic-0") if name.endswith(".snapshot")]
    assert names
    for name in names:
        offset = int(name.removesuffix(".snapshot"))
        producers = decode_snapshot(files.read_bytes(f"{LOG_DIR}/topic-0/{name}"), name)
        still_open = {
            id: each.txn_first_offset for id, each in producers.items() if each.txn_first_offset >= 0
        }
        assert still_open == model(steps, offset).open


def test_producers_with_open_transactions_do_not_expire(files: SimFileSystem) -> None:
    log = open_log(files)
    write(log, [Step(0), Step(1), Step(1, 1, ControlType.COMMIT)], {})
    log.expire_producers(NOW_MS + 100_000, 50_000)
    assert list(log.producers.producers) == [0]
    log.close()
    again = open_log(files, had_clean_shutdown=True, recovery_point=3, open_files=OpenFiles())
    assert told(again) == Told(0, {0: 0}, [], set())


def test_questions_that_were_never_answered_are_forgotten(files: SimFileSystem) -> None:
    log = open_log(files)
    producers = log.producers
    old = producers.begin_verification(0, 0, 0, NOW_MS, supports_epoch_bump=False)
    log.expire_producers(NOW_MS + 100_000, 50_000)
    new = producers.begin_verification(0, 0, 0, NOW_MS, supports_epoch_bump=False)
    assert new is not None and old is not new
    records = batch(producer_id=0, producer_epoch=0, sequence=0, is_transactional=True)
    with pytest.raises(KafkaError):
        log.append_as_leader(records, 0, NOW_MS, verification=old)
    log.append_as_leader(records, 0, NOW_MS, verification=new)
    assert producers.verifications == {}
