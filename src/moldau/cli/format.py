"""`moldau format`: make directories a node's own, with the checks of Kafka's storage tool."""

from __future__ import annotations

from collections.abc import Sequence
from random import SystemRandom
from time import time

import click

from moldau.cli.node import (
    BadProperties,
    data_directory,
    problems_reported,
    read_properties,
)
from moldau.cli.output import CommandError
from moldau.cli.values import assignments_option
from moldau.config.broker import BrokerConfig
from moldau.config.single_node import node_properties
from moldau.log.errors import CorruptFileError
from moldau.raft.format import AlreadyFormatted, FormatError, format_directories, read_meta_properties
from moldau.raft.voters import VoterEndpoint
from moldau.runtime.files import RealFileSystem
from moldau.wire.ids import random_uuid, uuid_to_string


@click.command("format", help="Format the data directories of a node.")
@click.option("-c", "--config", "config_path", metavar="FILE", help="The node's properties, as for Kafka.")
@click.option("--data-dir", metavar="DIR", help="A directory for `moldau up`, instead of a properties file.")
@assignments_option("-o", "--option", "options", help="Set a property, over that of the file. Repeatable.")
@click.option("-t", "--cluster-id", metavar="ID", help="The cluster's id; --data-dir makes one up.")
@click.option("-s", "--standalone", is_flag=True, help="Begin a quorum of this one controller, able to grow.")
@click.option(
    "-N", "--no-initial-controllers", is_flag=True, help="Begin without a quorum; the node will join one."
)
@click.option("-g", "--ignore-formatted", is_flag=True, help="Skip directories that are formatted already.")
@click.option("--random-uuid", is_flag=True, help="Only print a random id, as `moldau uuid` does.")
def command(
    config_path: str | None,
    data_dir: str | None,
    options: Sequence[tuple[str, str]],
    cluster_id: str | None,
    standalone: bool,
    no_initial_controllers: bool,
    ignore_formatted: bool,
    random_uuid: bool,
) -> None:
    if random_uuid:
        click.echo(_new_id())
        return
    if (config_path is None) == (data_dir is None):
        raise click.UsageError("give one of --config and --data-dir")
    if standalone and no_initial_controllers:
        raise click.UsageError("give one of --standalone and --no-initial-controllers")
    if data_dir is not None:
        data_dir = data_directory(data_dir)
        properties = node_properties(data_dir, options=options)
        cluster_id = cluster_id or _cluster_of(data_dir) or _new_id()
    else:
        assert config_path is not None
        properties = read_properties(config_path, options)
    if not cluster_id:
        raise click.UsageError("give the --cluster-id (`moldau uuid` makes a new one)")
    with problems_reported():
        config = BrokerConfig.parse(properties)
    _check_quorum(config, standalone, no_initial_controllers)
    _format(config, cluster_id, _own_endpoint(config) if standalone else None, ignore_formatted)


def _check_quorum(config: BrokerConfig, standalone: bool, no_initial_controllers: bool) -> None:
    """A controller has to know its quorum in exactly one way."""
    if config.voters and (standalone or no_initial_controllers):
        raise BadProperties(
            "--standalone and --no-initial-controllers are for nodes without controller.quorum.voters"
        )
    if standalone and not config.is_controller:
        raise BadProperties("--standalone is for controllers, and process.roles has none")
    if config.is_controller and not (config.voters or standalone or no_initial_controllers):
        raise BadProperties(
            "controller.quorum.voters is not set: give --standalone or --no-initial-controllers"
        )


def _own_endpoint(config: BrokerConfig) -> VoterEndpoint:
    """Where the quorum will find this controller."""
    listener = config.listeners.advertised_controller[0]
    return VoterEndpoint(listener.name, listener.host or "localhost", listener.port)


def _format(
    config: BrokerConfig, cluster_id: str, standalone: VoterEndpoint | None, ignore_formatted: bool
) -> None:
    directories = list(dict.fromkeys([*config.log_dirs, config.metadata_log_dir]))
    try:
        formatted = format_directories(
            RealFileSystem(),
            config.log_dirs,
            metadata_directory=config.metadata_log_dir,
            cluster_id=cluster_id,
            node_id=config.node.node_id,
            random=SystemRandom(),
            now_ms=int(time() * 1000),
            standalone=standalone,
            ignore_formatted=ignore_formatted,
        )
    except AlreadyFormatted as error:
        raise CommandError(f"{error} (--ignore-formatted leaves it as it is)") from None
    except FormatError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise CommandError(f"cannot format: {place}{error.strerror or error}") from None
    for directory in directories:
        if directory in formatted:
            click.echo(f"formatted {directory} for node {config.node.node_id} of cluster {cluster_id}")
        else:
            click.echo(f"{directory} is formatted already")


def _cluster_of(data_dir: str) -> str | None:
    """The cluster that the directory belongs to already."""
    try:
        properties = read_meta_properties(RealFileSystem(), data_dir)
    except (CorruptFileError, OSError):
        return None  # which formatting it will tell of
    return None if properties is None else properties.cluster_id


def _new_id() -> str:
    return uuid_to_string(random_uuid(SystemRandom()))
