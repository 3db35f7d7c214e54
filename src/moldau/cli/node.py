"""What the commands that start or prepare a node share: its properties, and what may be wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.output import CommandError, print_error
from moldau.config.option import ConfigError
from moldau.config.properties import PropertiesError, parse_properties

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_USAGE = 2
PROPERTIES_BYTES_MAX = 16 << 20

# One node has nobody to replicate to, and nobody to elect.
_SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
_EVERY_ADDRESS = ("0.0.0.0", "::", "")


class BadProperties(click.ClickException):
    """All but the last problem have been printed."""

    exit_code = EXIT_USAGE


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


def node_properties(
    data_dir: str, host: str = "127.0.0.1", port: int = 9092, options: Sequence[tuple[str, str]] = ()
) -> dict[str, str]:
    """The server.properties of a node on its own, with `options` over them. Its controller listens on a port
    of the system's choice.

    Clients are told the address it listens on, or where that is every address, this machine's name.
    """
    shown = f"[{host}]" if ":" in host else host
    properties = {
        **_SINGLE_NODE,
        "log.dirs": data_dir,
        "listeners": f"PLAINTEXT://{shown}:{port},CONTROLLER://127.0.0.1:0",
    }
    if host in _EVERY_ADDRESS:
        properties["advertised.listeners"] = f"PLAINTEXT://:{port}"
    properties |= options
    properties.setdefault("controller.quorum.voters", f"{properties['node.id']}@127.0.0.1:0")
    return properties
