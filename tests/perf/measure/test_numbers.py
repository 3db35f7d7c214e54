from __future__ import annotations

import math
from datetime import datetime

import pytest

from moldau.perf.measure.numbers import fixed, java_date, ratio


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.125, 2, "0.13"),  # C would say 0.12
        (2.5, 0, "3"),
        (1.005, 2, "1.01"),  # which is less than that, in binary
        (0, 2, "0.00"),
        (1e21, 1, "1000000000000000000000.0"),
        (1e-9, 3, "0.000"),
        (-0.05, 1, "-0.1"),
        (math.nan, 2, "NaN"),
        (math.inf, 2, "Infinity"),
        (-math.inf, 2, "-Infinity"),
    ],
)
def test_numbers_are_rounded_as_in_java(value: float, digits: int, text: str) -> None:
    assert fixed(value, digits) == text


def test_divisions_by_zero_are_those_of_doubles() -> None:
    assert ratio(1, 4) == 0.25
    assert ratio(1, 0) == math.inf
    assert math.isnan(ratio(0, 0))


def test_dates_are_in_javas_letters() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 67_890)
    assert java_date("yyyy-MM-dd HH:mm:ss:SSS", at) == "2026-01-02 03:04:05:067"
    assert java_date("d.M.yy 'at' H''m", at) == "2.1.26 at 3'4"
    with pytest.raises(ValueError, match="'E'"):
        java_date("EEE", at)
