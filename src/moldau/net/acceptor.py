"""Takes connections of one listener in, within their limits, and reaps the idle ones."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from moldau.net.connection import Connection, ConnectionShared, Handler
from moldau.runtime.interfaces import Listener, Runtime, Stream, Timer

log = logging.getLogger(__name__)

# How often connections that fell silent are asked whether they have failed.
FAILED_CHECK_S = 10.0
SILENT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    max_frame_bytes: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: dict[str, int]
    max_idle_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions:
    """Buffer sizes of -1 leave them to the system, which tunes them to the traffic."""

    backlog: int = 50
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


class Acceptor:
    """As in Kafka, a connection over `max.connections` waits until another one goes, and one over the limit
    of its address is closed as it comes. No more wait than the listen backlog holds; beyond that they are
    closed."""

    def __init__(
        self,
        runtime: Runtime,
        limits: ConnectionLimits,
        on_connect: Callable[[Connection], None] | None = None,
        socket_options: SocketOptions | None = None,
    ) -> None:
        self._runtime = runtime
        self.limits = limits
        self._shared: ConnectionShared | None = None
        self._on_connect = on_connect
        self._listener: Listener | None = None
        self._socket_options = socket_options or SocketOptions()
        self._is_open = False
        self._waiting: deque[Stream] = deque()  # for `open`, or for room
        self._reaper: Timer | None = None
        self._failed_check: Timer | None = None
        self._checked_until = runtime.clock.monotonic()
        self._per_ip: Counter[str] = Counter()
        self.connections: dict[Connection, None] = {}  # the oldest first
        self.accepted_total = 0
        self.refused_total = 0
        self.reaped_total = 0

    def listen(self, host: str, port: int) -> int:
        """Takes the address, and returns the port. Raises OSError when it cannot be had. Who connects before
        `open` waits: a node must hold its ports before it can tell anyone about them."""
        options = self._socket_options
        self._listener = self._runtime.network.listen(
            host,
            port,
            self._on_accept,
            backlog=options.backlog,
            send_buffer_bytes=options.send_buffer_bytes,
            receive_buffer_bytes=options.receive_buffer_bytes,
        )
        return self._listener.port

    def open(self, handle: Handler) -> None:
        self._shared = ConnectionShared(self._runtime, handle, self.limits.max_frame_bytes, self._on_close)
        self._is_open = True
        self._admit_waiting()
        self._schedule_reaping()
        self._failed_check = self._runtime.call_later(FAILED_CHECK_S, self._close_failed)

    def change_limits(self, limits: ConnectionLimits) -> None:
        """Those who wait may have room now; those who are in stay. The sizes of frames do not change."""
        self.limits = limits
        self._admit_waiting()

    def stop_accepting(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        if self._failed_check is not None:
            self._failed_check.cancel()
            self._failed_check = None

    def close_connections(self) -> None:
        self._is_open = False
        while self._waiting:
            self._waiting.popleft().close()
        if self._shared is not None:
            self._shared.flush_turn()  # what was handled in this turn of the loop is answered
        for connection in list(self.connections):
            connection.close()

    def _on_accept(self, stream: Stream) -> None:
        if len(self._waiting) >= self._socket_options.backlog:
            self._refuse(stream)
            return
        self._waiting.append(stream)
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        while self._waiting and self._is_open and len(self.connections) < self.limits.max_connections:
            self._admit(self._waiting.popleft())

    def _admit(self, stream: Stream) -> None:
        limits, host = self.limits, stream.peer_host
        if self._per_ip[host] >= limits.max_connections_per_ip_overrides.get(
            host, limits.max_connections_per_ip
        ):
            self._refuse(stream)
            return
        self.accepted_total += 1
        self._per_ip[host] += 1
        assert self._shared is not None, "nobody is let in before it is open"
        connection = Connection(stream, self._shared)
        self.connections[connection] = None
        if self._on_connect is not None:
            self._on_connect(connection)

    def _refuse(self, stream: Stream) -> None:
        self.refused_total += 1
        log.warning("refusing a connection from %s: too many connections", stream.peer_host)
        stream.close()

    def _on_close(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        host = connection.peer_host
        self._per_ip[host] -= 1
        if self._per_ip[host] <= 0:
            del self._per_ip[host]
        self._admit_waiting()

    def _schedule_reaping(self) -> None:
        if self.limits.max_idle_ms > 0:
            # A tenth of the limit: a connection is idle for at most 1.1 times as long as allowed.
            self._reaper = self._runtime.call_later(self.limits.max_idle_ms / 10_000, self._reap)

    def _reap(self) -> None:
        oldest = self._runtime.clock.monotonic() - self.limits.max_idle_ms / 1000
        # A peer that does not take its response is idle too: what is queued for it must not stay for ever. So
        # is, as in Kafka, one whose request waits for longer: it may have gone, and set the wait itself.
        for connection in [c for c in self.connections if c.last_active < oldest]:
            self.reaped_total += 1
            connection.close()
        self._schedule_reaping()

    def _close_failed(self) -> None:
        """Nobody else may ever hear of a reset that came right behind the last bytes (`Stream.has_failed`).
        One look at each connection after it has fallen silent is enough."""
        silent_since = self._runtime.clock.monotonic() - SILENT_S
        for connection in [
            c for c in self.connections if self._checked_until <= c.last_active < silent_since
        ]:
            if not connection.awaits_reply and connection.has_failed():
                connection.close()
        self._checked_until = silent_since
        self._failed_check = self._runtime.call_later(FAILED_CHECK_S, self._close_failed)
