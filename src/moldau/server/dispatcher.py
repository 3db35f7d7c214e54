"""From a frame to its handler, and from the handler's answer to a frame.

The one place that reads request headers, refuses what we do not speak, times the stages, and maps what a
handler raises to an error code. Handlers that wait run as tasks; at most `queued.max.requests` of them run
at a time and the rest wait in line, each holding its connection still, so that the line is never longer
than there are connections."""

from __future__ import annotations

import inspect
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from importlib import import_module
from struct import Struct, error
from typing import Any

from moldau.coordinator.decision import Waiter
from moldau.net.connection import NO_REPLY, PENDING, Connection, Reply, Signal
from moldau.server.api import Api, apis
from moldau.server.context import RequestContext
from moldau.server.metrics.requests import RequestMetrics
from moldau.server.services import Services
from moldau.wire import codec
from moldau.wire.api import ApiKey, camel_name, request_type, response_type
from moldau.wire.codec import ProtocolError, skip_tags
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from moldau.wire.schema import Message

log = logging.getLogger(__name__)

_HEADER = Struct(">hhih").unpack_from
_FRAME = Struct(">ii")
_SIZE = Struct(">i")
_NEVER = 32767

HotHandler = Callable[[Services, Connection, int, int, memoryview, int], "Reply | Signal"]
UsualHandler = Callable[[Services, Connection, int, int, bytes, int], "Reply | Signal | None"]
Handler = Callable[[RequestContext, Any], "Message | Awaitable[Message] | Waiter[Message]"]


class _Entry:
    __slots__ = (
        "api",
        "first",
        "flexible_from",
        "handle",
        "handle_usual",
        "hot",
        "last",
        "metrics",
        "request",
        "response",
        "tags_from",
    )

    def __init__(self, api: Api, errors: Counter[int] | None) -> None:
        self.api = api
        self.first, self.last, self.hot = api.first, api.last, api.hot
        self.metrics = RequestMetrics(camel_name(api.key), errors)
        self.handle: Any = None
        self.handle_usual: UsualHandler | None = None
        self.request: type[Message] = Message
        self.response: type[Message] = Message
        self.flexible_from = _NEVER  # of requests
        self.tags_from = _NEVER  # in the headers of responses

    def load(self) -> None:
        module = import_module(f"moldau.server.api.{self.api.module}")
        self.handle, self.handle_usual = module.handle, getattr(module, "handle_usual", None)
        self.request, self.response = request_type(self.api.key), response_type(self.api.key)
        self.flexible_from = self.request.FLEXIBLE.first if self.request.FLEXIBLE.last > 0 else _NEVER
        # A client reads the answer to ApiVersions before both sides know what they speak: its header never
        # has tags.
        self.tags_from = _NEVER if self.api.key == ApiKey.API_VERSIONS else self.flexible_from


class Dispatcher:
    def __init__(self, services: Services, max_queued: int) -> None:
        self._services = services
        self._monotonic = services.runtime.clock.monotonic
        errors = {ApiKey.PRODUCE: services.produce_errors, ApiKey.FETCH: services.fetch_errors}
        self._entries = {int(api.key): _Entry(api, errors.get(api.key)) for api in apis(services.config)}
        self._max_running = max_queued
        self._running = 0
        self._line: deque[tuple[_Entry, Connection, int, int, Awaitable[Message]]] = deque()

    def metrics(self) -> list[RequestMetrics]:
        return [entry.metrics for entry in self._entries.values()]

    @property
    def queue_size(self) -> int:
        return len(self._line)

    @property
    def in_progress(self) -> int:
        return self._running + len(self._line)

    def dispatch(self, connection: Connection, frame: memoryview, received_at: float) -> Reply | Signal:
        try:
            api_key, version, correlation_id, client_id_size = _HEADER(frame)
        except error:
            raise ProtocolError("a request is shorter than its header") from None
        entry = self._entries.get(api_key)
        if entry is None:
            raise ProtocolError(f"API key {api_key} is not one we serve")
        if not entry.first <= version <= entry.last:
            if api_key == ApiKey.API_VERSIONS:
                return _unsupported_api_versions(entry, correlation_id)
            raise ProtocolError(f"{entry.metrics.name} v{version} is not one we serve")
        if entry.handle is None:
            entry.load()
        position = 10 + client_id_size if client_id_size > 0 else 10
        try:
            if version >= entry.flexible_from:
                position = skip_tags(frame, position) if frame[position] else position + 1
        except IndexError:
            raise ProtocolError("a request is shorter than its header") from None
        metrics = entry.metrics
        begun_at = self._monotonic()
        if entry.hot:
            if connection.client_id is None and client_id_size > 0:
                connection.client_id = str(frame[10 : 10 + client_id_size], "utf-8", "replace")
            try:
                reply: Reply | Signal = entry.handle(
                    self._services, connection, version, correlation_id, frame, position
                )
            except ProtocolError:
                raise
            except Exception as failure:
                raise _broken(entry, version, failure) from failure
        else:
            request = bytes(frame)
            if client_id_size > 0:
                connection.client_id = request[10 : 10 + client_id_size].decode("utf-8", "replace")
            answered = None
            if entry.handle_usual is not None:
                try:
                    answered = entry.handle_usual(
                        self._services, connection, version, correlation_id, request, position
                    )
                except Exception as failure:
                    raise _broken(entry, version, failure) from failure
            if answered is None:
                reply = self._call(entry, connection, version, correlation_id, request, position)
            else:
                reply = answered
                metrics.errors[0] += 1
        handled_at = self._monotonic()
        size = len(frame)
        if reply is PENDING:
            connection.time_parked(metrics, version, size, received_at, begun_at, handled_at)
            return reply
        timed = (metrics, version, size, received_at, begun_at, handled_at, handled_at)
        if reply is NO_REPLY:
            metrics.sent(timed, handled_at, handled_at)
        else:
            connection.timers.append(timed)
        return reply

    def _call(
        self,
        entry: _Entry,
        connection: Connection,
        version: int,
        correlation_id: int,
        frame: bytes,
        position: int,
    ) -> Reply | Signal:
        request, end = codec.decode(entry.request, version, frame, position)
        # Bytes behind the request are ignored, as Kafka does: librdkafka sends some after Metadata.
        if end > len(frame):
            raise ProtocolError(f"{entry.metrics.name} v{version} ends {end - len(frame)} bytes too early")
        context = RequestContext(self._services, connection, version)
        try:
            response = entry.handle(context, request)
        except Exception as failure:
            response = self._failure(entry, version, failure)
        if isinstance(response, Message):
            try:
                return self._frame(entry, version, correlation_id, response)
            except Exception as failure:
                # Ours to correct, unless a name that was not UTF-8 has become too long to be repeated.
                raise ProtocolError(
                    f"cannot answer {entry.metrics.name} v{version}: {failure!r}"
                ) from failure
        if isinstance(response, Waiter):
            return self._answer_waiter(entry, connection, version, correlation_id, response)
        assert inspect.isawaitable(response)
        if self._running < self._max_running:
            self._start(entry, connection, version, correlation_id, response)
        else:
            self._line.append((entry, connection, version, correlation_id, response))
        return PENDING

    def _answer_waiter(
        self,
        entry: _Entry,
        connection: Connection,
        version: int,
        correlation_id: int,
        waiter: Waiter[Message],
    ) -> Reply | Signal:
        """Its answer, if it is there already, as it mostly is. Who has to wait for a rebalance, say, takes no
        task and no place among those that run."""
        if waiter.is_done:
            return self._frame_of(entry, version, correlation_id, waiter)

        def reply() -> None:
            try:
                connection.reply(self._frame_of(entry, version, correlation_id, waiter))
            except Exception:
                log.exception("cannot answer %s v%d", entry.metrics.name, version)
                connection.close()

        waiter.when_done(reply)
        return PENDING

    def _frame_of(
        self, entry: _Entry, version: int, correlation_id: int, waiter: Waiter[Message]
    ) -> bytearray:
        if waiter.failure is not None:
            return self._frame(entry, version, correlation_id, self._failure(entry, version, waiter.failure))
        return self._frame(entry, version, correlation_id, waiter.result())

    def _start(
        self,
        entry: _Entry,
        connection: Connection,
        version: int,
        correlation_id: int,
        response: Awaitable[Message],
    ) -> None:
        self._running += 1
        work = self._finish(entry, connection, version, correlation_id, response)
        self._services.runtime.spawn(work, f"{entry.metrics.name} of {connection.peer_host}")

    async def _finish(
        self,
        entry: _Entry,
        connection: Connection,
        version: int,
        correlation_id: int,
        awaited: Awaitable[Message],
    ) -> None:
        try:
            response = await awaited
        except Exception as failure:
            try:
                response = self._failure(entry, version, failure)
            except ProtocolError:
                connection.close()
                return
        finally:
            self._running -= 1
            if self._line and self._running < self._max_running:
                self._start(*self._line.popleft())
        try:
            reply = self._frame(entry, version, correlation_id, response)
        except Exception:
            log.exception("cannot encode the response to %s v%d", entry.metrics.name, version)
            connection.close()
            return
        connection.reply(reply)

    def _failure(self, entry: _Entry, version: int, failure: Exception) -> Message:
        """The response that tells of a failure of the request as a whole."""
        if isinstance(failure, KafkaError):
            code, message = failure.code, failure.message
        else:
            log.error("%s v%d failed", entry.metrics.name, version, exc_info=failure)
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, "The server met an unexpected condition."
        fields = {field.name for field in entry.response.__fields__ if version in field.versions}
        if "error_code" not in fields:
            raise ProtocolError(f"{entry.metrics.name} failed: {code.name} {message or ''}")
        response: Any = entry.response()
        response.error_code = int(code)
        if "error_message" in fields:
            response.error_message = message
        return response  # type: ignore[no-any-return]

    def _frame(self, entry: _Entry, version: int, correlation_id: int, response: Message) -> bytearray:
        out = bytearray(_FRAME.pack(0, correlation_id))
        if version >= entry.tags_from:
            out.append(0)
        codec.encode(response, version, out)
        _SIZE.pack_into(out, 0, len(out) - 4)
        entry.metrics.errors[getattr(response, "error_code", 0)] += 1
        return out


def _broken(entry: _Entry, version: int, failure: Exception) -> ProtocolError:
    """Our bug. The client cannot be told in its terms by code that just failed, so it is told by the end of
    its connection, and everyone else goes on."""
    log.error("%s v%d failed", entry.metrics.name, version, exc_info=failure)
    return ProtocolError(f"{entry.metrics.name} failed: {failure!r}")


def _unsupported_api_versions(entry: _Entry, correlation_id: int) -> bytearray:
    """In version 0, which every client reads, with the versions of this one API (KIP-511): the client asks
    again."""
    known = ApiVersion(api_key=entry.api.key, min_version=entry.first, max_version=entry.last)
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
    out = bytearray(_FRAME.pack(0, correlation_id))
    codec.encode(response, 0, out)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return out
