"""`python -m bench.in_tests`: what a run of tests pays for its broker, from nothing to the first acknowledged
record, formatting included: Moldau as `moldau.testing` starts it, and Apache Kafka's JVM. They take turns.

Processor time stands beside the time on the clock, because it comes out the same on a machine that has other
work.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench import brokers, procfs
from bench.kafka import java_missing, kafka_classpath
from bench.loads.lifecycle import first_acknowledged
from moldau.testing.nodes import node


class Cost(NamedTuple):
    seconds: float
    cpu_seconds: float
    mib: float


def moldau() -> Cost:
    cpu, begun = _ended_cpu(), time.monotonic()
    with node() as running:
        running.produce("first", b"x" * 100)
        seconds = time.monotonic() - begun
        return Cost(seconds, *_used(running.process.pid, cpu))


def kafka() -> Cost:
    with tempfile.TemporaryDirectory() as directory:
        broker = brokers.Kafka(Path(directory) / "kafka")
        cpu, begun = _ended_cpu(), time.monotonic()
        broker.prepare()
        try:
            first_acknowledged(broker)
            seconds = time.monotonic() - begun
            return Cost(seconds, *_used(broker.pid, cpu))
        finally:
            broker.__exit__(None, None, None)


def _used(pid: int, ended_before: float) -> tuple[float, float]:
    """Processor time of the process and of those that ended on the way, and resident MiB."""
    return procfs.cpu_seconds(pid) + _ended_cpu() - ended_before, procfs.resident_bytes(pid) / (1 << 20)


def _ended_cpu() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    subjects: dict[str, Callable[[], Cost]] = {"moldau": moldau}
    if missing := java_missing():
        print(f"without Apache Kafka: {missing}")
    else:
        kafka_classpath()  # the jars are fetched before anything is timed
        subjects["kafka"] = kafka
    costs: dict[str, list[Cost]] = {name: [] for name in subjects}
    for _ in range(runs):
        for name, measure in subjects.items():
            costs[name].append(measure())
    print(f"{'':8}{'seconds':>10}{'CPU s':>10}{'MiB':>10}   medians of {runs}")
    for name, measured in costs.items():
        medians = [statistics.median(column) for column in zip(*measured, strict=True)]
        print(f"{name:8}" + "".join(f"{median:10.2f}" for median in medians))


if __name__ == "__main__":
    main()
