"""Durations in buckets, for percentiles of the last minutes and sums of all time.

A bucket is known by the first sixteen bits of a duration as an IEEE 754 double: its binary exponent and four
bits of its mantissa. So buckets are a sixteenth of a power of two wide, percentiles at most 7 % above the
truth from a nanosecond to a day, and finding the buckets of many durations takes no Python for each of them.
Only buckets that were hit take memory.

Percentiles are of the present window and the one before it: of the last five minutes at most, which is about
as far back as those of Kafka look.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Sequence
from struct import Struct

WINDOW_S = 150.0

_FIRST_BITS = slice(3, None, 4) if sys.byteorder == "little" else slice(0, None, 4)
_code = Struct(">Hxxxxxx").pack
_double = Struct(">d").unpack


class Histogram:
    """Durations are in seconds and not negative."""

    __slots__ = ("_before", "_now", "_window_ends", "count", "sum_s")

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self._now: Counter[int] = Counter()
        self._before: Counter[int] = Counter()
        self._window_ends = 0.0

    def record(self, durations_s: Sequence[float], now: float) -> None:
        """`now` is in seconds of any clock that never goes back."""
        self.record_sample(durations_s, len(durations_s), sum(durations_s), now)

    def record_sample(self, sample_s: Sequence[float], count: int, sum_s: float, now: float) -> None:
        """`count` durations of `sum_s` altogether, of which only the sample is at hand for percentiles."""
        if now >= self._window_ends:
            self._turn(now)
        self.count += count
        self.sum_s += sum_s
        words = array("H")
        words.frombytes(array("d", sample_s).tobytes())
        self._now.update(words[_FIRST_BITS])

    def percentiles(self, fractions: Sequence[float], now: float) -> list[float]:
        """For each of the ascending `fractions`, the seconds within which so many of the durations lie; zeros
        when there are none."""
        if now >= self._window_ends:
            self._turn(now)
        counts = self._before + self._now
        total = counts.total()
        found: list[float] = []
        seen = 0
        for bucket in sorted(counts):
            seen += counts[bucket]
            while len(found) < len(fractions) and seen >= fractions[len(found)] * total:
                found.append(_upper_bound(bucket))
        return found or [0.0] * len(fractions)

    def _turn(self, now: float) -> None:
        is_recent = now < self._window_ends + WINDOW_S
        self._before = self._now if is_recent else Counter()
        self._now = Counter()
        self._window_ends = now + WINDOW_S


def _upper_bound(bucket: int) -> float:
    if bucket == 0:  # nothing but zeros: the next bucket begins far below a nanosecond
        return 0.0
    (value,) = _double(_code(bucket + 1))
    return float(value)
