"""An event loop in a thread of its own, for clients that are called from programs without one.

What is handed over is taken in its order. The way there is a bounded queue that costs an append, and a
wake-up only when the loop is not on its way already: waking a loop costs more than a record.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from moldau.runtime.real import new_event_loop

T = TypeVar("T")
Item = TypeVar("Item")

HANDED_OVER_MAX = 4096
"""Items that may wait for the loop. Who has more waits, which also lets the loop's thread have the
interpreter."""


class LoopThread(Generic[Item]):
    def __init__(self, name: str, take: Callable[[Item], Coroutine[Any, Any, None]]) -> None:
        """`take` is run on the loop for each item that is handed over, one after the other."""
        self.loop = new_event_loop()
        self._take = take
        self._items: deque[Item | _Call] = deque()
        self._is_woken = False
        self._has_items = asyncio.Event()
        self._has_room = threading.Event()
        self._has_room.set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def hand_over(self, item: Item, timeout_s: float) -> bool:
        """From any thread; False if the loop had no room for it in time."""
        if len(self._items) >= HANDED_OVER_MAX and not self._wait_for_room(timeout_s):
            return False
        self._items.append(item)
        if not self._is_woken:
            self._wake()
        return True

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T:
        """Run `work` on the loop, after what was handed over before, and wait for what it gives."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a call that waits would wait for ever on the client's own thread (a callback)"
            )
        future: Future[T] = Future()
        self._items.append(_Call(work, future))
        self._wake()
        return future.result(timeout_s)

    def stop(self) -> None:
        """End the loop; what was handed over and not taken is dropped."""
        self.loop.call_soon_threadsafe(self._runner.cancel)
        self._thread.join()

    def _wake(self) -> None:
        self._is_woken = True
        self.loop.call_soon_threadsafe(self._has_items.set)

    def _wait_for_room(self, timeout_s: float) -> bool:
        self._has_room.clear()
        # It may have been taken meanwhile, and nobody would say so again.
        return len(self._items) < HANDED_OVER_MAX or self._has_room.wait(timeout_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self._runner = self.loop.create_task(self._take_all())
        try:
            self.loop.run_until_complete(self._runner)
        except asyncio.CancelledError:
            pass
        finally:
            self.loop.close()

    async def _take_all(self) -> None:
        calls: set[asyncio.Task[None]] = set()
        items = self._items
        while True:
            await self._has_items.wait()
            self._has_items.clear()
            # From here on who hands something over wakes; what came before is in sight.
            self._is_woken = False
            while items:
                item = items.popleft()
                if not self._has_room.is_set() and len(items) <= HANDED_OVER_MAX // 2:
                    self._has_room.set()
                if isinstance(item, _Call):
                    task = self.loop.create_task(item.run())
                    calls.add(task)
                    task.add_done_callback(calls.discard)
                else:
                    await self._take(item)


class _Call:
    __slots__ = ("_future", "_work")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]], future: Future[Any]) -> None:
        self._work = work
        self._future = future

    async def run(self) -> None:
        try:
            self._future.set_result(await self._work())
        except BaseException as error:
            self._future.set_exception(error)
            if not isinstance(error, Exception):
                raise
