"""Truncation, deletion of records, retention."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_samples import LOG_DIR, NOW_MS, append, batch, config, headers_from, open_log

from moldau.log.errors import DiskFullError
from moldau.log.names import offset_of
from moldau.sim.files import SimFileSystem
from moldau.wire.errors import ErrorCode, KafkaError


def filled(files, count=10, settings=None):
    log = open_log(files, settings or config(segment_bytes=3 * len(batch(2)), index_interval_bytes=0))
    for number in range(count):
        append(log, batch(2, producer_id=1, producer_epoch=0, sequence=number * 2), leader_epoch=number // 4)
    log.advance_high_watermark(log.log_end_offset)
    return log


@given(st.integers(0, 21))
def test_truncation_at_any_offset(offset):
    log = filled(SimFileSystem())
    assert log.truncate_to(offset, NOW_MS) == (offset < 20)
    kept = list(headers_from(log))
    assert [header.base_offset for header in kept] == [base for base in range(0, 20, 2) if base + 1 < offset]
    assert log.log_end_offset == min(offset, 20)
    assert log.high_watermark == min(offset, 20)
    assert all(start < offset for _, start in log.leader_epochs.entries())
    sequences = log.producers.producers
    assert (sequences[1].next_sequence if sequences else 0) == len(kept) * 2
    result = append(log, batch(), leader_epoch=9)
    assert result.base_offset == min(offset, 20)
    assert [header.base_offset for header in headers_from(log)][-1] == min(offset, 20)


def test_a_truncated_log_is_the_same_after_a_crash():
    files = SimFileSystem()
    log = filled(files)
    log.truncate_to(10, NOW_MS)
    append(log, batch(3, timestamp=NOW_MS + 99), leader_epoch=8)
    before = list(headers_from(log))
    assert list(headers_from(open_log(files))) == before


def test_starting_anew_somewhere_else(files):
    log = filled(files)
    log.truncate_fully_and_start_at(100, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert append(log).base_offset == 100
    numbered = {offset_of(name) for name in files.list_dir(f"{LOG_DIR}/topic-0")} - {None}
    assert numbered == {100}


def test_starting_anew_forgets_the_epochs(files):
    """Those of batches that are gone would tell a follower that it agrees with them."""
    log = filled(files)
    log.truncate_fully_and_start_at(100, NOW_MS)
    assert log.leader_epochs.entries() == []
    append(log, leader_epoch=7)
    assert log.leader_epochs.entries() == [(7, 100)]


def test_no_room_to_start_anew_changes_nothing(files):
    log = filled(files)
    before = list(headers_from(log))
    files.faults.fail_next(errno.ENOSPC, operation="create")
    with pytest.raises(DiskFullError):
        log.truncate_fully_and_start_at(100, NOW_MS)
    assert list(headers_from(log)) == before
    assert append(log).base_offset == 20
    log.truncate_fully_and_start_at(log.active_segment_base_offset, NOW_MS)
    assert (log.segment_count, log.size_bytes) == (1, 0)
    assert append(log).base_offset == log.log_start_offset


def test_a_truncation_below_the_start_takes_the_start_along(files):
    log = filled(files)
    log.delete_records_before(15)
    log.truncate_to(13, NOW_MS)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (13, 13, 13)
    assert append(log).base_offset == 13


def test_delete_records_moves_the_start(files):
    log = filled(files)
    assert log.delete_records_before(7) == 7
    assert log.delete_records_before(3) == 7
    assert log.leader_epochs.entries() == [(0, 7), (1, 8), (2, 16)]
    with pytest.raises(KafkaError) as caught:
        log.delete_records_before(21)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records_before(-1) == 20


def test_segments_below_the_start_go_after_the_delay(files):
    log = filled(
        files, settings=config(segment_bytes=3 * len(batch(2)), retention_ms=-1, file_delete_delay_ms=100)
    )
    log.delete_records_before(13)
    before = log.size_bytes
    assert log.apply_retention(NOW_MS) == before - log.size_bytes > 0
    assert log.first_segment_base_offset == 12
    names = files.list_dir(f"{LOG_DIR}/topic-0")
    assert f"{0:020d}.log.deleted" in names
    assert f"{6:020d}.snapshot.deleted" in names
    assert log.take_deletions(NOW_MS + 99) == []
    names = files.list_dir(f"{LOG_DIR}/topic-0")
    due = log.take_deletions(NOW_MS + 100)
    assert sorted(due) == [f"{LOG_DIR}/topic-0/{name}" for name in names if ".deleted" in name]
    assert log.take_deletions(NOW_MS + 100) == []


def test_retention_makes_room_on_a_full_disk(files):
    log = filled(
        files, settings=config(segment_bytes=3 * len(batch(2)), retention_ms=1, file_delete_delay_ms=100)
    )
    log.roll(NOW_MS)
    files.faults.fail_next(errno.ENOSPC, operation="write", times=1_000_000)
    assert log.apply_retention(NOW_MS + 10_000) > 0
    assert (log.log_start_offset, log.size_bytes) == (20, 0)
    assert log.leader_epochs.entries() == [(2, 20)]
    files.faults.stop_failing()
    again = open_log(files, log_start_offset=20)
    assert again.leader_epochs.entries() == []  # there is no batch of it, nor was there one to sync


def test_retention_by_time_and_size(files):
    size = len(batch(2))
    log = filled(
        files, settings=config(segment_bytes=3 * size, retention_bytes=5 * size, retention_ms=10_000)
    )
    log.apply_retention(NOW_MS)
    assert (log.log_start_offset, log.segment_count) == (6, 3)
    log.apply_retention(NOW_MS + 10_002)
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (20, 20, 1)
    assert append(log).base_offset == 20


def test_retention_stops_at_the_high_watermark(files):
    settings = config(segment_bytes=3 * len(batch(2)), retention_ms=0)
    log = open_log(files, settings)
    for _ in range(10):
        append(log, batch(2))
    log.advance_high_watermark(7)
    log.apply_retention(NOW_MS + 10_000)
    assert log.log_start_offset == 6


def test_a_compacted_log_is_not_cut_by_age(files):
    log = filled(files, settings=config(cleanup_policy=("compact",), segment_bytes=500, retention_ms=0))
    assert log.apply_retention(NOW_MS + 10_000) == 0


def test_the_start_offset_survives(files):
    log = filled(files)
    log.delete_records_before(7)
    log.close()
    again = open_log(files, log_start_offset=7, had_clean_shutdown=True)
    assert again.log_start_offset == 7
    assert next(headers_from(again, 7)).base_offset == 6


def test_a_start_offset_beyond_the_files_means_they_are_lost(files):
    filled(files).close()
    log = open_log(files, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (50, 50, 0)
    assert append(log).base_offset == 50


def test_the_epochs_of_deleted_records_are_forgotten_on_disk_too(files):
    """Another broker would tell consumers that the first offset is of an epoch that ended before."""
    log = filled(files)
    log.flush(NOW_MS)
    log.delete_records_before(18)
    log.close()
    path = f"{LOG_DIR}/topic-0/leader-epoch-checkpoint"
    assert files.read_bytes(path) == b"0\n1\n2 18\n"
    trace = files.faults.record()
    open_log(files, log_start_offset=18, had_clean_shutdown=True).close()
    assert not any(operation.name in ("write", "sync", "truncate", "rename") for operation in trace)
