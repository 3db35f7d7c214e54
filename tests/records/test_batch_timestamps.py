import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import record_lists

from moldau.records.batch import stamp_log_append_time
from moldau.records.builder import build_batch
from moldau.records.compression import Codec
from moldau.records.record import Record
from moldau.records.timestamps import find_timestamp, max_timestamp_offset

UNSORTED = build_batch([Record(0, t, None, b"v") for t in (50, 10, 70, 70, 60)], base_offset=100)


@pytest.mark.parametrize(
    ("target_ms", "start_offset", "found"),
    [
        (-1, 0, (50, 100)),
        (50, 0, (50, 100)),
        (51, 0, (70, 102)),
        (51, 103, (70, 103)),
        (0, 101, (10, 101)),
        (70, 104, None),
        (71, 0, None),
        (0, 105, None),
    ],
)
def test_first_record_at_or_after(target_ms: int, start_offset: int, found: tuple[int, int] | None):
    assert find_timestamp(UNSORTED, target_ms, start_offset) == found


def test_first_of_the_latest_records():
    assert max_timestamp_offset(UNSORTED) == 102


def test_with_log_append_time_every_record_is_the_latest():
    batch = bytearray(UNSORTED)
    stamp_log_append_time(batch, 999)
    assert find_timestamp(batch, 999) == (999, 100)
    assert find_timestamp(batch, 1000) is None
    assert max_timestamp_offset(batch) == 100


@given(records=record_lists(), codec=st.sampled_from(Codec), target_ms=st.integers(-5, 1 << 45))
def test_search_agrees_with_a_look_at_all_records(records: list[Record], codec: Codec, target_ms: int):
    batch = build_batch(records, base_offset=records[0].offset, codec=codec)
    later = [(record.timestamp, record.offset) for record in records if record.timestamp >= target_ms]
    assert find_timestamp(batch, target_ms) == (later[0] if later else None)
    latest = max(record.timestamp for record in records)
    assert max_timestamp_offset(batch) == min(r.offset for r in records if r.timestamp == latest)
