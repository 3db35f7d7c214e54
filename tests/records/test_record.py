import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import record_lists

from moldau.records import batch as b
from moldau.records.builder import assemble_batch, build_batch
from moldau.records.compression import Codec, compress
from moldau.records.record import Record, encode_record, read_payload, read_records, read_varint, varint
from moldau.wire.errors import ErrorCode, KafkaError

EXPECTED_ERRORS = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}


def around(payload: bytes, count: int = 1, attributes: int = 0, **changes: int) -> bytes:
    fields = {
        "base_offset": 0,
        "leader_epoch": 0,
        "attributes": attributes,
        "last_offset_delta": count - 1,
        "base_timestamp": 0,
        "max_timestamp": 0,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": count,
    }
    return assemble_batch(payload, **{**fields, **changes})


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(number: int):
    encoded = varint(number)
    assert 1 <= len(encoded) <= 10
    assert read_varint(b"?" + encoded + b"?", 1) == (number, 1 + len(encoded))


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (300, "d804"),
        (8191, "fe7f"),
        (8192, "808001"),
    ],
)
def test_varints_are_zigzag(number: int, encoded: str):
    assert varint(number).hex() == encoded


@pytest.mark.parametrize("data", [b"\xff" * 10 + b"\x01", b"\xff" * 9 + b"\x02"])
def test_varint_beyond_64_bits_is_refused(data: bytes):
    with pytest.raises(ValueError):
        read_varint(data, 0)


@pytest.mark.parametrize("codec", list(Codec))
@given(records=record_lists())
def test_records_round_trip_in_every_codec(codec: Codec, records: list[Record]):
    built = build_batch(records, base_offset=records[0].offset, codec=codec)
    assert list(read_records(built)) == records
    assert list(read_records(memoryview(built + b"next batch"))) == records
    b.check_crc(built, b.parse_header(built))


@pytest.mark.parametrize("codec", list(Codec))
def test_big_and_empty_records_round_trip(codec: Codec):
    noise = random.Random(1).randbytes(300_000)
    records = [
        Record(0, 5, b"", b""),
        Record(1, 4, None, None),
        Record(2, 6, noise, b"z" * 1_000_000, (("", b""), ("", None), ("h", noise[:70_000]))),
        Record(3, -1, None, noise),
    ]
    assert list(read_records(build_batch(records, codec=codec))) == records


def test_header_key_that_is_not_utf8_is_written_as_it_was_read():
    payload = b"\x18\x00\x00\x00\x01\x01\x02\x06\xff\xfek\x02v"
    (record,) = read_records(around(payload))
    assert record.headers[0][1] == b"v"
    assert encode_record(0, 0, record.key, record.value, record.headers) == payload


def test_log_append_time_hides_the_records_own():
    records = [Record(0, 10, None, b"a"), Record(1, 20, None, b"b")]
    built = build_batch(records, timestamp_type=b.TimestampType.LOG_APPEND_TIME)
    assert [record.timestamp for record in read_records(built)] == [20, 20]


def test_batch_that_the_cleaner_emptied_has_no_records():
    assert list(read_records(around(b"", count=0, last_offset_delta=9))) == []


def test_offsets_may_have_gaps_as_after_cleaning():
    payload = encode_record(2, 0, b"k", b"v") + encode_record(7, 0, b"l", b"w")
    batch = around(payload, count=2, base_offset=100, last_offset_delta=9)
    assert [record.offset for record in read_records(batch)] == [102, 107]


GOOD = encode_record(0, 0, b"key", b"value", (("h", b"x"),))


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        pytest.param(GOOD, 2, id="fewer records than counted"),
        pytest.param(GOOD + GOOD, 1, id="more records than counted"),
        pytest.param(GOOD, -1, id="negative count"),
        pytest.param(GOOD[:-1], 1, id="cut"),
        pytest.param(b"\x01" + GOOD[1:], 1, id="negative size"),
        pytest.param(varint(len(GOOD) - 2) + GOOD[1:], 1, id="longer than its size"),
        pytest.param(varint(len(GOOD)) + GOOD[1:] + b"\0", 1, id="shorter than its size"),
        pytest.param(b"\x0c\x00\x00\x00\x7e\x01\x00", 1, id="key past the end"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x7e\x00", 1, id="value past the end"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x01", 1, id="negative header count"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x7e", 1, id="more headers than bytes"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1, id="null header key"),
        pytest.param(b"\x14\x00\x00\x80\x80\x80\x80\x20\x01\x01\x00", 1, id="offset delta past 32 bits"),
        pytest.param(b"\x1e\x00" + b"\xff" * 9 + b"\x03" + b"\x00\x01\x01\x00", 1, id="varint past 64 bits"),
    ],
)
def test_broken_structure_is_an_invalid_record(payload: bytes, count: int):
    with pytest.raises(KafkaError) as caught:
        list(read_records(around(payload, count)))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_timestamp_beyond_64_bits_is_an_invalid_record():
    payload = encode_record(0, 2**63 - 1, None, None)
    with pytest.raises(KafkaError) as caught:
        list(read_records(around(payload, base_timestamp=1)))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_offset_beyond_64_bits_is_an_invalid_record():
    with pytest.raises(KafkaError) as caught:
        list(read_records(around(GOOD, base_offset=2**63 - 1)))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_batch_that_is_not_all_there_is_refused():
    batch = around(GOOD)
    for read in (read_records, read_payload):
        with pytest.raises(KafkaError) as caught:
            read(batch[:-1])
        assert caught.value.code is ErrorCode.INVALID_RECORD


def test_limit_applies_to_what_was_decompressed():
    batch = build_batch([Record(0, 0, None, bytes(100_000))], codec=Codec.ZSTD)
    payload_bytes = len(read_payload(batch))
    assert len(list(read_records(batch, payload_bytes))) == 1
    with pytest.raises(KafkaError) as caught:
        read_records(batch, payload_bytes - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", range(8))
@given(payload=st.binary(max_size=200), count=st.integers(-3, 5), timestamp=st.integers(-(2**63), 2**63 - 1))
def test_any_payload_gives_records_or_a_kafka_error(codec: int, payload: bytes, count: int, timestamp: int):
    try:
        for record in read_records(around(payload, count, codec, base_timestamp=timestamp), 1 << 16):
            struct.pack(">qq", record.offset, record.timestamp)
    except KafkaError as error:
        assert error.code in EXPECTED_ERRORS


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@given(data=st.data(), records=record_lists())
def test_any_damage_under_any_codec_gives_records_or_a_kafka_error(
    codec: Codec, data: st.DataObject, records: list[Record]
):
    payload = bytearray(read_payload(build_batch(records)))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        list(read_records(around(compress(codec, payload), len(records), codec)))
    except KafkaError as error:
        assert error.code is ErrorCode.INVALID_RECORD
