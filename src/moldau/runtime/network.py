"""TCP of the machine: non-blocking sockets of our own, watched by the event loop's selector.

asyncio's transports would copy and buffer; the connection above decides what to read into and what to send,
and this module only passes it on. Hot calls are the socket's own methods, bound as attributes.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Sequence

from .files import RealFile
from .interfaces import Buffer, File, Stream

log = logging.getLogger(__name__)

ACCEPTS_PER_WAKEUP = 64  # so that a flood of connections leaves turns for the ones already here
ACCEPT_PAUSE_S = (
    0.1  # out of descriptors or memory: the listener stays readable, so waiting for it would spin
)
COPY_BYTES_MAX = 256 * 1024  # one step of send_file where the kernel cannot do it

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_MORE: int = getattr(socket, "MSG_MORE", 0)  # Linux only
_NO_SENDFILE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


class RealStream:
    __slots__ = ("__weakref__", "_fd", "_loop", "_socket", "peer_host", "peer_port", "recv_into", "send")

    recv_into: Callable[[Buffer], int]
    send: Callable[[Sequence[Buffer]], int]

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connected: socket.socket, peer: tuple[str, int]
    ) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = loop
        self._socket = connected
        self._fd = connected.fileno()
        self.peer_host, self.peer_port = peer
        self.recv_into = connected.recv_into
        self.send = connected.sendmsg

    def fileno(self) -> int:
        return self._fd

    def send_before_file(self, buffers: Sequence[Buffer]) -> int:
        return self._socket.sendmsg(buffers, (), _MORE)

    def send_file(self, file: File, position: int, count: int) -> int:
        if isinstance(file, RealFile):
            try:
                return os.sendfile(self._fd, file.fileno(), position, count)
            except OSError as error:
                if error.errno not in _NO_SENDFILE:
                    raise
        return self._socket.send(file.read_at(min(count, COPY_BYTES_MAX), position))

    def watch_readable(self, callback: Callable[[], None] | None) -> None:
        if self._fd < 0:
            _refuse_watch(callback)
        elif callback is None:
            self._loop.remove_reader(self._fd)
        else:
            self._loop.add_reader(self._fd, callback)

    def watch_writable(self, callback: Callable[[], None] | None) -> None:
        if self._fd < 0:
            _refuse_watch(callback)
        elif callback is None:
            self._loop.remove_writer(self._fd)
        else:
            self._loop.add_writer(self._fd, callback)

    def has_failed(self) -> bool:
        return self._fd >= 0 and self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(fd)
                self._loop.remove_writer(fd)
            self._socket.close()


def _refuse_watch(callback: Callable[[], None] | None) -> None:
    """A closed stream is not watched: there is nothing to stop, and nothing to start."""
    if callback is not None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


class RealListener:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        on_accept: Callable[[Stream], None],
    ) -> None:
        self._loop = loop
        self._socket = listening
        self._on_accept = on_accept
        self._resume: asyncio.TimerHandle | None = None
        self.host, self.port = _host_and_port(listening.getsockname())
        loop.add_reader(listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_WAKEUP):
            if self._socket.fileno() < 0:
                return  # closed by the callback of the connection before
            try:
                connected, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error)
                    return
                # Any other error belongs to the one connection that was taken off the queue: accept(2).
                log.debug(
                    "a connection to %s:%d was gone before it was accepted: %s", self.host, self.port, error
                )
                continue
            self._hand_over(connected, address)

    def _hand_over(self, connected: socket.socket, address: tuple[str, int]) -> None:
        try:
            stream = RealStream(self._loop, connected, _host_and_port(address))
        except OSError:
            connected.close()  # reset between accept and the first socket option
            return
        try:
            self._on_accept(stream)
        except BaseException:
            stream.close()
            raise

    def _pause(self, error: OSError) -> None:
        log.warning(
            "cannot accept on %s:%d, trying again in %g s: %s", self.host, self.port, ACCEPT_PAUSE_S, error
        )
        self._loop.remove_reader(self._socket.fileno())
        self._resume = self._loop.call_later(
            ACCEPT_PAUSE_S, self._loop.add_reader, self._socket.fileno(), self._accept
        )

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        if self._resume is not None:
            self._resume.cancel()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()


class RealNetwork:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def host_name(self) -> str:
        return socket.getfqdn()

    def listen(
        self,
        host: str,
        port: int,
        on_accept: Callable[[Stream], None],
        *,
        backlog: int = 50,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> RealListener:
        family, address = _address_to_bind(host, port)
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            # Accepted sockets inherit these.
            if send_buffer_bytes >= 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            if receive_buffer_bytes >= 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            listening.bind(address)
            listening.listen(backlog)
            return RealListener(self._loop, listening, on_accept)
        except BaseException:
            listening.close()
            raise

    async def connect(self, host: str, port: int) -> RealStream:
        """Try each address of the host in turn; the error of the last one is raised."""
        failure = OSError(errno.EADDRNOTAVAIL, "no address for host", host)
        try:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError:
            raise _no_host_name() from None
        for family, kind, protocol, _, address in found:
            connecting = socket.socket(family, kind, protocol)
            try:
                connecting.setblocking(False)
                await self._loop.sock_connect(connecting, address)
                return RealStream(self._loop, connecting, _host_and_port(connecting.getpeername()))
            except OSError as error:
                connecting.close()
                failure = error
            except BaseException:
                connecting.close()
                raise
        raise failure


def _address_to_bind(host: str, port: int) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    """The empty host is every interface, of both IP versions where there are both. A name with several
    addresses is bound at one, IPv4 first, as Java does: clients are told the name, and must reach it."""
    if not host:
        return (
            (socket.AF_INET6, ("::", port)) if socket.has_dualstack_ipv6() else (socket.AF_INET, ("", port))
        )
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError:
        raise _no_host_name() from None
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, address


def _no_host_name() -> OSError:
    """For what Python cannot even ask the resolver for: an empty label, or one that is too long."""
    return OSError(errno.EINVAL, "not a valid host name")


def _host_and_port(address: tuple[str, int] | tuple[str, int, int, int]) -> tuple[str, int]:
    """As text people expect: an IPv4 peer of a dual-stack listener is shown as IPv4."""
    host = address[0]
    if host.startswith("::ffff:"):
        mapped = ipaddress.IPv6Address(host).ipv4_mapped
        host = str(mapped) if mapped else host
    return host, address[1]
