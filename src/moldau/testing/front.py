"""What stands between a node's connections and its dispatcher in a test: requests are failed, held back or
lost here, as the rules say. A node that is not under test has nothing in this place.

Requests of the helpers of this room pass untouched: a fault is for the code under test.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from moldau.net.connection import NO_REPLY, PENDING, Connection, FileRange, Handler, Reply, Signal
from moldau.runtime.interfaces import Runtime
from moldau.server.api import APIS
from moldau.server.node import Node
from moldau.testing.answers import failed, mark_failed
from moldau.testing.faults import NOTHING, Fail, FaultRules, Lose, Verdict, mentions
from moldau.wire import codec
from moldau.wire.api import ApiKey, camel_name, request_type, response_type
from moldau.wire.codec import ProtocolError
from moldau.wire.errors import ErrorCode
from moldau.wire.headers import RequestHeader, read_request_header, response_is_flexible
from moldau.wire.messages.fetch import FetchRequest, FetchResponse
from moldau.wire.messages.produce import ProduceRequest
from moldau.wire.schema import Message

log = logging.getLogger(__name__)

HELPER_CLIENT_ID = "moldau-testing"
_SERVED = {int(api.key): api for api in APIS}


class Front:
    """Wraps one node's dispatcher; `attach` tells it which node that is."""

    def __init__(self, runtime: Runtime, rules: FaultRules) -> None:
        self._runtime = runtime
        self._rules = rules
        self._node: Node | None = None

    def attach(self, node: Node) -> None:
        self._node = node

    def drop_connections(self) -> int:
        """Closes every client's connection but those of the helpers; how many there were."""
        dropped = 0
        for connection in list(self._connections()):
            if connection.client_id != HELPER_CLIENT_ID:
                connection.close()
                dropped += 1
        return dropped

    def wrap(self, dispatch: Handler) -> Handler:
        def handle(connection: Connection, frame: memoryview, received_at: float) -> Reply | Signal:
            met = self._meet(frame) if self._rules else None
            if met is None:
                return dispatch(connection, frame, received_at)
            if met.verdict.delay_s:
                held = memoryview(bytearray(frame))  # the frame is gone when this returns
                self._runtime.call_later(
                    met.verdict.delay_s, self._go_on, dispatch, connection, held, received_at, met
                )
                return PENDING
            return self._end(dispatch, connection, frame, received_at, met)

        return handle

    def _go_on(
        self, dispatch: Handler, connection: Connection, frame: memoryview, received_at: float, met: _Met
    ) -> None:
        """A request that was held back is done even if its client has gone: it did arrive."""
        try:
            reply = self._end(dispatch, connection, frame, received_at, met)
        except ProtocolError as error:
            log.warning("closing the connection from %s: %s", connection.peer_host, error)
            connection.close()
            return
        if reply is not PENDING:
            connection.reply(reply)

    def _end(
        self, dispatch: Handler, connection: Connection, frame: memoryview, received_at: float, met: _Met
    ) -> Reply | Signal:
        match met.verdict.ending:
            case None:
                return dispatch(connection, frame, received_at)
            case Lose():
                overheard = _Overheard(connection, lambda reply: NO_REPLY)
                if dispatch(overheard, frame, received_at) is PENDING:  # type: ignore[arg-type]
                    return PENDING
                connection.close()
                return NO_REPLY
            case Fail() as fail:
                return self._fail(dispatch, connection, frame, received_at, met, fail)

    def _fail(
        self,
        dispatch: Handler,
        connection: Connection,
        frame: memoryview,
        received_at: float,
        met: _Met,
        fail: Fail,
    ) -> Reply | Signal:
        if met.api is ApiKey.METADATA and not fail.whole:
            # The brokers have to be in it, or clients take it for no answer at all.
            overheard = _Overheard(connection, lambda reply: met.marked(reply, fail.error))
            reply = dispatch(overheard, frame, received_at)  # type: ignore[arg-type]
            return reply if isinstance(reply, Signal) else met.marked(reply, fail.error)
        if isinstance(met.request, ProduceRequest) and met.request.acks == 0:
            raise ProtocolError("a produce without acks was to fail")
        response = failed(met.request, response_type(met.api), met.version, fail.error, whole=fail.whole)
        if response is None:
            raise ProtocolError(f"{camel_name(met.api)} v{met.version} has no room for {fail.error.name}")
        return met.framed(response)

    def _meet(self, frame: memoryview) -> _Met | None:
        """The request and what is to become of it; None if it is nobody's business."""
        api_key, version = int.from_bytes(frame[:2]), int.from_bytes(frame[2:4])
        served = _SERVED.get(api_key)
        if (
            served is None
            or not served.first <= version <= served.last
            or not self._rules.concern(served.key)
        ):
            return None  # what is not served is the dispatcher's to refuse
        api, kind = served.key, request_type(served.key)
        flexible = kind.FLEXIBLE
        header = read_request_header(frame, {api_key: flexible.first} if flexible.last > 0 else {})
        client_id = (header.client_id or b"").decode("utf-8", "replace")
        if client_id == HELPER_CLIENT_ID:
            return None
        request, _ = codec.decode(kind, version, frame, header.body_position)
        met = _Met(api, header, request, NOTHING)
        if isinstance(request, FetchRequest) and request.session_epoch > 0 and self._rules.may_fail(api):
            # What it is about was told in earlier requests: the client is made to say it again.
            lost = Fail(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, whole=True)
            met.verdict = Verdict(0.0, lost)
            return met
        met.verdict = self._rules.decide(api, client_id, lambda topic: mentions(request, self._names(topic)))
        return met if met.verdict != NOTHING else None

    def _names(self, topic: str) -> tuple[object, ...]:
        """What a request may call it: by its name, or by its id."""
        if self._node is None:
            return (topic,)
        image = self._node.services.controller.image.topics.get(topic)
        return (topic,) if image is None else (topic, image.topic_id)

    def _connections(self) -> Iterable[Connection]:
        return () if self._node is None else self._node.connections


class _Met:
    """A request that a rule is about."""

    __slots__ = ("api", "header", "request", "verdict", "version")

    def __init__(self, api: ApiKey, header: RequestHeader, request: Message, verdict: Verdict) -> None:
        self.api = api
        self.version = header.api_version
        self.header = header
        self.request = request
        self.verdict = verdict

    def framed(self, response: Message) -> bytearray:
        if isinstance(response, FetchResponse):
            _give_records(response)
        out = bytearray(4) + self.header.correlation_id.to_bytes(4, signed=True)
        if response_is_flexible(self.api, self.version, self.version in type(response).FLEXIBLE):
            out.append(0)
        codec.encode(response, self.version, out)
        out[:4] = (len(out) - 4).to_bytes(4)
        return out

    def marked(self, reply: Reply | Signal, error: ErrorCode) -> Reply | Signal:
        if isinstance(reply, Signal):
            return reply
        kind = response_type(self.api)
        is_flexible = response_is_flexible(self.api, self.version, self.version in kind.FLEXIBLE)
        response, _ = codec.decode(kind, self.version, _whole(reply), 9 if is_flexible else 8)
        mark_failed(response, self.version, error)
        return self.framed(response)


class _Overheard:
    """A connection whose reply passes through `change` on its way. NO_REPLY ends the connection."""

    __slots__ = ("_change", "_connection")

    def __init__(self, connection: Connection, change: Callable[[Reply | Signal], Reply | Signal]) -> None:
        object.__setattr__(self, "_connection", connection)
        object.__setattr__(self, "_change", change)

    def reply(self, reply: Reply | Signal) -> None:
        changed = self._change(reply)
        if changed is NO_REPLY:
            self._connection.close()
        else:
            self._connection.reply(changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._connection, name, value)


def _whole(reply: Reply) -> bytes:
    if not isinstance(reply, list):
        return bytes(reply)
    return b"".join(
        part.file.read_at(part.size, part.position) if isinstance(part, FileRange) else bytes(part)
        for part in reply
    )


def _give_records(response: FetchResponse) -> None:
    """Brokers send no records as an empty set of them: to some clients null is a breach."""
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.records is None:
                partition.records = b""
