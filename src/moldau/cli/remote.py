"""What the commands that talk to a cluster share: its address, and a loop to talk in."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from moldau.cli.output import CommandError
from moldau.client.cluster import Address, Cluster, parse_addresses
from moldau.runtime.real import RealRuntime, run
from moldau.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")


def addresses(text: str) -> list[Address]:
    try:
        return parse_addresses(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


bootstrap_option = click.option(
    "-b",
    "--bootstrap",
    type=addresses,
    metavar="HOST:PORT,…",
    envvar="MOLDAU_BOOTSTRAP",
    default="127.0.0.1:9092",
    show_default=True,
    show_envvar=True,
    help="Nodes to find the cluster by.",
)


def with_cluster(bootstrap: list[Address], work: Callable[[RealRuntime, Cluster], Awaitable[T]]) -> T:
    """Run `work` on a connected cluster. A cluster that cannot be reached is an error at once, not after the
    retries that a cluster in use is worth."""

    async def main(runtime: RealRuntime) -> T:
        async with Cluster(runtime, bootstrap) as cluster:
            await cluster.connection_to_any()
            return await work(runtime, cluster)

    # What the client has to tell while it goes on trying.
    logging.basicConfig(level=logging.WARNING, format="moldau: %(message)s")
    try:
        return run(main)
    except KafkaError as error:
        raise CommandError(describe(error)) from None


def describe(error: KafkaError) -> str:
    """For people: connection failures speak for themselves, the rest is named by its code."""
    if error.message and error.code is ErrorCode.NETWORK_EXCEPTION:
        return error.message
    return str(error)
