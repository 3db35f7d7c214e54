from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.perf.measure.histogram import VALUE_MAX, Histogram

values = st.lists(st.integers(0, 1 << 40) | st.integers(0, 5000), min_size=1)
percents = st.sampled_from([0.0, 1.0, 50.0, 90.0, 99.0, 99.9, 100.0])


def filled(numbers: list[int]) -> Histogram:
    histogram = Histogram()
    for number in numbers:
        histogram.record(number)
    return histogram


@given(values, percents)
def test_a_percentile_is_that_of_the_sorted_values_to_three_digits(
    numbers: list[int], percent: float
) -> None:
    exact = sorted(numbers)[max(1, -(-round(percent * 10) * len(numbers) // 1000)) - 1]
    found = filled(numbers).percentile(percent)
    assert exact <= found <= exact + exact // 1024
    assert found == exact or exact >= 2048


@given(values)
def test_count_sum_and_extremes_are_exact(numbers: list[int]) -> None:
    histogram = filled(numbers)
    assert (histogram.count, histogram.sum) == (len(numbers), sum(numbers))
    assert (histogram.min, histogram.max) == (min(numbers), max(numbers))
    assert histogram.mean == sum(numbers) / len(numbers)
    assert [seen for _, seen in histogram.cumulative()][-1] == len(numbers)


@given(values, values)
def test_two_put_together_are_one_of_all(left: list[int], right: list[int]) -> None:
    merged = filled(left)
    merged.merge(filled(right))
    whole = filled(left + right)
    assert list(merged.cumulative()) == list(whole.cumulative())
    assert (merged.min, merged.max, merged.mean) == (whole.min, whole.max, whole.mean)


def test_counts_count() -> None:
    histogram = Histogram()
    histogram.record(10, 999)
    histogram.record(2_000_000)
    assert histogram.percentiles([50.0, 99.9, 99.99]) == [10, 10, 2_000_000]


def test_counters_are_few_whatever_the_values_are() -> None:
    histogram = filled([number**5 for number in range(6000)])
    histogram.record(VALUE_MAX)
    assert len(list(histogram.cumulative())) < 6000
    assert max(histogram._counts) < 54 * 1024


def test_there_may_be_nothing() -> None:
    histogram = Histogram()
    assert histogram.percentiles([50.0, 99.0]) == [0, 0]
    assert histogram.mean != histogram.mean
