"""`moldau group lag`: how far behind everyone is who reads: groups by what they have committed, and clients
by what they have fetched, of which only Moldau's brokers tell."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from moldau.cli import complete
from moldau.cli.output import print_error, print_json, print_table
from moldau.cli.remote import bootstrap_option, describe, with_cluster
from moldau.cli.values import json_option
from moldau.client.admin import Admin
from moldau.client.cluster import Address, Cluster
from moldau.client.group_admin import GroupAdmin
from moldau.client.group_description import FetchPosition, GroupDescription
from moldau.client.lag import PartitionLag, group_lags
from moldau.wire.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    """A position, and the group for which it is read: that of a member with the same name and address."""

    fetched: FetchPosition
    group_id: str | None

    @property
    def lag(self) -> int:
        return max(0, self.fetched.high_watermark - self.fetched.position)


@dataclass(slots=True, kw_only=True)
class _Findings:
    groups: dict[str, GroupDescription]
    lags: dict[str, list[PartitionLag]]
    clients: list[_Client] | None
    failed: list[KafkaError]


@click.command("lag", help="Show how far groups are behind, and all who read without committing.")
@click.argument("names", metavar="[GROUP...]", nargs=-1, shell_complete=complete.groups)
@bootstrap_option
@click.option("--partitions", "each_partition", is_flag=True, help="A line for each partition, not topic.")
@json_option
def lag(names: Sequence[str], bootstrap: list[Address], each_partition: bool, as_json: bool) -> None:
    found = with_cluster(bootstrap, lambda runtime, cluster: _find(cluster, names))
    if as_json:
        print_json(_as_json(found))
    else:
        _print_groups(found, each_partition)
        _print_clients(found, each_partition)
    if found.clients is None and not as_json:
        print_error("who reads without committing is not shown: these brokers do not tell")
    for error in found.failed:
        print_error(describe(error))
    if found.failed:
        sys.exit(1)


async def _find(cluster: Cluster, names: Sequence[str]) -> _Findings:
    groups, admin = GroupAdmin(cluster), Admin(cluster)
    wanted = names or [listing.group_id for listing in await groups.list_groups()]
    failed: list[KafkaError] = []
    described: dict[str, GroupDescription] = {}
    for group_id, outcome in (await groups.describe(wanted)).items():
        if not isinstance(outcome, KafkaError):
            described[group_id] = outcome
        elif names or outcome.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            # Of those that were listed some may have gone, or be of a kind that has no lag.
            failed.append(outcome)
    lags: dict[str, list[PartitionLag]] = {}
    for group_id, rows in (await group_lags(admin, groups, described)).items():
        if isinstance(rows, KafkaError):
            failed.append(rows)
        else:
            lags[group_id] = rows
    positions = await groups.fetch_positions()
    clients = None if positions is None else _clients(positions, described.values())
    if names and clients is not None:
        clients = [client for client in clients if client.group_id is not None]
    return _Findings(groups=described, lags=lags, clients=clients, failed=failed)


def _clients(positions: Iterable[FetchPosition], groups: Iterable[GroupDescription]) -> list[_Client]:
    readers = {
        (member.client_id, member.host.removeprefix("/"), place): group.group_id
        for group in groups
        for member in group.members
        for place in member.assignment
    }
    return [
        _Client(
            fetched=each,
            group_id=readers.get((each.client_id, each.host.removeprefix("/"), each.place)),
        )
        for each in positions
    ]


def _print_groups(found: _Findings, each_partition: bool) -> None:
    rows: list[tuple[Any, ...]] = []
    for group_id, lags in found.lags.items():
        group = found.groups[group_id]
        head = (group_id, group.state)
        if each_partition:
            rows += [
                (*head, row.place.topic, row.place.partition, row.current, row.end, row.lag) for row in lags
            ]
            continue
        for topic in dict.fromkeys(row.place.topic for row in lags):
            of_topic = [row for row in lags if row.place.topic == topic]
            known = [row.lag for row in of_topic if row.lag is not None]
            committed = sum(row.current is not None for row in of_topic)
            rows.append((*head, topic, len(of_topic), committed, sum(known) if known else None))
    places: tuple[str, ...] = ("PARTITIONS", "COMMITTED")
    if each_partition:
        places = ("PARTITION", "CURRENT OFFSET", "LOG END OFFSET")
    if rows:
        print_table(("GROUP", "STATE", "TOPIC", *places, "LAG"), _most_behind_first(rows))


def _print_clients(found: _Findings, each_partition: bool) -> None:
    rows: list[tuple[Any, ...]] = []
    by_topic: dict[tuple[str, str, str | None, str], list[_Client]] = {}
    for client in found.clients or ():
        fetched = client.fetched
        head = (fetched.client_id, fetched.host.removeprefix("/"), client.group_id, fetched.place.topic)
        if each_partition:
            place = (fetched.place.partition, fetched.position, fetched.high_watermark)
            rows.append((*head, *place, _age(fetched.age_ms), client.lag))
        else:
            by_topic.setdefault(head, []).append(client)
    for head, clients in by_topic.items():
        newest = min(client.fetched.age_ms for client in clients)
        rows.append((*head, len(clients), _age(newest), sum(client.lag for client in clients)))
    places = ("PARTITION", "POSITION", "HIGH WATERMARK") if each_partition else ("PARTITIONS",)
    if rows:
        if found.lags:
            click.echo()
        header = ("CLIENT", "HOST", "GROUP", "TOPIC", *places, "LAST FETCH", "LAG")
        print_table(header, _most_behind_first(rows))


def _most_behind_first(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """By what is in their last column, those of which it is not known at the end; else as they come."""
    return sorted(rows, key=lambda row: (row[-1] is None, -(row[-1] or 0)))


def _age(age_ms: int) -> str:
    return f"{age_ms / 1000:.1f} s ago"


def _as_json(found: _Findings) -> dict[str, Any]:
    return {
        "groups": [
            {
                "group": group_id,
                "type": found.groups[group_id].type,
                "state": found.groups[group_id].state,
                "topic": row.place.topic,
                "partition": row.place.partition,
                "current_offset": row.current,
                "log_end_offset": row.end,
                "lag": row.lag,
            }
            for group_id, rows in found.lags.items()
            for row in rows
        ],
        "clients": None
        if found.clients is None
        else [
            {
                "client_id": client.fetched.client_id,
                "host": client.fetched.host,
                "group": client.group_id,
                "topic": client.fetched.place.topic,
                "partition": client.fetched.place.partition,
                "position": client.fetched.position,
                "high_watermark": client.fetched.high_watermark,
                "lag": client.lag,
                "age_ms": client.fetched.age_ms,
            }
            for client in found.clients
        ],
    }
