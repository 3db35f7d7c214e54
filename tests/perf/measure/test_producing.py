"""The lines are those of Kafka's tool, which `tests/interop/test_perf_beside_kafka.py` runs."""

from __future__ import annotations

from moldau.perf.measure.producing import ProduceStats


def test_a_run_is_told_in_windows_and_as_a_whole() -> None:
    stats = ProduceStats(1000, 5000)
    assert stats.record(1500, 4, 600_000, 600) == []
    assert stats.record(6000, 21, 400_000, 400) == [
        "1000 records sent, 200.0 records/sec (0.19 MB/sec), 10.8 ms avg latency, 21.0 ms max latency."
    ]
    assert stats.record(6001, 3, 1000) == []
    assert stats.total_line(11_000) == (
        "1001 records sent, 100.100000 records/sec (0.10 MB/sec), 10.79 ms avg latency, 21.00 ms "
        "max latency, 4 ms 50th, 21 ms 95th, 21 ms 99th, 21 ms 99.9th."
    )


def test_the_steady_state_is_told_apart() -> None:
    whole, steady = ProduceStats(0, 100), ProduceStats(50, 100, is_steady=True)
    whole.is_silent = True
    assert whole.record(200, 1, 10) == []
    assert steady.record(150, 1, 10) == [
        "In steady state.",
        "1 records sent, 10.0 records/sec (0.00 MB/sec), 1.0 ms avg latency, 1.0 ms max latency.",
    ]
    assert len(steady.record(250, 1, 10)) == 1
    assert steady.total_line(1050).startswith("2 steady state records sent, 2.000000 records/sec")


def test_nothing_may_have_been_written() -> None:
    line = ProduceStats(0, 5000).total_line(0)
    assert line.startswith(
        "0 records sent, NaN records/sec (NaN MB/sec), NaN ms avg latency, 0.00 ms max latency, 0"
    )
