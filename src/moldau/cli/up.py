"""`moldau up`: a node of its own, broker and controller in one, with nothing to configure."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from moldau.cli.node import data_dir_option, data_directory, problems_reported
from moldau.cli.values import assignments_option
from moldau.config.single_node import node_properties


@click.command("up", help="Start a node with an embedded data directory.")
@data_dir_option("Where the data is; formatted when it is empty.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=9092,
    show_default=True,
    help="The port to listen on; 0 takes a free one.",
)
@click.option(
    "--host", metavar="HOST", default="127.0.0.1", show_default=True, help="The address to listen on."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve metrics and health over HTTP on this port of 127.0.0.1; 0 takes a free one.",
)
@assignments_option("-o", "--option", "options", help="Set a property of the node. Repeatable.")
# For the node that a test starts (moldau.testing): a socket that this process inherited.
@click.option("--test-control", type=click.IntRange(0), metavar="DESCRIPTOR", hidden=True)
def command(
    data_dir: str,
    port: int,
    host: str,
    metrics_port: int | None,
    options: Sequence[tuple[str, str]],
    test_control: int | None,
) -> None:
    if metrics_port is not None:
        options = [("moldau.metrics.port", str(metrics_port)), *options]
    properties = node_properties(data_directory(data_dir), host, port, options)
    # Last: what is wrong with the command line is told without waiting for the server.
    from moldau.server.main import run_up

    rig = None
    if test_control is not None:
        from moldau.testing.control import NodeRig

        rig = NodeRig(test_control)
    with problems_reported():
        sys.exit(run_up(properties, rig))
