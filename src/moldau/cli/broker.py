"""`moldau broker`: a node as a server.properties file describes it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from moldau.cli.node import problems_reported, read_properties
from moldau.cli.values import assignments_option


@click.command("broker", help="Start a node from a server.properties file.")
@click.option(
    "-c",
    "--config",
    "config_path",
    metavar="FILE",
    required=True,
    help="The node's properties, as for Kafka.",
)
@assignments_option("-o", "--option", "options", help="Set a property, over that of the file. Repeatable.")
def command(config_path: str, options: Sequence[tuple[str, str]]) -> None:
    properties = read_properties(config_path, options)
    # Last: what is wrong with the command line is told without waiting for the server.
    from moldau.server.main import run_broker

    with problems_reported():
        sys.exit(run_broker(properties))
