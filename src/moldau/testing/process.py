"""A Moldau node as a process of its own, as users run it: started on a free port, told apart by its data
directory, ended cleanly or not. A node that is started again listens where it did before, so that clients
find it.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from moldau.testing.control import ControlLine

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
_READY = re.compile(rb"^ready bootstrap=(\S+) data=(.*)$", re.MULTILINE)
_SAID_BYTES_MAX = 4000


class NodeProcess:
    """`moldau up` on `data_dir`, an empty directory or one that was used before. Also a context manager.

    What the node prints on standard error is in `<data_dir>.stderr`. With `is_controlled` it has a control
    line (`control`), and ends when this process does.
    """

    def __init__(
        self,
        data_dir: Path,
        options: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        *,
        is_controlled: bool = False,
    ) -> None:
        self.data_dir = data_dir
        self.arguments = arguments
        self.options = dict(options or {})
        self.errors = data_dir.with_name(data_dir.name + ".stderr")
        self.bootstrap = ""
        self.is_controlled = is_controlled
        self.is_paused = False
        self._control: ControlLine | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_started(self) -> bool:
        """It was started, and neither stopped nor killed; it may have ended by itself all the same."""
        return self._process is not None

    @property
    def has_ended(self) -> bool:
        """By itself."""
        return self._process is not None and self._process.poll() is not None

    @property
    def control(self) -> ControlLine:
        assert self._control is not None, "the node has no control line"
        return self._control

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        assert self._process is None, "the node is already running"
        port = self.bootstrap.rpartition(":")[2] or "0"
        # -P: what lies in the working directory is nothing that the node should import.
        command = [
            sys.executable,
            "-P",
            "-m",
            "moldau",
            "up",
            "--data-dir",
            str(self.data_dir),
            "--port",
            port,
        ]
        command += self.arguments
        for name, value in self.options.items():
            command += ["-o", f"{name}={value}"]
        inherited: tuple[int, ...] = ()
        if self.is_controlled:
            self._control = ControlLine()
            inherited = (self._control.descriptor,)
            command += ["--test-control", str(self._control.descriptor)]
        self.errors.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.errors.open("ab") as errors:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    pass_fds=inherited,
                )
            if self._control is not None:
                self._control.handed_over()
            self.bootstrap = self._wait_ready(timeout_s)
        except BaseException:
            if self._process is not None:
                self.kill()
            raise

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """A clean stop: SIGTERM, and the exit code 0 in time. Raises RuntimeError or TimeoutError."""
        if self.is_paused:
            self.resume()
        code = self.end(signal.SIGTERM, timeout_s)
        if code != 0:
            raise RuntimeError(f"the node ended with code {code}:\n{self.what_it_said()}")

    def kill(self) -> None:
        """A crash: SIGKILL."""
        self.end(signal.SIGKILL, 10)

    def pause(self) -> None:
        """It stands still, with its connections open, as a machine that hangs."""
        self._running().send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)
        self.is_paused = False

    def restart(self) -> None:
        self.stop()
        self.start()

    def crash_and_restart(self) -> None:
        self.kill()
        self.start()

    def __enter__(self) -> NodeProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop()

    def end(self, how: signal.Signals, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """The exit code after the signal."""
        process = self._running()
        self._process, self.is_paused = None, False
        process.send_signal(how)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise TimeoutError(
                f"the node did not end {timeout_s:.0f} s after {how.name}:\n{self.what_it_said()}"
            ) from None
        finally:
            assert process.stdout is not None
            process.stdout.close()
            if self._control is not None:
                self._control.close()
                self._control = None

    def what_it_said(self) -> str:
        """The end of what it printed on standard error."""
        return self.errors.read_text(errors="replace")[-_SAID_BYTES_MAX:]

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the node is not running"
        return self._process

    def _wait_ready(self, timeout_s: float) -> str:
        process = self._running()
        assert process.stdout is not None
        descriptor, printed = process.stdout.fileno(), b""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            if not select.select([descriptor], [], [], left_s)[0]:
                break
            chunk = os.read(descriptor, 4096)
            printed += chunk
            if ready := _READY.search(printed):
                return ready.group(1).decode()
            if not chunk:
                raise RuntimeError(f"the node ended before it was ready:\n{self.what_it_said()}")
        raise TimeoutError(f"the node was not ready after {timeout_s:.0f} s:\n{self.what_it_said()}")
