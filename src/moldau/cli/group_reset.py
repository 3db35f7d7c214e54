"""`moldau group reset-offsets`: move groups to other offsets, or show where they would be moved to.

The choices, and what comes out of them, are those of Kafka's tool: nothing is changed unless that is said, a
group has to be inactive, and an offset that a partition does not have becomes the nearest that it has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path
from typing import Any

import click

from moldau.cli import complete
from moldau.cli.group_plan import Plan, from_csv, to_csv
from moldau.cli.group_scope import (
    Scopes,
    consumer_group_ids,
    parse_scopes,
    places_in_scope,
    scope_option,
)
from moldau.cli.output import CommandError, print_error, print_json, print_table
from moldau.cli.remote import bootstrap_option, describe, with_cluster
from moldau.cli.values import json_option
from moldau.client.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Admin
from moldau.client.cluster import Address, Cluster, TopicPartition
from moldau.client.group_admin import GroupAdmin
from moldau.client.group_description import SHARE
from moldau.wire.errors import ErrorCode, KafkaError

_INACTIVE = ("Empty", "Dead")
_MS = {"D": 86_400_000, "H": 3_600_000, "M": 60_000}
_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?=[-+\d])(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)


class Goal(Enum):
    EARLIEST = auto()
    LATEST = auto()
    CURRENT = auto()
    OFFSET = auto()
    SHIFT = auto()
    TIME = auto()
    AGO = auto()
    PLAN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Where to (`value` is an offset, a difference, or milliseconds), for which partitions: those of `plans`,
    of `scopes`, or, without either, all that the group has committed."""

    goal: Goal
    value: int = 0
    scopes: Scopes | None = None
    plans: Mapping[str, Plan] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    current: Plan
    new: Plan


def date_and_time(text: str) -> int:
    """Milliseconds since 1970. As with Kafka's tool, UTC unless the text names another zone."""
    try:
        if "T" not in text:
            raise ValueError
        when = datetime.fromisoformat(text)
        return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is not YYYY-MM-DDTHH:mm:SS.sss") from None


def duration(text: str) -> int:
    """Milliseconds."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()[1:]):
        raise click.BadParameter(f"{text!r} is not PnDTnHnMnS")
    sign, days, hours, minutes, seconds = found.groups()
    total = sum(int(count or 0) * ms for count, ms in zip((days, hours, minutes), _MS.values(), strict=True))
    total += round(float((seconds or "0").replace(",", ".")) * 1000)
    return -total if sign == "-" else total


@click.command("reset-offsets", help="Move groups that have no members to other offsets.")
@click.argument("names", metavar="[GROUP...]", nargs=-1, shell_complete=complete.groups)
@bootstrap_option
@click.option("--all-groups", is_flag=True, help="Every group of consumers.")
@scope_option
@click.option("--all-topics", is_flag=True, help="All partitions that the group has committed.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-current", is_flag=True, help="To where it is; to the end where it has committed nothing.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="So many records on, or back if below 0.")
@click.option(
    "--to-datetime",
    type=date_and_time,
    metavar="YYYY-MM-DDTHH:mm:SS.sss",
    help="To the first record that is not older; UTC unless it names a zone.",
)
@click.option(
    "--by-duration",
    type=duration,
    metavar="PnDTnHnMnS",
    help="To the first record that is not older than so long.",
)
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="To the offsets in a CSV file, such as --export writes.",
)
@click.option("--execute", is_flag=True, help="Do it, instead of only showing what would be done.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done: the default.")
@click.option("--export", "as_csv", is_flag=True, help="Print CSV, for --from-file or Kafka's tool.")
@json_option
def reset_offsets(
    names: Sequence[str],
    bootstrap: list[Address],
    all_groups: bool,
    execute: bool,
    dry_run: bool,
    as_csv: bool,
    as_json: bool,
    **where: Any,
) -> None:
    if bool(names) == all_groups:
        raise click.UsageError("give either groups or --all-groups")
    if execute and dry_run:
        raise click.UsageError("give one of --execute and --dry-run")
    if as_csv and as_json:
        raise click.UsageError("give one of --export and --json")
    wanted = _reset(names, **where)
    moved: dict[str, Moved] = {}
    failed: list[str] = []

    async def each_group(now_ms: int, cluster: Cluster) -> None:
        resetter = _Resetter(cluster, wanted, now_ms)
        for group_id in names or await consumer_group_ids(resetter.groups):
            try:
                moved[group_id], failures = await resetter.move(group_id, execute=execute)
            except KafkaError as error:
                if error.code is ErrorCode.NETWORK_EXCEPTION:
                    raise
                failed.append(f"group {group_id!r}: {describe(error)}")
            else:
                failed.extend(f"group {group_id!r}: {describe(failure)}" for failure in failures)

    with_cluster(bootstrap, lambda runtime, cluster: each_group(runtime.clock.now_ms(), cluster))
    if as_csv:
        plans = {group_id: each.new for group_id, each in moved.items()}
        click.echo(to_csv(plans, with_groups=len(names) != 1), nl=False)
    else:
        _print(moved, as_json)
        if moved and not execute and not as_json:
            print_error("nothing has been changed: that takes --execute")
    for message in failed[:-1]:
        print_error(message)
    if failed:
        raise CommandError(failed[-1])


def _reset(
    names: Sequence[str],
    *,
    scopes: Sequence[str],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: int | None,
    by_duration: int | None,
    from_file: Path | None,
) -> Reset:
    flags = ((Goal.EARLIEST, to_earliest), (Goal.LATEST, to_latest), (Goal.CURRENT, to_current))
    values = (
        (Goal.OFFSET, to_offset),
        (Goal.SHIFT, shift_by),
        (Goal.TIME, to_datetime),
        (Goal.AGO, by_duration),
    )
    goals = [(goal, 0) for goal, is_given in flags if is_given]
    goals += [(goal, value) for goal, value in values if value is not None]
    if len(goals) + (from_file is not None) != 1:
        raise click.UsageError(
            "give one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, "
            "--by-duration and --from-file"
        )
    if from_file is not None:
        if scopes or all_topics:
            raise click.UsageError("a file says itself which partitions it is about")
        try:
            with from_file.open(newline="") as lines:
                plans = from_csv(lines, names[0] if len(names) == 1 else None)
        except ValueError as error:
            raise CommandError(f"{from_file}: {error}") from None
        return Reset(goal=Goal.PLAN, plans=plans)
    if bool(scopes) == all_topics:
        raise click.UsageError("give either --topic or --all-topics")
    goal, value = goals[0]
    return Reset(goal=goal, value=value, scopes=parse_scopes(scopes) if scopes else None)


def _print(moved: Mapping[str, Moved], as_json: bool) -> None:
    rows = [
        (group_id, place.topic, place.partition, each.current.get(place), offset)
        for group_id, each in moved.items()
        for place, offset in sorted(each.new.items())
    ]
    if as_json:
        names = ("group", "topic", "partition", "current_offset", "new_offset")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif rows:
        print_table(("GROUP", "TOPIC", "PARTITION", "CURRENT OFFSET", "NEW OFFSET"), rows)


class _Resetter:
    def __init__(self, cluster: Cluster, reset: Reset, now_ms: int) -> None:
        self.groups = GroupAdmin(cluster)
        self._admin = Admin(cluster)
        self._reset = reset
        self._now_ms = now_ms

    async def move(self, group_id: str, *, execute: bool) -> tuple[Moved, list[KafkaError]]:
        """What was, or would be, and why it failed for some partitions. Raises what is wrong with the group,
        or with what is asked of it; then nothing has changed."""
        is_share = await self._check_inactive(group_id)
        current = await self._current(group_id, is_share)
        new = await self._new(group_id, current)
        failures: dict[TopicPartition, KafkaError] = {}
        if execute and new:
            alter = self.groups.alter_share_offsets if is_share else self.groups.alter_offsets
            failures = await alter(group_id, new)
        done = {place: offset for place, offset in new.items() if place not in failures}
        return Moved(current=current, new=done), [failure for _, failure in sorted(failures.items())]

    async def _check_inactive(self, group_id: str) -> bool:
        """Whether it is a share group. A group that is not there becomes one by committing."""
        found = (await self.groups.describe([group_id]))[group_id]
        if isinstance(found, KafkaError):
            if found.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return False
            raise found
        if found.state not in _INACTIVE:
            reason = f"it has to be inactive to be moved, and is {found.state}"
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, reason)
        return found.type == SHARE

    async def _current(self, group_id: str, is_share: bool) -> Plan:
        if is_share:
            starts = (await self.groups.share_offsets([group_id]))[group_id]
            if isinstance(starts, KafkaError):
                raise starts
            return {
                place: start.start_offset for place, start in starts.items() if start.start_offset is not None
            }
        committed = (await self.groups.offsets([group_id]))[group_id]
        if isinstance(committed, KafkaError):
            raise committed
        return {place: each.offset for place, each in committed.items()}

    async def _new(self, group_id: str, current: Plan) -> Plan:
        reset = self._reset
        if reset.plans is not None:
            planned = reset.plans.get(group_id)
            if planned is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the file has no plan for it")
            places = await self._existing(_scopes_of(planned))
            return await self._in_range({place: planned[place] for place in places})
        scopes = reset.scopes if reset.scopes is not None else _scopes_of(current)
        places = await self._existing(scopes)
        match reset.goal:
            case Goal.EARLIEST:
                return await self._at(places, EARLIEST_TIMESTAMP)
            case Goal.LATEST:
                return await self._at(places, LATEST_TIMESTAMP)
            case Goal.CURRENT:
                ends = await self._at([place for place in places if place not in current], LATEST_TIMESTAMP)
                return {place: current[place] if place in current else ends[place] for place in places}
            case Goal.OFFSET:
                return await self._in_range(dict.fromkeys(places, reset.value))
            case Goal.SHIFT:
                return await self._in_range(self._shifted(places, current))
            case Goal.TIME:
                return await self._at_time(places, reset.value)
            case _:
                return await self._at_time(places, self._now_ms - reset.value)

    def _shifted(self, places: Sequence[TopicPartition], current: Plan) -> Plan:
        for place in places:
            if place not in current:
                reason = f"cannot shift partition {place}: nothing is committed for it"
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        return {place: current[place] + self._reset.value for place in places}

    async def _existing(self, scopes: Scopes) -> list[TopicPartition]:
        if not scopes:
            return []
        places, failures = await places_in_scope(self._admin, scopes)
        if failures:
            raise failures[0]
        return places

    async def _at(self, places: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        found = await self._admin.list_offsets(dict.fromkeys(places, timestamp))
        return {place: each.offset for place, each in found.items() if each.offset is not None}

    async def _at_time(self, places: Sequence[TopicPartition], timestamp: int) -> Plan:
        # A time before 1970 would mean something else to the broker, and is before every record.
        found = await self._at(places, max(timestamp, 0))
        newer = [place for place in places if place not in found]
        for place in newer:
            print_error(f"partition {place} has no record that new: it is moved to its end")
        return found | await self._at(newer, LATEST_TIMESTAMP)

    async def _in_range(self, wanted: Plan) -> Plan:
        first = await self._at(list(wanted), EARLIEST_TIMESTAMP)
        end = await self._at(list(wanted), LATEST_TIMESTAMP)
        plan = {}
        for place, offset in wanted.items():
            plan[place] = min(max(offset, first[place]), end[place])
            if plan[place] != offset:
                print_error(f"partition {place} has no offset {offset}: it is moved to {plan[place]}")
        return plan


def _scopes_of(plan: Plan) -> Scopes:
    scopes: dict[str, list[int]] = {}
    for place in plan:
        scopes.setdefault(place.topic, []).append(place.partition)
    return scopes
