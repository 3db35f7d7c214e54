from __future__ import annotations

from moldau.perf.measure.histogram import Histogram
from moldau.perf.measure.latency import percentile_row, percentile_values, progress_line, total_lines


def test_lines_are_kafkas() -> None:
    assert progress_line(0, 191_172_760) == "0\t191.17276"
    latencies = [1_900_000] * 197 + [91_000_000] * 2 + [191_172_760]
    assert total_lines(latencies) == [
        "Avg latency: 3.7374 ms",
        "Percentiles: 50th = 1, 99th = 91, 99.9th = 191",
    ]
    assert total_lines([7_000_000]) == [
        "Avg latency: 7.0000 ms",
        "Percentiles: 50th = 7, 99th = 7, 99.9th = 7",
    ]


def test_percentiles_are_in_milliseconds() -> None:
    histogram = Histogram()
    histogram.record(1500, 99)
    histogram.record(80_000)
    assert percentile_row(histogram) == ["2.285", "1.500", "1.500", "1.500", "80.000", "80.000", "80.000"]
    assert percentile_values(histogram) == {
        "count": 100,
        "mean_ms": 2.285,
        "p50_ms": 1.5,
        "p90_ms": 1.5,
        "p99_ms": 1.5,
        "p99.9_ms": 80.0,
        "p99.99_ms": 80.0,
        "max_ms": 80.0,
    }
    assert set(percentile_row(Histogram())) == {"-"}
    assert percentile_values(Histogram()) == {"count": 0}
