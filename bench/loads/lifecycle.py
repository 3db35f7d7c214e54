"""What a broker costs before and after its work: time to start, memory. Each run starts its own."""

from __future__ import annotations

import time

from bench import frames, topics
from bench.brokers import Broker
from bench.loads import Sample, Subject, Unshared
from bench.loads.raw_fetch import plan

_TOPIC = "first"


class Start(Unshared):
    """From the launch of the process on a formatted directory to the first record acknowledged, topic new.

    Apache Kafka's own formatting step is not counted; Moldau formats as it starts.
    """

    name = "start"
    needs_java = False
    on_stub = False

    def run(self, subject: Subject, scale: float) -> Sample:
        broker = subject.fresh()
        broker.prepare()
        try:
            return {"seconds": first_acknowledged(broker)}
        finally:
            broker.__exit__(None, None, None)


class Memory(Unshared):
    """Resident memory of the process tree, some seconds after the start and after 1 GB in and out."""

    name = "memory"
    needs_java = False
    on_stub = False
    settle_s = 5
    total_bytes = 1_000_000_000

    def run(self, subject: Subject, scale: float) -> Sample:
        with subject.fresh() as broker:
            time.sleep(self.settle_s)
            idle = broker.resident_bytes()
            topics.create(broker.bootstrap, _TOPIC)
            topics.fill(broker.bootstrap, _TOPIC, int(self.total_bytes * scale), 1000)
            plan(broker.bootstrap, _TOPIC)  # reads it all
            return {"idle_mib": idle / (1 << 20), "loaded_mib": broker.resident_bytes() / (1 << 20)}


def first_acknowledged(broker: Broker, timeout_s: float = 60) -> float:
    request = frames.produce(_TOPIC, frames.batch([b"x" * 100], int(time.time() * 1000)))
    started = time.monotonic()
    broker.launch()
    while time.monotonic() - started < timeout_s:
        try:
            with frames.connect(broker.bootstrap) as sock:
                while not topics.leader_known(sock, _TOPIC):
                    time.sleep(0.002)
                if frames.produce_error(frames.call(sock, request), _TOPIC) == 0:
                    return time.monotonic() - started
        except OSError:
            pass  # not listening yet
        time.sleep(0.002)
    raise TimeoutError(f"{broker.name} acknowledged nothing in {timeout_s:.0f} s")
