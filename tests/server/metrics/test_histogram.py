"""Percentiles of buckets against those of the values themselves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.server.metrics.histogram import WINDOW_S, Histogram
from moldau.server.metrics.requests import RECENT_MAX, SAMPLED_EVERY, RequestMetrics

FRACTIONS = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

durations = st.lists(st.floats(1e-9, 86_400) | st.just(0.0), min_size=1, max_size=300)


@given(durations)
def test_percentiles_are_at_most_a_sixteenth_above_the_truth(values: list[float]) -> None:
    histogram = Histogram()
    histogram.record(values, 0.0)
    ordered = sorted(values)
    for fraction, found in zip(FRACTIONS, histogram.percentiles(FRACTIONS, 0.0), strict=True):
        exact = ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]
        assert exact <= found <= exact * (1 + 1 / 16)


@given(st.lists(durations, min_size=1, max_size=5))
def test_counts_and_sums_leave_nothing_out(chunks: list[list[float]]) -> None:
    histogram = Histogram()
    for chunk in chunks:
        histogram.record(chunk, 0.0)
    assert histogram.count == sum(map(len, chunks))
    assert histogram.sum_s == pytest.approx(sum(map(sum, chunks)))


def test_without_durations_percentiles_are_zero() -> None:
    assert Histogram().percentiles((0.5, 0.99), 0.0) == [0.0, 0.0]


def test_zeros_weigh_as_much_as_other_durations() -> None:
    histogram = Histogram()
    histogram.record([0.0] * 98, 0.0)
    histogram.record((1.0, 1.0), 0.0)
    assert histogram.percentiles((0.5, 0.98, 0.99), 0.0) == [0.0, 0.0, pytest.approx(1.0, rel=1 / 16)]


def test_a_sample_tells_percentiles_and_no_more() -> None:
    histogram = Histogram()
    histogram.record_sample((1.0, 3.0), 8, 20.0, 0.0)
    assert (histogram.count, histogram.sum_s) == (8, 20.0)
    assert histogram.percentiles((0.5, 1.0), 0.0) == [
        pytest.approx(1, rel=1 / 16),
        pytest.approx(3, rel=1 / 16),
    ]


def test_percentiles_forget_after_two_windows_and_counts_do_not() -> None:
    histogram = Histogram()
    histogram.record((9.0,), 1000.0)
    histogram.record((1.0,), 1000.0 + WINDOW_S)
    assert histogram.percentiles((1.0,), 1000.0 + WINDOW_S)[0] >= 9
    assert histogram.percentiles((1.0,), 1000.0 + 2 * WINDOW_S)[0] < 2
    assert histogram.percentiles((1.0,), 1000.0 + 9 * WINDOW_S) == [0.0]
    assert (histogram.count, histogram.sum_s) == (2, 10.0)


def test_a_pause_does_not_make_old_durations_recent() -> None:
    histogram = Histogram()
    histogram.record((9.0,), 0.0)
    histogram.record((1.0,), 5 * WINDOW_S)
    assert histogram.percentiles((1.0,), 5 * WINDOW_S)[0] < 2


def test_each_stage_of_a_request_is_timed() -> None:
    metrics = RequestMetrics("Fetch")
    metrics.sent((metrics, 4, 100, 1.0, 1.5, 1.75, 3.75), 4.0, 8.0)
    metrics.sent((metrics, 4, 50, 8.0, 8.0, 8.0, 8.0), 8.0, 8.0)
    metrics.settle()
    assert (metrics.requests, metrics.request_bytes) == ({4: 2}, 150)
    sums = [
        stage.sum_s
        for stage in (
            metrics.request_queue,
            metrics.local,
            metrics.remote,
            metrics.response_queue,
            metrics.response_send,
            metrics.total,
        )
    ]
    assert sums == [0.5, 0.25, 2.0, 0.25, 4.0, 7.0]


def test_requests_that_were_not_parked_count_as_no_remote_time() -> None:
    metrics = RequestMetrics("Produce")
    for _ in range(RECENT_MAX + 1):
        handled_at = 2.0
        metrics.sent((metrics, 9, 100, 1.0, 1.5, handled_at, handled_at), 3.0, 4.0)
    assert metrics.remote.count == RECENT_MAX  # worked out without being asked, hence never more are kept
    metrics.settle()
    metrics.settle()
    assert (metrics.remote.count, metrics.remote.sum_s) == (RECENT_MAX + 1, 0.0)
    assert metrics.total.count == RECENT_MAX + 1


def test_of_many_requests_all_are_counted_and_a_fourth_tells_percentiles() -> None:
    metrics = RequestMetrics("Fetch")
    for number in range(RECENT_MAX):
        duration = 4.0 if number % SAMPLED_EVERY else 1.0
        metrics.sent((metrics, 9, 100, 10.0, 10.0 + duration, 20.0, 20.0), 20.0, 20.0)
    assert metrics.request_queue.count == RECENT_MAX
    assert metrics.request_queue.sum_s == pytest.approx(RECENT_MAX * (3 * 4 + 1) / 4)
    assert metrics.request_queue.percentiles((1.0,), 20.0) == [pytest.approx(1.0, rel=1 / 16)]
