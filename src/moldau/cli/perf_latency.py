"""`moldau perf latency`: kafka-e2e-latency, and the same at a pace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from moldau.cli import complete
from moldau.cli.output import CommandError
from moldau.cli.perf_common import (
    Live,
    PerfCommand,
    bar,
    config_option,
    effective,
    plain_option,
    print_document,
    producer_options,
    properties_option,
    read_properties,
    server_option,
    settings_values,
    tell_percentiles,
    tell_settings,
    where,
)
from moldau.cli.perf_produce import make_producer
from moldau.cli.remote import with_cluster
from moldau.cli.values import json_option
from moldau.client.cluster import Address, Cluster
from moldau.perf.latency import NUMBER_BYTES, LatencyError, LatencyLoad, LatencyRun
from moldau.perf.measure.latency import percentile_values, progress_line, total_lines
from moldau.perf.settings import make_topic
from moldau.runtime.real import RealRuntime

_TOLD_EVERY = 1000


@click.command(
    "latency", cls=PerfCommand, help="Time records from producer to consumer, as kafka-e2e-latency."
)
@click.option(
    "--topic",
    shell_complete=complete.topics,
    required=True,
    help="The topic, which is made if it does not exist.",
)
@click.option("--num-records", "records", type=click.IntRange(1), required=True, help="How many records.")
@click.option(
    "--producer-acks",
    type=click.Choice(["1", "all"]),
    required=True,
    help="Whose word the producer waits for.",
)
@click.option(
    "--record-size", type=click.IntRange(0), required=True, metavar="BYTES", help="Values of this size."
)
@click.option(
    "--record-key-size", "key_size", type=click.IntRange(0), default=0, metavar="BYTES", help="Of keys."
)
@click.option("--num-headers", "header_count", type=click.IntRange(0), default=0, help="Headers of a record.")
@click.option(
    "--record-header-key-size",
    "header_key_size",
    type=click.IntRange(0),
    default=0,
    metavar="BYTES",
    help="Of each.",
)
@click.option(
    "--record-header-size",
    "header_size",
    type=click.IntRange(-1),
    default=0,
    metavar="BYTES",
    help="Of the value of each; -1 for none.",
)
@click.option(
    "--throughput",
    type=float,
    default=-1,
    metavar="PER-SECOND",
    help="Send at this pace, whatever is under way.  [default: one in turn]",
)
@click.option(
    "--warmup-records", "warmup", type=click.IntRange(0), default=0, help="So many at the start do not count."
)
@server_option
@properties_option("--command-property")
@config_option
@plain_option
@json_option
def latency(
    topic: str,
    records: int,
    producer_acks: str,
    record_size: int,
    key_size: int,
    header_count: int,
    header_key_size: int,
    header_size: int,
    throughput: float,
    warmup: int,
    bootstrap: list[Address],
    bootstrap_server: str | None,
    properties: Sequence[str],
    config_file: Path | None,
    plain: bool,
    as_json: bool,
) -> None:
    if warmup >= records:
        raise click.UsageError("--warmup-records has to be less than --num-records")
    if throughput > 0 and record_size < NUMBER_BYTES:
        raise click.UsageError(
            f"with --throughput --record-size is {NUMBER_BYTES} at least: values are numbered"
        )
    values = read_properties(config_file, properties)
    nodes = where(bootstrap, bootstrap_server, values)
    options = producer_options(values) | {"acks": producer_acks, "linger.ms": "0"}
    load = LatencyLoad(
        topic=topic,
        records=records,
        record_size=record_size,
        per_second=throughput,
        warmup=warmup,
        key_size=key_size,
        header_count=header_count,
        header_key_size=header_key_size,
        header_size=header_size,
    )
    live = Live()

    def on_read(number: int, elapsed_ns: int) -> None:
        if number % _TOLD_EVERY == 0 and not as_json:
            live.line(progress_line(number, elapsed_ns))

    async def work(runtime: RealRuntime, cluster: Cluster) -> None:
        if await make_topic(cluster, topic, 1, 1) and not as_json:
            click.echo(
                f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) '
                "and replication factor = 1"
            )
        async with make_producer(options, runtime) as producer:
            settings = await tell_settings(cluster, topic, effective(producer.config), quiet=plain or as_json)
            run = LatencyRun(runtime, cluster, producer, load, on_read)
            try:
                async with live.over(runtime, lambda: _progress(run, records)):
                    await run.run()
            except LatencyError as error:
                raise CommandError(str(error)) from None
        if as_json:
            print_document(
                {
                    "settings": settings_values(settings) | {"producer": effective(producer.config)},
                    "acknowledged": percentile_values(run.acknowledged),
                    "read": percentile_values(run.read),
                }
            )
            return
        for line in total_lines(run.latencies_ns):
            click.echo(line)
        if not plain:
            tell_percentiles({"until acknowledged": run.acknowledged, "until read": run.read})

    with_cluster(nodes, work)


def _progress(run: LatencyRun, records: int) -> str:
    return f"{bar(run.seen / records)} {run.seen}/{records} · p99 {run.read.percentile(99) / 1000:.1f} ms"
