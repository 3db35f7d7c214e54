"""The hand-packed commit of one offset and its answer against the declared messages."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_samples import damage, sample, versions_of

from moldau.wire.codec import decode, encode
from moldau.wire.ids import Uuid
from moldau.wire.messages import headers
from moldau.wire.messages import offset_commit as declared
from moldau.wire.offset_commit import OneOffset, read_one_offset, write_one_answer

VERSIONS = list(versions_of(declared.OffsetCommitRequest))
BY_HAND = [version for version in VERSIONS if version >= 8]
INT16, INT32, INT64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))
TEXT = st.text(max_size=40)
NUMBERS = st.tuples(INT32, INT32, INT64, INT32)


def name_of(version: int, name: str) -> dict[str, object]:
    return {"topic_id": Uuid(name.encode().ljust(16, b"-")[:16])} if version >= 10 else {"name": name}


@pytest.mark.parametrize("version", VERSIONS)
@given(random=st.randoms(use_true_random=True), damaged=st.booleans(), more=st.binary(max_size=3))
def test_what_is_read_by_hand_is_what_was_declared(version, random: Random, damaged, more):
    request = sample(declared.OffsetCommitRequest, version, random)
    del request.topics[1:]
    for topic in request.topics:
        del topic.partitions[1:]
    before = random.randbytes(random.randrange(4))  # stands for the header
    body = encode(request, version)
    if damaged:
        damage(body, random)
    frame = bytes(before + body + more)
    one = read_one_offset(version, frame, len(before))
    if one is None:
        return
    read, end = decode(declared.OffsetCommitRequest, version, frame, len(before))
    assert end <= len(frame)
    assert (read.group_instance_id, read.retention_time_ms) == (None, -1)
    ((topic,),) = (read.topics,)
    ((partition,),) = (topic.partitions,)
    assert one == OneOffset(
        read.group_id,
        read.generation_id_or_member_epoch,
        read.member_id,
        topic.topic_id if version >= 10 else topic.name,
        partition.partition_index,
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata,
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(
    texts=st.tuples(TEXT, TEXT, TEXT),
    metadata=st.none() | TEXT,
    instance=st.sampled_from([None, None, None, "", "i"]),
    numbers=NUMBERS,
)
def test_one_offset_without_more_is_the_usual_shape(version, texts, metadata, instance, numbers):
    group_id, member_id, name = texts
    generation, index, offset, leader_epoch = numbers
    partition = declared.OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        committed_metadata=metadata,
    )
    topic = declared.OffsetCommitRequestTopic(**name_of(version, name), partitions=[partition])
    request = declared.OffsetCommitRequest(
        group_id=group_id, generation_id_or_member_epoch=generation, member_id=member_id, topics=[topic]
    )
    if version >= 7:
        request.group_instance_id = instance
    read = read_one_offset(version, bytes(encode(request, version)), 0)
    sizes = [len(text.encode()) for text in (*texts, metadata or "")]
    is_usual = version >= 8 and instance is None and max(sizes) < 127
    told = topic.topic_id if version >= 10 else name
    expected = (group_id, generation, member_id, told, index, offset, leader_epoch, metadata)
    assert read == (expected if is_usual else None)


@pytest.mark.parametrize("version", BY_HAND)
@given(name=st.text(min_size=1, max_size=40), numbers=st.tuples(INT32, INT32), code=INT16)
def test_the_answer_is_written_as_declared(version, name, numbers, code):
    correlation_id, index = numbers
    named = name_of(version, name)
    told = declared.OffsetCommitResponsePartition(partition_index=index, error_code=code)
    topic = declared.OffsetCommitResponseTopic(**named, partitions=[told])
    body = encode(headers.ResponseHeader(correlation_id=correlation_id), 1)
    encode(declared.OffsetCommitResponse(topics=[topic]), version, body)
    (raw,) = named.values()
    assert write_one_answer(correlation_id, raw, index, code) == len(body).to_bytes(4, "big") + body
