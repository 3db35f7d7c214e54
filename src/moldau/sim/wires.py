"""The wires between simulated hosts: latency, order, partitions.

Each connection has two links, one each way. What travels a link (bytes, an end of stream, a reset, room
in the receiver's buffer) is a call to make at the other end. Invariant: a link delivers in the order it
was given, however the latencies fall; between links there is no order. A blocked link holds what is due
and delivers it when it heals, as retransmission would.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from random import Random


class Wires:
    """Delivery settings, to be changed at any time: `latency_s` is the range of one way's delay, and with
    `reset_chance` a delivery of bytes breaks its connection instead."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: Random) -> None:
        self.latency_s = (0.000_1, 0.002)
        self.reset_chance = 0.0
        self.rng = rng
        self._loop = loop
        # Packets belong to nobody: they travel on when their sender is dead.
        self._context = contextvars.Context()
        self._blocked: set[tuple[str, str]] = set()
        self._held: dict[Link, None] = {}

    def partition(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Hold everything from `source` to `target`, and unless `one_way` also the other way."""
        self._blocked.add((source, target))
        if not one_way:
            self._blocked.add((target, source))

    def isolate(self, host: str, others: list[str]) -> None:
        for other in others:
            if other != host:
                self.partition(host, other)

    def heal(self) -> None:
        """End all partitions and deliver what they held."""
        self._blocked.clear()
        held, self._held = self._held, {}
        for link in held:
            link.flow()

    def is_blocked(self, link: Link) -> bool:
        blocked = (link.source, link.target) in self._blocked
        if blocked:
            self._held[link] = None
        return blocked

    def schedule(self, when: float, callback: Callable[[], None]) -> None:
        self._loop.call_at(when, callback, context=self._context)

    def arrival(self) -> float:
        return self._loop.time() + self.rng.uniform(*self.latency_s)


class Link:
    def __init__(self, wires: Wires, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self._wires = wires
        self._travelling: deque[Callable[[], None]] = deque()
        self._due = 0
        self._last_arrival = 0.0

    def carry(self, delivery: Callable[[], None]) -> None:
        self._travelling.append(delivery)
        self._last_arrival = max(self._last_arrival, self._wires.arrival())
        self._wires.schedule(self._last_arrival, self._arrive)

    def flow(self) -> None:
        while self._due and not self._wires.is_blocked(self):
            self._due -= 1
            self._travelling.popleft()()

    def _arrive(self) -> None:
        self._due += 1
        self.flow()
