"""What kafka-producer-perf-test 4.3 prints of a run: a line for each interval, and one at the end.

Latencies are whole milliseconds, as Kafka's tool takes them; nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Mapping

from moldau.perf.measure.numbers import fixed, ratio

_MIB = 1024 * 1024
_FRACTIONS = (0.5, 0.95, 0.99, 0.999)


class ProduceStats:
    """Counts what was acknowledged. With a warm-up there are two of it: one for all, which falls silent when
    the warm-up is over, and one for the steady state."""

    def __init__(self, now_ms: int, interval_ms: int, *, is_steady: bool = False) -> None:
        self.count = 0
        self.bytes = 0
        self.is_silent = False
        self._start_ms = now_ms
        self._interval_ms = interval_ms
        self._is_steady = is_steady
        self._latencies: dict[int, int] = {}
        self._told_steady = not is_steady
        self._new_window(now_ms)

    def _new_window(self, now_ms: int) -> None:
        self._window_start_ms = now_ms
        self._window_count = 0
        self._window_bytes = 0
        self._window_latency = 0
        self._window_max = 0

    def record(self, now_ms: int, latency_ms: int, size: int, count: int = 1) -> list[str]:
        """`count` records of `size` bytes together, all of which took as long. Gives the lines to print."""
        self.count += count
        self.bytes += size
        self._latencies[latency_ms] = self._latencies.get(latency_ms, 0) + count
        self._window_count += count
        self._window_bytes += size
        self._window_latency += latency_ms * count
        self._window_max = max(self._window_max, latency_ms)
        if now_ms - self._window_start_ms < self._interval_ms:
            return []
        lines: list[str] = []
        if not self._told_steady:
            self._told_steady = True
            lines.append("In steady state.")
        if not self.is_silent:
            lines.append(self._window_line(now_ms))
        self._new_window(now_ms)
        return lines

    def _window_line(self, now_ms: int) -> str:
        elapsed_ms = now_ms - self._window_start_ms
        per_second = ratio(1000.0 * self._window_count, elapsed_ms)
        mib = ratio(1000.0 * self._window_bytes, elapsed_ms) / _MIB
        average = ratio(self._window_latency, self._window_count)
        return (
            f"{self._window_count} records sent, {fixed(per_second, 1)} records/sec "
            f"({fixed(mib, 2)} MB/sec), {fixed(average, 1)} ms avg latency, "
            f"{fixed(self._window_max, 1)} ms max latency."
        )

    def per_second(self, now_ms: int) -> float:
        return ratio(1000.0 * self.count, now_ms - self._start_ms)

    def summary(self, now_ms: int) -> Mapping[str, float]:
        """The numbers of the last line, by name."""
        p50, p95, p99, p999 = self._percentiles()
        total = sum(latency * count for latency, count in self._latencies.items())
        return {
            "records": self.count,
            "records_per_second": self.per_second(now_ms),
            "mib_per_second": ratio(1000.0 * self.bytes, now_ms - self._start_ms) / _MIB,
            "latency_avg_ms": ratio(total, self.count),
            "latency_max_ms": max(self._latencies, default=0),
            "latency_p50_ms": p50,
            "latency_p95_ms": p95,
            "latency_p99_ms": p99,
            "latency_p999_ms": p999,
        }

    def total_line(self, now_ms: int) -> str:
        of = self.summary(now_ms)
        steady = " steady state" if self._is_steady else ""
        return (
            f"{self.count}{steady} records sent, {fixed(of['records_per_second'], 6)} records/sec "
            f"({fixed(of['mib_per_second'], 2)} MB/sec), {fixed(of['latency_avg_ms'], 2)} ms avg latency, "
            f"{fixed(of['latency_max_ms'], 2)} ms max latency, {of['latency_p50_ms']} ms 50th, "
            f"{of['latency_p95_ms']} ms 95th, {of['latency_p99_ms']} ms 99th, "
            f"{of['latency_p999_ms']} ms 99.9th."
        )

    def _percentiles(self) -> list[int]:
        """Of the sorted latencies those at these fractions of their number."""
        places = [int(fraction * self.count) for fraction in _FRACTIONS]
        found: list[int] = []
        seen = 0
        for latency in sorted(self._latencies):
            seen += self._latencies[latency]
            while len(found) < len(places) and places[len(found)] < seen:
                found.append(latency)
        return found + [0] * (len(places) - len(found))
