"""The real Runtime: one event loop thread (uvloop where there is one), a pool of threads for work that may
block, and the machine's clock, files and sockets."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from .files import RealFileSystem
from .interfaces import Clock, FileSystem, Helper, Network, T, Timer
from .network import RealNetwork

IO_THREADS_DEFAULT = 8  # Kafka's default of num.io.threads


class RealClock:
    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def now_ms() -> int:
        return time.time_ns() // 1_000_000


class RealRuntime:
    """Made by `run`; there is one per loop. `call_soon` and `call_later` are the loop's own methods."""

    def __init__(self, loop: asyncio.AbstractEventLoop, io_threads: int = IO_THREADS_DEFAULT) -> None:
        self.clock: Clock = RealClock()
        self.random = Random()
        self.files: FileSystem = RealFileSystem()
        self.network: Network = RealNetwork(loop)
        self.call_soon: Callable[..., Any] = loop.call_soon
        self.call_later: Callable[..., Timer] = loop.call_later
        self._loop = loop
        self._io_threads = io_threads
        self._threads = _thread_pool(io_threads)
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)
        return task

    def run_blocking(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        return self._loop.run_in_executor(self._threads, function, *args)

    def resize_pool(self, threads: int) -> None:
        if threads == self._io_threads:
            return
        self._threads.shutdown(wait=False)  # it still does what it was given
        self._io_threads, self._threads = threads, _thread_pool(threads)

    async def start_helper(self, work: str) -> Helper:
        from .helper import RealHelper  # most nodes need none for most of their life

        return await RealHelper.start(work)

    def on_signal(self, callback: Callable[[], object]) -> None:
        """Call back on the loop at each SIGINT and SIGTERM, and when the terminal goes away, unless that is
        to be ignored (nohup). Only in the process's main thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, callback)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._loop.add_signal_handler(signal.SIGHUP, callback)

    def close(self) -> None:
        """Wait for the blocking work that has begun and drop what has not."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def run(
    main: Callable[[RealRuntime], Coroutine[Any, Any, T]],
    *,
    io_threads: int = IO_THREADS_DEFAULT,
    use_uvloop: bool = True,
) -> T:
    """Make a loop and a Runtime, run `main` to its end, cancel the tasks that remain, and close both."""
    runner = asyncio.Runner(loop_factory=_loop_factory(use_uvloop))
    runtime = RealRuntime(runner.get_loop(), io_threads)
    try:
        with runner:
            return runner.run(main(runtime))
    finally:
        runtime.close()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The fastest kind of loop that there is here."""
    return _loop_factory(True)()


def _thread_pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="moldau-io")


def _loop_factory(use_uvloop: bool) -> Callable[[], asyncio.AbstractEventLoop]:
    if use_uvloop:
        try:
            import uvloop

            return uvloop.new_event_loop
        except ImportError:
            pass
    return asyncio.new_event_loop
