"""Topics of a load: made, filled and deleted over the plain protocol, the same way on every subject."""

from __future__ import annotations

import socket
import time

from bench import frames

BATCH_BYTES = 16_384  # the Java producer's default batch.size
NOT_YET = (3, 5, 6)  # unknown topic or partition, leader not available, not leader or follower
IN_FLIGHT = 5  # and its max.in.flight.requests.per.connection


def create(bootstrap: str, topic: str, timeout_s: float = 30) -> None:
    """One partition, by auto-creation."""
    deadline = time.monotonic() + timeout_s
    with frames.connect(bootstrap) as sock:
        while not leader_known(sock, topic):
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {topic} has no leader after {timeout_s:.0f} s")
            time.sleep(0.01)


def create_wide(bootstrap: str, topic: str, partitions: int, timeout_s: float = 30) -> None:
    """Of several partitions; a broker may take the name for unknown until it has heard of it itself."""
    deadline = time.monotonic() + timeout_s
    with frames.connect(bootstrap) as sock:
        asked = frames.call(sock, frames.create_topic(topic, partitions))
        if error := frames.create_topic_error(asked, topic):
            raise frames.BrokerAnswered("CreateTopics", error)
        while not leader_known(sock, topic):
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {topic} has no leader after {timeout_s:.0f} s")
            time.sleep(0.01)


def leader_known(sock: socket.socket, topic: str) -> bool:
    """Whether the topic can be written to; asking creates it."""
    answer = frames.described(frames.call(sock, frames.metadata(topic, create=True)))
    return answer.error_code == 0 and answer.leader >= 0


def delete(bootstrap: str, topic: str) -> None:
    with frames.connect(bootstrap) as sock:
        if error := frames.delete_topic_error(frames.call(sock, frames.delete_topic(topic)), topic):
            raise frames.BrokerAnswered("DeleteTopics", error)


def fill(bootstrap: str, topic: str, total_bytes: int, record_bytes: int) -> int:
    """Write about this many bytes in the Java producer's default batches; returns how many records."""
    count = BATCH_BYTES // (record_bytes + 10)
    values = [bytes([65 + number % 26]) * record_bytes for number in range(count)]
    request = frames.produce(topic, frames.batch(values, int(time.time() * 1000)))
    requests = max(1, total_bytes // (count * record_bytes))
    with frames.connect(bootstrap) as sock:
        write_first(sock, topic, request)
        for sent in range(1, requests + IN_FLIGHT):
            if sent < requests:
                sock.sendall(request)
            if sent > IN_FLIGHT and (error := frames.produce_error(frames.receive(sock), topic)):
                raise frames.BrokerAnswered("Produce", error)
    return requests * count


def write_first(sock: socket.socket, topic: str, request: bytes, timeout_s: float = 30) -> None:
    """A leader that metadata tells of may not have heard of it yet itself."""
    deadline = time.monotonic() + timeout_s
    while error := frames.produce_error(frames.call(sock, request), topic):
        if error not in NOT_YET or time.monotonic() > deadline:
            raise frames.BrokerAnswered("Produce", error)
        time.sleep(0.01)
