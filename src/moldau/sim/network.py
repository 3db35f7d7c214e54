"""The simulated network of all hosts, and the door through which one run of one program uses it."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import socket
from collections.abc import Callable
from random import Random

from moldau.runtime.interfaces import Stream

from .faults import PowerCut
from .stream import SimStream
from .wires import Link, Wires

CONNECT_TIMEOUT_S = 127.0  # what Linux takes to give up on a silent peer, with its default of six retries
EPHEMERAL_PORT_MIN = 32768
LOCAL_NAMES = frozenset(("", "localhost", "127.0.0.1", "0.0.0.0", "::", "::1"))


class SimNetwork:
    """Who listens where, and which connections there are."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: Random) -> None:
        self.loop = loop
        self.wires = Wires(loop, rng)
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.streams: dict[SimStream, None] = {}  # in order of creation, which a set would not keep
        self.hosts: dict[str, bool] = {}  # whether it is up
        self._last_port: dict[str, int] = {}

    def is_up(self, host: str) -> bool:
        return self.hosts.get(host, False)

    def reset(self, one: str, other: str) -> None:
        """Break all connections between two hosts; both ends learn of it at once."""
        for stream in list(self.streams):
            if {stream.link.source, stream.link.target} == {one, other}:
                stream.on_reset()

    def end_program(self, host: str, *, silently: bool) -> None:
        """Close what the host's program has open: with resets, or without a word when the power went."""
        for listener in [each for each in self.listeners.values() if each.host == host]:
            listener.close()
        for stream in [each for each in self.streams if each.link.source == host]:
            if silently:
                stream.forget()
            else:
                stream.abort()

    def breaks_connection(self) -> bool:
        return self.wires.reset_chance > 0 and self.wires.rng.random() < self.wires.reset_chance

    def free_port(self, host: str) -> int:
        port = self._last_port.get(host, EPHEMERAL_PORT_MIN - 1) + 1
        while (host, port) in self.listeners:
            port += 1
        self._last_port[host] = port
        return port


class SimListener:
    def __init__(
        self, network: SimNetwork, host: str, port: int, on_accept: Callable[[Stream], None]
    ) -> None:
        self.host = host
        self.port = port
        self._network = network
        self._on_accept = on_accept
        self._context = contextvars.copy_context()
        network.listeners[host, port] = self

    def accept(self, stream: SimStream) -> None:
        self._network.loop.call_soon(self._hand_over, stream, context=self._context)

    def _hand_over(self, stream: SimStream) -> None:
        if self._network.listeners.get((self.host, self.port)) is not self:
            stream.abort()
            return
        try:
            self._on_accept(stream)
        except BaseException:
            stream.close()
            raise

    def close(self) -> None:
        if self._network.listeners.get((self.host, self.port)) is self:
            del self._network.listeners[self.host, self.port]


class SimHostNetwork:
    """The Network of one host's program, dead when the program is."""

    def __init__(self, network: SimNetwork, host: str) -> None:
        self._network = network
        self._host = host
        self._is_shut = False

    def shut(self) -> None:
        self._is_shut = True

    def host_name(self) -> str:
        return self._host

    def listen(
        self,
        host: str,
        port: int,
        on_accept: Callable[[Stream], None],
        *,
        backlog: int = 50,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> SimListener:
        self._check_alive()
        if self._name_of(host) != self._host:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        port = port or self._network.free_port(self._host)
        if (self._host, port) in self._network.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        return SimListener(self._network, self._host, port, on_accept)

    async def connect(self, host: str, port: int) -> SimStream:
        self._check_alive()
        attempt = _Attempt(self._network, self._host, self._name_of(host), port)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return await attempt.result
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
        finally:
            attempt.end()

    def _name_of(self, host: str) -> str:
        if host in LOCAL_NAMES:
            return self._host
        if host not in self._network.hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return host

    def _check_alive(self) -> None:
        if self._is_shut:
            raise PowerCut("the program has ended")


class _Attempt:
    """The handshake: there and back over the links that the connection will use."""

    def __init__(self, network: SimNetwork, source: str, target: str, port: int) -> None:
        self.result: asyncio.Future[SimStream] = network.loop.create_future()
        self._network = network
        self._target = (target, port)
        self._there = Link(network.wires, source, target)
        self._back = Link(network.wires, target, source)
        self._source_port = network.free_port(source)
        self._has_ended = False
        self._there.carry(self._on_request)

    def end(self) -> None:
        self._has_ended = True

    def _on_request(self) -> None:
        listener = self._network.listeners.get(self._target)
        if listener is not None:
            near = SimStream(self._network, self._there, self._target[1])
            far = SimStream(self._network, self._back, self._source_port)
            near.peer, far.peer = far, near
            self._back.carry(lambda: self._on_established(near))
            listener.accept(far)
        elif self._network.is_up(self._target[0]):
            self._back.carry(self._on_refused)

    def _on_established(self, near: SimStream) -> None:
        if self._has_ended:
            near.abort()
        else:
            self.result.set_result(near)

    def _on_refused(self) -> None:
        if not self._has_ended:
            reason = os.strerror(errno.ECONNREFUSED)
            self.result.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, reason))
