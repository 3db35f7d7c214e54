"""Frames of metadata records: round trips, Kafka's own bytes, and bytes that are no frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.metadata import records
from moldau.metadata.framing import RECORD_TYPES, MetadataRecord, decode_record, encode_record
from moldau.wire.codec import ProtocolError


def test_every_type_and_version_comes_back() -> None:
    for declared in RECORD_TYPES.values():
        for version in range(declared.VERSIONS.first, declared.VERSIONS.last + 1):
            record = declared()
            assert decode_record(encode_record(record, version)) == MetadataRecord(record, version)


def test_bytes_are_those_that_kafka_writes() -> None:
    record = records.FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert encode_record(record, 0) == b"\x01\x0c\x00\x11metadata.version\x00\x1e\x00"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x02\x0c\x00",
        b"\x01\x63\x00",
        b"\x01\x14\x09\x00",
        b"\x01\x14\x00\x00rest",
        b"\xff" * 9,
    ],
)
def test_what_is_no_record_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_record(data)


@given(st.binary(max_size=60), st.sampled_from(sorted(RECORD_TYPES)))
def test_any_bytes_are_a_record_or_a_protocol_error(data: bytes, record_type: int) -> None:
    try:
        message, version = decode_record(bytes((1, record_type, 0)) + data)
    except ProtocolError:
        return
    assert version == 0
    assert record_type == message.API_KEY
