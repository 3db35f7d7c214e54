import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_records
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import optional_bytes, record_lists

from moldau.records.batch import TimestampType, check_crc, parse_header
from moldau.records.builder import assemble_batch, build_batch, build_pairs
from moldau.records.compression import Codec
from moldau.records.record import Record, encode_record, read_payload, read_records

# Both builders put the present in place of a negative timestamp, and want a value or key as bytes.
reference_records = st.lists(
    st.tuples(
        st.integers(0, 1 << 45),
        optional_bytes,
        optional_bytes,
        st.lists(st.tuples(st.text(max_size=20), optional_bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
).map(lambda fields: [Record(offset, *rest) for offset, rest in enumerate(fields)])


@pytest.mark.parametrize("library", [kafka_records, aiokafka_records])
@given(
    records=reference_records,
    is_transactional=st.booleans(),
    producer=st.tuples(st.integers(-1, 1 << 40), st.integers(-1, 32767), st.integers(-1, 2**31 - 1)),
)
def test_other_clients_build_the_same_bytes(library, records, is_transactional, producer):
    producer_id, producer_epoch, base_sequence = producer
    reference = library.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=is_transactional,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=1 << 20,
    )
    for record in records:
        reference.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    built = build_batch(
        records,
        is_transactional=is_transactional,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    # The leader epoch is outside the CRC and the leader's to write: these two leave 0, Java leaves -1.
    expected = bytearray(reference.build())
    expected[12:16] = built[12:16]
    assert built == expected


@pytest.mark.parametrize("codec", list(Codec))
@given(records=record_lists())
def test_another_client_reads_the_same_records(codec, records):
    built = build_batch(records, base_offset=records[0].offset, codec=codec)
    batch = kafka_records.DefaultRecordBatch(built)
    assert batch.validate_crc()
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert read == records


def test_records_take_the_batchs_offsets():
    built = build_batch([Record(9, 0, None, b"a"), Record(3, 0, None, b"b")], base_offset=50)
    assert [record.offset for record in read_records(built)] == [50, 51]


def test_max_timestamp_is_not_the_last():
    built = build_batch(
        [Record(0, t, None, None) for t in (5, 9, 7)], timestamp_type=TimestampType.CREATE_TIME
    )
    assert parse_header(built).base_timestamp == 5
    assert parse_header(built).max_timestamp == 9


def test_no_records_are_no_batch():
    with pytest.raises(ValueError):
        build_batch([])


def test_batch_from_encoded_records_is_the_batch_from_records():
    records = [Record(0, 100, b"k", b"v"), Record(1, 90, None, b"w", (("h", None),))]
    payload = b"".join(encode_record(r.offset, r.timestamp - 100, *r[2:]) for r in records)
    built = build_batch(records)
    assert read_payload(built) == payload
    header = parse_header(built)
    fields = header._asdict()
    for name in ("length", "magic", "crc"):
        del fields[name]
    assert assemble_batch(memoryview(payload), **fields) == built
    check_crc(built, header)


@pytest.mark.parametrize("codec", list(Codec))
@given(
    pairs=st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1),
    timestamp=st.integers(0, 1 << 45),
    is_transactional=st.booleans(),
    producer=st.tuples(st.integers(-1, 1 << 40), st.integers(-1, 32767), st.integers(-1, 2**31 - 1)),
)
def test_pairs_make_the_batch_that_records_make(codec, pairs, timestamp, is_transactional, producer):
    options = dict(zip(("producer_id", "producer_epoch", "base_sequence"), producer, strict=True))
    records = [Record(0, timestamp, key, value) for key, value in pairs]
    built = build_pairs(pairs, timestamp, codec=codec, is_transactional=is_transactional, **options)
    assert built == build_batch(records, codec=codec, is_transactional=is_transactional, **options)
