"""An asyncio event loop on virtual time.

When nothing is ready the clock jumps to the next timer, so an hour of waiting costs nothing and the order
of events depends on nothing but the program. It knows no sockets, signals, threads or other processes.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import base_events
from collections.abc import Callable
from typing import Any

TURNS_PER_INSTANT_MAX = 1_000_000  # beyond it the program spins: virtual time would never move again


class SimulationDeadlock(RuntimeError):
    """Somebody waits, and nothing is scheduled that could ever wake them."""


class SimulationLivelock(RuntimeError):
    """The program keeps the loop busy without letting virtual time pass."""


class VirtualLoop(base_events.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.deadline = math.inf  # of virtual time; not a timer, which would hide a deadlock until it fires
        self._now = 0.0
        self._turns = 0
        self._clock_resolution = 1e-9
        self._selector = self  # BaseEventLoop waits by asking its selector

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Where a real loop would sleep: `timeout` is None if there is no timer, 0 if something is ready."""
        if timeout is None:
            raise SimulationDeadlock(f"nothing is scheduled at {self._now:.6f} s; {self._who_waits()}")
        if timeout > 0:
            self._turns = 0
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
            if self._now > self.deadline:
                raise TimeoutError(f"the time to run ended at {self.deadline:.6f} s; {self._who_waits()}")
            return []
        self._turns += 1
        if self._turns > TURNS_PER_INSTANT_MAX:
            self._turns = 0  # for whoever cleans up
            raise SimulationLivelock(f"time stands still at {self._now:.6f} s; {self._who_waits()}")
        return []

    def _who_waits(self) -> str:
        names = sorted(task.get_name() for task in asyncio.all_tasks(self))
        return f"waiting: {', '.join(names) or 'nobody'}"

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Inline, on a later turn. There are no threads in a simulation."""
        future: asyncio.Future[Any] = self.create_future()
        self.call_soon(complete, future, func, args)
        return future


def complete(future: asyncio.Future[Any], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Do the work unless whoever wanted it has gone, and answer through the future."""
    if future.done():
        return
    try:
        future.set_result(function(*args))
    except BaseException as error:
        future.set_exception(error)
