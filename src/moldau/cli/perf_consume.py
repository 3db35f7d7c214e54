"""`moldau perf consume`: kafka-consumer-perf-test."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from moldau.cli import complete
from moldau.cli.output import CommandError
from moldau.cli.perf_common import (
    Live,
    PerfCommand,
    bar,
    config_option,
    interval_option,
    plain_option,
    print_document,
    print_metrics_option,
    properties_option,
    read_properties,
    server_option,
    settings_values,
    tell_settings,
    where,
)
from moldau.cli.remote import with_cluster
from moldau.cli.values import json_option
from moldau.client.admin import Admin
from moldau.client.cluster import Address, Cluster
from moldau.perf.consume import ConsumeLoad, ConsumeRun, FetchingReader
from moldau.perf.measure.consuming import (
    DETAILED_HEADER,
    HEADER,
    Consumed,
    interval_line,
    timeout_line,
    total_line,
)
from moldau.perf.measure.metrics_table import consumer_metrics, metric_lines
from moldau.perf.measure.numbers import java_date
from moldau.runtime.real import RealRuntime

_CLIENT_ID = "perf-consumer-client"
_DATE_FORMAT = "yyyy-MM-dd HH:mm:ss:SSS"


def _date_format(context: click.Context, parameter: click.Parameter, pattern: str) -> str:
    try:
        java_date(pattern, datetime(2000, 1, 1))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return pattern


@click.command("consume", cls=PerfCommand, help="Read a topic, as kafka-consumer-perf-test.")
@click.option("--topic", shell_complete=complete.topics, help="The topic to read.")
@click.option("--include", metavar="REGEX", help="Read all topics that this matches as a whole.")
@click.option(
    "--num-records",
    "--messages",
    "records",
    type=click.IntRange(0),
    required=True,
    help="How many records. --messages is the older name.",
)
@server_option
@properties_option("--command-property")
@config_option
@click.option(
    "--consumer.config",
    "old_config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The older name of --command-config.",
)
@click.option(
    "--group",
    shell_complete=complete.groups,
    metavar="ID",
    help="Begin where this group is, and leave it where this ends.",
)
@click.option("--from-latest", is_flag=True, help="Begin at the end where the group has no offset.")
@click.option(
    "--fetch-size",
    type=click.IntRange(1, (1 << 31) - 1),
    metavar="BYTES",
    default=1 << 20,
    show_default=True,
    help="The most that is fetched of a partition at once.",
)
@click.option("--socket-buffer-size", type=int, hidden=True, help="Taken, and left to the system.")
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(0),
    metavar="MS",
    default=10_000,
    show_default=True,
    help="End when no record has come for so long.",
)
@click.option("--show-detailed-stats", "detailed", is_flag=True, help="Print a line for each interval.")
@interval_option
@click.option(
    "--date-format",
    default=_DATE_FORMAT,
    show_default=True,
    callback=_date_format,
    metavar="FORMAT",
    help="How times are printed, in the letters of Java.",
)
@click.option("--hide-header", is_flag=True, help="Leave out the names of the columns.")
@print_metrics_option
@plain_option
@json_option
def consume(
    topic: str | None,
    include: str | None,
    records: int,
    bootstrap: list[Address],
    bootstrap_server: str | None,
    properties: Sequence[str],
    config_file: Path | None,
    old_config_file: Path | None,
    group: str | None,
    from_latest: bool,
    fetch_size: int,
    socket_buffer_size: int | None,
    timeout_ms: int,
    detailed: bool,
    interval_ms: int,
    date_format: str,
    hide_header: bool,
    print_metrics: bool,
    plain: bool,
    as_json: bool,
) -> None:
    if (topic is None) == (include is None):
        raise click.UsageError("give either --topic or --include")
    if config_file is not None and old_config_file is not None:
        raise click.UsageError("--command-config and --consumer.config cannot be specified together")
    values = read_properties(config_file or old_config_file, properties)
    nodes = where(bootstrap, bootstrap_server, values)
    client_id = values.get("client.id", _CLIENT_ID)
    live = Live()

    def at(ms: int) -> str:
        return java_date(date_format, datetime.fromtimestamp(ms / 1000))

    async def work(runtime: RealRuntime, cluster: Cluster) -> None:
        topics = [topic] if topic is not None else await _matching(cluster, include or "")
        settings = await tell_settings(cluster, topics[0], None, quiet=plain or as_json)
        if not hide_header and not as_json:
            click.echo(DETAILED_HEADER if detailed else HEADER)
        reader = FetchingReader(
            runtime, cluster, topics, group=group, from_latest=from_latest, fetch_size=fetch_size
        )
        intervals: list[dict[str, float]] = []

        def on_interval(at_ms: int, part: Consumed) -> None:
            if as_json:
                intervals.append({"end_ms": at_ms, **part.summary()})
            elif detailed:
                live.line(interval_line(at(at_ms), part, records=run.records, bytes=run.bytes))

        load = ConsumeLoad(records=records, timeout_ms=timeout_ms, interval_ms=interval_ms)
        run = ConsumeRun(runtime, reader, load, on_interval)
        try:
            async with live.over(runtime, lambda: _progress(run, records, runtime.clock.now_ms())):
                whole = await run.run()
            metrics = consumer_metrics(reader.metrics(), client_id)
        finally:
            await reader.close()
        if as_json:
            print_document(
                {
                    "settings": settings_values(settings),
                    "summary": whole.summary(),
                    "timed_out": run.timed_out,
                    "intervals": intervals if detailed else [],
                    "metrics": metrics,
                }
            )
            return
        if run.timed_out:
            click.echo(timeout_line(timeout_ms))
        if not detailed:
            click.echo(total_line(at(run.start_ms), at(run.start_ms + whole.elapsed_ms), whole))
        for line in metric_lines(metrics) if print_metrics else ():
            click.echo(line)

    with_cluster(nodes, work)


async def _matching(cluster: Cluster, pattern: str) -> list[str]:
    try:
        matches = re.compile(pattern).fullmatch
    except re.error as error:
        raise click.UsageError(f"--include is no regular expression: {error}") from None
    view = await Admin(cluster).describe_topics()
    found = sorted(name for name, info in view.topics.items() if matches(name) and not info.is_internal)
    if not found:
        raise CommandError(f"no topic matches {pattern!r}")
    return found


def _progress(run: ConsumeRun, records: int, now_ms: int) -> str:
    per_second = run.whole(now_ms).summary()["records_per_second"] if now_ms > run.start_ms else 0
    done = run.records / records if records else 1.0
    return f"{bar(done)} {run.records}/{records} · {per_second:,.0f} records/s"
