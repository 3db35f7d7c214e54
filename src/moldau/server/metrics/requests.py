"""Counts and stage times of the requests of one API, as Kafka's RequestMetrics has them.

Recording is an addition to a list when a request is answered; what it means is worked out for many requests
at once, and before anyone looks. Counts and sums are of every request; percentiles are of every fourth, when
there are many.
"""

from __future__ import annotations

from collections import Counter
from operator import sub

from moldau.net.connection import Timed
from moldau.server.metrics.histogram import Histogram

# Enough to make the work for each small, few enough for the loop not to feel it when they are worked out.
RECENT_MAX = 128
SAMPLED_EVERY = 4


class RequestMetrics:
    """The stages: waiting for the handler, in it, parked, waiting to be sent, being sent; and all of them."""

    __slots__ = (
        "_recent",
        "_stages",
        "errors",
        "local",
        "name",
        "remote",
        "request_bytes",
        "request_queue",
        "requests",
        "response_queue",
        "response_send",
        "total",
    )

    def __init__(self, name: str, errors: Counter[int] | None = None) -> None:
        self.name = name
        self.requests: Counter[int] = Counter()  # by version
        self.errors: Counter[int] = Counter() if errors is None else errors  # by code; 0 for success
        self.request_bytes = 0
        self.request_queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.response_queue = Histogram()
        self.response_send = Histogram()
        self.total = Histogram()
        # Each with the columns of a recent request between which it lies.
        self._stages = (
            (self.request_queue, 0, 1),
            (self.local, 1, 2),
            (self.remote, 2, 3),
            (self.response_queue, 3, 4),
            (self.response_send, 4, 5),
            (self.total, 0, 5),
        )
        self._recent: list[tuple[Timed, float, float]] = []

    def sent(self, timed: Timed, send_begun_at: float, sent_at: float) -> None:
        """A response has left, or there is none to send."""
        recent = self._recent
        recent.append((timed, send_begun_at, sent_at))
        if len(recent) >= RECENT_MAX:
            self.settle()

    def settle(self) -> None:
        """Brings the histograms up to date."""
        if not self._recent:
            return
        recent, self._recent = self._recent, []
        count = len(recent)
        timed, send_begun_at, sent_at = zip(*recent, strict=True)
        _, versions, sizes, *times = zip(*timed, strict=True)
        self.requests.update(versions)
        self.request_bytes += sum(sizes)
        columns = [*times, send_begun_at, sent_at]
        sums = list(map(sum, columns))
        now = sent_at[-1]
        if count >= RECENT_MAX:
            columns = [column[::SAMPLED_EVERY] for column in columns]
        for stage, begins, ends in self._stages:
            stage.record_sample(
                list(map(sub, columns[ends], columns[begins])),
                count,
                max(0.0, sums[ends] - sums[begins]),  # differences of large sums may err by nanoseconds
                now,
            )
