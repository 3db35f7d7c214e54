"""From a frame to its answer, at the edges of what frames can carry."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import Mock

import pytest

from moldau.net.connection import Connection
from moldau.wire import codec
from moldau.wire.api import ApiKey, response_type
from moldau.wire.codec import STRING_BYTES_MAX, ProtocolError
from moldau.wire.errors import ErrorCode as E
from moldau.wire.headers import write_request_header
from moldau.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.schema import Message
from tests.server.sim_node import SimNode


@pytest.fixture(scope="module")
def node() -> Iterator[SimNode]:
    with SimNode() as running:
        yield running


def ask(node: SimNode, request: Message, version: int, *, replaced: tuple[bytes, bytes] = (b"", b"")) -> Any:
    key = ApiKey(request.API_KEY)
    frame = write_request_header(key, version, 7, "client")
    codec.encode(request, version, frame)
    connection = Mock(state="PLAINTEXT")  # that takes the times of the stages
    sent = memoryview(bytes(frame).replace(*replaced))
    reply = node.node.dispatcher.dispatch(cast(Connection, connection), sent, 0.0)
    assert isinstance(reply, bytearray)
    assert struct.unpack_from(">ii", reply) == (len(reply) - 4, 7)
    is_flexible = version in type(request).FLEXIBLE
    return codec.decode_whole(response_type(key), version, bytes(reply[9 if is_flexible else 8 :]))


@pytest.mark.parametrize("version", range(1, 5))
def test_a_message_that_quotes_the_longest_name_can_be_sent(node: SimNode, version: int) -> None:
    name = "x" * STRING_BYTES_MAX
    resource = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
    (result,) = ask(node, DescribeConfigsRequest(resources=[resource]), version).results
    assert (result.resource_name, result.error_code) == (name, E.INVALID_TOPIC_EXCEPTION)
    assert "is longer than" in result.error_message or result.error_message.endswith("…")


@pytest.mark.parametrize("version", [1, 4, 9])
def test_what_cannot_be_answered_closes_the_connection(node: SimNode, version: int) -> None:
    """A name that is not UTF-8 is longer when it is repeated, here than any string may be."""
    name = "x" * STRING_BYTES_MAX
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    with pytest.raises(ProtocolError, match=f"cannot answer Metadata v{version}"):
        ask(node, request, version, replaced=(name.encode(), b"\xff" * len(name)))
