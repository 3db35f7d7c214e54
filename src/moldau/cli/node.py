"""What the commands that start or prepare a node share: its properties, and what may be wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from moldau.cli.output import CommandError, print_error
from moldau.config.option import ConfigError
from moldau.config.properties import PropertiesError, parse_properties

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_USAGE = 2
PROPERTIES_BYTES_MAX = 16 << 20
DATA_DIR_DEFAULT = "~/.local/share/moldau"
F = TypeVar("F", bound="Callable[..., Any]")


class BadProperties(click.ClickException):
    """All but the last problem have been printed."""

    exit_code = EXIT_USAGE


def data_dir_option(help: str) -> Callable[[F], F]:
    return click.option(
        "--data-dir",
        metavar="DIR",
        default=DATA_DIR_DEFAULT,
        show_default=True,
        envvar="MOLDAU_DATA_DIR",
        show_envvar=True,
        help=help,
    )


def data_directory(text: str) -> str:
    """`--data-dir` as an absolute path."""
    try:
        return str(Path(text).expanduser().absolute())
    except RuntimeError:
        raise BadProperties(f"{text}: there is no such home directory: give another --data-dir") from None


def read_properties(path: str, overrides: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """The properties in the file at `path`, and over them those of the command line."""
    try:
        with open(path, "rb") as file:
            source = file.read(PROPERTIES_BYTES_MAX + 1)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    if len(source) > PROPERTIES_BYTES_MAX:
        raise CommandError(f"{path} is too large for a properties file")
    try:
        return {**parse_properties(source), **dict(overrides)}
    except PropertiesError as error:
        raise BadProperties(f"{path}: {error}") from None


@contextmanager
def problems_reported() -> Iterator[None]:
    """Everything that is wrong with properties is told, a line each; that is an exit code of 2."""
    try:
        yield
    except ConfigError as error:
        *others, last = (
            problem.message if problem.name in problem.message else f"{problem.name}: {problem.message}"
            for problem in error.problems
        )
        for message in others:
            print_error(message)
        raise BadProperties(last) from None
