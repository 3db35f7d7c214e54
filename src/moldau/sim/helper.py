"""The twin of a helper process: the same work, a step at a time, on virtual time.

It shares the disk of its host and ends with it. A test may have it die (`kill`) or say nothing more (`hang`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from moldau.runtime.interfaces import HELPER_SILENCE_S, Helper, HelperGone

from .files import SimFileSystem

if TYPE_CHECKING:
    from .runtime import SimRuntime

SIGN_OF_LIFE_S = 1.0
STEP_S = 0.001  # the longest a step takes; how long, chance decides


class SimHelper:
    def __init__(self, runtime: SimRuntime, files: SimFileSystem, work: str) -> None:
        module, _, function = work.partition(":")
        self._work: Callable[..., Iterator[bytes | float]] = getattr(import_module(module), function)
        self._runtime = runtime
        self._files = files
        self._requests: deque[bytes] = deque()
        self._answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._steps: Iterator[bytes | float] | None = None
        self._hangs = False
        self.is_alive = True
        self.steps_done = 0

    def send(self, request: bytes) -> None:
        self._requests.append(request)
        if self._steps is None and len(self._requests) == 1:
            self._continue(0.0)

    async def receive(self) -> bytes:
        try:
            while True:
                async with asyncio.timeout(HELPER_SILENCE_S):
                    answer = await self._answers.get()
                if answer is None:
                    raise HelperGone("the helper has ended")
                if answer:
                    return answer
        except TimeoutError:
            raise HelperGone(f"the helper was silent for {HELPER_SILENCE_S} s") from None

    def kill(self) -> None:
        if not self.is_alive:
            return
        self.is_alive = False
        self._steps = None
        self._runtime.helpers.remove(self)
        self._answers.put_nowait(None)

    def hang(self) -> None:
        self._hangs = True

    async def ended(self) -> None:
        assert not self.is_alive

    def _continue(self, pause_s: float) -> None:
        if not self.is_alive or self._hangs:
            return
        if pause_s > SIGN_OF_LIFE_S:
            self._answers.put_nowait(b"")
            self._runtime.call_later(SIGN_OF_LIFE_S, self._continue, pause_s - SIGN_OF_LIFE_S)
            return
        delay_s = pause_s + self._runtime.random.uniform(0, STEP_S)
        self._runtime.call_later(delay_s, self._step)

    def _step(self) -> None:
        if not self.is_alive or self._hangs:
            return
        if self._steps is None:
            if not self._requests:
                return
            self._steps = self._work(self._files, self._requests.popleft())
        try:
            step = next(self._steps)
        except StopIteration:
            self._steps = None
            step = 0.0
        self.steps_done += 1
        if isinstance(step, bytes):
            self._answers.put_nowait(step)
            step = 0.0
        if self._steps is not None or self._requests:
            self._continue(step)


if TYPE_CHECKING:
    _helper: type[Helper] = SimHelper
