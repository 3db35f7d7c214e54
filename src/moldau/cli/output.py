"""What commands print: tables for people, JSON for programs, errors."""

from __future__ import annotations

import base64
import json
import select
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

_GAP = "  "
_MISSING = "-"


class CommandError(click.ClickException):
    """The operation failed: one line on standard error, exit code 1."""


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, indent: str = "", err: bool = False
) -> None:
    """Aligned columns; those of numbers, some of which may be missing, are aligned at their last digit."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [
        max(len(title), *(len(row[i]) for row in cells)) if cells else len(title)
        for i, title in enumerate(header)
    ]
    numeric = [_is_numeric({row[i] for row in cells}) for i in range(len(header))]
    lines = []
    for row in [list(header), *cells]:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        )
        lines.append(indent + _GAP.join(padded).rstrip())
    click.echo("\n".join(lines), err=err)


def print_json(value: Any) -> None:
    """One JSON document, indented for the eye."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_error(message: str) -> None:
    """For commands that go on with the rest; they end with `sys.exit(1)`."""
    sys.stdout.flush()
    click.echo(f"moldau: {message}", err=True)


def reader_is_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more: known without writing to it."""
    try:
        descriptor = sys.stdout.fileno()
    except OSError:
        return False
    poll = select.poll()
    poll.register(descriptor, 0)  # what is wrong is told unasked
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def json_bytes(data: bytes | None) -> Any:
    """Bytes of a record in JSON: text where they are UTF-8, else {"base64": ...}."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def bytes_from_json(value: Any) -> bytes | None:
    """The inverse of `json_bytes`. Raises ValueError."""
    match value:
        case None:
            return None
        case str():
            try:
                return value.encode()
            except UnicodeEncodeError:
                raise ValueError("is half of a pair of surrogates") from None
        case {"base64": str(text)} if len(value) == 1:
            return base64.b64decode(text, validate=True)
    raise ValueError('is neither a string, null nor {"base64": "..."}')


def _is_numeric(column: set[str]) -> bool:
    there = column - {_MISSING}
    return bool(there) and all(text.removeprefix("-").replace(".", "", 1).isdigit() for text in there)


def _cell(value: object) -> str:
    if value is None:
        return _MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(str(item) for item in value) or "-"
    return str(value)
