"""One client's connection: bytes in, requests to a handler one at a time, responses out in the same order.

Reading. What arrives is read into a scratch buffer that all connections share, and the frames in it are
handled at once, so an idle connection owns no buffer. Only a frame that is too large to wait for in the
scratch gets a buffer of its own. Whatever a handler was given is a view of such a buffer and is valid only
until it returns.

Handling. The handler returns the response, or NO_REPLY, or PENDING if it will call `reply` later. While a
reply is pending, nothing more is read: one request of a connection is in progress at a time, so order needs
no other care.

Writing. Responses of all frames of one read leave together, at the end of the loop's turn. When the peer does
not take them, reading stops until it has: a client that does not read cannot make us keep more than
`QUEUED_BYTES_MAX` and one response.

Invariant: the scratch is touched only in callbacks of the loop, never inside another connection's handler;
hence `reply` schedules what remains to be read instead of handling it on the spot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import NamedTuple, Protocol

from moldau.runtime.interfaces import Clock, File, Runtime, Stream
from moldau.wire.codec import ProtocolError

log = logging.getLogger(__name__)

SCRATCH_BYTES = 256 * 1024
# Up to this size a frame that has not arrived whole is copied back and forth, beyond it it gets a buffer.
LEFT_BYTES_MAX = 64 * 1024
# That buffer is as large as the frame up to this size, and doubles from there on as bytes arrive: four bytes
# that announce a frame of 100 MB must not cost 100 MB.
FRAME_BYTES_FIRST = 2 * 1024 * 1024
# Responses are sent when a read's frames are handled, or earlier when they reach this size.
QUEUED_BYTES_MAX = 256 * 1024
# The kernel refuses more buffers in one call than IOV_MAX, 1024.
BUFFERS_PER_SEND = 512

_read_size = Struct(">i").unpack_from


class FileRange(NamedTuple):
    """A part of a response that goes from the page cache to the socket without passing through here."""

    file: File
    position: int
    size: int


class Signal(Enum):
    PENDING = "the handler will call reply"
    NO_REPLY = "the client expects no response"


PENDING = Signal.PENDING
NO_REPLY = Signal.NO_REPLY

Part = bytes | bytearray | memoryview | FileRange
Reply = bytes | bytearray | list[Part]


class RequestTimer(Protocol):
    """What the connection tells the metrics when a response has left."""

    def sent(self, timed: Timed, send_begun_at: float, sent_at: float) -> None: ...


Timed = tuple[RequestTimer, int, int, float, float, float, float]
"""A response on its way: who is told when it has left; the version and the size of its request; and when that
was received, begun, handled, and answered. One that was not parked was answered when it was handled, and both
are the same object."""


Handler = Callable[["Connection", memoryview, float], Reply | Signal]


class ConnectionShared:
    """What the connections of one listener have in common."""

    __slots__ = ("clock", "handle", "max_frame_bytes", "on_close", "runtime", "scratch", "turn")

    def __init__(
        self,
        runtime: Runtime,
        handle: Handler,
        max_frame_bytes: int,
        on_close: Callable[[Connection], None],
        scratch: memoryview | None = None,
    ) -> None:
        self.runtime = runtime
        self.clock: Clock = runtime.clock
        self.handle = handle
        self.max_frame_bytes = max_frame_bytes
        self.on_close = on_close
        self.turn: list[Connection] = []  # read in this turn of the loop, and not yet answered
        self.scratch = memoryview(bytearray(SCRATCH_BYTES)) if scratch is None else scratch
        # An incomplete frame that is kept must leave room to receive the rest of it.
        assert len(self.scratch) > 4 + LEFT_BYTES_MAX

    def flush_turn(self) -> None:
        """Sends what the connections that were read in this turn of the loop have to say. Sending after
        reading, and not in between, wakes a peer with many connections once instead of once for each."""
        turn, self.turn = self.turn, []
        now = self.clock.monotonic()
        for connection in turn:
            now = connection.send_turn(now)


class Connection:
    __slots__ = (
        "_blocked",
        "_busy",
        "_frame",
        "_frame_filled",
        "_frame_size",
        "_left",
        "_muted",
        "_out",
        "_out_bytes",
        "_parked",
        "_shared",
        "_stream",
        "at_close",
        "client_id",
        "client_software",
        "closed",
        "last_active",
        "on_closed",
        "peer_host",
        "peer_port",
        "state",
        "timers",
    )

    def __init__(self, stream: Stream, shared: ConnectionShared) -> None:
        self._stream = stream
        self._shared = shared
        self.peer_host = stream.peer_host
        self.peer_port = stream.peer_port
        self.client_id: str | None = None
        self.client_software = ("unknown", "unknown")
        self.state: object = None  # for the layer above: authentication, listener
        self.on_closed: Callable[[], None] | None = None  # set by whoever holds a pending request
        self.at_close: Callable[[], None] | None = None  # set by whoever keeps something for this client
        self.last_active = shared.clock.monotonic()
        self.closed = False
        self._left = b""  # read but not handled: an incomplete frame, or frames behind a pending one
        self._frame: memoryview | None = None  # a large frame being received
        self._frame_filled = 0
        self._frame_size = 0
        self._busy = False
        self._muted = False
        self._blocked = False
        self._out: list[Part] = []
        self._out_bytes = 0
        self.timers: list[Timed] = []  # of the responses that are queued
        self._parked: tuple[RequestTimer, int, int, float, float, float] | None = None
        stream.watch_readable(self._on_readable)

    @property
    def busy(self) -> bool:
        """A request is waiting for its reply, or a response for the peer to take it."""
        return self._busy or bool(self._out)

    @property
    def awaits_reply(self) -> bool:
        """A request waits for its reply. While it does, a silent peer is not an idle one."""
        return self._busy

    def has_failed(self) -> bool:
        """Whether the peer is known to be gone, although nothing was said to the reader."""
        return self._stream.has_failed()

    # ------------------------------------------------------------ reading

    def _on_readable(self) -> None:
        if self._busy or self._blocked:
            self._muted = True
            self._stream.watch_readable(None)
            return
        shared = self._shared
        now = self.last_active = shared.clock.monotonic()
        try:
            if self._frame is not None:
                count = self._stream.recv_into(self._frame[self._frame_filled :])
                if count == 0:
                    self.close()
                    return
                self._frame_filled += count
                if self._frame_filled < len(self._frame):
                    return
                if self._frame_filled < self._frame_size:
                    self._enlarge_frame(2 * self._frame_filled)
                    return
                data, self._frame = self._frame, None
            else:
                scratch = shared.scratch
                left = self._left
                if left:
                    kept = len(left)
                    scratch[:kept] = left
                    count = self._stream.recv_into(scratch[kept:])
                    self._left = b""  # not before: there may have been nothing to receive
                    data = scratch[: kept + count]
                else:
                    count = self._stream.recv_into(scratch)
                    data = scratch[:count]
                if count == 0:
                    self.close()
                    return
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            log.debug("connection from %s:%d failed: %s", self.peer_host, self.peer_port, error)
            self.close()
            return
        self._handle_frames(data, now)

    def _handle_frames(self, data: memoryview, received_at: float) -> None:
        shared = self._shared
        handle, out = shared.handle, self._out
        position, end = 0, len(data)
        try:
            while end - position >= 4:
                (size,) = _read_size(data, position)
                if size <= 0 or size > shared.max_frame_bytes:
                    raise ProtocolError(
                        f"a request of {size} bytes (socket.request.max.bytes is {shared.max_frame_bytes})"
                    )
                frame_end = position + 4 + size
                if frame_end > end:
                    if size > LEFT_BYTES_MAX:
                        self._begin_large_frame(data[position:], 4 + size)
                        position = end
                    break
                reply = handle(self, data[position + 4 : frame_end], received_at)
                position = frame_end
                if reply.__class__ is bytes or reply.__class__ is bytearray:
                    out.append(reply)
                    self._out_bytes += len(reply)
                elif reply.__class__ is list:
                    self._queue(reply)
                elif reply is PENDING:
                    self._busy = True
                    break
                if self.closed:
                    return
                if self._out_bytes >= QUEUED_BYTES_MAX:
                    self._flush(shared.clock.monotonic())
                    if self._blocked or self.closed:
                        break
        except ProtocolError as error:
            log.warning("closing the connection from %s:%d: %s", self.peer_host, self.peer_port, error)
            self.close_behind_responses()
            return
        except BaseException:
            self.close()  # our bug: what the peer gets next would answer another request
            raise
        if self.closed:
            return
        if position < end:
            self._left = bytes(data[position:])
        if out:
            if not shared.turn:
                shared.runtime.call_soon(shared.flush_turn)
            shared.turn.append(self)

    def _begin_large_frame(self, start: memoryview, size: int) -> None:
        self._frame, self._frame_filled, self._frame_size = start, len(start), size
        self._enlarge_frame(FRAME_BYTES_FIRST)

    def _enlarge_frame(self, size: int) -> None:
        filled, frame = self._frame, memoryview(bytearray(min(size, self._frame_size)))
        assert filled is not None
        frame[: len(filled)] = filled
        self._frame = frame

    def _resume(self) -> None:
        """Goes on after a reply, or after the peer has taken what was queued."""
        if self.closed or self._busy or self._blocked:
            return
        if self._left:
            left, self._left = self._left, b""
            scratch = self._shared.scratch
            scratch[: len(left)] = left  # it fits: it came from there
            self._handle_frames(scratch[: len(left)], self._shared.clock.monotonic())
        if self._muted and not (self.closed or self._busy or self._blocked):
            self._muted = False
            self._stream.watch_readable(self._on_readable)

    # ------------------------------------------------------------ writing

    def reply(self, reply: Reply | Signal) -> None:
        """The response to the request for which the handler returned PENDING."""
        if self.closed:
            return
        assert self._busy
        self._busy = False
        self.on_closed = None
        self.last_active = self._shared.clock.monotonic()
        if self._parked is not None:
            self.timers.append((*self._parked, self.last_active))
            self._parked = None
        if isinstance(reply, list):
            self._queue(reply)
        elif isinstance(reply, bytes | bytearray):
            self._out.append(reply)
            self._out_bytes += len(reply)
        self._flush(self.last_active)
        if self._left or self._muted:
            self._shared.runtime.call_soon(self._resume)

    def time_parked(
        self,
        timer: RequestTimer,
        version: int,
        size: int,
        received_at: float,
        begun_at: float,
        handled_at: float,
    ) -> None:
        """Have `timer` told when the response to a pending request has left."""
        self._parked = (timer, version, size, received_at, begun_at, handled_at)

    @property
    def responses_unsent(self) -> int:
        """Responses that wait for the peer to take them."""
        return len(self.timers)

    def _queue(self, parts: list[Part]) -> None:
        self._out += parts
        for part in parts:
            self._out_bytes += part.size if isinstance(part, FileRange) else len(part)

    def send_turn(self, now: float) -> float:
        """Sends what the requests of this turn are answered with. When that was through."""
        if self._out and not self._blocked and not self.closed:
            return self._flush(now)
        return now

    def _flush(self, begun_at: float) -> float:
        """Sends what is queued, from `begun_at` on. When that was through."""
        out = self._out
        try:
            if len(out) == 1 and out[0].__class__ is not FileRange:
                # What nearly every response is: one buffer that the socket takes whole.
                sent = self._stream.send(out)  # type: ignore[arg-type]
                if sent == len(out[0]):
                    out.clear()
                else:
                    self._drop_sent(out, sent)  # type: ignore[arg-type]
            if out:
                self._send_queued()
        except (BlockingIOError, InterruptedError):
            if not self._blocked:
                self._blocked = True
                self._stream.watch_writable(self._on_writable)
            return begun_at
        except OSError as error:
            log.debug("connection from %s:%d failed: %s", self.peer_host, self.peer_port, error)
            self.close()
            return begun_at
        self._out_bytes = 0
        sent_at = self._shared.clock.monotonic()
        timers = self.timers
        for timed in timers:
            timed[0].sent(timed, begun_at, sent_at)
        timers.clear()
        return sent_at

    def _send_queued(self) -> None:
        """Sends until nothing is left or it would block; what was sent has left the queue either way."""
        out, stream = self._out, self._stream
        while out:
            part = out[0]
            if part.__class__ is FileRange:
                size = part.size
                if not size:
                    del out[0]
                    continue
                sent = stream.send_file(part.file, part.position, size)
                if sent == 0:
                    raise ConnectionError("a segment is shorter than the response that was promised from it")
                if sent < size:
                    out[0] = FileRange(part.file, part.position + sent, size - sent)
                else:
                    del out[0]
                continue
            buffers: list[bytes | bytearray | memoryview] = []
            send = stream.send
            for candidate in out[:BUFFERS_PER_SEND]:
                if isinstance(candidate, FileRange):
                    send = stream.send_before_file
                    break
                buffers.append(candidate)
            self._drop_sent(buffers, send(buffers))

    def _drop_sent(self, buffers: list[bytes | bytearray | memoryview], sent: int) -> None:
        out, whole = self._out, 0
        for part in buffers:
            size = len(part)
            if sent < size:
                if sent:
                    # A view: copying the rest each time would be quadratic in a large response.
                    out[whole] = memoryview(part)[sent:]
                break
            sent -= size
            whole += 1
        del out[:whole]

    def _on_writable(self) -> None:
        self.last_active = self._shared.clock.monotonic()
        self._flush(self.last_active)
        if self._out or self.closed:
            return  # it takes a large response in many parts: watching goes on until the last of them
        self._blocked = False
        self._stream.watch_writable(None)
        self._resume()

    # ------------------------------------------------------------ the end

    def close_behind_responses(self) -> None:
        """Ends it at the request being handled: those before it are answered, however frames arrive."""
        if self._out and not self.closed:
            self._flush(self._shared.clock.monotonic())
        self.close()

    def close(self) -> None:
        """Drops what was not sent. Whoever holds a pending request is told by `on_closed`."""
        if self.closed:
            return
        self.closed = True
        self._stream.close()
        self._out.clear()
        self.timers.clear()
        self._left, self._frame = b"", None
        self._shared.on_close(self)
        if self.on_closed is not None:
            on_closed, self.on_closed = self.on_closed, None
            on_closed()
        if self.at_close is not None:
            at_close, self.at_close = self.at_close, None
            at_close()
