"""`moldau topic`: list, create, describe, delete and alter topics of any cluster."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click

from moldau.cli import complete
from moldau.cli.output import CommandError, print_error, print_json, print_table
from moldau.cli.remote import bootstrap_option, describe, with_cluster
from moldau.cli.values import assignments_option, json_option
from moldau.client.admin import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Admin,
    AlterConfig,
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    NewTopic,
    ResourceType,
)
from moldau.client.cluster import Address, TopicInfo, TopicPartition, topic_error
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import uuid_to_string


@click.group("topic", help="List, create, describe, delete and alter topics.")
def command() -> None:
    pass


@command.command("list", help="List topics.")
@bootstrap_option
@click.option("--exclude-internal", is_flag=True, help="Leave out topics that Kafka keeps for itself.")
@json_option
def list_topics(bootstrap: list[Address], exclude_internal: bool, as_json: bool) -> None:
    view = with_cluster(bootstrap, lambda runtime, cluster: Admin(cluster).describe_topics())
    topics = [
        topic for _, topic in sorted(view.topics.items()) if not (exclude_internal and topic.is_internal)
    ]
    if as_json:
        print_json([_summary(topic) for topic in topics])
    elif topics:
        print_table(
            ("TOPIC", "PARTITIONS", "REPLICAS", "INTERNAL"),
            [(topic.name, len(topic.partitions), _replicas(topic), topic.is_internal) for topic in topics],
        )


@command.command("create", help="Create topics.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@bootstrap_option
@click.option("--partitions", type=click.IntRange(1), help="Partitions; the broker's default if not given.")
@click.option(
    "--replication-factor", type=click.IntRange(1, 32767), help="Replicas; the broker's default if not given."
)
@assignments_option("--config", "configs", help="Set an option of the topic. Repeatable.")
@click.option("--if-not-exists", is_flag=True, help="A topic that is there already is fine.")
@click.option("--validate-only", is_flag=True, help="Only check whether it could be created.")
@json_option
def create(
    names: Sequence[str],
    bootstrap: list[Address],
    partitions: int | None,
    replication_factor: int | None,
    configs: Sequence[tuple[str, str]],
    if_not_exists: bool,
    validate_only: bool,
    as_json: bool,
) -> None:
    async def one(admin: Admin, name: str) -> dict[str, Any]:
        topic = NewTopic(
            name=name,
            partitions=partitions or -1,
            replication_factor=replication_factor or -1,
            configs=dict(configs),
        )
        made = await admin.create_topic(topic, validate_only=validate_only)
        return {
            "topic_id": None if validate_only else uuid_to_string(made.topic_id),
            # Brokers before 2.4 do not tell.
            "partition_count": made.partitions if made.partitions > 0 else None,
            "replication_factor": made.replication_factor if made.replication_factor > 0 else None,
        }

    forgiven = {ErrorCode.TOPIC_ALREADY_EXISTS} if if_not_exists else set()
    done = "could create" if validate_only else "created"
    _for_each(bootstrap, names, one, done=done, forgiven=forgiven, as_json=as_json)


@command.command("delete", help="Delete topics.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete.topics)
@bootstrap_option
@click.option("--if-exists", is_flag=True, help="A topic that is not there is fine.")
@json_option
def delete(names: Sequence[str], bootstrap: list[Address], if_exists: bool, as_json: bool) -> None:
    async def one(admin: Admin, name: str) -> dict[str, Any]:
        await admin.delete_topic(name)
        return {}

    forgiven = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if if_exists else set()
    _for_each(bootstrap, names, one, done="deleted", forgiven=forgiven, as_json=as_json)


@command.command("alter", help="Add partitions to a topic, and set or delete its options.")
@click.argument("name", shell_complete=complete.topics)
@bootstrap_option
@click.option("--partitions", type=click.IntRange(1), help="The new number of partitions.")
@assignments_option("--config", "configs", help="Set an option of the topic. Repeatable.")
@click.option(
    "--delete-config", "deleted", metavar="NAME", multiple=True, help="Return an option to its default."
)
@click.option("--if-exists", is_flag=True, help="A topic that is not there is fine.")
@json_option
def alter(
    name: str,
    bootstrap: list[Address],
    partitions: int | None,
    configs: Sequence[tuple[str, str]],
    deleted: Sequence[str],
    if_exists: bool,
    as_json: bool,
) -> None:
    changes = [AlterConfig(name=key, operation=ConfigOperation.SET, value=value) for key, value in configs]
    changes += [AlterConfig(name=key, operation=ConfigOperation.DELETE) for key in deleted]
    if partitions is None and not changes:
        raise click.UsageError("nothing to alter: give --partitions, --config or --delete-config")

    async def one(admin: Admin, name: str) -> dict[str, Any]:
        if changes:
            await admin.alter_configs(ResourceType.TOPIC, name, changes)
        if partitions is not None:
            await admin.create_partitions(name, partitions)
        return {}

    forgiven = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if if_exists else set()
    _for_each(bootstrap, [name], one, done="altered", forgiven=forgiven, as_json=as_json)


@command.command("describe", help="Show the partitions and options of topics.")
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=complete.topics)
@bootstrap_option
@click.option("--offsets", is_flag=True, help="Show the first offset and the end of each partition.")
@click.option("--all-configs", is_flag=True, help="Show options that have their default, too.")
@click.option("--if-exists", is_flag=True, help="A topic that is not there is fine.")
@json_option
def describe_topics(
    names: Sequence[str],
    bootstrap: list[Address],
    offsets: bool,
    all_configs: bool,
    if_exists: bool,
    as_json: bool,
) -> None:
    descriptions: list[dict[str, Any]] = []
    failed: list[KafkaError] = []

    async def describe_all(admin: Admin) -> None:
        view = await admin.describe_topics(names or None)
        for name, code in view.errors.items():
            if not (if_exists and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                failed.append(topic_error(name, code))
        for _, topic in sorted(view.topics.items()):
            description = _summary(topic)
            description["partitions"] = await _partitions(admin, topic, offsets)
            description["configs"] = {
                entry.name: entry.value
                for entry in await admin.describe_configs(ResourceType.TOPIC, topic.name)
                if all_configs or _is_own(entry)
            }
            descriptions.append(description)

    with_cluster(bootstrap, lambda runtime, cluster: describe_all(Admin(cluster)))
    if as_json:
        print_json(descriptions)
    else:
        for number, description in enumerate(descriptions):
            if number:
                click.echo()
            _print_description(description)
    for error in failed:
        print_error(describe(error))
    if failed:
        sys.exit(1)


def _for_each(
    bootstrap: list[Address],
    names: Sequence[str],
    work: Callable[[Admin, str], Awaitable[dict[str, Any]]],
    *,
    done: str,
    forgiven: set[ErrorCode],
    as_json: bool,
) -> None:
    """One topic after the other; what fails for one does not keep the others from being done. `work` gives
    what JSON has to tell beside the name."""
    failed: list[str] = []
    told: list[dict[str, Any]] = []

    async def all_of_them(admin: Admin) -> None:
        for name in names:
            try:
                outcome = await work(admin, name)
            except KafkaError as error:
                if error.code in forgiven:
                    continue
                if error.code is ErrorCode.NETWORK_EXCEPTION:
                    raise
                failed.append(f"topic {name!r}: {describe(error)}")
                continue
            if as_json:
                told.append({"name": name, "outcome": done, **outcome})
            else:
                click.echo(f"{done} topic {name}")

    with_cluster(bootstrap, lambda runtime, cluster: all_of_them(Admin(cluster)))
    if as_json:
        print_json(told)
    for message in failed[:-1]:
        print_error(message)
    if failed:
        raise CommandError(failed[-1])


async def _partitions(admin: Admin, topic: TopicInfo, offsets: bool) -> list[dict[str, Any]]:
    partitions: list[dict[str, Any]] = [
        {
            "partition": partition.index,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "offline": list(partition.offline),
        }
        for partition in topic.partitions
    ]
    if offsets:
        places = [TopicPartition(topic.name, partition.index) for partition in topic.partitions]
        first = await admin.list_offsets(dict.fromkeys(places, EARLIEST_TIMESTAMP))
        end = await admin.list_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
        for partition, place in zip(partitions, places, strict=True):
            partition["first_offset"] = first[place].offset
            partition["end_offset"] = end[place].offset
    return partitions


def _print_description(topic: dict[str, Any]) -> None:
    click.echo(f"topic {topic['name']}  id {topic['topic_id']}{'  internal' if topic['internal'] else ''}")
    partitions = topic["partitions"]
    columns = ["partition", "leader", "leader_epoch", "replicas", "isr", "offline"]
    if partitions and "end_offset" in partitions[0]:
        columns += ["first_offset", "end_offset"]
    print_table(
        [column.upper().replace("_", " ") for column in columns],
        [[partition[column] for column in columns] for partition in partitions],
        indent="  ",
    )
    for name, value in topic["configs"].items():
        click.echo(f"  {name}={'' if value is None else value}")


def _summary(topic: TopicInfo) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": uuid_to_string(topic.topic_id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": _replicas(topic),
    }


def _replicas(topic: TopicInfo) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def _is_own(entry: ConfigEntry) -> bool:
    return entry.source is ConfigSource.TOPIC
