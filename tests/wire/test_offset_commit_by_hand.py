"""The hand-packed offset commit and its answer against the declared messages."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_samples import damage, sample, versions_of

from moldau.wire.codec import decode, encode
from moldau.wire.ids import Uuid
from moldau.wire.messages import headers
from moldau.wire.messages import offset_commit as declared
from moldau.wire.offset_commit import read_usual_commit, write_usual_answer

VERSIONS = list(versions_of(declared.OffsetCommitRequest))
INT16, INT32, INT64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))
TEXT = st.text(max_size=40)
OFFSETS = st.lists(st.tuples(INT32, INT64, INT32, st.none() | TEXT), max_size=4)
TOPICS = st.lists(st.tuples(st.text(max_size=14), OFFSETS), max_size=4)


def name_of(version: int, name: str) -> dict[str, object]:
    return {"topic_id": Uuid(name.encode().ljust(16, b"-")[:16])} if version >= 10 else {"name": name}


def request_of(version, texts, instance_id, generation, topics) -> declared.OffsetCommitRequest:
    group_id, member_id = texts
    return declared.OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id if version >= 7 else None,
        topics=[
            declared.OffsetCommitRequestTopic(
                **name_of(version, name),
                partitions=[
                    declared.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset, leader_epoch, metadata in offsets
                ],
            )
            for name, offsets in topics
        ],
    )


def values_of(version: int, request: declared.OffsetCommitRequest) -> tuple[object, ...]:
    return (
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        [
            (
                topic.topic_id if version >= 10 else topic.name,
                [
                    (
                        each.partition_index,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.committed_metadata or "",
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(random=st.randoms(use_true_random=True), damaged=st.booleans(), more=st.binary(max_size=3))
def test_what_is_read_by_hand_is_what_was_declared(version, random: Random, damaged, more):
    before = random.randbytes(random.randrange(4))  # stands for the header
    body = encode(sample(declared.OffsetCommitRequest, version, random), version)
    if damaged:
        damage(body, random)
    check(version, bytes(before + body + more), len(before))


@pytest.mark.parametrize("version", [8, 9, 10])
@given(
    texts=st.tuples(TEXT, TEXT),
    instance_id=st.none() | TEXT,
    generation=INT32,
    topics=TOPICS,
    random=st.randoms(use_true_random=True),
)
def test_what_is_cut_or_damaged_is_not_taken_for_another(
    version, texts, instance_id, generation, topics, random: Random
):
    body = encode(request_of(version, texts, instance_id, generation, topics), version)
    check(version, bytes(body[: random.randrange(len(body))]), 0)
    damage(body, random)
    check(version, bytes(body), 0)


def check(version: int, frame: bytes, position: int) -> None:
    """If it can be read by hand it can be read as declared, and is the same."""
    usual = read_usual_commit(version, frame, position)
    if usual is not None:
        read, end = decode(declared.OffsetCommitRequest, version, frame, position)
        assert end <= len(frame)
        assert usual == values_of(version, read)
        assert read.retention_time_ms == -1


@pytest.mark.parametrize("version", VERSIONS)
@given(texts=st.tuples(TEXT, TEXT), instance_id=st.none() | TEXT, generation=INT32, topics=TOPICS)
def test_what_is_short_and_without_tags_is_the_usual_shape(version, texts, instance_id, generation, topics):
    request = request_of(version, texts, instance_id, generation, topics)
    read = read_usual_commit(version, bytes(encode(request, version)), 0)
    written = [topic.topic_id if version >= 10 else topic.name for topic in request.topics]
    strings = [*texts, instance_id, *(name for name, _ in topics if version < 10)]
    strings += [metadata for _, offsets in topics for *_, metadata in offsets]
    is_usual = (
        version >= 8
        and 0 < len(written) == len(set(written))
        and all(len((text or "").encode()) < 127 for text in strings)
    )
    assert read == (values_of(version, request) if is_usual else None)


@pytest.mark.parametrize("version", [8, 9, 10])
@given(topics=TOPICS, correlation_id=INT32, random=st.randoms(use_true_random=True))
def test_the_answer_is_written_as_declared(version, topics, correlation_id, random: Random):
    codes = [random.randrange(-1, 200) for _, offsets in topics for _ in offsets]
    left = iter(codes)
    expected = declared.OffsetCommitResponse(
        topics=[
            declared.OffsetCommitResponseTopic(
                **name_of(version, name),
                partitions=[
                    declared.OffsetCommitResponsePartition(partition_index=index, error_code=next(left))
                    for index, *_ in offsets
                ],
            )
            for name, offsets in topics
        ]
    )
    body = encode(headers.ResponseHeader(correlation_id=correlation_id), 1)
    encode(expected, version, body)
    asked = [(next(iter(name_of(version, name).values())), offsets) for name, offsets in topics]
    assert write_usual_answer(correlation_id, asked, codes) == len(body).to_bytes(4, "big") + body
