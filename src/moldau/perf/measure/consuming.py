"""What kafka-consumer-perf-test 4.3 prints of a run: one line at the end, or one for each interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.perf.measure.numbers import fixed, ratio

_MIB = 1024 * 1024
_MORE = "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
HEADER = f"start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, {_MORE}"
DETAILED_HEADER = f"time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, {_MORE}"


def timeout_line(timeout_ms: int) -> str:
    return (
        "WARNING: Exiting before consuming the expected number of records: "
        f"timeout ({timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """A stretch of time, and what was read in it. `rebalance_ms` of it went by before there was anything to
    fetch from."""

    elapsed_ms: int
    rebalance_ms: int
    records: int
    bytes: int

    @property
    def mib(self) -> float:
        return self.bytes / _MIB

    @property
    def fetch_ms(self) -> int:
        return self.elapsed_ms - self.rebalance_ms

    def summary(self) -> Mapping[str, float]:
        return {
            "records": self.records,
            "mib": self.mib,
            "mib_per_second": ratio(1000 * self.mib, self.elapsed_ms),
            "records_per_second": ratio(1000 * self.records, self.elapsed_ms),
            "rebalance_ms": self.rebalance_ms,
            "fetch_ms": self.fetch_ms,
            "fetch_mib_per_second": ratio(1000 * self.mib, self.fetch_ms),
            "fetch_records_per_second": ratio(1000 * self.records, self.fetch_ms),
        }


def total_line(start: str, end: str, whole: Consumed) -> str:
    of = whole.summary()
    return ", ".join(
        (
            start,
            end,
            fixed(of["mib"], 4),
            fixed(of["mib_per_second"], 4),
            str(whole.records),
            fixed(of["records_per_second"], 4),
            str(whole.rebalance_ms),
            str(whole.fetch_ms),
            fixed(of["fetch_mib_per_second"], 4),
            fixed(of["fetch_records_per_second"], 4),
        )
    )


def interval_line(time: str, part: Consumed, *, records: int, bytes: int) -> str:
    """Of an interval; `records` and `bytes` are all until its end."""
    of = part.summary()
    is_fetching = part.fetch_ms > 0
    return ", ".join(
        (
            time,
            "0",
            fixed(bytes / _MIB, 4),
            fixed(of["mib_per_second"], 4),
            str(records),
            fixed(of["records_per_second"], 4),
            str(part.rebalance_ms),
            str(part.fetch_ms),
            fixed(of["fetch_mib_per_second"] if is_fetching else 0.0, 4),
            fixed(of["fetch_records_per_second"] if is_fetching else 0.0, 4),
        )
    )
