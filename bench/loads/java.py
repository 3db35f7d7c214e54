"""Kafka's own Java clients: ProducerPerformance, ConsumerPerformance, a consumer that is warm when timed."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from bench.kafka import java_tool
from bench.loads import Sample, Subject, Unshared, topic_of
from bench.loads.shared_topic import SharedTopic

_CONSUMER = Path(__file__).parent.parent / "java" / "AssignedConsumerPerf.java"
_STEADY = re.compile(r"^\d+ steady state records sent, ([\d.]+) records/sec", re.MULTILINE)
# Start and end, data and records in all and per second, then times and rates of fetching alone.
_CONSUMED = re.compile(r"^[\d:. -]+, [\d:. -]+, \S+, \S+, (\d+), \S+, \S+, \S+, (\S+), \S+$", re.MULTILINE)
_PASS = re.compile(r"^records=(\d+) seconds=\S+ MB/s=(\S+) records/s=(\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaProduce(Unshared):
    """ProducerPerformance with default batching; the throughput is the tool's own of its steady state."""

    name: str
    record_bytes: int
    records: int
    acks: str
    needs_java: bool = True
    on_stub: bool = True

    def run(self, subject: Subject, scale: float) -> Sample:
        broker = subject.running
        records = int(self.records * scale)
        with topic_of(broker, self.name) as topic:
            cpu_before = broker.cpu_seconds()
            done = java_tool(
                "org.apache.kafka.tools.ProducerPerformance",
                *("--bootstrap-server", broker.bootstrap, "--topic", topic),
                *("--num-records", str(records), "--record-size", str(self.record_bytes)),
                *("--warmup-records", str(records // 4), "--throughput", "-1"),
                *("--command-property", f"acks={self.acks}"),
            )
            cpu_s = broker.cpu_seconds() - cpu_before
        found = _STEADY.search(done.stdout)
        if done.returncode or found is None:
            raise RuntimeError(f"ProducerPerformance failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        gigabytes = records * self.record_bytes / 1e9
        return {"records_per_s": float(found.group(1)), "cpu_s_per_gb": cpu_s / gigabytes}


class JavaConsumePerf(SharedTopic):
    """ConsumerPerformance: one pass over 1 KB records in the page cache, in a group of its own. The
    throughput is the tool's own without the time that the group took to form; its JVM warms up in it."""

    name = "consume-perf"
    needs_java = True

    def measure(self, subject: Subject, topic: str, records: int, scale: float) -> Sample:
        done = java_tool(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", subject.running.bootstrap, "--topic", topic),
            *("--num-records", str(records), "--group", f"perf-{time.time_ns()}", "--timeout", "20000"),
            "--hide-header",
        )
        found = _CONSUMED.search(done.stdout)
        if done.returncode or found is None or int(found.group(1)) < records:
            raise RuntimeError(f"ConsumerPerformance failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        return {"mb_per_s": float(found.group(2)) * (1 << 20) / 1e6}


class JavaConsume(SharedTopic):
    """A Java consumer of 1 KB records in the page cache, in passes of which the first is its warm-up: what
    ConsumerPerformance, which reads once, would say if it were warm."""

    name = "consume-java"
    needs_java = True
    passes = 3

    def measure(self, subject: Subject, topic: str, records: int, scale: float) -> Sample:
        broker = subject.running
        cpu_before = broker.cpu_seconds()
        done = java_tool(str(_CONSUMER), broker.bootstrap, topic, str(records), str(self.passes))
        cpu_s = broker.cpu_seconds() - cpu_before
        found = _PASS.findall(done.stdout)
        if done.returncode or len(found) != self.passes:
            raise RuntimeError(f"AssignedConsumerPerf failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        timed = [float(mb_per_s) for _, mb_per_s, _ in found[1:]]
        gigabytes = self.passes * records * self.record_bytes / 1e9
        return {"mb_per_s": sum(timed) / len(timed), "cpu_s_per_gb": cpu_s / gigabytes}
