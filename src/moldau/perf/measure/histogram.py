"""A histogram of a high dynamic range: each value is kept to three digits, from a microsecond to hours, in a
few thousand counters.

Values are integers, of any unit. The exponent of a value picks a bucket and its eleven leading bits a
counter in it, so that what is told of a value is too large by less than 1/1024 of it, and exact below
2048. Count, sum, minimum and maximum are exact.
"""

from __future__ import annotations

from collections.abc import Iterator

_SUB_BITS = 11
_HALF = 1 << (_SUB_BITS - 1)
VALUE_MAX = (1 << 63) - 1


class Histogram:
    __slots__ = ("_counts", "count", "max", "min", "sum")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.sum = 0
        self.min = VALUE_MAX
        self.max = 0

    def record(self, value: int, count: int = 1) -> None:
        """`count` times `value`, which is not negative."""
        assert 0 <= value <= VALUE_MAX and count > 0
        bucket = value.bit_length() - _SUB_BITS
        index = value if bucket <= 0 else bucket * _HALF + (value >> bucket)
        self._counts[index] = self._counts.get(index, 0) + count
        self.count += count
        self.sum += value * count
        if value < self.min:
            self.min = value
        if value > self.max:
            self.max = value

    def merge(self, other: Histogram) -> None:
        for index, count in other._counts.items():
            self._counts[index] = self._counts.get(index, 0) + count
        self.count += other.count
        self.sum += other.sum
        self.min = min(self.min, other.min)
        self.max = max(self.max, other.max)

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else float("nan")

    def percentile(self, percent: float) -> int:
        """The value that `percent` of all are not above; 0 if there are none."""
        (value,) = self.percentiles([percent])
        return value

    def percentiles(self, percents: list[float]) -> list[int]:
        """Of each of these, in one pass; they go up."""
        assert percents == sorted(percents)
        found: list[int] = []
        for value, seen in self.cumulative():
            while len(found) < len(percents) and seen >= _rank(percents[len(found)], self.count):
                found.append(value)
        return found + [self.max] * (len(percents) - len(found))

    def cumulative(self) -> Iterator[tuple[int, int]]:
        """Values that go up, each with how many are not above it."""
        seen = 0
        for index in sorted(self._counts):
            seen += self._counts[index]
            yield min(_highest(index), self.max), seen


def _rank(percent: float, count: int) -> int:
    """How many of `count` values the percentile has to have at or below it."""
    assert 0 <= percent <= 100
    exact = percent / 100 * count
    # 99.9 / 100 is not quite what it says: what is a whole number but for that is one.
    nearest = round(exact)
    whole = nearest if abs(exact - nearest) < 1e-6 else int(exact) + 1
    return max(1, whole)


def _highest(index: int) -> int:
    """The highest value that the counter stands for."""
    if index < 2 * _HALF:
        return index
    bucket = index // _HALF - 1
    leading = index - bucket * _HALF
    return ((leading + 1) << bucket) - 1
