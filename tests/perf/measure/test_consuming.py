from __future__ import annotations

from moldau.perf.measure.consuming import Consumed, interval_line, total_line


def test_a_run_is_one_line() -> None:
    whole = Consumed(elapsed_ms=1342, rebalance_ms=1135, records=4016, bytes=4_016_000)
    assert total_line("start", "end", whole) == (
        # As kafka-consumer-perf-test 4.3 told it.
        "start, end, 3.8300, 2.8539, 4016, 2992.5484, 1135, 207, 18.5022, 19400.9662"
    )


def test_intervals_tell_of_themselves_and_of_all_before() -> None:
    first = Consumed(elapsed_ms=967, rebalance_ms=756, records=1, bytes=1000)
    assert interval_line("now", first, records=1, bytes=1000) == (
        "now, 0, 0.0010, 0.0010, 1, 1.0341, 756, 211, 0.0045, 4.7393"
    )
    only_waiting = Consumed(elapsed_ms=100, rebalance_ms=100, records=10, bytes=1 << 20)
    assert interval_line("now", only_waiting, records=11, bytes=2 << 20) == (
        "now, 0, 2.0000, 10.0000, 11, 100.0000, 100, 0, 0.0000, 0.0000"
    )
