"""Reading against a list of batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_samples import LOG_DIR, NOW_MS, append, batch, config, open_log

from moldau.records.batch import iterate_headers
from moldau.sim.files import SimFileSystem
from moldau.wire.errors import ErrorCode, KafkaError

SHAPES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 400)), min_size=1, max_size=40)


def filled(shapes, **options):
    files = SimFileSystem()
    files.make_dirs(LOG_DIR)
    settings = {"segment_bytes": 1500, "index_interval_bytes": 300, "max_message_bytes": 1 << 20} | options
    log = open_log(files, config(**settings))
    spans = []
    for count, size in shapes:
        records = batch(count, size=size // count)
        if len(records) > 1500:
            continue
        result = append(log, records)
        spans.append((result.base_offset, result.last_offset, len(records)))
    return log, spans


def bases(found):
    data = found.file.read_at(found.count, found.position)
    assert len(data) == found.count
    return [header.base_offset for _, header in iterate_headers(data)]


@given(SHAPES, st.data())
def test_any_offset_any_limit(shapes, data):
    log, spans = filled(shapes)
    end = log.log_end_offset
    for _ in range(5):
        offset = data.draw(st.integers(0, end))
        limit = data.draw(st.integers(0, end))
        found = log.read(offset, 1 << 20, limit=limit)
        expected = [base for base, last, _ in spans if offset <= last < limit] if offset < limit else []
        # One read stays in one segment.
        got = bases(found)
        assert got == expected[: len(got)]
        assert bool(got) == bool(expected)


@given(SHAPES, st.integers(1, 3000), st.booleans())
def test_reading_on_and_on_gives_every_batch(shapes, max_bytes, forgetful):
    log, spans = filled(shapes)
    offset, got = 0, []
    while offset < log.log_end_offset:
        if forgetful:
            log._segments.positions.clear()
        found = log.read(offset, max_bytes, limit=log.log_end_offset)
        whole = bases(found)
        assert whole, "the first batch comes whole"
        assert found.count <= max_bytes or whole == list(whole)[:1]
        got += whole
        offset = next(last for base, last, _ in spans if base == whole[-1]) + 1
    assert got == [base for base, _, _ in spans]


@given(SHAPES, st.data())
def test_without_the_first_batch_guaranteed(shapes, data):
    log, spans = filled(shapes)
    base, _, size = data.draw(st.sampled_from(spans))
    assert log.read(base, size - 1, limit=log.log_end_offset, min_one_batch=False).count == 0
    assert bases(log.read(base, size, limit=log.log_end_offset, min_one_batch=False)) == [base]


def test_an_offset_inside_a_batch_returns_that_batch(files):
    log = open_log(files)
    append(log, batch(10))
    append(log, batch(10))
    assert bases(log.read(15, 1 << 20, limit=20)) == [10]


def test_a_limit_inside_a_batch_excludes_it(files):
    log = open_log(files)
    append(log, batch(10))
    append(log, batch(10))
    assert bases(log.read(0, 1 << 20, limit=15)) == [0]
    assert log.read(12, 1 << 20, limit=15).count == 0


@pytest.mark.parametrize("offset", [-1, 1, 6])
def test_offsets_out_of_range(files, offset):
    log = open_log(files)
    for _ in range(5):
        append(log)
    log.advance_high_watermark(5)
    log.delete_records_before(2)
    with pytest.raises(KafkaError) as caught:
        log.read(offset, 100, limit=5)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(5, 100, limit=5).count == 0


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 4)), min_size=1, max_size=30),
    st.integers(-5, 60),
    st.integers(0, 60),
)
def test_offsets_for_timestamps_are_a_linear_scan(shapes, target, start):
    """Records below the start are deleted, although their segments are there still."""
    files = SimFileSystem()
    log = open_log(files, config(segment_bytes=400, index_interval_bytes=100))
    records = []
    for elapsed, count in shapes:
        result = append(log, batch(count, timestamp=NOW_MS + elapsed))
        records += [(NOW_MS + elapsed + number, result.base_offset + number, 0) for number in range(count)]
    log.advance_high_watermark(log.log_end_offset)
    start = log.delete_records_before(min(start, log.log_end_offset))
    expected = next((record for record in records[start:] if record[0] >= NOW_MS + target), None)
    assert log.offset_for_timestamp(NOW_MS + target) == expected
    log.close()
    again = open_log(files, config(segment_bytes=400), had_clean_shutdown=True, log_start_offset=start)
    assert again.offset_for_timestamp(NOW_MS + target) == expected


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 4)), min_size=1, max_size=30))
def test_the_largest_timestamp_is_found(shapes):
    log = open_log(SimFileSystem(), config(segment_bytes=400, index_interval_bytes=100))
    timestamps = []
    for elapsed, count in shapes:
        append(log, batch(count, timestamp=NOW_MS + elapsed))
        timestamps += range(NOW_MS + elapsed, NOW_MS + elapsed + count)
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert found.timestamp == max(timestamps)
    assert timestamps[found.offset] == found.timestamp


def test_an_empty_log_has_no_timestamps(files):
    log = open_log(files)
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None


def test_a_damaged_file_is_an_error_and_not_a_loop(files):
    log = open_log(files)
    for _ in range(3):
        append(log)
    file = files.open(f"{LOG_DIR}/topic-0/{0:020d}.log")
    file.write_at(bytes(40), len(batch()))
    log._segments.positions.clear()
    with pytest.raises(KafkaError) as caught:
        log.read(2, 100, limit=3)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_reader_keeps_a_deleted_segment(files):
    log = open_log(files)
    append(log)
    found = log.read(0, 1 << 20, limit=1)
    log.truncate_fully_and_start_at(10, NOW_MS)
    assert bases(found) == [0]
