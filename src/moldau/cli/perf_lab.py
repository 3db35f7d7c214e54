"""`moldau perf lab`: experiments that show what options do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from moldau.cli import complete
from moldau.cli.output import CommandError, print_table
from moldau.cli.perf_common import (
    Live,
    PerfCommand,
    bar,
    config_option,
    print_document,
    producer_options,
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
from moldau.config.option import ConfigError
from moldau.perf.lab import LingerLoad, StepRun
from moldau.perf.measure import linger as experiment
from moldau.perf.measure.linger import Outcome, Step
from moldau.perf.measure.plot import Panel, svg_plot, text_plot
from moldau.perf.settings import make_topic
from moldau.runtime.real import RealRuntime

_TOPIC = "moldau-perf-lab"


@click.group("lab", help="Experiments that show what options do.")
def lab() -> None:
    pass


def _steps(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for text in given:
        linger_ms, comma, batch_size = text.partition(",")
        if not (comma and linger_ms.isdecimal() and batch_size.isdecimal()):
            raise click.BadParameter(f"{text!r} is not LINGER,BATCH")
        steps.append(Step(linger_ms=int(linger_ms), batch_size=int(batch_size)))
    return tuple(steps) or experiment.CLASSIC


@lab.command("linger", cls=PerfCommand, help="What linger.ms and batch.size do to the same records.")
@click.option(
    "--topic",
    shell_complete=complete.topics,
    default=_TOPIC,
    show_default=True,
    help="The topic; one that has to be made is deleted again.",
)
@click.option(
    "--num-records",
    "records",
    type=click.IntRange(1),
    default=experiment.RECORDS,
    show_default=True,
    help="Records of each step.",
)
@click.option(
    "--record-size",
    type=click.IntRange(1),
    metavar="BYTES",
    default=experiment.RECORD_SIZE,
    show_default=True,
    help="Values of this size.",
)
@click.option(
    "--throughput",
    type=click.FloatRange(0, min_open=True),
    metavar="PER-SECOND",
    default=experiment.PER_SECOND,
    show_default=True,
    help="Records a second.",
)
@click.option(
    "--step",
    "steps",
    multiple=True,
    callback=_steps,
    metavar="LINGER,BATCH",
    help="Another pair of linger.ms and batch.size than the four of the classic experiment. Repeatable.",
)
@click.option("--together", is_flag=True, help="Run the steps at the same time.")
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw the plot into this file.",
)
@server_option
@properties_option("--command-property", "--producer-props")
@config_option
@json_option
def linger(
    topic: str,
    records: int,
    record_size: int,
    throughput: float,
    steps: tuple[Step, ...],
    together: bool,
    svg: Path | None,
    bootstrap: list[Address],
    bootstrap_server: str | None,
    properties: Sequence[str],
    config_file: Path | None,
    as_json: bool,
) -> None:
    values = read_properties(config_file, properties)
    nodes = where(bootstrap, bootstrap_server, values)
    options = producer_options(values)
    load = LingerLoad(topic=topic, records=records, record_size=record_size, per_second=throughput)
    live = Live()

    async def work(runtime: RealRuntime, cluster: Cluster) -> None:
        is_ours = await make_topic(cluster, topic, 1)
        try:
            settings = await tell_settings(cluster, topic, None, quiet=as_json)
            try:
                runs = [StepRun(runtime, options, load, step) for step in steps]
            except ConfigError as error:
                raise click.UsageError(str(error)) from None
            async with live.over(runtime, lambda: _progress(runs)):
                if together:
                    outcomes = await asyncio.gather(*(run.run() for run in runs))
                else:
                    outcomes = [await run.run() for run in runs]
        finally:
            if is_ours:
                await Admin(cluster).delete_topic(topic)
        if svg is not None:
            _draw(svg, outcomes, load)
        if as_json:
            print_document(
                {
                    "settings": settings_values(settings),
                    "records": records,
                    "record_size": record_size,
                    "records_per_second": throughput,
                    "steps": [asdict(outcome) for outcome in outcomes],
                }
            )
        else:
            _print(outcomes)

    with_cluster(nodes, work)


def _print(outcomes: Sequence[Outcome]) -> None:
    # Metrics go down, steps go to the right: names are long, and numbers short.
    columns = list(zip(experiment.HEADER, *(experiment.row(outcome) for outcome in outcomes), strict=True))
    names = [str(number) for number in range(1, len(outcomes) + 1)]
    print_table(("STEP", *names), [tuple(column) for column in columns])
    click.echo()
    for line in text_plot(_names(outcomes), _panels(outcomes)):
        click.echo(line)
    for number, text in enumerate(experiment.explain(outcomes), start=1):
        click.echo()
        click.echo(click.wrap_text(f"{number}. {text}", width=100, subsequent_indent="   "))


def _draw(file: Path, outcomes: Sequence[Outcome], load: LingerLoad) -> None:
    title = f"{load.records} records of {load.record_size} bytes at {load.per_second:g}/s"
    try:
        file.write_text(svg_plot(title, _names(outcomes), _panels(outcomes)))
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}") from None


def _names(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.step.name for outcome in outcomes]


def _panels(outcomes: Sequence[Outcome]) -> list[Panel]:
    return [
        Panel(title=name, unit=unit, values=[outcome.metrics[name] for outcome in outcomes])
        for name, unit in experiment.METRICS.items()
    ]


def _progress(runs: Sequence[StepRun]) -> str:
    done, total = sum(run.done for run in runs), sum(run.records for run in runs)
    going = next((run.step.name for run in runs if run.done < run.records), "")
    return f"{bar(done / total)} {done}/{total} · {going}"
