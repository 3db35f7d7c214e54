import pytest
from hypothesis import given
from record_samples import record_lists

from moldau.records.batch import (
    BatchHeader,
    TimestampType,
    check_crc,
    parse_header,
    stamp_max_timestamp,
)
from moldau.records.builder import assemble_batch, build_batch
from moldau.records.compression import Codec, compress
from moldau.records.record import Record, encode_record, read_records
from moldau.records.validate import (
    InvalidRecords,
    RecordRules,
    recompress,
    validate_header,
    validate_record_count,
    validate_records,
)
from moldau.wire.errors import ErrorCode, KafkaError

NOW = 1_000_000


def batch_of(*records: tuple[int, bytes | None]) -> bytes:
    return build_batch([Record(0, timestamp, key, b"v") for timestamp, key in records])


def good_header(**changes: int) -> BatchHeader:
    return parse_header(batch_of((NOW, b"a"), (NOW, None)))._replace(**changes)


def test_an_honest_header_passes():
    validate_header(good_header())
    validate_header(
        good_header(producer_id=4, producer_epoch=0, base_sequence=0, attributes=0x10 | Codec.ZSTD)
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0}, ErrorCode.INVALID_RECORD),
        ({"record_count": -1, "last_offset_delta": -2}, ErrorCode.INVALID_RECORD),
        ({"record_count": 3}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 4, "base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_header_no_client_may_send(changes: dict[str, int], code: ErrorCode):
    with pytest.raises(KafkaError) as caught:
        validate_header(good_header(**changes))
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("timestamp_type", "max_timestamp", "accepted"),
    [
        (TimestampType.CREATE_TIME, NOW, True),
        (TimestampType.CREATE_TIME, NOW + 100, False),
        (TimestampType.CREATE_TIME, -1, False),
        (TimestampType.LOG_APPEND_TIME, NOW, False),
    ],
)
def test_what_becomes_of_a_producer_that_sets_the_log_append_time(
    timestamp_type: TimestampType, max_timestamp: int, accepted: bool
):
    batch = bytearray(batch_of((NOW, b"a"), (NOW, b"b")))
    stamp_max_timestamp(batch, TimestampType.LOG_APPEND_TIME, max_timestamp)
    rules = RecordRules(timestamp_type=timestamp_type, timestamp_after_max_ms=50)
    assert rules.need_records(parse_header(batch), NOW)
    if accepted:
        assert validate_records(batch, rules, NOW) == max_timestamp
        return
    with pytest.raises(InvalidRecords) as caught:
        validate_records(batch, rules, NOW)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in caught.value.record_errors] == [0, 1]


def test_keyless_records_of_a_compacted_topic_are_named():
    batch = batch_of((NOW, b"a"), (NOW, None), (NOW, b""), (NOW, None))
    with pytest.raises(InvalidRecords) as caught:
        validate_records(batch, RecordRules(is_compacted=True), NOW)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in caught.value.record_errors] == [1, 3]
    assert all("key" in error.message for error in caught.value.record_errors)
    assert validate_records(batch, RecordRules(), NOW) == NOW


def test_timestamps_outside_the_bounds_are_named():
    rules = RecordRules(timestamp_before_max_ms=100, timestamp_after_max_ms=10)
    inside = batch_of((NOW - 100, b"a"), (NOW + 10, b"b"), (-1, b"no timestamp"), (NOW, b"c"))
    assert validate_records(inside, rules, NOW) == NOW + 10
    outside = batch_of((NOW - 101, b"a"), (NOW, b"b"), (NOW + 11, b"c"))
    with pytest.raises(InvalidRecords) as caught:
        validate_records(outside, rules, NOW)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in caught.value.record_errors] == [0, 2]


def test_a_timestamp_error_gives_the_batch_its_code():
    rules = RecordRules(is_compacted=True, timestamp_after_max_ms=10)
    with pytest.raises(InvalidRecords) as caught:
        validate_records(batch_of((NOW, None), (NOW + 11, b"k"), (NOW, None)), rules, NOW)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in caught.value.record_errors] == [0, 1, 2]


def test_bounds_do_not_hold_where_the_broker_sets_the_time():
    rules = RecordRules(timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_after_max_ms=10)
    assert validate_records(batch_of((NOW + 11, b"a")), rules, NOW) == NOW + 11


@pytest.mark.parametrize("deltas", [(1, 2), (0, 2), (1, 0), (0, 0)])
def test_offset_deltas_count_up_from_zero(deltas: tuple[int, int]):
    payload = b"".join(encode_record(delta, 0, b"k", b"v") for delta in deltas)
    fields = good_header()._asdict()
    for name in ("length", "magic", "crc"):
        del fields[name]
    with pytest.raises(KafkaError) as caught:
        validate_records(assemble_batch(payload, **fields), RecordRules(), NOW)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_records_are_needed_only_where_the_header_cannot_tell():
    default = RecordRules(timestamp_after_max_ms=10)
    assert not default.need_records(good_header(max_timestamp=NOW + 10), NOW)
    assert default.need_records(good_header(max_timestamp=NOW + 11), NOW)
    assert RecordRules(timestamp_before_max_ms=10).need_records(good_header(), NOW)
    assert RecordRules(is_compacted=True).need_records(good_header(), NOW)
    append_time = RecordRules(
        timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_before_max_ms=1, timestamp_after_max_ms=1
    )
    assert not append_time.need_records(good_header(max_timestamp=NOW * 2), NOW)


@given(records=record_lists())
def test_what_the_header_clears_the_records_clear(records: list[Record]):
    rules = RecordRules(timestamp_after_max_ms=1 << 40)
    batch = build_batch(records)
    if not rules.need_records(parse_header(batch), NOW):
        assert validate_records(batch, rules, NOW) == parse_header(batch).max_timestamp


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_recompression_changes_nothing_but_the_codec(source: Codec, target: Codec):
    records = [Record(0, NOW + i, b"key", b"value " * i, (("h", None),)) for i in range(50)]
    batch = build_batch(
        records,
        base_offset=40,
        codec=source,
        producer_id=3,
        producer_epoch=1,
        base_sequence=9,
        is_transactional=True,
        leader_epoch=6,
    )
    changed = recompress(batch, target)
    before, after = parse_header(batch), parse_header(changed)
    check_crc(changed, after)
    assert after.codec == target
    mask = {"length": 0, "crc": 0, "attributes": after.attributes & ~7}
    assert after._replace(**mask) == before._replace(**mask)
    assert before.attributes & ~7 == after.attributes & ~7
    assert list(read_records(changed)) == list(read_records(batch))


def test_recompression_honours_level_and_limit():
    batch = build_batch([Record(0, 0, None, bytes(range(256)) * 400)], codec=Codec.GZIP)
    assert len(recompress(batch, Codec.GZIP, 1)) > len(recompress(batch, Codec.GZIP, 9))
    with pytest.raises(KafkaError) as caught:
        recompress(batch, Codec.ZSTD, max_bytes=1000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", list(Codec))
def test_records_that_a_batch_has_no_room_for_are_refused(codec: Codec):
    payload = bytes(7000)  # room for a thousand, whatever it was compressed to

    def claiming(count: int) -> bytes:
        return assemble_batch(
            compress(codec, payload),
            base_offset=0,
            leader_epoch=-1,
            attributes=codec,
            last_offset_delta=count - 1,
            base_timestamp=NOW,
            max_timestamp=NOW,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=count,
        )

    validate_record_count(claiming(1000))
    with pytest.raises(KafkaError) as caught:
        validate_record_count(claiming(1001))
    assert caught.value.code is ErrorCode.INVALID_RECORD
