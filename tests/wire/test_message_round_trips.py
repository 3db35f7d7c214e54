"""Every message of every version: what is encoded is what is decoded, and kio understands the same by it."""

import io
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from message_samples import api_messages, kio_type, names_in_kio, plain, sample, versions_of

from moldau.wire.codec import decode_whole, encode
from moldau.wire.messages import consumer_protocol, control_records, headers
from moldau.wire.schema import Message

APIS = list(api_messages())
OTHERS = [
    value
    for module in (consumer_protocol, control_records, headers)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Message) and value is not Message
]
# A few examples of six hundred message versions add up; the thorough profile tries more.
few = settings(max_examples=max(3, settings().max_examples // 25))
CHANCE = st.randoms(use_true_random=True)


@pytest.mark.parametrize("message", APIS + OTHERS, ids=lambda message: message.__name__)
@few
@given(random=CHANCE)
def test_what_is_encoded_is_decoded(message: type[Message], random: Random):
    for version in versions_of(message):
        sent = sample(message, version, random)
        encoded = encode(sent, version)
        assert decode_whole(message, version, encoded) == sent
        assert decode_whole(message, version, memoryview(encoded)) == sent


@pytest.mark.parametrize("message", APIS, ids=lambda message: message.__name__)
@few
@given(random=CHANCE)
def test_kio_reads_and_writes_the_same(message: type[Message], random: Random):
    for version in versions_of(message):
        kio = kio_type(message, version)
        sent = sample(message, version, random, kio)
        encoded = bytes(encode(sent, version))
        theirs, size = entity_reader(kio)(encoded, 0)
        assert size == len(encoded)
        assert_same(plain(sent), plain(theirs), f"{message.__name__} v{version}")
        written = io.BytesIO()
        entity_writer(kio)(written, theirs)
        assert written.getvalue() == encoded


def assert_same(ours: Any, theirs: Any, where: str) -> None:
    if isinstance(theirs, dict):
        named = {name: ours_name for ours_name in ours for name in names_in_kio(ours_name)}
        for name, value in theirs.items():
            assert_same(ours[named[name]], value, f"{where}.{name}")
    elif isinstance(theirs, list):
        assert len(theirs) == len(ours), where
        for index, value in enumerate(theirs):
            assert_same(ours[index], value, f"{where}[{index}]")
    elif theirs is None and ours in (bytes(16), -1):
        pass  # kio's way to say that there is no id, or no time
    else:
        assert theirs == ours, where
