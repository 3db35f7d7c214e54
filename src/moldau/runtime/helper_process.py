"""The program of a helper process: `python -m moldau.runtime.helper_process module:function`.

Requests come through standard input, answers leave through standard output (`helper.py` has the frames). It
ends when standard input does: a thread waits for that, since the work itself may take long.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from io import RawIOBase
from typing import BinaryIO

from .files import RealFileSystem
from .helper import FRAME
from .interfaces import FileSystem

SIGN_OF_LIFE_S = 1.0

Work = Callable[[FileSystem, bytes], Iterator[bytes | float]]


class HelperProcess:
    def __init__(self, work: Work, requests: RawIOBase, answers: BinaryIO) -> None:
        self._work = work
        self._requests = requests  # unbuffered: a buffer that a thread waits at could not be let go of
        self._answers = answers
        self._queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._wrote_at = time.monotonic()

    def run(self) -> None:
        threading.Thread(target=self._read_requests, daemon=True).start()
        files = RealFileSystem()
        while True:
            for step in self._work(files, self._queue.get()):
                if isinstance(step, bytes):
                    self._write(step)
                else:
                    self._pause(step)

    def _read_requests(self) -> None:
        while True:
            (size,) = FRAME.unpack(self._read(FRAME.size))
            self._queue.put(self._read(size))

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._requests.read(size)
            if not part:
                os._exit(0)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            if now - self._wrote_at >= SIGN_OF_LIFE_S:
                self._write(b"")
            if until <= now:
                return
            time.sleep(min(until - now, SIGN_OF_LIFE_S))

    def _write(self, answer: bytes) -> None:
        self._wrote_at = time.monotonic()
        try:
            self._answers.write(FRAME.pack(len(answer)) + answer)
            self._answers.flush()
        except BrokenPipeError:
            os._exit(0)


def main() -> None:
    module, _, function = sys.argv[1].partition(":")
    work: Work = getattr(import_module(module), function)
    with open(0, "rb", buffering=0) as requests:
        HelperProcess(work, requests, sys.stdout.buffer).run()


if __name__ == "__main__":
    main()
