"""A helper process as its node sees it: frames through two pipes.

A frame is four bytes of length and that many of content. An empty one is a sign of life. The helper's program
is `helper_process.py`; it ends when its standard input does, so it cannot outlive the node.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from asyncio.subprocess import PIPE, Process

from .interfaces import HELPER_SILENCE_S, HelperGone

FRAME = struct.Struct(">I")
PROGRAM = "moldau.runtime.helper_process"


class RealHelper:
    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, work: str) -> RealHelper:
        # It finds the modules that this process finds, and none in the working directory that this one would
        # not.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            PROGRAM,
            work,
            stdin=PIPE,
            stdout=PIPE,
            env=environment,
            start_new_session=True,  # signals from a terminal are for the node
        )
        return cls(process)

    @property
    def process_id(self) -> int:
        return self._process.pid

    def send(self, request: bytes) -> None:
        writer = self._process.stdin
        assert writer is not None
        if not writer.is_closing():  # that it has ended is told by `receive`
            writer.write(FRAME.pack(len(request)) + request)

    async def receive(self) -> bytes:
        reader = self._process.stdout
        assert reader is not None
        try:
            while True:
                async with asyncio.timeout(HELPER_SILENCE_S):
                    (size,) = FRAME.unpack(await reader.readexactly(FRAME.size))
                    if size:
                        return await reader.readexactly(size)
        except TimeoutError:
            raise HelperGone(f"process {self.process_id} was silent for {HELPER_SILENCE_S} s") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise HelperGone(f"process {self.process_id} has ended") from None

    def kill(self) -> None:
        try:
            self._process.kill()
        except ProcessLookupError:
            pass

    async def ended(self) -> None:
        await self._process.wait()
