"""The simulated Runtime of one run of one program on one host.

It ends by `end`: from then on its doors raise PowerCut, its timers do nothing, and its tasks are cancelled
until they are gone. A task belongs to the runtime if `spawn` made it, or a task that belongs did.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

from moldau.runtime.interfaces import Runtime, T

from .faults import PowerCut
from .files import EPOCH_MS, SimFileSystem
from .helper import SimHelper
from .loop import VirtualLoop, complete
from .network import SimHostNetwork

BLOCKING_WORK_S = 0.001  # the longest a piece of blocking work takes; how long, chance decides
CANCELS_MAX = 100

OWNER: contextvars.ContextVar[SimRuntime | None] = contextvars.ContextVar("moldau_sim_owner", default=None)


class SimClock:
    """Virtual time. `skew_ms` is how wrong this host's wall clock is; it may change at any time."""

    def __init__(self, loop: VirtualLoop, skew_ms: int = 0) -> None:
        self.skew_ms = skew_ms
        self.monotonic = loop.time

    def now_ms(self) -> int:
        # Rounded, since sums of floats would let 2.999… s pass for 2,999 ms.
        return EPOCH_MS + round(self.monotonic() * 1_000_000) // 1000 + self.skew_ms


class SimRuntime:
    def __init__(
        self,
        loop: VirtualLoop,
        name: str,
        clock: SimClock,
        random: Random,
        files: SimFileSystem,
        network: SimHostNetwork,
    ) -> None:
        self.name = name
        self.clock = clock
        self.random = random
        self.files = files
        self.network = network
        self.is_alive = True
        self.pool_threads = 0
        self.helpers: list[SimHelper] = []
        """Those that were started and have not ended, the newest last."""
        self._loop = loop
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._context = contextvars.copy_context()
        self._context.run(OWNER.set, self)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon(self._call, callback, args, context=self._context.copy())

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, self._call, callback, args, context=self._context.copy())

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        if not self.is_alive:
            work.close()
            raise PowerCut("the program has ended")
        return self._loop.create_task(work, name=f"{self.name}/{name}", context=self._context.copy())

    def run_blocking(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        self.call_later(self.random.uniform(0, BLOCKING_WORK_S), complete, future, function, args)
        return future

    def resize_pool(self, threads: int) -> None:
        self.pool_threads = threads  # how many there are makes no difference where there are none

    async def start_helper(self, work: str) -> SimHelper:
        helper = SimHelper(self, self.files, work)
        self.helpers.append(helper)
        return helper

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        task.add_done_callback(self._on_task_done, context=contextvars.Context())

    def end(self) -> None:
        self.is_alive = False
        for helper in list(self.helpers):
            helper.kill()
        self.files.shut()
        self.network.shut()
        self._cancel_tasks(CANCELS_MAX)

    def _cancel_tasks(self, attempts: int) -> None:
        """Tasks may catch a cancellation and go on waiting; the dead do not get to choose."""
        if not self._tasks:
            return
        if not attempts:
            raise RuntimeError(f"tasks survive their host: {[task.get_name() for task in self._tasks]}")
        for task in list(self._tasks):
            task.cancel()
        self._loop.call_soon(self._cancel_tasks, attempts - 1, context=contextvars.Context())

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not self.is_alive and not task.cancelled():
            task.exception()  # how the dead end is nobody's concern

    def _call(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self.is_alive:
            callback(*args)


def adopting_task_factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    """Tasks made by a runtime's tasks belong to it too: TaskGroup, gather, create_task."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    context = options.get("context") or contextvars.copy_context()
    owner = context.get(OWNER)
    if owner is not None:
        owner.adopt(task)
    return task


if TYPE_CHECKING:
    _runtime: type[Runtime] = SimRuntime
