"""Records of a coordinator as bytes: Kafka's own come back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.record import CoordinatorRecord, encode_key, encode_value
from moldau.groups.records import RECORD_TYPES, OffsetCommitKey, OffsetCommitValue
from moldau.records.batch import iterate_headers
from moldau.records.record import Record, read_records
from moldau.wire.codec import ProtocolError

GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "consumer_offsets"


def golden_records() -> list[Record]:
    records: list[Record] = []
    for path in sorted(GOLDEN.glob("*.log")):
        data = memoryview(path.read_bytes())
        for position, header in iterate_headers(data):
            records += read_records(data[position : position + header.size])
    return records


def test_what_kafka_wrote_is_written_again_byte_for_byte() -> None:
    records = golden_records()
    assert len(records) > 15
    for record in records:
        assert record.key is not None
        decoded = RECORD_TYPES.decode(record.key, record.value)
        assert decoded is not None
        assert (encode_key(decoded), encode_value(decoded)) == (record.key, record.value)


def test_a_record_of_a_type_to_come_is_passed_over() -> None:
    assert RECORD_TYPES.decode(b"\x03\xe7rest", b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        (b"\0\1\0\4grou", None),
        (b"\0\2\0\1g", b"\0"),
        (b"\0\2\0\1g", b"\0\x63"),
        (b"\0\2\0\1g", b"\xff\xff"),
    ],
)
def test_what_is_no_record_is_a_protocol_error(key: bytes, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        RECORD_TYPES.decode(key, value)


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_protocol_error(key: bytes, value: bytes | None) -> None:
    try:
        RECORD_TYPES.decode(key, value)
    except ProtocolError:
        pass


def test_a_tombstone_has_no_value() -> None:
    record = CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=3), None)
    assert encode_value(record) is None
    assert RECORD_TYPES.decode(encode_key(record), None) == record


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_committed_offset_comes_back(version: int) -> None:
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9)
    record = CoordinatorRecord(OffsetCommitKey(group="g", topic="t", partition=3), value, version)
    assert RECORD_TYPES.decode(encode_key(record), encode_value(record)) == record
