"""The shape of the outside world, as the rest of Moldau is allowed to see it.

Everything that is not a rule goes through these protocols: time, chance, files, the network, other threads.
There are two implementations of each: the real one (`real.py` and its neighbours) and the simulated one
(`moldau.sim`), which runs whole nodes on virtual time from one seed. Coroutines, futures and tasks are plain
asyncio in both: the simulator is an asyncio event loop whose clock jumps.

Failures of the machine are `OSError` with the errno the kernel would give, in both implementations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview

SEND_BUFFERS_MAX = 1024  # the kernel's IOV_MAX


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch: what goes into records."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: for durations, deadlines and metrics."""
        ...


class Mapping(Protocol):
    """A writable shared mapping of the first bytes of a file. What `File.write_at` writes is seen in `view`.

    A store through `view` into a page that the volume has no room for kills the process (SIGBUS): where a
    full disk must be an error instead, write with `write_at` and only read through `view`.
    """

    view: memoryview

    def flush(self) -> None:
        """Make what was stored through `view` durable."""
        ...

    def close(self) -> None:
        """Idempotent, and allowed while slices of `view` are still in use."""
        ...


class File(Protocol):
    """An open file, unbuffered, addressed by position. Closing is idempotent, and happens at the latest
    when the last reference goes: a response that still sends from a deleted segment keeps it readable."""

    path: str

    def write_at(self, data: Buffer, position: int) -> None:
        """Write all of `data` or raise OSError, having possibly written a part of it."""
        ...

    def read_at(self, count: int, position: int) -> bytes:
        """Up to `count` bytes; fewer only at the end of the file."""
        ...

    def is_cached(self, count: int, position: int) -> bool:
        """Whether reading this would not wait for the disk, as far as a look at both of its ends tells."""
        ...

    def load(self, count: int, position: int) -> None:
        """Have this in the page cache. Waits for the disk, so it is for a thread that may."""
        ...

    def size(self) -> int: ...
    def truncate(self, size: int) -> None: ...
    def sync(self) -> None:
        """Durable when this returns. An error here is final: the data's fate is unknown."""
        ...

    def map(self, size: int) -> Mapping:
        """Map the first `size` bytes, extending the file with zeros (sparsely) if it is shorter."""
        ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File: ...
    def exists(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def list_dir(self, path: str) -> list[str]:
        """Names, sorted."""
        ...

    def make_dirs(self, path: str) -> None: ...
    def rename(self, old: str, new: str) -> None:
        """Atomic within a directory tree; replaces `new` if it is a file."""
        ...

    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def sync_dir(self, path: str) -> None:
        """Make the entries of the directory durable: what was created in it, renamed into or out of it,
        removed from it. Nothing else does, not even the sync of a new file."""
        ...

    def file_size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...
    def set_modified_ms(self, path: str, time_ms: int) -> None: ...
    def disk_space(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume that holds `path`."""
        ...

    def lock(self, path: str) -> Lock:
        """Take the exclusive lock file at `path`, created if absent; BlockingIOError if it is held, by
        another process or by this one."""
        ...

    def read_bytes(self, path: str) -> bytes: ...
    def write_atomically(self, path: str, data: Buffer) -> None:
        """Replace the file as a whole: temporary file, sync, rename, sync of the directory."""
        ...


class Lock(Protocol):
    def release(self) -> None: ...


class Stream(Protocol):
    """A connected, non-blocking byte stream. The calls are the kernel's: what would block raises
    BlockingIOError; any other OSError (ConnectionError, TimeoutError, …) is the end of the connection."""

    peer_host: str
    peer_port: int

    def recv_into(self, buffer: Buffer) -> int:
        """Bytes received; 0 when the peer has finished sending."""
        ...

    def send(self, buffers: Sequence[Buffer]) -> int:
        """Bytes taken, possibly fewer than offered. At most SEND_BUFFERS_MAX buffers, else EMSGSIZE."""
        ...

    def send_before_file(self, buffers: Sequence[Buffer]) -> int:
        """As `send`, for what a file follows at once: the kernel need not make a packet of so little."""
        ...

    def send_file(self, file: File, position: int, count: int) -> int:
        """Bytes taken, possibly fewer than asked for; 0 when the file ends at `position`."""
        ...

    def watch_readable(self, callback: Callable[[], None] | None) -> None:
        """Call back on the loop whenever `recv_into` may progress; None stops it."""
        ...

    def watch_writable(self, callback: Callable[[], None] | None) -> None: ...
    def has_failed(self) -> bool:
        """Whether an error is waiting to be received. A watch may miss one that came right behind the last
        bytes: libuv stops watching a socket at its first error."""
        ...

    def close(self) -> None:
        """Stops both watches. Idempotent. Watching a closed stream is EBADF, ending a watch on it nothing."""
        ...


class Listener(Protocol):
    host: str
    port: int

    def close(self) -> None: ...


class Network(Protocol):
    def host_name(self) -> str:
        """What others may call this machine."""
        ...

    def listen(
        self,
        host: str,
        port: int,
        on_accept: Callable[[Stream], None],
        *,
        backlog: int = 50,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> Listener:
        """Raises OSError (EADDRINUSE, …). Port 0 picks a free one; the empty host is every interface; a
        negative buffer size leaves the kernel's own. A stream for which `on_accept` raises is closed."""
        ...

    async def connect(self, host: str, port: int) -> Stream: ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class HelperGone(Exception):
    """The helper has ended, of itself or killed, or says nothing: what it was asked will not be answered."""


class Helper(Protocol):
    """Another process that does what burns CPU for long, one request after another.

    What it runs is a function `work(files, request) -> Iterator[bytes | float]`: it yields its answers (never
    empty), and between them how many seconds to pause. The iterator's end ends the request.
    """

    def send(self, request: bytes) -> None:
        """Ask for the next piece of work. Never blocks; whether the helper is there shows in `receive`."""
        ...

    async def receive(self) -> bytes:
        """The next answer. Raises HelperGone, too when there was no sign of life for HELPER_SILENCE_S."""
        ...

    def kill(self) -> None:
        """It does nothing more. Idempotent."""
        ...

    async def ended(self) -> None:
        """Returns once the process is gone, and with it the last of its writes; `kill` it before."""
        ...


HELPER_SILENCE_S = 60.0
"""A helper gives a sign of life between any two steps of its work, once a second at most."""


class Runtime(Protocol):
    @property
    def clock(self) -> Clock: ...
    @property
    def random(self) -> Random: ...
    @property
    def files(self) -> FileSystem: ...
    @property
    def network(self) -> Network: ...

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None: ...
    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer: ...
    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]: ...
    def run_blocking(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        """Run work that may block off the loop (pool sized by num.io.threads; inline in the simulator)."""
        ...

    def resize_pool(self, threads: int) -> None:
        """How many pieces of such work may run at once, from here on."""
        ...

    async def start_helper(self, work: str) -> Helper:
        """A helper for the function named by `work`, as `module:function`. It ends with this process at the
        latest. Raises OSError if there is no room for another process."""
        ...
