"""One record of 100 B a request: the cost of a request itself.

The generator sends one encoded request over and over and does no more with the answers than count them by
their size and look at an error code, so that it stays several times faster than any broker.
"""

from __future__ import annotations

import json
import select
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass

from bench import frames, procfs
from bench.loads import Sample, Subject, Unshared, child, child_arguments, topic_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRecord(Unshared):
    name: str
    connections: int
    in_flight: int
    requests: int
    needs_java: bool = False
    on_stub: bool = True

    def run(self, subject: Subject, scale: float) -> Sample:
        broker = subject.running
        with topic_of(broker, self.name) as topic:
            return child(
                "one_record",
                bootstrap=broker.bootstrap,
                topic=topic,
                pid=broker.pid,
                connections=self.connections,
                in_flight=self.in_flight,
                requests=int(self.requests * scale),
            )


def generate(
    bootstrap: str, topic: str, *, pid: int, connections: int, in_flight: int, requests: int
) -> Sample:
    """A quarter more requests go first, untimed."""
    request = frames.produce(topic, frames.batch([b"x" * 100], int(time.time() * 1000)))
    with ExitStack() as stack:
        sockets = [stack.enter_context(frames.connect(bootstrap, timeout_s=None)) for _ in range(connections)]
        answer_bytes = 4 + len(frames.call(sockets[0], request))
        exchange = _Exchange(sockets, request, answer_bytes, 4 + frames.produce_error_at(topic))
        exchange.run(requests // 4, in_flight)
        cpu_before, own_before, started = procfs.cpu_seconds(pid), time.process_time(), time.monotonic()
        exchange.run(requests, in_flight)
        elapsed = time.monotonic() - started
        own_s, cpu_s = time.process_time() - own_before, procfs.cpu_seconds(pid) - cpu_before
    return {
        "requests_per_s": requests / elapsed,
        "cpu_s_per_100k": cpu_s / requests * 100_000,
        "generator_busy": own_s / elapsed,
    }


class _Exchange:
    """Requests out and answers in, over all connections, from one thread."""

    def __init__(
        self, sockets: list[socket.socket], request: bytes, answer_bytes: int, error_at: int
    ) -> None:
        self._sockets = {sock.fileno(): sock for sock in sockets}
        self._request = request
        self._answer_bytes = answer_bytes
        self._error_at = error_at

    def run(self, requests: int, in_flight: int) -> None:
        """Send this many with so many in flight a connection, until all are answered."""
        request, answer_bytes, error_at = self._request, self._answer_bytes, self._error_at
        sockets = self._sockets
        partial = dict.fromkeys(sockets, 0)
        unsent = unanswered = requests
        with select.epoll() as poll:
            for number, sock in sockets.items():
                poll.register(number, select.EPOLLIN)
                first = min(in_flight, unsent)
                sock.sendall(request * first)
                unsent -= first
            while unanswered > 0:
                ready = poll.poll(30)
                if not ready:
                    raise TimeoutError("no answer for 30 s")
                for number, _ in ready:
                    sock = sockets[number]
                    data = sock.recv(65_536)
                    if not data:
                        raise ConnectionError("the broker closed the connection")
                    before = partial[number]
                    if not before and data[error_at : error_at + 2].strip(b"\0"):
                        code = int.from_bytes(data[error_at : error_at + 2], "big", signed=True)
                        raise frames.BrokerAnswered("Produce", code)
                    answered, partial[number] = divmod(before + len(data), answer_bytes)
                    unanswered -= answered
                    following = min(answered, unsent)
                    if following:
                        sock.sendall(request if following == 1 else request * following)
                        unsent -= following


if __name__ == "__main__":
    print(json.dumps(generate(**child_arguments())))  # type: ignore[arg-type]
