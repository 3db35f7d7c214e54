"""The quick look at records, held against decoding them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.records.builder import build_batch
from moldau.records.record import Record, read_payload, read_records
from moldau.records.scan import SHORT_KEY_BYTES, record_starts, scan_records, timestamp_delta
from moldau.wire.errors import KafkaError

SIZES = st.one_of(st.integers(0, 100), st.sampled_from((8000, 8191, 8192, 20_000)))
FIELDS = st.one_of(st.none(), SIZES.map(lambda size: b"x" * size), st.binary(max_size=20))
RECORDS = st.builds(
    Record,
    st.just(0),
    st.integers(0, 1 << 40),
    FIELDS,
    FIELDS,
    st.lists(st.tuples(st.text(max_size=3), FIELDS), max_size=2).map(tuple),
)


@given(st.lists(RECORDS, min_size=1, max_size=80))
def test_it_finds_what_decoding_finds(records: list[Record]) -> None:
    batch = build_batch(records)
    payload, decoded = read_payload(batch), list(read_records(batch))
    scan = scan_records(payload, len(records))
    assert scan.keys == [record.key or b"" for record in decoded]
    assert scan.keyless == [number for number, record in enumerate(decoded) if record.key is None]
    assert scan.tombstones == [number for number, record in enumerate(decoded) if record.value is None]
    assert scan.has_long_keys == any(len(record.key or b"") > SHORT_KEY_BYTES for record in decoded)
    assert scan.starts[0] == 0
    assert scan.starts[-1] == len(payload)
    deltas = [timestamp_delta(payload, start) for start in scan.starts[:-1]]
    assert deltas == [record.timestamp - records[0].timestamp for record in decoded]
    for count in (0, 1, len(records)):
        assert record_starts(payload, count) == scan.starts[: count + 1]


@given(st.lists(RECORDS, min_size=1, max_size=5), st.data())
def test_bytes_that_are_no_records_are_refused_or_read_alike(
    records: list[Record], data: st.DataObject
) -> None:
    payload = bytearray(read_payload(build_batch(records)))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    del payload[data.draw(st.integers(1, len(payload))) :]
    try:
        scan = scan_records(bytes(payload), len(records))
    except KafkaError:
        return
    assert scan.starts[-1] == len(payload)
    assert scan.starts == sorted(scan.starts)
    assert len(scan.keys) == len(records)


@pytest.mark.parametrize("count", [1, 3])
def test_the_count_has_to_be_that_of_the_records(count: int) -> None:
    payload = read_payload(build_batch([Record(0, 0, b"k", b"v")] * 2))
    with pytest.raises(KafkaError):
        scan_records(payload, count)
