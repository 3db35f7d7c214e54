"""The power is cut at every file operation of a cleaning: what is left is always a log that Kafka could
have."""

from __future__ import annotations

import errno
from random import Random

import pytest
from cleaner_harness import clean_log
from log_samples import LOG_DIR, NOW_MS, config, open_log
from test_cleaning import (
    DAY_MS,
    all_records,
    check_indexes,
    committed,
    compacted,
    end_transaction,
    finish,
    put,
)

from moldau.log.log import Log
from moldau.records.control import ControlType
from moldau.sim.cuts import every_power_cut
from moldau.sim.files import SimFileSystem

SETTINGS = compacted(segment_bytes=500)


def fill(log: Log) -> None:
    """Updates, tombstones whose time is over, a committed transaction and an aborted one, over some
    segments."""
    random = Random(3)
    for number in range(12):
        put(log, (b"k%d" % random.randrange(4), b"%d" % number), (b"gone", b"value"))
    put(
        log,
        (b"k0", b"aborted"),
        (b"gone", b"aborted"),
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    end_transaction(log, ControlType.ABORT, 1)
    put(log, (b"gone", None))
    put(log, (b"k1", b"committed"), producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, ControlType.COMMIT, 2)
    put(log, (b"k2", b"last"))
    finish(log)


def prepare(files: SimFileSystem) -> None:
    files.make_dirs(LOG_DIR)
    log = open_log(files, SETTINGS)
    fill(log)
    log.flush(NOW_MS)
    # The tombstone gets its horizon, and is to go the next time.
    clean_log(files, log)
    put(log, (b"k3", b"more"), (b"k0", b"more"))
    put(log, (b"k3", b"newest"))
    finish(log)
    put(log, (b"k1", b"active"))
    log.close()
    for path in log.take_deletions(NOW_MS + DAY_MS):
        files.remove(path)
    for path in ("/", LOG_DIR, log.directory):
        files.sync_dir(path)


def reopened(files: SimFileSystem, *, had_clean_shutdown: bool = False) -> Log:
    log = open_log(files, SETTINGS, recovery_point=20, had_clean_shutdown=had_clean_shutdown)
    log.advance_high_watermark(log.log_end_offset)
    return log


def visible(log: Log) -> dict[bytes | None, tuple[int, bytes]]:
    """What whoever reads the log takes for the state of its keys."""
    state = {key: (offset, value) for offset, key, value in committed(log)}
    return {key: found for key, found in state.items() if found[1] is not None}


def later(files: SimFileSystem) -> None:
    log = reopened(files, had_clean_shutdown=True)
    clean_log(files, log, now_ms=NOW_MS + 2 * DAY_MS)
    for path in log.take_deletions(NOW_MS + 3 * DAY_MS):
        files.remove(path)


def test_a_power_cut_at_every_operation_leaves_a_log_that_kafka_could_have() -> None:
    files = SimFileSystem()
    prepare(files)
    before = reopened(files, had_clean_shutdown=True)
    state, records, end_offset = visible(before), all_records(before), before.log_end_offset
    later(files)
    cleaned = all_records(reopened(files))
    assert len(cleaned) < len(records)
    assert b"gone" not in state
    seen = set()

    def check(files: SimFileSystem) -> None:
        log = reopened(files)
        assert log.log_end_offset == end_offset
        assert visible(log) == state
        left = all_records(log)
        assert [offset for offset, _, _ in left] == sorted({offset for offset, _, _ in left})
        assert set(cleaned) <= set(left) <= set(records)
        for segment in log.segments.all:
            check_indexes(segment)
        names = files.list_dir(log.directory)
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        seen.add(tuple(left))
        # It can be cleaned again, to the same end.
        clean_log(files, log, now_ms=NOW_MS + 2 * DAY_MS)
        assert all_records(log) == cleaned
        put(log, (b"k9", b"new"))
        assert open_log(files, SETTINGS).log_end_offset == end_offset + 1

    operations = every_power_cut(later, check, prepare=prepare)
    assert operations > 20
    assert len(seen) > 2  # some of the segments were replaced, and others not


def test_the_end_of_a_producer_is_remembered_by_what_is_left() -> None:
    files = SimFileSystem()
    prepare(files)
    later(files)
    for name in files.list_dir(f"{LOG_DIR}/topic-0"):
        if name.endswith(".snapshot"):
            files.remove(f"{LOG_DIR}/topic-0/{name}")
    producers = open_log(files, SETTINGS).producers.producers
    assert {number: entry.last_sequence for number, entry in producers.items()} == {1: 1, 2: 0}


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_an_operation_that_fails_leaves_the_log_as_it_was_or_cleaned(error: int) -> None:
    files = SimFileSystem()
    prepare(files)
    first = files.faults.count + 1
    later(files)
    last = files.faults.count
    for count in range(last - first + 1):
        files = SimFileSystem()
        prepare(files)
        state = visible(reopened(files, had_clean_shutdown=True))
        files.faults.fail_at(files.faults.count + 1 + count, error)
        try:
            later(files)
        except Exception as failure:
            assert "log directory" in str(failure) or isinstance(failure, OSError)
        files.faults.stop_failing()
        assert visible(reopened(files)) == state


def test_a_log_that_is_no_longer_compacted_has_no_holes_for_a_recovery() -> None:
    """With cleanup.policy=delete a missing segment counts as lost, but not what a cleaning took away."""
    files = SimFileSystem()
    prepare(files)
    later(files)
    end_offset = reopened(files).log_end_offset
    log = open_log(files, config(segment_bytes=500), recovery_point=end_offset - 1)
    assert log.log_end_offset == end_offset
