"""The classic experiment on batching: the same records at the same pace, with four pairs of `linger.ms`
and `batch.size`, and what Kafka's metrics say of each. Its question is what ends a batch: its time, or its
size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moldau.perf.measure.numbers import fixed, ratio

_FULL, _MOSTLY = 0.9, 0.5  # the last batch of a run is cut short


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    linger_ms: int
    batch_size: int

    @property
    def name(self) -> str:
        return f"linger {self.linger_ms}, batch {self.batch_size}"


CLASSIC = (
    Step(linger_ms=0, batch_size=16_384),
    Step(linger_ms=100, batch_size=16_384),
    Step(linger_ms=100, batch_size=300_000),
    Step(linger_ms=1500, batch_size=300_000),
)
RECORDS = 3000
RECORD_SIZE = 1000
PER_SECOND = 200.0
METRICS = {
    # Each with its unit.
    "batch-size-avg": "bytes",
    "records-per-request-avg": "records",
    "record-queue-time-avg": "ms",
    "request-latency-avg": "ms",
    "outgoing-byte-rate": "bytes/s",
    "bufferpool-wait-ratio": "",
}
# What the explanations need besides.
MORE = ("batch-size-max", "record-send-total", "request-total", "outgoing-byte-total")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A step, the metrics of METRICS and those of MORE, and how long a record took, from the moment it was
    meant for to its acknowledgement."""

    step: Step
    metrics: Mapping[str, float]
    response_p50_ms: float
    response_p99_ms: float


HEADER = ("LINGER", "BATCH SIZE", *(name.upper() for name in METRICS), "RESPONSE P50 MS", "P99")


def row(outcome: Outcome) -> list[str]:
    """Of the table. Ratios are small numbers, the rest has a digit behind the point."""
    values = [fixed(outcome.metrics[name], 3 if name.endswith("ratio") else 1) for name in METRICS]
    return [
        str(outcome.step.linger_ms),
        str(outcome.step.batch_size),
        *values,
        fixed(outcome.response_p50_ms, 1),
        fixed(outcome.response_p99_ms, 1),
    ]


def explain(outcomes: Sequence[Outcome]) -> list[str]:
    """A paragraph for each step, out of its numbers and those of the step before."""
    return [_of_step(outcomes[i - 1] if i else None, outcome) for i, outcome in enumerate(outcomes)]


def _of_step(before: Outcome | None, outcome: Outcome) -> str:
    step, metrics = outcome.step, outcome.metrics
    size = metrics["batch-size-avg"]
    queue_ms = metrics["record-queue-time-avg"]
    requests = metrics["request-total"]
    records = metrics["record-send-total"]
    each = ratio(metrics["outgoing-byte-total"], records)
    said = [
        f"{step.name}: {fixed(records, 0)} records left in {fixed(requests, 0)} requests, a batch has "
        f"{fixed(size, 0)} bytes, and a record costs {fixed(each, 0)} bytes on the wire."
    ]
    if step.linger_ms > 0 and _is_full(outcome):
        said.append(
            f"Size ends the batches: they are full after {fixed(queue_ms, 0)} ms, before linger.ms is over. "
            "More linger.ms would change nothing; a larger batch.size would."
        )
    elif step.linger_ms == 0:
        said.append(
            "Nothing is waited for: a batch has what came while the request before was under way. It is the "
            "shortest way for a record, and the most requests for the broker."
        )
    else:
        said.append(
            f"Time ends the batches: they are {fixed(100 * size / step.batch_size, 0)}% full after "
            f"{fixed(queue_ms, 0)} ms. A larger batch.size would change nothing; more linger.ms would."
        )
    if before is not None:
        said.append(_change(before, outcome))
    if metrics["bufferpool-wait-ratio"] >= 0.001:
        said.append(
            f"For {fixed(100 * metrics['bufferpool-wait-ratio'], 1)}% of the time senders waited for memory: "
            "buffer.memory is too small for what waits."
        )
    return " ".join(said)


def _is_full(outcome: Outcome) -> bool:
    largest, average = outcome.metrics["batch-size-max"], outcome.metrics["batch-size-avg"]
    return largest >= _FULL * outcome.step.batch_size and average >= _MOSTLY * outcome.step.batch_size


def _change(before: Outcome, outcome: Outcome) -> str:
    fewer = ratio(before.metrics["request-total"], outcome.metrics["request-total"])
    longer_ms = outcome.response_p50_ms - before.response_p50_ms
    if fewer < 1.1 and abs(longer_ms) < 5:
        return "To the step before there is no difference to speak of."
    rate = f"{fixed(fewer, 1)} times fewer requests" if fewer >= 1.1 else "about as many requests"
    price = "longer" if longer_ms >= 0 else "shorter"
    return (
        f"Beside the step before: {rate}, and the median record takes {fixed(abs(longer_ms), 0)} ms {price}."
    )
