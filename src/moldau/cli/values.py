"""Values on the command line that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name.strip(), value


def assignments_option(*names: str, help: str) -> Callable[[F], F]:
    """A repeatable option of the form `-o name=value`."""
    return click.option(*names, type=assignment, metavar="NAME=VALUE", multiple=True, help=help)
