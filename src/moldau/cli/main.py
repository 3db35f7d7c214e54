"""The `moldau` command: finds the subcommand, and turns what may go wrong into one line and an exit code.

Subcommands live in modules of their names and are imported when they are called, so that `moldau --help` and
`moldau up` start at once. A module gives its command as `command`.

Exit codes: 0 done, 1 the operation failed, 2 the command line is wrong, 130 interrupted, 141 whoever read the
output has gone.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn, cast

import click
from click.exceptions import NoArgsIsHelpError

from moldau import __version__

EXIT_OK = 0
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141

# The first line of each command's help, told here so that none has to be imported for the list of them.
COMMANDS = {
    "up": "Start a node with an embedded data directory.",
    "broker": "Start a node from a server.properties file.",
    "config": "List the options of brokers and topics.",
    "format": "Format the data directories of a node.",
    "uuid": "Print a random id, such as a cluster needs.",
    "dump": "Show what is in the files of a data directory.",
    "topic": "List, create, describe, delete and alter topics.",
    "produce": "Write the lines of standard input to a topic.",
    "consume": "Print the records of a topic.",
    "perf": "Measure how fast a cluster is, and why.",
    "group": "List, describe, move and delete groups, and see who is behind.",
    "transactions": "List and describe transactions; find and end those that hang.",
    "doctor": "Look whether all is well for a node on this machine.",
    "completion": "Print what teaches a shell to complete moldau.",
}


class _PipeClosed(Exception):
    """Whoever read our output has gone. Not an OSError, for which click has plans of its own."""


class MoldauGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return cast(click.Command, import_module(f"moldau.cli.{cmd_name}").command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            raise _PipeClosed from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        _make_output_sure()
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            _fail(error)
        except click.Abort:
            code = EXIT_INTERRUPTED
        except _PipeClosed:
            _silence_stdout()
            code = EXIT_PIPE_CLOSED
        except OSError as error:
            _silence_stdout()
            place = f"{error.filename}: " if error.filename else ""
            _fail(click.ClickException(f"{place}{error.strerror or error}"))
        sys.exit(code if isinstance(code, int) else EXIT_OK)


def _fail(error: click.ClickException) -> NoReturn:
    message = error.format_message()
    if isinstance(error, NoArgsIsHelpError):
        click.echo(message, err=True)
        sys.exit(error.exit_code)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        message = f"{message} (try '{error.ctx.command_path} --help')"
    click.echo(f"moldau: {message}", err=True)
    sys.exit(error.exit_code)


def _make_output_sure() -> None:
    """What the terminal's encoding cannot show, or a file name that is not UTF-8, is shown escaped. Standard
    streams that were closed are nothing: the next file or socket would take their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (for as long as the process lives)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _silence_stdout() -> None:
    """What is still buffered would be written, and fail again, at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=MoldauGroup,
    name="moldau",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="moldau", message="%(prog)s %(version)s")
def main() -> None:
    """Moldau, an event-streaming platform that speaks Apache Kafka."""
