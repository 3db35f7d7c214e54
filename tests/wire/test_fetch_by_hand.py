"""The hand-packed fetch request and response against the declared messages, for every version."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_samples import damage, sample, versions_of

from moldau.wire.codec import ProtocolError, decode, decode_whole, encode
from moldau.wire.fetch import (
    FLEXIBLE_FROM,
    FetchPartition,
    PartitionHead,
    begin_partition,
    begin_response,
    begin_topic,
    end_partition,
    end_response,
    end_topic,
    finish_frame,
    read_fetch_request,
)
from moldau.wire.messages import fetch as declared
from moldau.wire.messages import headers

VERSIONS = list(versions_of(declared.FetchRequest))
INT16, INT32, INT64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))


def raw_topic(version: int, topic: declared.FetchTopic | declared.ForgottenTopic) -> bytes:
    return topic.topic_id if version >= 13 else topic.topic.encode()


@pytest.mark.parametrize("version", VERSIONS)
@given(random=st.randoms(use_true_random=True))
def test_requests_read_as_declared(version: int, random: Random):
    request = sample(declared.FetchRequest, version, random)
    before = random.randbytes(random.randrange(4))  # stands for the header
    read = read_fetch_request(version, memoryview(before + encode(request, version)), len(before))
    for name in (
        "max_wait_ms",
        "min_bytes",
        "max_bytes",
        "isolation_level",
        "session_id",
        "session_epoch",
        "rack_id",
    ):
        assert getattr(read, name) == getattr(request, name), name
    replica = (request.replica_state.replica_id, request.replica_state.replica_epoch)
    assert (read.replica_id, read.replica_epoch) == (replica if version >= 15 else (request.replica_id, -1))
    assert read.partitions == [
        FetchPartition(
            raw_topic(version, topic),
            partition.partition,
            partition.current_leader_epoch,
            partition.fetch_offset,
            partition.last_fetched_epoch,
            partition.log_start_offset,
            partition.partition_max_bytes,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    assert read.forgotten == [
        (raw_topic(version, topic), partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", VERSIONS)
@given(random=st.randoms(use_true_random=True))
def test_a_damaged_request_is_refused_by_hand_where_the_declared_one_is(version: int, random: Random):
    frame = encode(sample(declared.FetchRequest, version, random), version)
    damage(frame, random)
    try:
        decode(declared.FetchRequest, version, frame)
        well_formed = True
    except ProtocolError as error:
        # Not looked at by hand: whether a topic's name is UTF-8 (if not, it is a topic that nobody has),
        # and what is inside the tagged fields that a leader of a partition has no use for.
        problem = str(error)
        well_formed = None if "codec can't decode" in problem or version >= FLEXIBLE_FROM else False
    try:
        read_fetch_request(version, memoryview(frame), 0)
        accepted = True
    except ProtocolError:
        accepted = False
    assert well_formed in (accepted, None)


HEAD_4, HEAD_11, HEAD_15 = bytes(17), bytes(25), bytes(21)
NULL_4 = b"\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("version", "frame"),
    [
        pytest.param(4, HEAD_4 + NULL_4, id="topics, v4"),
        pytest.param(4, HEAD_4 + b"\0\0\0\1" + b"\xff\xff" + bytes(4), id="name, v4"),
        pytest.param(4, HEAD_4 + b"\0\0\0\1" + b"\0\1t" + NULL_4, id="partitions, v4"),
        pytest.param(11, HEAD_11 + bytes(4) + NULL_4 + bytes(2), id="forgotten topics, v11"),
        pytest.param(11, HEAD_11 + bytes(8) + b"\xff\xff", id="rack, v11"),
        pytest.param(12, HEAD_11 + b"\0" + b"\1" + b"\1" + b"\0", id="topics, v12"),
        pytest.param(12, HEAD_11 + b"\2" + b"\0" + b"\1\0" + b"\1" + b"\1" + b"\0", id="name, v12"),
        pytest.param(12, HEAD_11 + b"\1" + b"\1" + b"\0" + b"\0", id="rack, v12"),
        pytest.param(15, HEAD_15 + b"\1" + b"\0" + b"\1" + b"\0", id="forgotten topics, v15"),
    ],
)
def test_null_is_refused_where_there_must_be_something(version: int, frame: bytes):
    with pytest.raises(ProtocolError, match="null"):
        read_fetch_request(version, memoryview(frame), 0)
    with pytest.raises(ProtocolError, match="null"):
        decode(declared.FetchRequest, version, frame)


TAG_BEGIN = HEAD_15 + b"\1" + b"\1" + b"\1"  # nothing asked, nothing forgotten, no rack
REPLICA_4 = b"\0\0\0\4" + b"\0\0\0\0\0\0\0\x09"


def test_the_state_of_a_replica_is_found_among_other_tags():
    for tags in (
        b"\1" + b"\1\x0d" + REPLICA_4 + b"\0",
        b"\3" + b"\0\2\2c" + b"\1\x10" + REPLICA_4 + b"\1\7\1x" + b"\7\0",
    ):
        read = read_fetch_request(15, memoryview(TAG_BEGIN + tags), 0)
        assert (read.replica_id, read.replica_epoch) == (4, 9)


@pytest.mark.parametrize("size", [0, 4, 12, 14, 100])
def test_the_state_of_a_replica_fills_its_tag(size: int):
    frame = TAG_BEGIN + b"\1" + b"\1" + bytes([size]) + REPLICA_4 + b"\0" + bytes(max(0, size - 13))
    with pytest.raises(ProtocolError):
        read_fetch_request(15, memoryview(frame), 0)
    with pytest.raises(ProtocolError):
        decode_whole(declared.FetchRequest, 15, frame)


HEADS = st.builds(
    PartitionHead,
    partition=INT32,
    error_code=INT16,
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    aborted=st.none() | st.lists(st.tuples(INT64, INT64), max_size=2),
    diverging_epoch=st.none() | st.tuples(st.integers(0, 2**31 - 1), INT64),
    leader=st.none() | st.tuples(st.integers(0, 2**31 - 1), INT32),
    preferred_read_replica=INT32,
)
RECORDS = st.binary(max_size=5) | st.just(b"r" * 200)
TOPICS = st.lists(
    st.tuples(st.text(max_size=5).map(str.encode), st.lists(st.tuples(HEADS, RECORDS), max_size=3)),
    max_size=3,
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=max(10, settings().max_examples // 10))
@given(topics=TOPICS, correlation_id=INT32, session_id=INT32, error_code=INT16)
def test_responses_are_written_as_declared(version, topics, correlation_id, session_id, error_code):
    if version >= 13:
        topics = [(name.ljust(16, b"\0")[:16], partitions) for name, partitions in topics]
    expected = declared.FetchResponse(
        error_code=error_code if version >= 7 else 0,
        session_id=session_id if version >= 7 else 0,
        responses=[
            declared.FetchableTopicResponse(
                **({"topic_id": name} if version >= 13 else {"topic": name.decode()}),
                partitions=[declared_partition(version, head, records) for head, records in partitions],
            )
            for name, partitions in topics
        ],
    )
    header = encode(headers.ResponseHeader(correlation_id=correlation_id), 1 if version >= 12 else 0)
    body = bytes(header + encode(expected, version))

    out = begin_response(version, correlation_id, session_id, error_code, len(topics))
    for name, partitions in topics:
        begin_topic(version, name, len(partitions), out)
        for head, records in partitions:
            begin_partition(version, head, len(records), out)
            out += records
            end_partition(version, head, out)
        end_topic(version, out)
    end_response(version, out)
    finish_frame(out, len(out))
    assert bytes(out) == len(body).to_bytes(4, "big") + body


def declared_partition(version: int, head: PartitionHead, records: bytes) -> declared.PartitionData:
    aborted = head.aborted
    expected = declared.PartitionData(
        partition_index=head.partition,
        error_code=head.error_code,
        high_watermark=head.high_watermark,
        last_stable_offset=head.last_stable_offset,
        log_start_offset=head.log_start_offset,
        aborted_transactions=None
        if aborted is None
        else [declared.AbortedTransaction(producer_id=id_, first_offset=first) for id_, first in aborted],
        records=records,
    )
    if version >= 11:
        expected.preferred_read_replica = head.preferred_read_replica
    if version >= 12 and head.diverging_epoch is not None:
        epoch, end_offset = head.diverging_epoch
        expected.diverging_epoch = declared.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if version >= 12 and head.leader is not None:
        leader_id, leader_epoch = head.leader
        expected.current_leader = declared.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    return expected
