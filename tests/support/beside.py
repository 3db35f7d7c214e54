"""Two nodes that are asked the same, and what a client could tell their answers apart by.

Answers for sending any request in any version over plain sockets, and for a comparison field by field. What
differs by nature is made alike first: ids of topics, ports, directories, throttle times, the order of the
elements of an answer. Of texts that are for people only it counts whether there are any.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from moldau.wire import codec
from moldau.wire.api import ApiKey, response_type
from moldau.wire.headers import response_is_flexible, write_request_header
from moldau.wire.ids import Uuid
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.schema import Message, Struct

TIMEOUT_S = 30
CLOSED = "the connection was closed"
# Their words are each node's own; so are offsets and ids.
FOR_PEOPLE = ("documentation", "error_message")
OWN = ("throttle_time_ms", "cluster_id", "finalized_features_epoch", "high_watermark", "log_end_offset")
_NAMES = ("name", "topic_name", "topic", "resource_name", "feature")


class Peer:
    """A node that is asked over a connection, which is opened anew after the node closed it. Who waits for an
    answer while others ask has a connection of its own, which goes by the name `by`."""

    def __init__(self, bootstrap: str, directories: Collection[Path]) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = host, int(port)
        self._sockets: dict[str, socket.socket] = {}
        self._waiting: dict[str, tuple[type[Message], int]] = {}
        self._topic_names: dict[bytes, str] = {}
        self._texts = {str(directory): f"directory {number}" for number, directory in enumerate(directories)}

    def ask(self, request: Message, version: int, by: str = "") -> Message | str:
        """What the node answers, or CLOSED."""
        self.send(request, version, by)
        return self.receive(by)

    def send(self, request: Message, version: int, by: str = "") -> None:
        assert by not in self._waiting, f"{by} waits for an answer"
        frame = write_request_header(ApiKey(request.API_KEY), version, 7, "beside")
        codec.encode(request, version, frame)
        self._waiting[by] = type(request), version
        self._send(frame, by)

    def receive(self, by: str = "") -> Message | str:
        """The answer to what was sent, or CLOSED."""
        request, version = self._waiting.pop(by)
        answer = self._receive(by)
        if isinstance(answer, str):
            return answer
        key = ApiKey(request.API_KEY)
        position = 5 if response_is_flexible(key, version, version in request.FLEXIBLE) else 4
        response, end = codec.decode(response_type(key), version, answer, position)
        assert end == len(answer)
        return response

    def exchange(self, frame: bytes) -> bytes | str:
        """The frame that answers a frame, or CLOSED."""
        self._send(frame, "")
        return self._receive("")

    def topic_id(self, name: str) -> Uuid:
        """Of a topic that is there, or about to be. From here on it goes by its name in answers."""
        deadline = monotonic() + TIMEOUT_S
        while monotonic() < deadline:
            response: Any = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
            (topic,) = response.topics
            if not topic.error_code:
                self._topic_names[bytes(topic.topic_id)] = name
                return Uuid(topic.topic_id)
        raise TimeoutError(f"there is no topic {name}")

    def call(self, text: str, name: str) -> None:
        """A text that the node has made up goes by a name in answers."""
        self._texts[text] = name

    def plain(self, value: Any) -> Any:
        """The value as it would be on any node."""
        if isinstance(value, Struct):
            return {field.name: self.plain(getattr(value, field.name)) for field in value.__fields__}
        if isinstance(value, list):
            return sorted(map(self.plain, value), key=_order)
        if isinstance(value, bytes) and len(value) == 16 and any(value):
            return f"the id of {self._topic_names.get(value, 'something else')}"
        if isinstance(value, str):
            for text, name in self._texts.items():
                value = value.replace(text, name)
            return value
        return "the port" if value == self._address[1] else value

    def close(self) -> None:
        for name in list(self._sockets):
            self.disconnect(name)

    def disconnect(self, by: str) -> None:
        """Whatever is asked over the connection is given up."""
        self._sockets.pop(by).close()
        self._waiting.pop(by, None)

    def _send(self, frame: bytes | bytearray, by: str) -> None:
        if by not in self._sockets:
            self._sockets[by] = socket.create_connection(self._address, TIMEOUT_S)
        with suppress(ConnectionError):  # then there is no answer either
            self._sockets[by].sendall(struct.pack(">i", len(frame)) + frame)

    def _receive(self, by: str) -> bytes | str:
        try:
            return self._read(struct.unpack(">i", self._read(4, by))[0], by)
        except ConnectionError:
            self.disconnect(by)
            return CLOSED

    def _read(self, size: int, by: str) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._sockets[by].recv(size - len(data))
            if not chunk:
                raise ConnectionError
            data += chunk
        return data


Request = Message | Callable[[Peer], Message]
"""The request, or how to make one for a node, where it holds what is the node's own."""


class Pair(NamedTuple):
    """Also a context manager."""

    theirs: Peer
    ours: Peer

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self:
            peer.close()

    def differences(self, request: Request, versions: Collection[int], ignoring: str = "") -> list[str]:
        """One for each field in which ours answers otherwise than theirs; `ignoring` names such that may."""
        found = []
        for version in versions:
            requests = [request if isinstance(request, Message) else request(peer) for peer in self]
            theirs, ours = (
                peer.plain(peer.ask(asked, version)) for peer, asked in zip(self, requests, strict=True)
            )
            found += [
                f"v{version} of {requests[0]!r:.300}: {difference}"
                for difference in compare(theirs, ours, ignoring)
            ]
        return found

    def settled(self, request: Request, version: int) -> list[str]:
        """`differences` that stay. Kafka's broker hears of what its controller did after the client does."""
        deadline = monotonic() + TIMEOUT_S
        while (found := self.differences(request, [version])) and monotonic() < deadline:
            pass
        return found


def compare(theirs: Any, ours: Any, ignoring: str = "") -> list[str]:
    """What is different in two plain answers."""
    return list(_differences(theirs, ours, path="", ignoring=ignoring.split()))


def _differences(theirs: Any, ours: Any, *, path: str, ignoring: Collection[str]) -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs.keys() | ours.keys():
            if name not in OWN and name not in ignoring:
                one, other = theirs.get(name), ours.get(name)
                if name in FOR_PEOPLE:
                    one, other = bool(one), bool(other)
                yield from _differences(one, other, path=f"{path}.{name}", ignoring=ignoring)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, pair in enumerate(zip(theirs, ours, strict=True)):
            yield from _differences(*pair, path=f"{path}[{number}]", ignoring=ignoring)
    elif theirs != ours:
        yield f"{path} is {ours!r}, and {theirs!r} at Kafka's"


def _order(value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value)
    return repr([value.get(name) for name in (*_NAMES, "resource_type", "source")]) + repr(value)
