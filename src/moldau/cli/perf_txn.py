"""`moldau perf txn`: how many transactions a second, and how long each takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from moldau.cli import complete
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
from moldau.perf.measure.latency import percentile_values
from moldau.perf.measure.payload import RandomLetters
from moldau.perf.settings import make_topic
from moldau.perf.transactions import TransactionLoad, TransactionRun
from moldau.runtime.real import RealRuntime


@click.command("txn", cls=PerfCommand, help="Write records in transactions, one after the other.")
@click.option(
    "--topic",
    shell_complete=complete.topics,
    required=True,
    help="The topic, which is made if it does not exist.",
)
@click.option(
    "--partitions", type=click.IntRange(1), help="Over how many of its partitions.  [default: all of them]"
)
@click.option("--num-transactions", "transactions", type=click.IntRange(1), required=True, help="How many.")
@click.option(
    "--records-per-transaction",
    "records",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Records of each, spread over the partitions.",
)
@click.option(
    "--record-size",
    type=click.IntRange(1),
    metavar="BYTES",
    default=100,
    show_default=True,
    help="Of values.",
)
@click.option(
    "--throughput",
    type=float,
    default=-1,
    metavar="PER-SECOND",
    help="Transactions a second.  [default: as many as there can be]",
)
@click.option("--abort-every", type=click.IntRange(0), default=0, metavar="N", help="Abort each Nth.")
@click.option(
    "--warmup-transactions",
    "warmup",
    type=click.IntRange(0),
    default=0,
    help="So many at the start do not count.",
)
@click.option("--transactional-id", metavar="ID", help="The producer's name.  [default: one of its own]")
@server_option
@properties_option("--command-property", "--producer-props")
@config_option
@plain_option
@json_option
def txn(
    topic: str,
    partitions: int | None,
    transactions: int,
    records: int,
    record_size: int,
    throughput: float,
    abort_every: int,
    warmup: int,
    transactional_id: str | None,
    bootstrap: list[Address],
    bootstrap_server: str | None,
    properties: Sequence[str],
    config_file: Path | None,
    plain: bool,
    as_json: bool,
) -> None:
    if warmup >= transactions:
        raise click.UsageError("--warmup-transactions has to be less than --num-transactions")
    values = read_properties(config_file, properties)
    nodes = where(bootstrap, bootstrap_server, values)
    if transactional_id is not None:
        values["transactional.id"] = transactional_id
    options = producer_options(values)
    live = Live()

    async def work(runtime: RealRuntime, cluster: Cluster) -> None:
        options.setdefault("transactional.id", f"perf-txn-{runtime.random.randbytes(16).hex()}")
        await make_topic(cluster, topic, partitions or 1)
        async with make_producer(options, runtime) as producer:
            settings = await tell_settings(cluster, topic, effective(producer.config), quiet=plain or as_json)
            load = TransactionLoad(
                topic=topic,
                transactions=transactions,
                records=records,
                partitions=min(partitions or settings.partitions, settings.partitions),
                payloads=RandomLetters(record_size, runtime.random),
                per_second=throughput,
                abort_every=abort_every,
                warmup=warmup,
            )
            run = TransactionRun(runtime, producer, load)
            async with live.over(
                runtime, lambda: f"{bar(run.done / transactions)} {run.done}/{transactions}"
            ):
                await run.run()
        per_second = (run.committed + run.aborted) * 1_000_000 / max(run.elapsed_us, 1)
        if as_json:
            print_document(
                {
                    "settings": settings_values(settings) | {"producer": effective(producer.config)},
                    "partitions": load.partitions,
                    "records_per_transaction": records,
                    "committed": run.committed,
                    "aborted": run.aborted,
                    "transactions_per_second": round(per_second, 3),
                    "records_per_second": round(per_second * records, 3),
                    "send": percentile_values(run.send),
                    "end": percentile_values(run.end),
                    "response": percentile_values(run.response),
                }
            )
            return
        click.echo(
            f"{run.committed} transactions committed, {run.aborted} aborted, "
            f"{per_second:.1f} transactions/sec, {per_second * records:.1f} records/sec, "
            f"{records} records over {load.partitions} partitions in each."
        )
        if not plain:
            tell_percentiles({"records": run.send, "commit or abort": run.end, "response time": run.response})

    with_cluster(nodes, work)
