"""When each record is meant to be sent: at a steady rate from a start, whatever became of those before it.

This is what keeps a measurement from omitting what it should have seen: a sender that was kept waiting has
records that are late, and they are late from the moment they were meant for and not from the one they left
at. Times are whole microseconds of any clock.
"""

from __future__ import annotations

from dataclasses import dataclass

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`per_second` of 0 or less does not hold back: every record is meant for the moment it leaves at."""

    start_us: int
    per_second: float

    @property
    def is_open(self) -> bool:
        return self.per_second <= 0

    def intended_us(self, number: int) -> int:
        """When record `number`, the first of which is 0, is meant to be sent."""
        assert not self.is_open
        return self.start_us + int(number * _SECOND_US / self.per_second)

    def due(self, now_us: int, limit: int) -> int:
        """How many records are meant to have been sent by now, `limit` at most."""
        if self.is_open:
            return limit
        if now_us < self.start_us:
            return 0
        count = min(limit, int((now_us - self.start_us) * self.per_second / _SECOND_US) + 1)
        # What was rounded on the way may be one off, either way.
        while count > 0 and self.intended_us(count - 1) > now_us:
            count -= 1
        while count < limit and self.intended_us(count) <= now_us:
            count += 1
        return count
