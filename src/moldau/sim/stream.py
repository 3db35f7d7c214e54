"""One end of a simulated connection: the kernel's socket, with a bounded receive buffer at the peer.

The sender may have at most `BUFFER_BYTES` outside the reading program's hands (in flight, or received and not
read); then `send` blocks until the peer has read and the news of it has travelled back. Watches are level
triggered: the callback comes once per turn of the loop for as long as there is something to do.
"""

from __future__ import annotations

import contextvars
import errno
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.runtime.interfaces import SEND_BUFFERS_MAX, Buffer, File

from .wires import Link

if TYPE_CHECKING:
    from .network import SimNetwork

BUFFER_BYTES = 64 * 1024
SPLIT_CHANCE = 0.125  # that the bytes of one send arrive as two, at any byte


class SimStream:
    def __init__(self, network: SimNetwork, link: Link, peer_port: int) -> None:
        self.peer_host = link.target
        self.peer_port = peer_port
        self.peer: SimStream
        self.link = link  # towards the peer
        self._network = network
        self._received = bytearray()
        self._room = BUFFER_BYTES
        self._is_closed = False
        self._peer_has_finished = False
        self._failure: type[ConnectionError] | None = None
        self._readable = Watch(network, self._is_readable)
        self._writable = Watch(network, self._is_writable)
        network.streams[self] = None

    def recv_into(self, buffer: Buffer) -> int:
        self._check_open()
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._received))
        if count:
            view[:count] = self._received[:count]
            del self._received[:count]
            self.link.carry(lambda: self.peer.on_room(count))
            return count
        if self._peer_has_finished or not len(view):
            return 0
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def send(self, buffers: Sequence[Buffer]) -> int:
        self._check_open()
        if len(buffers) > SEND_BUFFERS_MAX:
            raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
        if not self._room:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        taken = b"".join(buffers)[: self._room]
        self._room -= len(taken)
        rng = self._network.wires.rng
        if len(taken) > 1 and rng.random() < SPLIT_CHANCE:
            cut = rng.randrange(1, len(taken))
            self._carry(taken[:cut])
            self._carry(taken[cut:])
        elif taken:
            self._carry(taken)
        return len(taken)

    def send_before_file(self, buffers: Sequence[Buffer]) -> int:
        return self.send(buffers)

    def send_file(self, file: File, position: int, count: int) -> int:
        self._check_open()
        if not self._room:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self.send([file.read_at(min(count, self._room), position)])

    def watch_readable(self, callback: Callable[[], None] | None) -> None:
        self._watch(self._readable, callback)

    def watch_writable(self, callback: Callable[[], None] | None) -> None:
        self._watch(self._writable, callback)

    def has_failed(self) -> bool:
        return self._failure is not None

    def close(self) -> None:
        """As the kernel does it: the peer reads to the end, or is reset if we leave bytes unread."""
        if self._is_closed:
            return
        self.forget()
        if self._failure is None:
            self.link.carry(self.peer.on_reset if self._received else self.peer.on_end)

    def abort(self) -> None:
        """The program died without its host: the kernel resets the connection."""
        self.forget()
        self.link.carry(self.peer.on_reset)

    def forget(self) -> None:
        """Gone without a word to the peer, as when the host loses power."""
        self._is_closed = True
        self._readable.set(None)
        self._writable.set(None)
        self._network.streams.pop(self, None)

    def on_bytes(self, data: bytes) -> None:
        if self._network.breaks_connection():
            self.on_reset()
            self.peer.on_reset()
        elif self._is_closed:
            if self._network.is_up(self.link.source):
                self.link.carry(self.peer.on_reset)
        elif self._failure is None:
            self._received += data
            self._readable.notify()

    def on_room(self, count: int) -> None:
        self._room += count
        self._writable.notify()

    def on_end(self) -> None:
        self._peer_has_finished = True
        self._readable.notify()

    def on_reset(self) -> None:
        if self._is_closed or self._failure is not None:
            return
        self._failure = ConnectionResetError
        self._received.clear()
        self._readable.notify()
        self._writable.notify()

    def _carry(self, data: bytes) -> None:
        self.link.carry(lambda: self.peer.on_bytes(data))

    def _watch(self, watch: Watch, callback: Callable[[], None] | None) -> None:
        if self._is_closed and callback is not None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        watch.set(callback)

    def _check_open(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._failure is not None:
            raise self._failure(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    def _is_readable(self) -> bool:
        return bool(self._received) or self._peer_has_finished or self._failure is not None

    def _is_writable(self) -> bool:
        return self._room > 0 or self._failure is not None


class Watch:
    def __init__(self, network: SimNetwork, is_ready: Callable[[], bool]) -> None:
        self._network = network
        self._is_ready = is_ready
        self._callback: Callable[[], None] | None = None
        self._context = contextvars.Context()
        self._is_scheduled = False

    def set(self, callback: Callable[[], None] | None) -> None:
        self._callback = callback
        if callback is not None:
            self._context = contextvars.copy_context()  # whose program it is
            self.notify()

    def notify(self) -> None:
        if self._callback is not None and self._is_ready() and not self._is_scheduled:
            self._is_scheduled = True
            self._network.loop.call_soon(self._fire, context=self._context)

    def _fire(self) -> None:
        self._is_scheduled = False
        if self._callback is not None and self._is_ready():
            try:
                self._callback()
            finally:
                self.notify()
