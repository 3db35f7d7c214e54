"""What clients measure, by Kafka's names and with its meanings: rates, averages and maxima of the last
minute.

A sensor keeps two windows of 30 s (`metrics.num.samples`, `metrics.sample.window.ms`), of which the older one
is dropped as a whole. Recording is a few additions, made for each batch or request and never for each record.
Knows no clock: the time comes with what is recorded and with the question.
"""

from __future__ import annotations

WINDOW_MS = 30_000
WINDOWS = 2


class Sensor:
    """Counts and sums of one thing. `total` is of all time, the rest of the windows."""

    __slots__ = (
        "_count",
        "_max",
        "_old_count",
        "_old_max",
        "_old_start_ms",
        "_old_sum",
        "_start_ms",
        "_sum",
        "total",
    )

    def __init__(self) -> None:
        self.total = 0.0
        self._start_ms = -1
        self._count = 0
        self._sum = 0.0
        self._max = float("-inf")
        self._forget_old()

    def record(self, now_ms: int, value: float, count: int = 1) -> None:
        """`value` is the sum of `count` occurrences."""
        if now_ms - self._start_ms >= WINDOW_MS or self._start_ms < 0:
            self._roll(now_ms)
        self.total += value
        self._count += count
        self._sum += value

    def record_max(self, now_ms: int, value: float, largest: float, count: int = 1) -> None:
        self.record(now_ms, value, count)
        if largest > self._max:
            self._max = largest

    def rate(self, now_ms: int) -> float:
        """Per second. As in Kafka, a start does not make a rate huge: to less than a full window another
        one is added, in which there was nothing."""
        self._roll_if_due(now_ms)
        since = self._old_start_ms if self._old_start_ms >= 0 else self._start_ms
        if since < 0:
            return 0.0
        elapsed_ms = now_ms - since
        if elapsed_ms < WINDOW_MS:
            elapsed_ms += (WINDOWS - 1) * WINDOW_MS
        return (self._sum + self._old_sum) * 1000 / elapsed_ms

    def average(self, now_ms: int) -> float:
        """NaN if there was nothing, as in Kafka."""
        self._roll_if_due(now_ms)
        count = self._count + self._old_count
        return (self._sum + self._old_sum) / count if count else float("nan")

    def largest(self, now_ms: int) -> float:
        self._roll_if_due(now_ms)
        largest = max(self._max, self._old_max)
        return largest if largest > float("-inf") else float("nan")

    def _roll_if_due(self, now_ms: int) -> None:
        if self._start_ms >= 0 and now_ms - self._start_ms >= WINDOW_MS:
            self._roll(now_ms)

    def _roll(self, now_ms: int) -> None:
        if self._start_ms >= 0 and now_ms - self._start_ms < 2 * WINDOW_MS:
            self._old_start_ms = self._start_ms
            self._old_count, self._old_sum, self._old_max = self._count, self._sum, self._max
            self._start_ms += WINDOW_MS
        else:
            self._forget_old()
            self._start_ms = now_ms
        self._count, self._sum, self._max = 0, 0.0, float("-inf")

    def _forget_old(self) -> None:
        self._old_start_ms = -1
        self._old_count, self._old_sum, self._old_max = 0, 0.0, float("-inf")
