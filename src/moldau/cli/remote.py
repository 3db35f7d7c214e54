"""What the commands that talk to a cluster share: its address, and a loop to talk in."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from moldau.cli.output import CommandError
from moldau.cli.profile import DEFAULT_PROFILE, ENVIRONMENT, BadProfile, bootstrap_of, config_path
from moldau.cli.profile import names as profile_names
from moldau.client.cluster import Address, Cluster, parse_addresses
from moldau.runtime.real import RealRuntime, run
from moldau.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_PROFILE = "moldau.profile"
_UNREACHABLE = "start a node with 'moldau up', or name another cluster by --bootstrap or --profile"
# What to do about it, where that is the same for all commands.
_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "'moldau topic list' shows what is there",
    ErrorCode.GROUP_ID_NOT_FOUND: "'moldau group list' shows what is there",
}


def addresses(text: str) -> list[Address]:
    try:
        return parse_addresses(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def bootstrap_option(command: F) -> F:
    """`--bootstrap` and `--profile`. What the command line says goes before the environment, the address
    before the profile, and last comes the profile called `default`."""
    with_profile = click.option(
        "--profile",
        metavar="NAME",
        envvar=ENVIRONMENT,
        show_envvar=True,
        is_eager=True,  # --bootstrap looks at it
        expose_value=False,
        callback=_remember_profile,
        shell_complete=lambda context, parameter, incomplete: [
            name for name in profile_names() if name.startswith(incomplete)
        ],
        help="The cluster of this profile.",
    )(command)
    return click.option(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT,…",
        envvar="MOLDAU_BOOTSTRAP",
        show_envvar=True,
        callback=_bootstrap,
        help=f"Nodes to find the cluster by.  [default: {DEFAULT_BOOTSTRAP}]",
    )(with_profile)


def _remember_profile(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    context.meta[_PROFILE] = (name, context.get_parameter_source("profile"))


def _bootstrap(context: click.Context, parameter: click.Parameter, text: str | None) -> list[Address]:
    profile, profile_source = context.meta[_PROFILE]
    source = context.get_parameter_source("bootstrap")
    by_hand = ParameterSource.COMMANDLINE
    if source is by_hand and profile_source is by_hand:
        raise click.UsageError("give either --bootstrap or --profile", context)
    if text is not None and profile_source is not by_hand:
        return addresses(text)
    found = bootstrap_of(profile)
    try:
        return parse_addresses(found or DEFAULT_BOOTSTRAP)
    except ValueError as error:
        raise BadProfile(f"{config_path()}: profile {profile or DEFAULT_PROFILE!r}: {error}") from None


def with_cluster(bootstrap: list[Address], work: Callable[[RealRuntime, Cluster], Awaitable[T]]) -> T:
    """Run `work` on a connected cluster. A cluster that cannot be reached is an error at once, not after the
    retries that a cluster in use is worth."""

    async def main(runtime: RealRuntime) -> T:
        async with Cluster(runtime, bootstrap) as cluster:
            try:
                await cluster.connection_to_any()
            except KafkaError as error:
                raise CommandError(f"{describe(error)} ({_UNREACHABLE})") from None
            return await work(runtime, cluster)

    # What the client has to tell while it goes on trying.
    logging.basicConfig(level=logging.WARNING, format="moldau: %(message)s")
    try:
        return run(main)
    except KafkaError as error:
        advice = _ADVICE.get(error.code)
        raise CommandError(f"{describe(error)} ({advice})" if advice else describe(error)) from None


def describe(error: KafkaError) -> str:
    """For people: connection failures speak for themselves, the rest is named by its code."""
    if error.message and error.code is ErrorCode.NETWORK_EXCEPTION:
        return error.message
    return str(error)
