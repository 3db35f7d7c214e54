"""A Moldau node as a process of its own, as users run it, for tests that need the real thing.

Answers for starting it on free ports, telling where it listens, and ending it cleanly or not. A node that
is started again listens where it did before, so that clients find it.
"""

from __future__ import annotations

import itertools
import os
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

# The command as it is installed beside the interpreter that runs the tests.
COMMAND = Path(sys.executable).with_name("moldau")

_READY = re.compile(rb"^ready bootstrap=(\S+) data=(.*)$", re.MULTILINE)
_names = itertools.count()


def unique_name(prefix: str = "topic") -> str:
    """A name that no other test, worker or earlier run on the same node has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}-{next(_names)}"


# For records of years ago, which retention would take away while a test runs.
KEEP = {"log.retention.ms": "-1"}


class MoldauNode:
    """`moldau up` on `data_dir`, an empty directory or one that was used before.

    What it prints on standard error is in `<data_dir>.stderr`. Also a context manager.
    """

    def __init__(
        self, data_dir: Path, options: Mapping[str, str] | None = None, arguments: Sequence[str] = ()
    ) -> None:
        self.data_dir = data_dir
        self.arguments = arguments
        self.options = dict(options or {})
        self.errors = data_dir.with_name(data_dir.name + ".stderr")
        self.bootstrap = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the node is not running"
        return self._process.pid

    def start(self, timeout_s: float = 30) -> None:
        assert self._process is None, "the node is already running"
        port = self.bootstrap.rpartition(":")[2] or "0"
        command = [str(COMMAND), "up", "--data-dir", str(self.data_dir), "--port", port, *self.arguments]
        for name, value in self.options.items():
            command += ["-o", f"{name}={value}"]
        self.errors.parent.mkdir(parents=True, exist_ok=True)
        with self.errors.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )
        try:
            self.bootstrap = self._wait_ready(timeout_s)
        except BaseException:
            self.kill()
            raise

    def stop(self, timeout_s: float = 30) -> None:
        """A clean stop: SIGTERM, and the exit code 0 in time."""
        code = self.end(signal.SIGTERM, timeout_s)
        assert code == 0, f"the node ended with code {code}:\n{self._what_it_said()}"

    def kill(self) -> None:
        """A crash: SIGKILL."""
        self.end(signal.SIGKILL, 10)

    def restart(self) -> None:
        self.stop()
        self.start()

    def crash_and_restart(self) -> None:
        self.kill()
        self.start()

    def __enter__(self) -> MoldauNode:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()

    def end(self, how: signal.Signals, timeout_s: float = 30) -> int:
        """The exit code after the signal."""
        process, self._process = self._process, None
        assert process is not None, "the node is not running"
        process.send_signal(how)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise TimeoutError(
                f"the node did not end {timeout_s:.0f} s after {how.name}:\n{self._what_it_said()}"
            ) from None
        finally:
            assert process.stdout is not None
            process.stdout.close()

    def _wait_ready(self, timeout_s: float) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor, printed = self._process.stdout.fileno(), b""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            if not select.select([descriptor], [], [], left_s)[0]:
                break
            chunk = os.read(descriptor, 4096)
            printed += chunk
            if ready := _READY.search(printed):
                return ready.group(1).decode()
            if not chunk:
                raise RuntimeError(f"the node ended before it was ready:\n{self._what_it_said()}")
        raise TimeoutError(f"the node was not ready after {timeout_s:.0f} s:\n{self._what_it_said()}")

    def _what_it_said(self) -> str:
        return self.errors.read_text(errors="replace")[-4000:]
