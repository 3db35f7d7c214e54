import itertools
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from moldau.records import batch as b
from moldau.records.builder import build_batch
from moldau.records.record import Record, read_records
from moldau.wire.errors import ErrorCode, KafkaError


def one_batch(count: int = 3, **options: object) -> bytearray:
    records = [Record(0, 1000 + i, b"k%d" % i, b"v" * i) for i in range(count)]
    return bytearray(build_batch(records, **options))  # type: ignore[arg-type]


def test_named_positions_agree_with_the_struct():
    positions = [
        *(b.BASE_OFFSET, b.LENGTH, b.LEADER_EPOCH, b.MAGIC, b.CRC, b.ATTRIBUTES, b.LAST_OFFSET_DELTA),
        *(b.BASE_TIMESTAMP, b.MAX_TIMESTAMP, b.PRODUCER_ID, b.PRODUCER_EPOCH, b.BASE_SEQUENCE),
        *(b.RECORD_COUNT, b.HEADER_BYTES),
    ]
    formats = b.HEADER.format[1:]
    assert positions == [struct.calcsize(">" + formats[:count]) for count in range(len(formats) + 1)]


def test_header_says_what_was_built():
    header = b.parse_header(
        one_batch(
            base_offset=70,
            leader_epoch=4,
            producer_id=9,
            producer_epoch=2,
            base_sequence=2**31 - 2,
            is_transactional=True,
            timestamp_type=b.TimestampType.LOG_APPEND_TIME,
        )
    )
    assert (header.base_offset, header.last_offset, header.next_offset) == (70, 72, 73)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 2**31 - 2)
    assert header.last_sequence == 0
    assert header.leader_epoch == 4
    assert header.record_count == 3
    assert header.is_transactional and header.is_log_append_time and header.has_producer_id
    assert not header.is_control
    assert header.timestamp_type is b.TimestampType.LOG_APPEND_TIME
    assert header.delete_horizon_ms is None
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)


def test_no_sequence_stays_none():
    assert b.parse_header(one_batch()).last_sequence == b.NO_SEQUENCE


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_sequences_wrap_to_zero_and_back(sequence: int, step: int):
    following = b.increment_sequence(sequence, step)
    assert 0 <= following < 2**31
    assert b.decrement_sequence(following, step) == sequence
    assert b.increment_sequence(2**31 - 1, 1) == 0


@pytest.mark.parametrize("buffer_type", [bytes, bytearray, memoryview])
def test_crc_is_checked_in_any_buffer_at_any_position(buffer_type: type):
    batch = one_batch()
    buffer = buffer_type(b"xyz" + bytes(batch) + b"rest")
    b.check_crc(buffer, b.parse_header(buffer, 3), 3)


def test_every_flipped_bit_under_the_crc_is_found():
    batch = one_batch()
    header = b.parse_header(batch)
    for position in range(b.ATTRIBUTES, len(batch)):
        batch[position] ^= 1
        with pytest.raises(KafkaError) as caught:
            b.check_crc(batch, header)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        batch[position] ^= 1
    b.check_crc(batch, header)


def test_crc_of_a_batch_cut_short_is_corrupt():
    batch = one_batch()
    with pytest.raises(KafkaError) as caught:
        b.check_crc(batch[:-1], b.parse_header(batch))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_iterating_stops_at_a_partial_tail_at_every_cut():
    batches = [bytes(one_batch(count, base_offset=10 * count)) for count in (1, 2, 3)]
    data = b"".join(batches)
    ends = [sum(map(len, batches[:count])) for count in (1, 2, 3)]
    for cut in range(len(data) + 1):
        positions = [position for position, _ in b.iterate_headers(data[:cut])]
        assert positions == [0, *ends][: sum(end <= cut for end in ends)]


def test_iterating_starts_where_it_is_told():
    first, second = one_batch(1), one_batch(2, base_offset=1)
    found = list(b.iterate_headers(first + second, len(first)))
    assert [(position, header.base_offset) for position, header in found] == [(len(first), 1)]


@pytest.mark.parametrize(
    ("length", "bytes_left"),
    [*itertools.product([-(2**31), -1, 0, 13], [12, 17, 61, 100]), (14, 26), (48, 60), (48, 61), (48, 100)],
)
def test_impossible_length_is_corrupt(length: int, bytes_left: int):
    batch = one_batch(5)
    struct.pack_into(">i", batch, b.LENGTH, length)
    with pytest.raises(KafkaError) as caught:
        list(b.iterate_headers(batch[:bytes_left]))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("bytes_left", [0, 11, 12, 16, 17, 59])
def test_a_batch_of_any_format_may_be_cut_short(magic: int, bytes_left: int):
    batch = one_batch(5)
    struct.pack_into(">i", batch, b.LENGTH, 48)
    batch[b.MAGIC] = magic
    assert list(b.iterate_headers(batch[:bytes_left])) == []


def test_a_length_that_nothing_can_have_is_corrupt_in_any_format():
    batch = one_batch(5)
    struct.pack_into(">i", batch, b.LENGTH, 13)
    batch[b.MAGIC] = 1
    with pytest.raises(KafkaError) as caught:
        list(b.iterate_headers(batch))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (255, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_other_formats_are_named(magic: int, code: ErrorCode):
    batch = one_batch()
    batch[b.MAGIC] = magic
    for buffer in (batch, batch[:20]):
        with pytest.raises(KafkaError) as caught:
            b.parse_header(buffer)
        assert caught.value.code is code


def test_stamping_a_place_leaves_the_rest_and_the_crc():
    batch = one_batch()
    before = b.parse_header(batch)
    buffer = memoryview(bytearray(5) + batch)
    b.stamp(buffer, 123456789012, 17, 5)
    after = b.parse_header(buffer, 5)
    assert after == before._replace(base_offset=123456789012, leader_epoch=17)
    assert buffer[5 + b.HEADER_BYTES :] == batch[b.HEADER_BYTES :]
    b.check_crc(buffer, after, 5)


def test_log_append_time_becomes_the_time_of_every_record():
    batch = one_batch(4)
    b.stamp_log_append_time(batch, 5555)
    header = b.parse_header(batch)
    assert header.is_log_append_time and header.max_timestamp == 5555
    b.check_crc(batch, header)
    assert {record.timestamp for record in read_records(batch)} == {5555}


def test_max_timestamp_can_be_put_right_and_the_type_taken_back():
    batch = one_batch(4)
    original = bytes(batch)
    b.stamp_log_append_time(batch, 5555)
    b.stamp_max_timestamp(batch, b.TimestampType.CREATE_TIME, 1003)
    assert batch == original


def test_crc_covers_exactly_the_batch():
    batch = one_batch()
    buffer = batch + b"more"
    b.stamp_crc(buffer, len(batch))
    assert buffer[: len(batch)] == batch
    assert b.parse_header(batch).crc == crc32c(bytes(batch[b.ATTRIBUTES :]))


@given(st.binary(max_size=300), st.integers(0, 40))
def test_any_bytes_give_headers_or_a_kafka_error(data: bytes, position: int):
    for read in (b.parse_header, lambda *arguments: list(b.iterate_headers(*arguments))):
        try:
            read(data, position)
        except KafkaError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
