"""The hand-packed produce request and response against the declared messages, for every version."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_samples import damage, sample, versions_of

from moldau.wire.api import ApiKey
from moldau.wire.codec import ProtocolError, decode, encode
from moldau.wire.headers import read_request_header, write_request_header
from moldau.wire.messages import headers
from moldau.wire.messages import produce as declared
from moldau.wire.produce import (
    PartitionResult,
    read_one_partition,
    read_one_partition_of_transaction,
    read_produce_request,
    write_one_partition,
    write_produce_response,
)

VERSIONS = list(versions_of(declared.ProduceRequest))
INT16, INT32, INT64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))
TEXT = st.none() | st.text(max_size=5) | st.just("x" * 200)


@pytest.mark.parametrize("version", VERSIONS)
@given(random=st.randoms(use_true_random=True))
def test_requests_read_as_declared(version: int, random: Random):
    request = sample(declared.ProduceRequest, version, random)
    before = random.randbytes(random.randrange(4))  # stands for the header
    frame = memoryview(before + encode(request, version))
    read = read_produce_request(version, frame, len(before))
    assert (read.transactional_id, read.acks, read.timeout_ms) == (
        request.transactional_id,
        request.acks,
        request.timeout_ms,
    )
    assert read.topics == [
        (
            topic.topic_id if version >= 13 else topic.name.encode(),
            [(partition.index, partition.records) for partition in topic.partition_data],
        )
        for topic in request.topic_data
    ]


def test_records_are_views_of_the_frame():
    topic = declared.TopicProduceData(
        name="t", partition_data=[declared.PartitionProduceData(index=0, records=b"batch")]
    )
    for version in VERSIONS:
        frame = memoryview(encode(declared.ProduceRequest(topic_data=[topic]), version))
        ((_, ((_, records),)),) = read_produce_request(version, frame, 0).topics
        assert isinstance(records, memoryview)
        assert records.obj is frame.obj


@pytest.mark.parametrize("version", VERSIONS)
@given(random=st.randoms(use_true_random=True))
def test_a_damaged_request_is_refused_by_hand_where_the_declared_one_is(version: int, random: Random):
    frame = encode(sample(declared.ProduceRequest, version, random), version)
    damage(frame, random)
    try:
        decode(declared.ProduceRequest, version, frame)
        well_formed = True
    except ProtocolError as error:
        # By hand the name of a topic stays bytes: one that is not UTF-8 is just a topic that nobody has.
        well_formed = None if "codec can't decode" in str(error) else False
    try:
        read_produce_request(version, memoryview(frame), 0)
        accepted = True
    except ProtocolError:
        accepted = False
    assert well_formed in (accepted, None)


@pytest.mark.parametrize("version", VERSIONS)
@given(random=st.randoms(use_true_random=True), damaged=st.booleans())
def test_the_usual_shape_reads_as_any_other(version: int, random: Random, damaged: bool):
    request = sample(declared.ProduceRequest, version, random)
    del request.topic_data[1:]
    for topic in request.topic_data:
        del topic.partition_data[1:]
    frame = bytearray(encode(request, version))
    if damaged:
        damage(frame, random)
    one = read_one_partition(version, memoryview(frame), 0)
    if one is not None:
        acks, topic, index, records = one
        read = read_produce_request(version, memoryview(frame), 0)
        assert (read.transactional_id, read.acks, read.topics) == (None, acks, [(topic, [(index, records)])])
    one = read_one_partition_of_transaction(version, memoryview(frame), 0)
    if one is not None:
        acks, topic, index, records = one
        read = read_produce_request(version, memoryview(frame), 0)
        assert read.transactional_id is not None
        assert (read.acks, read.topics) == (acks, [(topic, [(index, records)])])


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 9])
@given(
    name=st.text(min_size=1, max_size=40),
    acks=INT16,
    index=INT32,
    records=st.binary(min_size=1, max_size=300),
    id=st.text(max_size=60),
)
def test_one_partition_without_more_is_the_usual_shape(version, name, acks, index, records, id):
    topic = declared.TopicProduceData(
        **({"topic_id": name.encode()[:16].ljust(16, b"-")} if version >= 13 else {"name": name}),
        partition_data=[declared.PartitionProduceData(index=index, records=records)],
    )
    frame = memoryview(encode(declared.ProduceRequest(acks=acks, topic_data=[topic]), version))
    transaction = declared.ProduceRequest(transactional_id=id, acks=acks, topic_data=[topic])
    raw = topic.topic_id if version >= 13 else name.encode()
    usual = len(raw) < 127
    expected = (acks, raw, index, records) if usual else None
    assert read_one_partition(version, frame, 0) == expected
    assert read_one_partition_of_transaction(version, frame, 0) is None
    frame = memoryview(encode(transaction, version))
    assert read_one_partition(version, frame, 0) is None
    is_short = 0 < len(id.encode()) < 127
    assert read_one_partition_of_transaction(version, frame, 0) == (expected if is_short else None)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 9])
@given(name=st.binary(min_size=1, max_size=126), numbers=st.tuples(INT32, INT64, INT64, INT64, INT32, INT32))
def test_the_answer_to_the_usual_shape_is_written_as_any_other(version, name, numbers):
    index, base_offset, log_append_time_ms, log_start_offset, correlation_id, throttle_time_ms = numbers
    name = name.ljust(16, b"-")[:16] if version >= 13 else name
    offsets = (base_offset, log_append_time_ms, log_start_offset)
    result = PartitionResult(index, 0, *offsets)
    assert write_one_partition(
        version, correlation_id, name, index, *offsets, throttle_time_ms
    ) == write_produce_response(version, correlation_id, [(name, [result])], throttle_time_ms)


OFFSETS = {
    "partition": INT32,
    "base_offset": INT64,
    "log_append_time_ms": INT64,
    "log_start_offset": INT64,
}
SUCCESSES = st.fixed_dictionaries(OFFSETS).map(lambda offsets: PartitionResult(**offsets))
FAILURES = st.builds(
    PartitionResult,
    **OFFSETS,
    error_code=INT16.filter(bool),
    record_errors=st.lists(st.tuples(INT32, TEXT), max_size=2).map(tuple),
    error_message=TEXT,
    leader_id=INT32,
    leader_epoch=INT32,
)
RESULTS = st.lists(
    st.tuples(st.text(max_size=5).map(str.encode), st.lists(SUCCESSES | FAILURES, max_size=3)), max_size=3
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=max(10, settings().max_examples // 10))
@given(topics=RESULTS, correlation_id=INT32, throttle_time_ms=INT32)
def test_responses_are_written_as_declared(version, topics, correlation_id, throttle_time_ms):
    if version >= 13:
        topics = [(name.ljust(16, b"\0")[:16], results) for name, results in topics]
    expected = declared.ProduceResponse(
        throttle_time_ms=throttle_time_ms,
        responses=[
            declared.TopicProduceResponse(
                **({"topic_id": name} if version >= 13 else {"name": name.decode()}),
                partition_responses=[declared_result(version, result) for result in results],
            )
            for name, results in topics
        ],
    )
    header = encode(headers.ResponseHeader(correlation_id=correlation_id), 1 if version >= 9 else 0)
    body = bytes(header + encode(expected, version))
    written = write_produce_response(version, correlation_id, topics, throttle_time_ms)
    assert bytes(written) == len(body).to_bytes(4, "big") + body


def declared_result(version: int, result: PartitionResult) -> declared.PartitionProduceResponse:
    expected = declared.PartitionProduceResponse(
        index=result.partition,
        error_code=result.error_code,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )
    if version >= 8:
        expected.error_message = result.error_message
        expected.record_errors = [
            declared.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in result.record_errors
        ]
    if version >= 10 and result.leader_epoch >= 0:
        expected.current_leader = declared.LeaderIdAndEpoch(
            leader_id=result.leader_id, leader_epoch=result.leader_epoch
        )
    return expected


NO_TRANSACTION = b"\0" + b"\xff\xff" + b"\0\0\0\1"
NO_TRANSACTION_3 = b"\xff\xff" + b"\xff\xff" + b"\0\0\0\1"
NULL_4 = b"\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("version", "frame"),
    [
        pytest.param(3, NO_TRANSACTION_3 + NULL_4, id="topics, v3"),
        pytest.param(3, NO_TRANSACTION_3 + b"\0\0\0\1" + b"\xff\xff" + bytes(4), id="name, v3"),
        pytest.param(3, NO_TRANSACTION_3 + b"\0\0\0\1" + b"\0\1t" + NULL_4, id="partitions, v3"),
        pytest.param(9, NO_TRANSACTION + b"\0" + b"\0", id="topics, v9"),
        pytest.param(9, NO_TRANSACTION + b"\2" + b"\0" + b"\1" + b"\0\0", id="name, v9"),
        # Read one byte back, the null would be taken for an empty list of partitions.
        pytest.param(9, NO_TRANSACTION + b"\2" + b"\0" + b"\0" + b"\0", id="name and nothing, v9"),
        pytest.param(9, NO_TRANSACTION + b"\2" + b"\2t" + b"\0" + b"\0\0", id="partitions, v9"),
        pytest.param(13, NO_TRANSACTION + b"\2" + bytes(16) + b"\0" + b"\0\0", id="partitions, v13"),
    ],
)
def test_null_is_refused_where_there_must_be_something(version: int, frame: bytes):
    with pytest.raises(ProtocolError, match="null"):
        read_produce_request(version, memoryview(frame), 0)
    with pytest.raises(ProtocolError, match="null"):
        decode(declared.ProduceRequest, version, frame)


def test_header_and_body_read_as_one_frame():
    for version in VERSIONS:
        frame = write_request_header(ApiKey.PRODUCE, version, 5, "me")
        encode(declared.ProduceRequest(acks=-1, timeout_ms=9), version, frame)
        header = read_request_header(frame, {ApiKey.PRODUCE: 9})
        assert header[:4] == (ApiKey.PRODUCE, version, 5, b"me")
        read = read_produce_request(version, memoryview(frame), header.body_position)
        assert (read.acks, read.timeout_ms, read.topics) == (-1, 9, [])
