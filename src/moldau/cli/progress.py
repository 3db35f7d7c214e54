"""How far long work has come, for whoever watches: a bar on standard error, and only where that is a terminal
and results do not go to the same one."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import click


class Progress(Protocol):
    def update(self, n_steps: int) -> None: ...


class _Unseen:
    def update(self, n_steps: int) -> None:
        pass


def progress(total: int, label: str, *, prints: bool) -> AbstractContextManager[Progress]:
    """`prints` says that the command writes results to standard output meanwhile. Nothing is shown of what
    has no known end."""
    if total <= 0 or not _is_terminal(sys.stderr) or (prints and _is_terminal(sys.stdout)):
        return nullcontext(_Unseen())
    return click.progressbar(length=total, label=label, file=sys.stderr)


def _is_terminal(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    return bool(isatty is not None and isatty())
