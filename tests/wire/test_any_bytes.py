"""Whatever bytes arrive: a message or a ProtocolError, in memory that is in proportion to them."""

import struct
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_samples import api_messages, damage, sample, versions_of

from moldau.wire.api import ApiKey, request_type
from moldau.wire.codec import (
    STRING_BYTES_MAX,
    ProtocolError,
    UnsupportedFieldError,
    decode,
    decode_whole,
    encode,
)
from moldau.wire.fetch import read_fetch_request
from moldau.wire.headers import read_request_header, write_request_header
from moldau.wire.messages.api_versions import ApiVersionsRequest
from moldau.wire.messages.fetch import FetchRequest
from moldau.wire.messages.headers import RequestHeader
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.messages.produce import ProduceRequest
from moldau.wire.produce import read_produce_request
from moldau.wire.schema import Message

few = settings(max_examples=max(3, settings().max_examples // 25))
CHANCE = st.randoms(use_true_random=True)
FLEXIBLE_FROM = {
    key: request_type(key).FLEXIBLE.first for key in ApiKey if request_type(key).FLEXIBLE.last > 1
}


@pytest.mark.parametrize("message", list(api_messages()), ids=lambda message: message.__name__)
@few
@given(random=CHANCE)
def test_damaged_messages(message: type[Message], random: Random):
    for version in versions_of(message):
        frame = encode(sample(message, version, random), version)
        damage(frame, random)
        tolerate(lambda: decode_whole(message, version, frame))  # noqa: B023
        tolerate(lambda: decode(message, version, memoryview(frame)))  # noqa: B023
        tolerate(lambda: decode(message, version, random.randbytes(random.randrange(60))))  # noqa: B023


def tolerate(read) -> None:
    try:
        read()
    except ProtocolError:
        pass


@pytest.mark.parametrize("message", list(api_messages()), ids=lambda message: message.__name__)
def test_a_message_that_is_cut_anywhere_is_refused(message: type[Message]):
    random = Random(5)
    for version in versions_of(message):
        frame = bytes(encode(sample(message, version, random), version))
        cuts = range(len(frame)) if len(frame) < 20 else random.sample(range(len(frame)), 10)
        for cut in cuts:
            with pytest.raises(ProtocolError):
                decode(message, version, frame[:cut])


@given(frame=st.binary(max_size=80))
def test_any_bytes_as_requests_by_hand(frame: bytes):
    view = memoryview(frame)
    for version in versions_of(ProduceRequest):
        tolerate(lambda: read_produce_request(version, view, 0))  # noqa: B023
    for version in versions_of(FetchRequest):
        tolerate(lambda: read_fetch_request(version, view, 0))  # noqa: B023
    tolerate(lambda: read_request_header(view, FLEXIBLE_FROM))


def test_what_is_not_utf_8_is_read_as_java_reads_it():
    name = MetadataRequestTopic(name="topic")
    for version in versions_of(MetadataRequest):
        frame = encode(MetadataRequest(topics=[name]), version).replace(b"topic", b"t\xff\xc3c\xfe")
        decoded = decode_whole(MetadataRequest, version, frame)
        assert decoded.topics is not None
        assert decoded.topics[0].name == "t\ufffd\ufffdc\ufffd"
    for version in versions_of(ProduceRequest):
        request = ProduceRequest(transactional_id="id", acks=1, timeout_ms=1)
        frame = encode(request, version).replace(b"id", b"\xff\xfe")
        assert read_produce_request(version, memoryview(frame), 0).transactional_id == "\ufffd\ufffd"


def test_a_string_is_never_longer_than_the_oldest_version_can_say():
    for version in versions_of(MetadataRequest):
        longest = MetadataRequest(topics=[MetadataRequestTopic(name="x" * STRING_BYTES_MAX)])
        frame = encode(longest, version)
        assert decode_whole(MetadataRequest, version, frame) == longest
        with pytest.raises((UnsupportedFieldError, struct.error)):
            encode(MetadataRequest(topics=[MetadataRequestTopic(name="x" * (STRING_BYTES_MAX + 1))]), version)
        if version in MetadataRequest.FLEXIBLE:
            longer = frame.replace(b"\x80\x80\x02x", b"\x81\x80\x02xx")
            assert len(longer) == len(frame) + 1
            with pytest.raises(ProtocolError):
                decode_whole(MetadataRequest, version, longer)


@pytest.mark.parametrize("message", list(api_messages()), ids=lambda message: message.__name__)
def test_lengths_that_lie_take_no_memory(message: type[Message]):
    """Fillers that read as huge lengths in either encoding, and as the smallest items there are."""
    for version in {message.VERSIONS.first, message.VERSIONS.last}:
        for filler in (b"\x7f\xff", b"\xff\xff\xff\xff\x07", b"\0\0\xff", b"\0", b"\1", b"\xfe\1"):
            frame = memoryview(filler * 500)
            tolerate(lambda: decode(message, version, frame))  # noqa: B023 (compiles the codec)
            tracemalloc.start()
            tolerate(lambda: decode(message, version, frame))  # noqa: B023
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 500 * len(frame) + 50_000


# ---------------------------------------------------------------- headers


@pytest.mark.parametrize("key", list(ApiKey))
def test_request_headers_read_as_declared(key: ApiKey):
    for version in versions_of(request_type(key)):
        for client_id in (None, "", "me", "ř" * 100):
            flexible = version in request_type(key).FLEXIBLE
            frame = write_request_header(key, version, 17, client_id)
            declared = RequestHeader(
                request_api_key=key, request_api_version=version, correlation_id=17, client_id=client_id
            )
            header = read_request_header(frame + b"body", FLEXIBLE_FROM)
            assert header.client_id == (None if client_id is None else client_id.encode())
            assert header[:3] == (key, version, 17)
            assert header.body_position == len(frame)
            # The client id has the old encoding in every version, so only the tags tell them apart.
            assert bytes(frame) == encode(declared, 1) + (b"\0" if flexible else b"")


def test_unknown_tags_of_a_header_are_passed_over():
    frame = write_request_header(ApiKey.API_VERSIONS, 3, 1, "me")
    frame[-1:] = b"\x02\x05\x01x\x87\x01\x02yz"
    body = encode(ApiVersionsRequest(client_software_name="n", client_software_version="1"), 3)
    header = read_request_header(frame + body, FLEXIBLE_FROM)
    request, _ = decode(ApiVersionsRequest, 3, frame + body, header.body_position)
    assert request.client_software_name == "n"


def test_a_header_that_is_cut_anywhere_is_refused():
    frame = write_request_header(ApiKey.METADATA, 12, 1, "me")
    for cut in range(len(frame)):
        with pytest.raises(ProtocolError):
            read_request_header(frame[:cut], FLEXIBLE_FROM)
