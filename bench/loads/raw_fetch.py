"""Fetches of up to 1 MiB by ten connections, from the page cache.

Which offsets to fetch from, and how large the answers are, is learnt in one walk before the timed part.
There the generator looks at the head of each answer only and has the kernel throw the rest away
(MSG_TRUNC), because a copy into Python's memory costs more than the sending it should measure.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from contextlib import ExitStack

from bench import frames, procfs
from bench.loads import Sample, Subject, child, child_arguments
from bench.loads.shared_topic import SharedTopic

_CONNECTIONS = 10
_SCRATCH = bytearray(1 << 20)


class RawFetch(SharedTopic):
    name = "fetch-raw"
    out_bytes = 10_000_000_000

    def measure(self, subject: Subject, topic: str, records: int, scale: float) -> Sample:
        broker = subject.running
        return child(
            "raw_fetch",
            bootstrap=broker.bootstrap,
            topic=topic,
            pid=broker.pid,
            out_bytes=int(self.out_bytes * scale),
        )


def generate(bootstrap: str, topic: str, *, pid: int, out_bytes: int) -> Sample:
    requests = plan(bootstrap, topic)
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(frames.connect(bootstrap, timeout_s=None)) for _ in range(_CONNECTIONS)
        ]
        _exchange(sockets, topic, requests, out_bytes // 10)
        cpu_before, own_before, started = procfs.cpu_seconds(pid), time.process_time(), time.monotonic()
        got = _exchange(sockets, topic, requests, out_bytes)
        elapsed = time.monotonic() - started
        own_s, cpu_s = time.process_time() - own_before, procfs.cpu_seconds(pid) - cpu_before
    return {
        "mb_per_s": got / 1e6 / elapsed,
        "cpu_s_per_gb": cpu_s / (got / 1e9),
        "generator_busy": own_s / elapsed,
    }


def plan(bootstrap: str, topic: str) -> list[bytes]:
    """The fetch requests that read the partition once."""
    requests = []
    offset, end = 0, 1
    with frames.connect(bootstrap) as sock:
        while offset < end:
            request = frames.fetch(topic, offset)
            answer = frames.fetched(frames.call(sock, request), topic)
            if answer.error_code:
                raise frames.BrokerAnswered("Fetch", answer.error_code)
            last = max(last for _, last, _ in frames.batches(answer.records))
            offset, end = last + 1, answer.high_watermark
            requests.append(request)
    return requests


def _exchange(sockets: list[socket.socket], topic: str, requests: list[bytes], out_bytes: int) -> int:
    """One fetch in flight a connection, each going round from a place of its own; bytes received."""
    error_at = 4 + frames.fetch_error_at(topic)
    by_number = {sock.fileno(): sock for sock in sockets}
    next_request = {number: place * len(requests) // len(sockets) for place, number in enumerate(by_number)}
    unread = dict.fromkeys(by_number, 0)
    received = 0

    def send_next(number: int) -> None:
        by_number[number].sendall(requests[next_request[number] % len(requests)])
        next_request[number] += 1

    with select.epoll() as poll:
        for number in by_number:
            poll.register(number, select.EPOLLIN)
            send_next(number)
        busy = len(by_number)
        while busy:
            ready = poll.poll(30)
            if not ready:
                raise TimeoutError("no answer for 30 s")
            for number, _ in ready:
                if left := unread[number]:
                    left -= _discard(by_number[number], left)
                else:
                    left, size = _begin(by_number[number], error_at)
                    received += size
                unread[number] = left
                if left == 0 and received < out_bytes:
                    send_next(number)
                elif left == 0:
                    busy -= 1
    return received


def _begin(sock: socket.socket, error_at: int) -> tuple[int, int]:
    """Read the head of an answer; (bytes of it that are left, size of all of it)."""
    head = sock.recv(error_at + 2, socket.MSG_WAITALL)
    if len(head) < error_at + 2:
        raise ConnectionError("the broker closed the connection")
    if error := struct.unpack_from(">h", head, error_at)[0]:
        raise frames.BrokerAnswered("Fetch", error)
    size = 4 + int.from_bytes(head[:4], "big")
    return size - len(head), size


def _discard(sock: socket.socket, count: int) -> int:
    got = sock.recv_into(_SCRATCH, min(count, len(_SCRATCH)), socket.MSG_TRUNC)
    if got == 0:
        raise ConnectionError("the broker closed the connection")
    return got


if __name__ == "__main__":
    print(json.dumps(generate(**child_arguments())))  # type: ignore[arg-type]
