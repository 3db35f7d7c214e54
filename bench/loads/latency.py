"""From produce to consume at a fixed rate: an open loop.

One process sends a record of 100 B every millisecond (acks=1), stamped with the time at which it was
meant to be sent, whether or not earlier ones are through; another holds a fetch open at the end of the
log and takes the time when the record is in its hands. A broker that stalls is thereby charged for every
record that had to wait.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import struct
import time
from dataclasses import dataclass

from bench import frames
from bench.loads import Sample, Subject, Unshared, child, child_arguments, topic_of

_RECORD_BYTES = 100
_PER_SECOND = 1000
_STAMP = struct.Struct(">q")
_VALUE_AT = frames.BATCH_HEADER_BYTES + len(frames.record(0, bytes(_RECORD_BYTES))) - _RECORD_BYTES - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(Unshared):
    name: str = "latency"
    seconds: int = 20
    needs_java: bool = False
    on_stub: bool = False

    def run(self, subject: Subject, scale: float) -> Sample:
        broker = subject.running
        with topic_of(broker, self.name) as topic:
            records = max(2, int(self.seconds * scale)) * _PER_SECOND
            return child("latency", bootstrap=broker.bootstrap, topic=topic, records=records)


def generate(bootstrap: str, topic: str, *, records: int) -> Sample:
    """The first second's records are not counted."""
    total = records + _PER_SECOND
    sender = multiprocessing.get_context("spawn").Process(target=send, args=(bootstrap, topic, total))
    sender.start()
    try:
        waits_ns = sorted(receive(bootstrap, topic, total)[_PER_SECOND:])
    finally:
        sender.join(30)
        if sender.exitcode is None:
            sender.kill()
    return {
        "p50_ms": waits_ns[len(waits_ns) // 2] / 1e6,
        "p99_ms": waits_ns[len(waits_ns) * 99 // 100] / 1e6,
        "max_ms": waits_ns[-1] / 1e6,
    }


def send(bootstrap: str, topic: str, count: int) -> None:
    padding = bytes(_RECORD_BYTES - _STAMP.size)
    interval_ns = 1_000_000_000 // _PER_SECOND
    with frames.connect(bootstrap, timeout_s=None) as sock:
        started = time.monotonic_ns() + 200_000_000
        for number in range(count):
            intended = started + number * interval_ns
            if (early := intended - time.monotonic_ns()) > 0:
                time.sleep(early / 1e9)
            records = frames.batch([_STAMP.pack(intended) + padding], time.time_ns() // 1_000_000)
            sock.sendall(frames.produce(topic, records))
            _discard_answers(sock)
        # Half closed, so that what is still unanswered reaches the log before the connection goes.
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65_536):
            pass


def receive(bootstrap: str, topic: str, count: int) -> list[int]:
    """Nanoseconds from intended send to receipt, of each record in order."""
    waits_ns: list[int] = []
    with frames.connect(bootstrap, timeout_s=30) as sock:
        while len(waits_ns) < count:
            answer = frames.fetched(frames.call(sock, frames.fetch(topic, len(waits_ns))), topic)
            now_ns = time.monotonic_ns()
            if answer.error_code:
                raise frames.BrokerAnswered("Fetch", answer.error_code)
            for base_offset, _, batch in frames.batches(answer.records):
                assert base_offset == len(waits_ns), "a record was lost, or came twice"
                waits_ns.append(now_ns - _STAMP.unpack_from(batch, _VALUE_AT)[0])
    return waits_ns


def _discard_answers(sock: socket.socket) -> None:
    try:
        sock.recv(65_536, socket.MSG_DONTWAIT)
    except BlockingIOError:
        pass


if __name__ == "__main__":
    print(json.dumps(generate(**child_arguments())))  # type: ignore[arg-type]
