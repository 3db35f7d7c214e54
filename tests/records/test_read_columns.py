from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.records.batch import parse_header
from moldau.records.builder import build_batch
from moldau.records.columns import build_columns
from moldau.records.compression import Codec
from moldau.records.read_columns import RecordColumns, read_columns
from moldau.records.record import Record, read_records
from moldau.wire.errors import KafkaError

DATA = (
    st.none() | st.binary(max_size=20) | st.integers(60, 70).map(bytes) | st.integers(8190, 8200).map(bytes)
)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
TIMES = st.integers(0, 1 << 40) | st.integers(1000, 1100)
RECORDS = st.lists(st.builds(Record, st.just(0), TIMES, DATA, DATA, HEADERS | st.just(())), min_size=1)


def both_ways(batch: bytes) -> tuple[list[Record] | str, list[Record] | str]:
    def outcome(read: object) -> list[Record] | str:
        try:
            return list(read())  # type: ignore[operator]
        except KafkaError as error:
            return str(error)

    header = parse_header(batch)
    return outcome(lambda: read_columns(batch, header).records()), outcome(lambda: read_records(batch))


@given(records=RECORDS, base=st.integers(0, 1 << 50), codec=st.sampled_from([Codec.NONE, Codec.LZ4]))
def test_columns_are_the_records(records: list[Record], base: int, codec: Codec) -> None:
    columns, one_by_one = both_ways(build_batch(records, base_offset=base, codec=codec))
    assert columns == one_by_one
    assert len(columns) == len(records)


@given(records=RECORDS, data=st.data())
def test_what_is_damaged_is_refused_in_the_same_words(records: list[Record], data: st.DataObject) -> None:
    batch = bytearray(build_batch(records))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(57, len(batch) - 1))] = data.draw(st.integers(0, 255))
    columns, one_by_one = both_ways(bytes(batch))
    assert columns == one_by_one


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8193])
def test_runs_of_records_that_are_alike(count: int) -> None:
    batch = bytes(build_columns([b"v" * 100] * count, None, [5] * count))
    columns, one_by_one = both_ways(batch)
    assert columns == one_by_one


def test_the_time_of_the_log_is_that_of_all_records() -> None:
    from moldau.records.batch import stamp_log_append_time

    batch = bytearray(build_batch([Record(0, 1, None, b"a"), Record(0, 2, None, b"b")]))
    stamp_log_append_time(batch, 77)
    assert read_columns(batch, parse_header(batch)).timestamps == [77, 77]


def test_parts_and_sums() -> None:
    columns = RecordColumns([1, 2], [3, 4], [b"a", None], [None, b"b"], [(), (("h", None),)])
    whole = columns.part(0, 1)
    whole.extend(columns.part(1, 9))
    assert list(whole.records()) == list(columns.records())
    assert list(columns.records())[1] == Record(2, 4, None, b"b", (("h", None),))
