"""What goes wrong with a simulated disk, and when: errors on demand, and the power cut at the Nth
operation.

Every call to the file system passes `check` once, before it takes effect. Operations are named `open`,
`create`, `read`, `load`, `write`, `truncate`, `sync`, `map`, `flush`, `rename`, `remove`, `make_dir`,
`sync_dir`, `list`, `stat`, `set_modified`, `lock`. Those that change or sync something are counted, so that
a test can run a scenario once to learn how many there are and then cut the power at each of them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple, NoReturn

CHANGES = frozenset(
    (
        "create",
        "write",
        "truncate",
        "sync",
        "flush",
        "rename",
        "remove",
        "make_dir",
        "sync_dir",
        "set_modified",
    )
)


class PowerCut(BaseException):
    """The machine is off: whatever its programs were doing goes no further. Not an Exception, so that no
    handler for failing disks takes it for one. `is_here` at the one operation at which the power went."""

    def __init__(self, reason: str, *, is_here: bool = False) -> None:
        super().__init__(reason)
        self.is_here = is_here


class Operation(NamedTuple):
    name: str
    path: str
    detail: str


@dataclass(slots=True)
class _Failure:
    operation: str
    path: str
    error: int
    times: int


class Faults:
    def __init__(self) -> None:
        self.count = 0
        self.trace: list[Operation] | None = None
        self.is_off = False
        self.on_power_cut: Callable[[], object] = lambda: None
        self._failures: list[_Failure] = []
        self._fail_at: dict[int, int] = {}
        self._cut_at: int | None = None

    def record(self) -> list[Operation]:
        """Start to keep a trace of all operations, and return the list that grows."""
        self.trace = []
        return self.trace

    def fail_next(
        self, error: int = errno.EIO, *, operation: str = "*", path: str = "*", times: int = 1
    ) -> None:
        """Let the next `times` operations whose name and path match (as globs) raise OSError(error)."""
        self._failures.append(_Failure(operation, path, error, times))

    def fail_at(self, count: int, error: int = errno.EIO) -> None:
        """Let the counted operation number `count` (from 1) raise OSError(error)."""
        self._fail_at[count] = error

    def power_cut_at(self, count: int | None) -> None:
        """Let the counted operation number `count` (from 1) raise PowerCut, and every one after it, until the
        disk's crash. A write then is already on its way, and may survive like any other unsynced one."""
        self._cut_at = count

    def stop_failing(self) -> None:
        self._failures.clear()
        self._fail_at.clear()
        self._cut_at = None

    def power_on(self) -> None:
        self.is_off = False
        self._cut_at = None

    def check(self, operation: str, path: str, detail: str = "") -> None:
        self.check_power()
        if self.trace is not None:
            self.trace.append(Operation(operation, path, detail))
        if operation in CHANGES:
            self.count += 1
            if self.count == self._cut_at:
                self.is_off = True
                self.on_power_cut()
                raise PowerCut(f"{operation} {path}", is_here=True)
            if self.count in self._fail_at:
                self._raise(self._fail_at.pop(self.count), path)
        for failure in self._failures:
            if fnmatchcase(operation, failure.operation) and fnmatchcase(path, failure.path):
                failure.times -= 1
                if failure.times <= 0:
                    self._failures.remove(failure)
                self._raise(failure.error, path)

    def _raise(self, error: int, path: str) -> NoReturn:
        raise OSError(error, os.strerror(error), path)

    def check_power(self) -> None:
        if self.is_off:
            raise PowerCut("the machine is off")
