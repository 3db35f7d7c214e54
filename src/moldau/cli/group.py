"""`moldau group`: list, describe and delete groups of any cluster, and see to their offsets.

How far everyone is behind, and moving groups, have modules of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from moldau.cli import complete
from moldau.cli.group_lag import lag
from moldau.cli.group_reset import reset_offsets
from moldau.cli.group_scope import (
    consumer_group_ids,
    parse_scopes,
    places_in_scope,
    places_text,
    scope_option,
)
from moldau.cli.output import CommandError, print_error, print_json, print_table
from moldau.cli.remote import bootstrap_option, describe, with_cluster
from moldau.cli.values import json_option, one_of
from moldau.client.admin import Admin
from moldau.client.cluster import Address, Cluster, TopicPartition
from moldau.client.group_admin import GroupAdmin
from moldau.client.group_description import (
    REBALANCING,
    SHARE,
    STATES,
    STREAMS,
    TYPES,
    GroupDescription,
    GroupListing,
    GroupMember,
    by_topic,
)
from moldau.client.lag import PartitionLag, group_lags
from moldau.wire.errors import ErrorCode, KafkaError


@click.group("group", help="List, describe, move and delete groups, and see who is behind.")
def command() -> None:
    pass


command.add_command(lag)
command.add_command(reset_offsets)


@command.command("list", help="List groups.")
@bootstrap_option
@click.option(
    "--state",
    "states",
    metavar="STATE,…",
    multiple=True,
    callback=one_of(STATES),
    help=f"Only groups in one of these states: {', '.join(STATES)}.",
)
@click.option(
    "--type",
    "types",
    metavar="TYPE,…",
    multiple=True,
    callback=one_of(TYPES),
    help=f"Only groups of one of these types: {', '.join(TYPES)}.",
)
@json_option
def list_groups(bootstrap: list[Address], states: Sequence[str], types: Sequence[str], as_json: bool) -> None:
    listings = with_cluster(
        bootstrap, lambda runtime, cluster: GroupAdmin(cluster).list_groups(states=states, types=types)
    )
    if as_json:
        print_json([_listing(listing) for listing in listings])
    elif listings:
        print_table(
            ("GROUP", "TYPE", "STATE", "PROTOCOL"),
            [
                (each.group_id, each.type or None, each.state or None, each.protocol_type or None)
                for each in listings
            ],
        )


def _listing(listing: GroupListing) -> dict[str, Any]:
    return {
        "group": listing.group_id,
        "type": listing.type or None,
        "state": listing.state or None,
        "protocol_type": listing.protocol_type,
    }


@command.command("describe", help="Show the offsets and lag of groups, or their members, or their state.")
@click.argument("names", metavar="[GROUP...]", nargs=-1, shell_complete=complete.groups)
@bootstrap_option
@click.option("--offsets", "what", flag_value="offsets", default=True, help="Offsets and lag: the default.")
@click.option("--members", "what", flag_value="members", help="The members.")
@click.option("--state", "what", flag_value="state", help="Coordinator, assignor, state.")
@click.option("--verbose", is_flag=True, help="Also epochs, and what the members have been assigned.")
@json_option
def describe_groups(
    names: Sequence[str], bootstrap: list[Address], what: str, verbose: bool, as_json: bool
) -> None:
    found: dict[str, GroupDescription] = {}
    lags: dict[str, list[PartitionLag] | KafkaError] = {}
    failed: list[KafkaError] = []

    async def ask(cluster: Cluster) -> None:
        groups = GroupAdmin(cluster)
        wanted = names or [
            listing.group_id for listing in await groups.list_groups() if listing.type != STREAMS
        ]
        for group_id, outcome in (await groups.describe(wanted)).items():
            if isinstance(outcome, KafkaError):
                failed.append(outcome)
            else:
                found[group_id] = outcome
        if what == "offsets":
            lags.update(await group_lags(Admin(cluster), groups, found))
            failed.extend(each for each in lags.values() if isinstance(each, KafkaError))

    with_cluster(bootstrap, lambda runtime, cluster: ask(cluster))
    if as_json:
        print_json([_description(group, lags.get(group_id)) for group_id, group in found.items()])
    elif what == "state":
        if found:
            _print_states(list(found.values()), verbose)
    else:
        for number, (group_id, group) in enumerate(found.items()):
            if number:
                click.echo()
            _print_head(group)
            rows = lags.get(group_id)
            if what == "members":
                _print_members(group, verbose)
            elif isinstance(rows, list):
                _print_lags(group, rows, verbose)
    for error in failed:
        print_error(describe(error))
    if failed:
        sys.exit(1)


def _description(group: GroupDescription, rows: list[PartitionLag] | KafkaError | None) -> dict[str, Any]:
    described: dict[str, Any] = {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": {
            "node_id": group.coordinator.node_id,
            "host": group.coordinator.host,
            "port": group.coordinator.port,
        },
        "epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "assignment": by_topic(member.assignment),
                "target": None if member.target is None else by_topic(member.target),
                "upgraded": member.is_upgraded,
            }
            for member in group.members
        ],
    }
    if isinstance(rows, list):
        described["offsets"] = [
            {
                "topic": row.place.topic,
                "partition": row.place.partition,
                "current_offset": row.current,
                "log_end_offset": row.end,
                "lag": row.lag,
                "member_id": row.member and row.member.member_id,
                "host": row.member and row.member.host,
                "client_id": row.member and row.member.client_id,
            }
            for row in rows
        ]
    return described


def _print_head(group: GroupDescription) -> None:
    count = len(group.members)
    state = group.state
    if state in REBALANCING:
        state += " (rebalancing)"
    members = "no active members" if not count else f"{count} member{'' if count == 1 else 's'}"
    click.echo(f"group {group.group_id}  {group.type}  {state}  {members}")


def _print_lags(group: GroupDescription, rows: list[PartitionLag], verbose: bool) -> None:
    is_share = group.type == SHARE
    header = ["TOPIC", "PARTITION", "START OFFSET" if is_share else "CURRENT OFFSET", "LOG END OFFSET", "LAG"]
    if not is_share:
        header += ["HOST", "CLIENT", *(["MEMBER"] if verbose else [])]
    cells: list[list[object]] = []
    for row in rows:
        line: list[object] = [row.place.topic, row.place.partition, row.current, row.end, row.lag]
        if not is_share:
            member = row.member
            line += [member and member.host, member and member.client_id]
            line += [member and member.member_id] if verbose else []
        cells.append(line)
    if cells:
        print_table(header, cells, indent="  ")


def _print_members(group: GroupDescription, verbose: bool) -> None:
    has_instances = any(member.instance_id is not None for member in group.members)
    has_epochs = verbose and any(member.epoch is not None for member in group.members)
    has_targets = verbose and any(member.target is not None for member in group.members)

    def line(member: GroupMember) -> list[object]:
        cells: list[object] = [member.member_id]
        cells += [member.instance_id] if has_instances else []
        cells += [member.host, member.client_id, len(member.assignment)]
        cells += [member.epoch] if has_epochs else []
        cells += [places_text(member.assignment)] if verbose else []
        cells += [places_text(member.target)] if has_targets else []
        return cells

    header = ["MEMBER", *(["INSTANCE"] if has_instances else []), "HOST", "CLIENT", "PARTITIONS"]
    header += ["EPOCH"] if has_epochs else []
    header += ["ASSIGNMENT"] if verbose else []
    header += ["TARGET"] if has_targets else []
    if group.members:
        print_table(header, [line(member) for member in group.members], indent="  ")


def _print_states(groups: list[GroupDescription], verbose: bool) -> None:
    header = ["GROUP", "TYPE", "STATE", "ASSIGNOR", "COORDINATOR", "NODE", "MEMBERS"]
    header += ["EPOCH", "TARGET EPOCH"] if verbose else []
    print_table(
        header,
        [
            [
                group.group_id,
                group.type,
                group.state,
                group.assignor or None,
                str(Address(group.coordinator.host, group.coordinator.port)),
                group.coordinator.node_id,
                len(group.members),
                *([group.epoch, group.target_epoch] if verbose else []),
            ]
            for group in groups
        ],
    )


@command.command("delete", help="Delete groups that have no members, and what they have committed.")
@click.argument("names", metavar="[GROUP...]", nargs=-1, shell_complete=complete.groups)
@bootstrap_option
@click.option("--all-groups", is_flag=True, help="Every group of consumers.")
@click.option("--if-exists", is_flag=True, help="A group that is not there is fine.")
@json_option
def delete(
    names: Sequence[str], bootstrap: list[Address], all_groups: bool, if_exists: bool, as_json: bool
) -> None:
    if bool(names) == all_groups:
        raise click.UsageError("give either groups or --all-groups")

    async def ask(cluster: Cluster) -> dict[str, KafkaError | None]:
        groups = GroupAdmin(cluster)
        return await groups.delete(names or await consumer_group_ids(groups))

    failed: list[str] = []
    outcomes = with_cluster(bootstrap, lambda runtime, cluster: ask(cluster))
    if as_json:
        print_json([{"group": group_id} for group_id, failure in outcomes.items() if failure is None])
    for group_id, failure in outcomes.items():
        if failure is None:
            if not as_json:
                click.echo(f"deleted group {group_id}")
        elif not (if_exists and failure.code is ErrorCode.GROUP_ID_NOT_FOUND):
            failed.append(_undeleted(group_id, failure))
    for message in failed[:-1]:
        print_error(message)
    if failed:
        raise CommandError(failed[-1])


def _undeleted(group_id: str, failure: KafkaError) -> str:
    if failure.code is ErrorCode.NON_EMPTY_GROUP:
        return f"group {group_id!r}: {failure.code.name}: it has members"
    return describe(failure)


@command.command("delete-offsets", help="Make a group forget what it has committed for topics.")
@click.argument("name", metavar="GROUP", shell_complete=complete.groups)
@bootstrap_option
@scope_option
@json_option
def delete_offsets(name: str, bootstrap: list[Address], scopes: Sequence[str], as_json: bool) -> None:
    if not scopes:
        raise click.UsageError("say of which topics: give --topic")
    wanted = parse_scopes(scopes)
    failed: list[KafkaError] = []

    async def ask(cluster: Cluster) -> dict[TopicPartition, KafkaError | None]:
        groups = GroupAdmin(cluster)
        outcome = (await groups.describe([name]))[name]
        if isinstance(outcome, KafkaError):
            raise outcome
        places, unknown = await places_in_scope(Admin(cluster), wanted)
        failed.extend(unknown)
        if not places:
            return {}
        if outcome.type == SHARE:
            by_name = await groups.delete_share_offsets(name, {place.topic for place in places})
            return {place: by_name.get(place.topic) for place in places}
        failures = await groups.delete_offsets(name, places)
        return {place: failures.get(place) for place in places}

    outcomes = with_cluster(bootstrap, lambda runtime, cluster: ask(cluster))
    failed += [failure for failure in outcomes.values() if failure is not None]
    deleted = sorted(place for place, failure in outcomes.items() if failure is None)
    if as_json:
        print_json([{"topic": place.topic, "partition": place.partition} for place in deleted])
    else:
        for place in deleted:
            click.echo(f"deleted what group {name} has committed for {place}")
    for error in failed:
        print_error(describe(error))
    if failed:
        sys.exit(1)
