"""The node's HTTP port: `/metrics` for scrapers, `/health` for whoever starts and watches nodes.

Nothing that is sent to it can harm the node: connections, the bytes of a request and the time that each step
may take are bounded, one rendering of the page serves all who ask while it is made, and an error in it is an
answer of 500 and a line in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from moldau.runtime.interfaces import Listener, Runtime, Stream, Timer
from moldau.server.metrics.http import HttpError, Request, RequestReader, response_head

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 32
REQUEST_TIMEOUT_S = 10.0  # from the first byte to the last, or from the connection when nothing comes
RESPONSE_TIMEOUT_S = 10.0  # without any byte taken
IDLE_TIMEOUT_S = 120.0  # until the next request: scrapers come once or twice a minute
# What a refused client is still sending is read for so long, for it to see the answer and not a reset.
LINGER_S = 1.0
RECEIVE_BYTES = 4096

TEXT = "text/plain; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class MetricsEndpoint:
    """`render` makes the page; `is_ready` says whether the node serves its clients."""

    def __init__(
        self, runtime: Runtime, render: Callable[[], Awaitable[bytes]], is_ready: Callable[[], bool]
    ) -> None:
        self.runtime = runtime
        self._render = render
        self._is_ready = is_ready
        self._rendering: asyncio.Task[bytes] | None = None
        self._listener: Listener | None = None
        self._connections: set[_HttpConnection] = set()

    def listen(self, host: str, port: int) -> int:
        """Takes the address, and returns the port. Raises OSError when it cannot be had."""
        self._listener = self.runtime.network.listen(host, port, self._on_accept)
        return self._listener.port

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            connection.close()
        if self._rendering is not None:
            self._rendering.cancel()

    def _on_accept(self, stream: Stream) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            stream.close()
            return
        self._connections.add(_HttpConnection(self.runtime, stream, self._answer, self._connections.discard))

    async def _answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and content."""
        match path:
            case "/metrics" if self._is_ready():
                try:
                    return 200, PROMETHEUS, await self._page()
                except Exception:
                    log.exception("cannot show the metrics")
                    return 500, TEXT, b"the metrics cannot be shown\n"
            case "/health" if self._is_ready():
                return 200, TEXT, b"ready\n"
            case "/metrics" | "/health":
                return 503, TEXT, b"not ready\n"
            case "/":
                return 200, TEXT, b"/metrics\n/health\n"
            case _:
                return 404, TEXT, b"there are /metrics and /health\n"

    async def _page(self) -> bytes:
        if self._rendering is None:
            self._rendering = self.runtime.spawn(self._render_once(), "render metrics")
        # One scraper that gives up must not take the page away from the others.
        return await asyncio.shield(self._rendering)

    async def _render_once(self) -> bytes:
        try:
            return await self._render()
        finally:
            self._rendering = None


class _HttpConnection:
    """One request after another: nothing is read while one is being answered."""

    def __init__(
        self,
        runtime: Runtime,
        stream: Stream,
        answer: Callable[[str], Awaitable[tuple[int, str, bytes]]],
        on_close: Callable[[_HttpConnection], None],
    ) -> None:
        self._runtime = runtime
        self._stream = stream
        self._answer = answer
        self._on_close = on_close
        self._reader = RequestReader()
        self._out: list[memoryview] = []
        self._keep_alive = True
        self._refused = False
        self._answering: asyncio.Task[None] | None = None
        self._timer: Timer = runtime.call_later(REQUEST_TIMEOUT_S, self.close)
        self._closed = False
        stream.watch_readable(self._on_readable)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._timer.cancel()
        self._stream.close()
        self._out.clear()
        if self._answering is not None:
            self._answering.cancel()
        self._on_close(self)

    def _on_readable(self) -> None:
        received = self._receive()
        if received:
            if self._reader.is_empty:
                self._restart_timer(REQUEST_TIMEOUT_S)
            self._reader.feed(received)
            self._next_request()

    def _receive(self) -> memoryview | None:
        """None when nothing has come. At the end it closes."""
        buffer = memoryview(bytearray(RECEIVE_BYTES))
        try:
            count = self._stream.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            count = 0
        if count == 0:
            self.close()
            return None
        return buffer[:count]

    def _discard(self) -> None:
        self._receive()

    def _next_request(self) -> None:
        try:
            request = self._reader.next_request()
        except HttpError as error:
            self._keep_alive = False
            self._refused = True
            self._stream.watch_readable(None)
            self._send(error.status, TEXT, f"{error.reason}\n".encode())
            return
        if request is None:
            # The timer runs on: who sends a head byte by byte has no more time than others.
            self._stream.watch_readable(self._on_readable)
            return
        self._stream.watch_readable(None)
        self._timer.cancel()
        self._keep_alive = request.keep_alive
        self._answering = self._runtime.spawn(self._respond(request), "answer HTTP request")

    async def _respond(self, request: Request) -> None:
        status, content_type, content = await self._answer(request.path)
        self._answering = None
        self._send(status, content_type, content, with_content=request.method != "HEAD")

    def _send(self, status: int, content_type: str, content: bytes, *, with_content: bool = True) -> None:
        head = response_head(status, content_type, len(content), keep_alive=self._keep_alive)
        self._out = [memoryview(head)]
        if with_content and content:
            self._out.append(memoryview(content))
        self._on_writable()

    def _on_writable(self) -> None:
        if self._closed:
            return
        out = self._out
        try:
            while out:
                sent = self._stream.send(out)
                while out and sent >= len(out[0]):
                    sent -= len(out.pop(0))
                if sent:
                    out[0] = out[0][sent:]
        except (BlockingIOError, InterruptedError):
            self._restart_timer(RESPONSE_TIMEOUT_S)
            self._stream.watch_writable(self._on_writable)
            return
        except OSError:
            self.close()
            return
        self._stream.watch_writable(None)
        if self._keep_alive:
            self._restart_timer(IDLE_TIMEOUT_S)
            self._next_request()
        elif self._refused:
            self._restart_timer(LINGER_S)
            self._stream.watch_readable(self._discard)
        else:
            self.close()

    def _restart_timer(self, seconds: float) -> None:
        self._timer.cancel()
        self._timer = self._runtime.call_later(seconds, self.close)
