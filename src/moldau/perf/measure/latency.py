"""What kafka-e2e-latency 4.3 prints of a run, and percentiles for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moldau.perf.measure.histogram import Histogram
from moldau.perf.measure.numbers import fixed, ratio

PERCENTS = [50.0, 90.0, 99.0, 99.9, 99.99]


def progress_line(number: int, elapsed_ns: int) -> str:
    return f"{number}\t{elapsed_ns / 1000 / 1000!r}"


def total_lines(latencies_ns: Sequence[int]) -> list[str]:
    """Whole milliseconds, those of the sorted ones at these fractions of their number."""
    ordered = sorted(latency // 1_000_000 for latency in latencies_ns)
    p50, p99, p999 = (ordered[int(len(ordered) * fraction)] for fraction in (0.5, 0.99, 0.999))
    average = ratio(sum(latencies_ns), len(latencies_ns)) / 1000 / 1000
    return [
        f"Avg latency: {fixed(average, 4)} ms",
        f"Percentiles: 50th = {p50}, 99th = {p99}, 99.9th = {p999}",
    ]


def percentile_row(histogram: Histogram) -> list[str]:
    """Mean, percentiles and maximum, in milliseconds, of a histogram of microseconds."""
    if not histogram.count:
        return ["-"] * (len(PERCENTS) + 2)
    values = [histogram.mean, *histogram.percentiles(PERCENTS), histogram.max]
    return [fixed(value / 1000, 3) for value in values]


PERCENTILE_HEADER = ["MEAN MS", *(f"P{percent:g}" for percent in PERCENTS), "MAX"]


def percentile_values(histogram: Histogram) -> Mapping[str, float | int | None]:
    """The same for programs."""
    if not histogram.count:
        return {"count": 0}
    names = ["mean_ms", *(f"p{percent:g}_ms" for percent in PERCENTS), "max_ms"]
    values = [histogram.mean, *histogram.percentiles(PERCENTS), histogram.max]
    return {"count": histogram.count} | {
        name: round(value / 1000, 3) for name, value in zip(names, values, strict=True)
    }
