"""Values on the command line that several commands take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name.strip(), value


def assignments_option(*names: str, help: str) -> Callable[[F], F]:
    """A repeatable option of the form `-o name=value`."""
    return click.option(*names, type=assignment, metavar="NAME=VALUE", multiple=True, help=help)


def one_of(choices: Sequence[str]) -> Any:
    """Values that may also come in a list with commas, in upper or lower case."""

    def names(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> list[str]:
        known = {name.lower(): name for name in choices}
        texts = [text.strip() for value in given for text in value.split(",")]
        unknown = [text for text in texts if text.lower() not in known]
        if unknown:
            raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(choices)}")
        return [known[text.lower()] for text in texts]

    return names
