import struct

import pytest
from hypothesis import given
from record_samples import optional_bytes

from moldau.records.batch import parse_header
from moldau.records.control import (
    ControlRecord,
    ControlType,
    EndTxnMarker,
    build_control_batch,
    build_end_txn_batch,
    control_key,
    read_control,
    read_end_txn_marker,
)
from moldau.records.record import Record, read_records
from moldau.wire.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("type", [ControlType.ABORT, ControlType.COMMIT])
def test_end_of_transaction_marker_round_trips(type: ControlType):
    marker = EndTxnMarker(type, 77)
    batch = build_end_txn_batch(
        marker, producer_id=5, producer_epoch=3, timestamp=1234, base_offset=8, leader_epoch=2
    )
    header = parse_header(batch)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 3, -1)
    (record,) = read_records(batch)
    assert (record.offset, record.timestamp) == (8, 1234)
    assert read_end_txn_marker(record) == marker


def test_quorum_records_keep_their_bytes():
    controls = [(ControlType.KRAFT_VERSION, b"\0\0\0\1"), (ControlType.KRAFT_VOTERS, b"voters")]
    batch = build_control_batch(controls, timestamp=9)
    header = parse_header(batch)
    assert header.is_control and not header.is_transactional
    assert [read_control(record) for record in read_records(batch)] == [ControlRecord(*c) for c in controls]


def test_type_of_a_later_release_is_unknown():
    record = Record(0, 0, struct.pack(">hh", 1, 99), b"?")
    assert read_control(record) == ControlRecord(ControlType.UNKNOWN, b"?")


def test_only_a_transactions_end_makes_its_marker():
    with pytest.raises(ValueError):
        build_end_txn_batch(
            EndTxnMarker(ControlType.LEADER_CHANGE, 0), producer_id=1, producer_epoch=1, timestamp=1
        )


@pytest.mark.parametrize(
    "record",
    [
        Record(0, 0, None, b"\0" * 6),
        Record(0, 0, b"\0\0\0", b"\0" * 6),
        Record(0, 0, b"\xff\xff\0\0", b"\0" * 6),
        Record(0, 0, control_key(ControlType.COMMIT), None),
        Record(0, 0, control_key(ControlType.COMMIT), b"\0" * 5),
        Record(0, 0, control_key(ControlType.COMMIT), b"\xff" * 6),
        Record(0, 0, control_key(ControlType.LEADER_CHANGE), b"\0" * 6),
    ],
)
def test_what_is_no_marker_is_invalid(record: Record):
    with pytest.raises(KafkaError) as caught:
        read_end_txn_marker(record)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@given(optional_bytes, optional_bytes)
def test_any_key_and_value_are_a_marker_or_invalid(key: bytes | None, value: bytes | None):
    try:
        read_end_txn_marker(Record(0, 0, key, value))
    except KafkaError as error:
        assert error.code is ErrorCode.INVALID_RECORD
