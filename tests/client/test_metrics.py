from __future__ import annotations

import math

import pytest

from moldau.client.metrics import Sensor


def test_a_rate_begins_as_kafkas_does() -> None:
    sensor = Sensor()
    sensor.record(1000, 3_235_492)
    # Apache Kafka 4.3's producer told 90670.665 for so many bytes, 5.684 s after the first one.
    assert sensor.rate(6684) == pytest.approx(90670.665, rel=1e-4)
    # A full window needs none beside it.
    assert sensor.rate(31_000) == pytest.approx(3_235_492 / 30)
    assert sensor.rate(51_000) == pytest.approx(3_235_492 / 50)
    assert sensor.rate(61_001) == 0
    assert sensor.total == 3_235_492


def test_averages_and_maxima_are_of_the_windows() -> None:
    sensor = Sensor()
    assert math.isnan(sensor.average(0)) and math.isnan(sensor.largest(0)) and sensor.rate(0) == 0
    sensor.record_max(0, 10, 7, count=2)
    sensor.record_max(30_000, 2, 2)
    assert (sensor.average(30_000), sensor.largest(30_000)) == (4, 7)
    assert (sensor.average(60_000), sensor.largest(60_000)) == (2, 2)
