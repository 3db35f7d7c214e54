"""`moldau perf`: loads, and what is measured of them, in any Kafka cluster."""

from __future__ import annotations

import click

from moldau.cli.perf_consume import consume
from moldau.cli.perf_lab import lab
from moldau.cli.perf_latency import latency
from moldau.cli.perf_produce import produce
from moldau.cli.perf_txn import txn


@click.group("perf", help="Measure how fast a cluster is, and why.")
def command() -> None:
    pass


for _each in (produce, consume, latency, txn, lab):
    command.add_command(_each)
