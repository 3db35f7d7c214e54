"""What the commands of `moldau perf` share: options as Kafka's tools take them, a line that lives while a run
goes on, and what is told beside Kafka's lines.

Standard output has the lines of Kafka's tools and nothing else, so that what reads those reads these. All
that is told in addition goes to standard error, or with --json into the one document on standard output.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from moldau.cli.output import CommandError, print_json, print_table
from moldau.cli.remote import addresses, bootstrap_option
from moldau.client.cluster import Address, Cluster
from moldau.client.config import ConnectionConfig
from moldau.client.producing.config import ProducerConfig
from moldau.config.properties import PropertiesError, parse_properties
from moldau.perf.measure.histogram import Histogram
from moldau.perf.measure.latency import PERCENTILE_HEADER, percentile_row
from moldau.perf.measure.settings import PRODUCER_OPTIONS, TopicSettings, producer_lines, topic_lines
from moldau.perf.settings import topic_settings
from moldau.runtime.interfaces import Runtime

F = TypeVar("F", bound=Callable[..., Any])

_TICK_S = 0.2
_COLUMNS = 80  # of a terminal that does not say
_SEVERAL = ("--producer-props", "--command-property")
# What Kafka's files have for the sake of Java.
_OF_JAVA = frozenset({"key.serializer", "value.serializer", "key.deserializer", "value.deserializer"})

plain_option = click.option("--plain", is_flag=True, help="Print Kafka's lines only.")
print_metrics_option = click.option(
    "--print-metrics", is_flag=True, help="Print the client's metrics at the end."
)
config_option = click.option(
    "--command-config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A properties file with options of the client.",
)
interval_option = click.option(
    "--reporting-interval",
    "interval_ms",
    type=click.IntRange(1),
    metavar="MS",
    default=5000,
    show_default=True,
    help="How often to tell how far it has come.",
)


class PerfCommand(click.Command):
    """Takes several properties behind one option, as Kafka's tools do: `--producer-props linger.ms=5
    acks=1`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        option: str | None = None
        for place, arg in enumerate(args):
            if arg.startswith("-"):
                option = arg if arg in _SEVERAL else None
            elif option is not None and args[place - 1] != option:
                spread.append(option)
            spread.append(arg)
        return super().parse_args(ctx, spread)


def server_option(command: F) -> F:
    """Kafka's name for the address, beside those that all commands have."""
    return click.option("--bootstrap-server", metavar="HOST:PORT,…", help="Kafka's name for --bootstrap.")(
        bootstrap_option(command)
    )


def properties_option(*names: str) -> Callable[[F], F]:
    return click.option(
        *names,
        "properties",
        metavar="NAME=VALUE...",
        multiple=True,
        help="Options of the client, one or several. They go before those of the file.",
    )


def read_properties(file: Path | None, given: Sequence[str]) -> dict[str, str]:
    """Those of the file, and over them those of the command line."""
    values: dict[str, str] = {}
    if file is not None:
        try:
            values = parse_properties(file.read_bytes())
        except PropertiesError as error:
            raise CommandError(f"{file}: {error}") from None
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"Invalid property: {text}")
        values[name] = value
    return values


def producer_options(values: Mapping[str, str]) -> dict[str, str]:
    """What our producer knows of these. As with Kafka's clients, the rest is told, and has no effect."""
    known = {option.name for section in (ConnectionConfig, ProducerConfig) for option in section.OPTIONS}
    ignored = sorted(values.keys() - known - _OF_JAVA)
    if ignored:
        click.echo(f"moldau: these options have no effect: {', '.join(ignored)}", err=True)
    return {name: value for name, value in values.items() if name in known}


def where(bootstrap: list[Address], server: str | None, values: dict[str, str]) -> list[Address]:
    """The cluster that is meant, which the options are told, too."""
    if server is not None:
        bootstrap = addresses(server)
    elif "bootstrap.servers" in values:
        bootstrap = addresses(values["bootstrap.servers"])
    values["bootstrap.servers"] = ",".join(map(str, bootstrap))
    return bootstrap


class Live:
    """A line at the foot of the terminal that changes, and lines that go by above it."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._is_there = False

    def show(self, text: str) -> None:
        if self._is_shown:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
            sys.stderr.write(f"\r\x1b[2K{text[: columns - 1]}")
            sys.stderr.flush()
            self._is_there = True

    def clear(self) -> None:
        if self._is_there:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._is_there = False

    def line(self, text: str) -> None:
        self.clear()
        click.echo(text)

    @asynccontextmanager
    async def over(self, runtime: Runtime, describe: Callable[[], str]) -> AsyncIterator[None]:
        """Show what `describe` says, again and again, until the end of the block."""
        if not self._is_shown:
            yield
            return

        async def tick() -> None:
            while True:
                self.show(describe())
                await asyncio.sleep(_TICK_S)

        ticking = runtime.spawn(tick(), "progress")
        try:
            yield
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
            self.clear()


def bar(done: float, width: int = 24) -> str:
    filled = round(max(0.0, min(1.0, done)) * width)
    return "█" * filled + "░" * (width - filled)


async def tell_settings(
    cluster: Cluster, topic: str, options: Mapping[str, str] | None, *, quiet: bool
) -> TopicSettings:
    """The banner, unless it is not wanted."""
    settings = await topic_settings(cluster, topic)
    if not quiet:
        for line in [*topic_lines(settings), *(producer_lines(options) if options is not None else [])]:
            click.echo(line, err=True)
        click.echo(err=True)
    return settings


def effective(config: ProducerConfig) -> dict[str, str]:
    """The options of the banner as the producer uses them."""
    values = {option.name: value for option, value in config.items()}
    return {
        name: str(values[name]).lower() if isinstance(values[name], bool) else str(values[name])
        for name in PRODUCER_OPTIONS
    }


def tell_percentiles(rows: Mapping[str, Histogram]) -> None:
    """A table on standard error."""
    click.echo(err=True)
    print_table(
        ("", *PERCENTILE_HEADER),
        [(name, *percentile_row(histogram)) for name, histogram in rows.items()],
        err=True,
    )


def settings_values(settings: TopicSettings) -> dict[str, Any]:
    """For JSON."""
    return {
        "topic": settings.topic,
        "brokers": settings.brokers,
        "partitions": settings.partitions,
        "replicas": list(settings.replicas),
        "in_sync": list(settings.in_sync),
        "topic_configs": dict(settings.configs),
        "broker_configs": dict(settings.broker_configs),
    }


def print_document(value: Mapping[str, Any]) -> None:
    """JSON has no NaN and no infinity: what there is no number for is null."""
    print_json(_finite(value))


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {name: _finite(each) for name, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
    return value
