"""A loop in a thread of its own, for code without one: a coroutine goes in, its result comes back.

The thread is started when first needed and ends by `close`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from moldau.runtime.interfaces import T
from moldau.runtime.real import RealRuntime, run


class Bridge:
    """Usable from any thread but its own."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ready: Future[tuple[asyncio.AbstractEventLoop, RealRuntime, asyncio.Event]]

    def call(self, work: Callable[[RealRuntime], Coroutine[Any, Any, T]]) -> T:
        loop, runtime, _ = self._started()
        future = asyncio.run_coroutine_threadsafe(work(runtime), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # the caller was interrupted; nothing to do if the work itself failed
            raise

    def close(self) -> None:
        with self._guard:
            thread, self._thread = self._thread, None
        if thread is not None:
            loop, _, end = self._ready.result()
            loop.call_soon_threadsafe(end.set)
            thread.join()

    def _started(self) -> tuple[asyncio.AbstractEventLoop, RealRuntime, asyncio.Event]:
        with self._guard:
            if self._thread is None:
                self._ready = Future()
                self._thread = threading.Thread(target=self._run, name="moldau-testing", daemon=True)
                self._thread.start()
        return self._ready.result()

    def _run(self) -> None:
        ready = self._ready

        async def main(runtime: RealRuntime) -> None:
            end = asyncio.Event()
            ready.set_result((asyncio.get_running_loop(), runtime, end))
            await end.wait()

        try:
            run(main)
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise
