"""The client's half of produce against the declared messages, for every version."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_samples import damage, sample, versions_of

from moldau.wire.codec import ProtocolError, decode, encode
from moldau.wire.messages import produce as declared
from moldau.wire.produce_client import read_produce_response, write_produce_request

VERSIONS = list(versions_of(declared.ProduceRequest))


@pytest.mark.parametrize("version", VERSIONS)
@given(random=st.randoms(use_true_random=True))
def test_requests_are_written_as_declared(version: int, random: Random):
    request = sample(declared.ProduceRequest, version, random)
    for topic in request.topic_data:
        for partition in topic.partition_data:
            partition.records = partition.records or b""
    pieces = write_produce_request(
        version,
        request.transactional_id,
        request.acks,
        request.timeout_ms,
        [
            (
                topic.topic_id if version >= 13 else topic.name.encode(),
                [(partition.index, partition.records) for partition in topic.partition_data],
            )
            for topic in request.topic_data
        ],
    )
    assert (
        decode(declared.ProduceRequest, version, b"".join(pieces))[0]
        == decode(declared.ProduceRequest, version, encode(request, version))[0]
    )


def test_batches_are_not_copied():
    batch = bytearray(b"batch")
    pieces = write_produce_request(13, None, -1, 1, [(bytes(16), [(0, batch), (1, batch)])])
    assert [piece is batch for piece in pieces] == [False, True, False, True, False]


@pytest.mark.parametrize("version", VERSIONS)
@given(random=st.randoms(use_true_random=True))
def test_responses_read_as_declared(version: int, random: Random):
    response = sample(declared.ProduceResponse, version, random)
    frame = encode(response, version)
    response = decode(declared.ProduceResponse, version, frame)[0]
    before = random.randbytes(random.randrange(4))  # stands for the header
    read = read_produce_response(version, before + frame, len(before))
    assert read.throttle_time_ms == response.throttle_time_ms
    assert [tuple(endpoint) for endpoint in read.endpoints] == [
        (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
        for endpoint in response.node_endpoints
    ]
    assert read.topics == [
        (
            topic.topic_id if version >= 13 else topic.name.encode(),
            [
                (
                    result.index,
                    result.error_code,
                    result.base_offset,
                    result.log_append_time_ms,
                    result.log_start_offset,
                    tuple(
                        (each.batch_index, each.batch_index_error_message) for each in result.record_errors
                    ),
                    result.error_message,
                    result.current_leader.leader_id,
                    result.current_leader.leader_epoch,
                )
                for result in topic.partition_responses
            ],
        )
        for topic in response.responses
    ]


@pytest.mark.parametrize("version", VERSIONS)
@given(random=st.randoms(use_true_random=True))
def test_a_damaged_response_is_refused_or_read(version: int, random: Random):
    frame = encode(sample(declared.ProduceResponse, version, random), version)
    damage(frame, random)
    try:
        read_produce_response(version, frame, 0)
    except ProtocolError:
        pass
