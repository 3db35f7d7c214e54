"""Lines of standard input, as they come, for a loop that must not block.

A thread reads and the loop takes what is there. The thread is a daemon that sits in a bare `read`, so that an
interrupted command ends at once though nobody presses Enter. Bound: one chunk waits while another is being
worked on, and a line may have LINE_BYTES_MAX.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator

LINE_BYTES_MAX = 64 << 20
_CHUNK_BYTES = 1 << 20


class LineTooLong(ValueError):
    def __init__(self) -> None:
        super().__init__(f"has more than {LINE_BYTES_MAX} bytes")


async def line_chunks(descriptor: int = 0) -> AsyncIterator[list[bytes]]:
    """All whole lines that are there, without their ends, at least one; to the end of the input."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    may_read = threading.Semaphore(2)

    def read() -> None:
        while True:
            may_read.acquire()
            try:
                chunk: bytes | OSError = os.read(descriptor, _CHUNK_BYTES)
            except OSError as error:
                chunk = error
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop has ended, and with it the interest
            if not isinstance(chunk, bytes) or not chunk:
                return

    threading.Thread(target=read, name="moldau-stdin", daemon=True).start()
    parts: list[bytes] = []  # of a line whose end has not come
    waiting = 0
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise chunk
        may_read.release()
        head, newline, rest = chunk.rpartition(b"\n")
        if newline:
            lines = b"".join([*parts, head]).split(b"\n")
            parts, waiting = ([rest], len(rest)) if rest else ([], 0)
            yield [line.removesuffix(b"\r") for line in lines]
        else:
            parts.append(rest)
            waiting += len(rest)
            if waiting > LINE_BYTES_MAX:
                raise LineTooLong
    if parts:
        yield [b"".join(parts)]
