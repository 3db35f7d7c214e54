from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.records.builder import build_batch
from moldau.records.columns import RECORD_OVERHEAD_MAX, build_columns, headers_size
from moldau.records.compression import Codec
from moldau.records.record import Header, Record, encode_record

parts = st.none() | st.binary(max_size=200)
header_lists = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(
    tuple
)
# Times in runs, as they come from a clock, and any times, as they come from users.
times = st.sampled_from([0, 0, 0, 1, 5, 70]) | st.integers(-(1 << 40), 1 << 40)


@given(
    st.lists(st.tuples(parts, parts, times, header_lists, st.integers(1, 40)), min_size=1, max_size=8),
    st.booleans(),
    st.booleans(),
    st.sampled_from(list(Codec)),
)
def test_columns_make_the_bytes_that_records_make(
    runs: list[tuple[bytes | None, bytes | None, int, tuple[Header, ...], int]],
    with_keys: bool,
    with_headers: bool,
    codec: Codec,
) -> None:
    rows = [
        Record(0, 1_000 + time, key if with_keys else None, value, headers if with_headers else ())
        for key, value, time, headers, count in runs
        for _ in range(count)
    ]
    identity = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 11, "is_transactional": True}
    made = build_columns(
        [row.value for row in rows],
        [row.key for row in rows] if with_keys else None,
        [row.timestamp for row in rows],
        [row.headers for row in rows] if with_headers else None,
        codec=codec,
        **identity,
    )
    assert bytes(made) == build_batch(rows, codec=codec, **identity)


def test_offsets_of_every_width() -> None:
    count = 8192 + 200
    rows = [Record(0, 5, None, b"v%d" % number) for number in range(count)]
    made = build_columns([row.value for row in rows], None, [5] * count)
    assert bytes(made) == build_batch(rows)


def test_columns_may_be_views() -> None:
    made = build_columns([memoryview(b"value"), bytearray(b"other")], [memoryview(b"k"), None], [1, 1])
    assert bytes(made) == build_batch([Record(0, 1, b"k", b"value"), Record(0, 1, None, b"other")])


@given(parts, parts, st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, (1 << 31) - 1), header_lists)
def test_a_record_is_never_larger_than_it_is_estimated(
    key: bytes | None, value: bytes | None, time: int, delta: int, headers: tuple[Header, ...]
) -> None:
    estimated = RECORD_OVERHEAD_MAX + len(key or b"") + len(value or b"") + headers_size(headers)
    assert len(encode_record(delta, time, key, value, headers)) <= estimated
