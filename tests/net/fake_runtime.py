"""A stream, a clock and a loop of plain values: the test decides what arrives, what is taken, and when."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any

from moldau.runtime.interfaces import SEND_BUFFERS_MAX, Buffer


class FakeClock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)


class FakeTimer:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeFile:
    def __init__(self, content: bytes) -> None:
        self.path = "00000000000000000000.log"
        self.content = content


class FakeStream:
    """Receives what the test feeds, a chunk for each call; takes as much as `takes` says, or all."""

    def __init__(self, host: str = "192.0.2.1") -> None:
        self.peer_host, self.peer_port = host, 49152
        self.incoming: deque[bytes | OSError] = deque()
        self.takes: deque[int] = deque()  # how many bytes each of the next sends takes; 0: would block
        self.sent = bytearray()
        self.closed = False
        self.failed = False
        self.on_readable: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None

    def recv_into(self, buffer: Buffer) -> int:
        assert not self.closed
        if not self.incoming:
            raise BlockingIOError
        chunk = self.incoming.popleft()
        if isinstance(chunk, OSError):
            raise chunk
        view = memoryview(buffer)
        size = min(len(view), len(chunk))
        assert size or not chunk, "an empty buffer would read as the end of the stream"
        view[:size] = chunk[:size]
        if size < len(chunk):
            self.incoming.appendleft(chunk[size:])
        return size

    def send(self, buffers: Sequence[Buffer]) -> int:
        assert 0 < len(buffers) <= SEND_BUFFERS_MAX
        return self._take(b"".join(buffers))

    def send_before_file(self, buffers: Sequence[Buffer]) -> int:
        return self.send(buffers)

    def send_file(self, file: FakeFile, position: int, size: int) -> int:
        return self._take(file.content[position : position + size])

    def _take(self, data: bytes) -> int:
        assert not self.closed
        taken = min(self.takes.popleft(), len(data)) if self.takes else len(data)
        if data and not taken:
            raise BlockingIOError
        self.sent += data[:taken]
        return taken

    def watch_readable(self, callback: Callable[[], None] | None) -> None:
        self.on_readable = callback

    def watch_writable(self, callback: Callable[[], None] | None) -> None:
        self.on_writable = callback

    def has_failed(self) -> bool:
        return self.failed

    def close(self) -> None:
        self.closed = True
        self.on_readable = self.on_writable = None


class FakeRuntime:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.random = Random(1)
        self.network = self
        self.files = None
        self.on_accept: Callable[[FakeStream], None] | None = None
        self._soon: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._timers: list[tuple[float, int, FakeTimer, Callable[..., object], tuple[Any, ...]]] = []
        self._order = count()

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._soon.append((callback, args))

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> FakeTimer:
        timer = FakeTimer()
        heapq.heappush(self._timers, (self.clock.now + delay_s, next(self._order), timer, callback, args))
        return timer

    def listen(self, host: str, port: int, on_accept: Callable[[FakeStream], None], **_: int) -> FakeRuntime:
        self.host, self.port = host, port or 9092
        self.on_accept = on_accept
        return self

    def close(self) -> None:
        self.on_accept = None

    def turn(self, *streams: FakeStream) -> None:
        """Runs the loop until nothing is left to do: watches first, then what was called soon."""
        while True:
            progress = False
            for stream in streams:
                if stream.on_readable and stream.incoming:
                    stream.on_readable()
                    progress = True
                if stream.on_writable:
                    stream.on_writable()
                    progress = True
            while self._soon:
                callback, args = self._soon.popleft()
                callback(*args)
                progress = True
            if not progress:
                return

    def sleep(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while self._timers and self._timers[0][0] <= until:
            self.clock.now, _, timer, callback, args = heapq.heappop(self._timers)
            if not timer.cancelled:
                callback(*args)
        self.clock.now = until
