"""`moldau perf produce`: kafka-producer-perf-test, and what it does not tell."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from moldau.cli import complete
from moldau.cli.output import CommandError, print_error
from moldau.cli.perf_common import (
    Live,
    PerfCommand,
    bar,
    config_option,
    effective,
    interval_option,
    plain_option,
    print_document,
    print_metrics_option,
    producer_options,
    properties_option,
    read_properties,
    server_option,
    settings_values,
    tell_percentiles,
    tell_settings,
    where,
)
from moldau.cli.remote import with_cluster
from moldau.cli.values import json_option
from moldau.client.cluster import Address, Cluster
from moldau.client.producer import AsyncProducer
from moldau.config.option import ConfigError
from moldau.perf.measure.latency import percentile_values
from moldau.perf.measure.metrics_table import metric_lines, producer_metrics
from moldau.perf.measure.payload import Choice, Monotonic, Payloads, RandomLetters, split_payloads
from moldau.perf.produce import ProduceLoad, ProduceRun
from moldau.runtime.real import RealRuntime

_CLIENT_ID = "perf-producer-client"
_TRANSACTION_MS = 3000


@click.command("produce", cls=PerfCommand, help="Write records at a pace, as kafka-producer-perf-test.")
@click.option("--topic", shell_complete=complete.topics, required=True, help="The topic to write to.")
@click.option("--num-records", "records", type=click.IntRange(1), required=True, help="How many records.")
@click.option(
    "--throughput",
    type=float,
    required=True,
    metavar="PER-SECOND",
    help="Records a second; -1 for as many as there can be.",
)
@click.option("--record-size", type=click.IntRange(1), metavar="BYTES", help="Values of this size.")
@click.option(
    "--payload-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Values out of this file, in random order.",
)
@click.option(
    "--payload-delimiter", default="\\n", show_default=True, metavar="TEXT", help="What is between them."
)
@click.option("--payload-monotonic", is_flag=True, help="Values are the numbers of the records.")
@server_option
@properties_option("--command-property", "--producer-props")
@config_option
@click.option(
    "--producer.config",
    "old_config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The older name of --command-config.",
)
@print_metrics_option
@click.option("--transactional-id", metavar="ID", help="Write in transactions of this id.")
@click.option(
    "--transaction-duration-ms",
    "transaction_ms",
    type=click.IntRange(1),
    metavar="MS",
    help=f"How long a transaction lasts.  [default: {_TRANSACTION_MS}]",
)
@click.option(
    "--warmup-records",
    "warmup",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="So many records at the start are measured apart.",
)
@interval_option
@plain_option
@json_option
def produce(
    topic: str,
    records: int,
    throughput: float,
    record_size: int | None,
    payload_file: Path | None,
    payload_delimiter: str,
    payload_monotonic: bool,
    bootstrap: list[Address],
    bootstrap_server: str | None,
    properties: Sequence[str],
    config_file: Path | None,
    old_config_file: Path | None,
    print_metrics: bool,
    transactional_id: str | None,
    transaction_ms: int | None,
    warmup: int,
    interval_ms: int,
    plain: bool,
    as_json: bool,
) -> None:
    if (record_size is not None) + (payload_file is not None) + payload_monotonic != 1:
        raise click.UsageError("give exactly one of --record-size, --payload-file and --payload-monotonic")
    if warmup >= records:
        raise click.UsageError("--warmup-records has to be less than --num-records")
    if throughput == 0:
        raise click.UsageError("--throughput 0 would never send anything; -1 does not hold back")
    if config_file is not None and old_config_file is not None:
        raise click.UsageError("--command-config and --producer.config cannot be specified together")
    values = read_properties(config_file or old_config_file, properties)
    nodes = where(bootstrap, bootstrap_server, values)
    values.setdefault("client.id", _CLIENT_ID)
    if transactional_id is not None:
        values["transactional.id"] = transactional_id
    options = producer_options(values)
    texts = None if payload_file is None else _read_payloads(payload_file, payload_delimiter, quiet=as_json)
    live = Live()

    async def work(runtime: RealRuntime, cluster: Cluster) -> None:
        if transaction_ms is not None and "transactional.id" not in options:
            options["transactional.id"] = f"performance-producer-{runtime.random.randbytes(16).hex()}"
        payloads: Payloads
        if texts is not None:
            payloads = Choice(texts, runtime.random)
        elif record_size is not None:
            payloads = RandomLetters(record_size, runtime.random)
        else:
            payloads = Monotonic()
        load = ProduceLoad(
            topic=topic,
            records=records,
            per_second=throughput,
            payloads=payloads,
            warmup=warmup,
            interval_ms=interval_ms,
            transaction_ms=(transaction_ms or _TRANSACTION_MS) if "transactional.id" in options else None,
        )
        async with make_producer(options, runtime) as producer:
            # A broker may make the topic for whoever wants to write to it. What that takes is not measured.
            await producer.partitions_for(topic)
            settings = await tell_settings(cluster, topic, effective(producer.config), quiet=plain or as_json)
            if load.transaction_ms is not None:
                await producer.init_transactions()
            if warmup and not as_json:
                click.echo(
                    f"Warmup first {warmup} records. "
                    "Steady state results will print after the complete test summary."
                )
            run = ProduceRun(runtime, producer, load, (lambda _: None) if as_json else live.line)
            async with live.over(runtime, lambda: _progress(run, load)):
                await run.run()
            now_ms = run.now_ms()
            metrics = producer_metrics(producer.metrics(), options["client.id"], topic)
        if as_json:
            print_document(
                {
                    "settings": settings_values(settings) | {"producer": effective(producer.config)},
                    "summary": dict(run.stats.summary(now_ms)),
                    "steady_state": None if run.steady is None else dict(run.steady.summary(now_ms)),
                    "service": percentile_values(run.service),
                    "response": percentile_values(run.response),
                    "failures": dict(run.failures),
                    "metrics": metrics,
                }
            )
        else:
            _print_totals(run, now_ms, metrics if print_metrics else None, plain=plain)
        for code, count in run.failures.most_common():
            print_error(f"{count} records were not written, the first for: {run.reasons[code]}")
        if run.failures:
            sys.exit(1)

    with_cluster(nodes, work)


def make_producer(options: dict[str, str], runtime: RealRuntime) -> AsyncProducer:
    try:
        return AsyncProducer(options, runtime=runtime)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


def _print_totals(run: ProduceRun, now_ms: int, metrics: dict[str, float] | None, *, plain: bool) -> None:
    click.echo(run.stats.total_line(now_ms))
    if run.steady is not None:
        click.echo(run.steady.total_line(now_ms))
    for line in metric_lines(metrics) if metrics is not None else ():
        click.echo(line)
    if not plain:
        sys.stdout.flush()
        tell_percentiles({"service time": run.service, "response time": run.response})


def _progress(run: ProduceRun, load: ProduceLoad) -> str:
    part = run.stats.count / load.records
    per_second = run.stats.per_second(run.now_ms()) if run.stats.count else 0
    p99 = run.response.percentile(99) / 1000
    return (
        f"{bar(part)} {run.stats.count}/{load.records} · {per_second:,.0f} records/s"
        f" · response p99 {p99:.1f} ms"
    )


def _read_payloads(file: Path, delimiter: str, *, quiet: bool) -> list[bytes]:
    if not quiet:
        click.echo(f"Reading payloads from: {file.absolute()}")
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None
    if not text:
        raise CommandError(f"{file} is empty")
    payloads = split_payloads(text, "\n" if delimiter == "\\n" else delimiter)
    if not quiet:
        click.echo(f"Number of records read: {len(payloads)}")
    return payloads
