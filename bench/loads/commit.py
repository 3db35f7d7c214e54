"""Offset commits of one partition each, by one group or by many: the cost of a commit itself.

As with one-record requests the generator sends frames that are ready and looks at no more of an answer than
its error code. Each connection has one commit in flight, as a consumer has, and goes round its share of the
groups.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle

from bench import frames, group_frames, procfs
from bench.loads import Sample, Subject, Unshared, child, child_arguments, topic_of

PARTITIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Unshared):
    name: str
    groups: int
    connections: int
    commits: int
    needs_java: bool = False
    on_stub: bool = False

    def run(self, subject: Subject, scale: float) -> Sample:
        broker = subject.running
        with topic_of(broker, self.name, PARTITIONS) as topic:
            return child(
                "commit",
                bootstrap=broker.bootstrap,
                topic=topic,
                pid=broker.pid,
                groups=self.groups,
                connections=self.connections,
                commits=int(self.commits * scale),
            )


def generate(bootstrap: str, topic: str, *, pid: int, groups: int, connections: int, commits: int) -> Sample:
    """A quarter more go first, untimed."""
    names = [f"bench-{number}" for number in range(groups)]
    find_coordinators(bootstrap, names)
    requests: list[list[bytes]] = [[] for _ in range(connections)]
    for number in range(max(groups, connections)):
        group, partition = names[number % groups], number % PARTITIONS
        request = group_frames.offset_commit(group, topic, [partition], 1_000_000 + number)
        requests[number % connections].append(request)
    with ExitStack() as stack:
        sockets = [stack.enter_context(frames.connect(bootstrap, timeout_s=None)) for _ in range(connections)]
        answer_bytes = 4 + len(frames.call(sockets[0], requests[0][0]))
        error_at = 4 + group_frames.commit_error_at(topic)
        exchange = _Exchange(sockets, requests, answer_bytes, error_at)
        exchange.run(commits // 4)
        cpu_before, own_before, started = procfs.cpu_seconds(pid), time.process_time(), time.monotonic()
        exchange.run(commits)
        elapsed = time.monotonic() - started
        own_s, cpu_s = time.process_time() - own_before, procfs.cpu_seconds(pid) - cpu_before
    return {
        "commits_per_s": commits / elapsed,
        "cpu_s_per_100k": cpu_s / commits * 100_000,
        "generator_busy": own_s / elapsed,
    }


def find_coordinators(bootstrap: str, groups: Sequence[str], timeout_s: float = 60) -> None:
    """Until there is one for all: whoever asks first brings the topic of all groups into being."""
    request = group_frames.offset_fetch(groups)
    deadline = time.monotonic() + timeout_s
    with frames.connect(bootstrap) as sock:
        while True:
            error = group_frames.first_error(frames.call(sock, group_frames.find_coordinator(groups[0])))
            if not error:
                fetched = group_frames.fetched_offsets(frames.call(sock, request))
                error = next((group.error_code for group in fetched.values() if group.error_code), 0)
            if not error:
                return
            if error not in group_frames.NOT_HERE_YET or time.monotonic() > deadline:
                raise frames.BrokerAnswered("FindCoordinator", error)
            time.sleep(0.02)


class _Exchange:
    """Commits out and answers in, over all connections, from one thread."""

    def __init__(
        self, sockets: list[socket.socket], requests: list[list[bytes]], answer_bytes: int, error_at: int
    ) -> None:
        self._sockets = {sock.fileno(): sock for sock in sockets}
        self._requests = dict(zip(self._sockets, requests, strict=True))
        self._answer_bytes = answer_bytes
        self._error_at = error_at

    def run(self, commits: int) -> None:
        """Send this many, until all are answered."""
        sockets, answer_bytes, error_at = self._sockets, self._answer_bytes, self._error_at
        following = {number: cycle(requests) for number, requests in self._requests.items()}
        unsent = unanswered = commits
        with select.epoll() as poll:
            for number, sock in sockets.items():
                poll.register(number, select.EPOLLIN)
                if unsent:
                    sock.sendall(next(following[number]))
                    unsent -= 1
            while unanswered:
                ready = poll.poll(30)
                if not ready:
                    raise TimeoutError("no answer for 30 s")
                for number, _ in ready:
                    sock = sockets[number]
                    answer = sock.recv(answer_bytes, socket.MSG_WAITALL)
                    if len(answer) < answer_bytes:
                        raise ConnectionError("the broker closed the connection")
                    if answer[error_at : error_at + 2] != b"\0\0":
                        code = int.from_bytes(answer[error_at : error_at + 2], "big", signed=True)
                        raise frames.BrokerAnswered("OffsetCommit", code)
                    unanswered -= 1
                    if unsent:
                        sock.sendall(next(following[number]))
                        unsent -= 1


if __name__ == "__main__":
    print(json.dumps(generate(**child_arguments())))  # type: ignore[arg-type]
