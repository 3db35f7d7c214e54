"""`moldau consume`: the records of a topic, from where one likes, as text or JSON."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import click

from moldau.cli import complete
from moldau.cli.output import CommandError, json_bytes, reader_is_gone
from moldau.cli.progress import Progress, progress
from moldau.cli.record_filter import FilterError, Test, by_header, by_json, by_key, every
from moldau.cli.remote import bootstrap_option, with_cluster
from moldau.client.admin import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Admin, IsolationLevel
from moldau.client.cluster import Address, Cluster, TopicPartition
from moldau.client.fetch import Fetcher, starting_offsets
from moldau.records.record import Record
from moldau.runtime.real import RealRuntime
from moldau.wire.errors import ErrorCode, KafkaError

# How often it is looked whether anybody still reads what is printed, and whether an answer that is due came.
_LOOK_S = 1.0
_DUE_S = 0.05
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Where to stop in each partition: at one of these, or nowhere."""

    to_end: bool
    offset: int | None
    timestamp: int | None


def offset_or_end(text: str) -> str | int:
    if text in ("earliest", "latest"):
        return text
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 63):
        raise click.BadParameter(f"{text!r} is neither an offset, 'earliest' nor 'latest'")
    return int(text)


def milliseconds(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) < 1 << 63:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is neither milliseconds since 1970 nor a date and time") from None


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise click.BadParameter(f"{text!r} is no time above 0")
    return value


def filter_option(name: str, make: Callable[[str], Test], metavar: str, help: str) -> Callable[[F], F]:
    def parse(text: str) -> Test:
        try:
            return make(text)
        except FilterError as error:
            raise click.BadParameter(str(error)) from None

    return click.option(name, type=parse, metavar=metavar, multiple=True, help=f"{help} Repeatable.")


@click.command("consume", help="Print the records of a topic.")
@click.argument("topic", shell_complete=complete.topics)
@bootstrap_option
@click.option("--from-beginning", is_flag=True, help="Start at the first record, not at the end.")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Only this partition. Repeatable.",
)
@click.option(
    "--offset",
    type=offset_or_end,
    metavar="OFFSET|earliest|latest",
    help="Start at this offset of each partition.",
)
@click.option(
    "--timestamp",
    type=milliseconds,
    metavar="MS|ISO-8601",
    help="Start at the first record that is not older than this.",
)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Go on at the end, as it does unless told where to stop.",
)
@click.option("--to-end", is_flag=True, help="Stop at what is the end of each partition as it starts.")
@click.option(
    "--until-offset",
    type=click.IntRange(0, (1 << 63) - 1),
    metavar="OFFSET",
    help="Stop before this offset of each partition.",
)
@click.option(
    "--until-timestamp",
    type=milliseconds,
    metavar="MS|ISO-8601",
    help="Stop before the first record that is not older than this.",
)
@click.option("--max-messages", type=click.IntRange(1), metavar="N", help="Stop after printing so many.")
@click.option(
    "--timeout",
    type=seconds,
    metavar="SECONDS",
    help="Stop when no record has come for so long; by default it waits for ever.",
)
@filter_option("--match-key", by_key, "PATTERN", "Only records whose key has this regular expression in it.")
@filter_option(
    "--match-header", by_header, "NAME[=PATTERN]", "Only records with this header, and this in its value."
)
@filter_option(
    "--match-json",
    by_json,
    "PATH[=VALUE]",
    "Only records with this in the JSON of their value: order.items[0].id=7.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each record, one a line.")
@click.option("--headers", "with_headers", is_flag=True, help="Print the headers before key and value.")
@click.option("--key", "with_key", is_flag=True, help="Print the key before the value.")
@click.option(
    "--key-separator",
    default="\t",
    metavar="TEXT",
    help="What to print between headers, key and value; a tab.",
)
@click.option(
    "--isolation-level",
    "--isolation",
    "isolation",
    type=click.Choice([level.name.lower() for level in IsolationLevel]),
    default="read_uncommitted",
    show_default=True,
    help="Whether to wait for the end of transactions, and leave out what was aborted.",
)
def command(
    topic: str,
    bootstrap: list[Address],
    from_beginning: bool,
    partitions: Sequence[int],
    offset: str | int | None,
    timestamp: int | None,
    follow: bool,
    to_end: bool,
    until_offset: int | None,
    until_timestamp: int | None,
    max_messages: int | None,
    timeout: float | None,
    match_key: Sequence[Test],
    match_header: Sequence[Test],
    match_json: Sequence[Test],
    as_json: bool,
    with_headers: bool,
    with_key: bool,
    key_separator: str,
    isolation: str,
) -> None:
    if from_beginning + (offset is not None) + (timestamp is not None) > 1:
        raise click.UsageError("give one of --from-beginning, --offset and --timestamp")
    if follow + to_end + (until_offset is not None) + (until_timestamp is not None) > 1:
        raise click.UsageError("give one of --follow, --to-end, --until-offset and --until-timestamp")
    stop = Stop(to_end=to_end, offset=until_offset, timestamp=until_timestamp)
    matches = every([*match_key, *match_header, *match_json])
    start: str | int = offset if offset is not None else "earliest" if from_beginning else "latest"
    if as_json:
        form: Callable[[TopicPartition, Record], bytes] = _as_json
    else:
        form = _text_form(with_headers, with_key, os.fsencode(key_separator))
    level = IsolationLevel[isolation.upper()]

    async def work(runtime: RealRuntime, cluster: Cluster) -> None:
        starts = await _start(cluster, topic, partitions, start, timestamp, level)
        ends = await _ends(Admin(cluster), list(starts), stop, runtime.clock.now_ms(), level)
        starts = {place: offset for place, offset in starts.items() if offset < ends.get(place, math.inf)}
        if not starts:
            return
        fetcher = Fetcher(runtime, cluster, isolation=level)
        fetcher.assign(starts)
        total = sum(end - starts[place] for place, end in ends.items() if place in starts)
        try:
            with progress(total, topic, prints=True) if ends else nullcontext() as seen:
                printer = _Printer(form, matches, max_messages, seen)
                await _print_records(runtime, fetcher, printer, ends, timeout)
        finally:
            await fetcher.close()

    with_cluster(bootstrap, work)


async def _start(
    cluster: Cluster,
    topic: str,
    partitions: Sequence[int],
    start: str | int,
    timestamp: int | None,
    isolation: IsolationLevel,
) -> dict[TopicPartition, int]:
    info = await cluster.topic(topic)
    places = [TopicPartition(topic, index) for index in partitions or range(len(info.partitions))]
    for place in places:
        if info.partition(place.partition) is None:
            raise CommandError(
                f"topic {topic!r} has no partition {place.partition} (it has {len(info.partitions)})"
            )
    if isinstance(start, int):
        await _check_offset(Admin(cluster), places, start)
        return dict.fromkeys(places, start)
    if timestamp is None:
        timestamp = EARLIEST_TIMESTAMP if start == "earliest" else LATEST_TIMESTAMP
    return await starting_offsets(Admin(cluster), places, timestamp, isolation)


async def _check_offset(admin: Admin, places: Sequence[TopicPartition], offset: int) -> None:
    """A fetch would refuse it too, without saying what there is."""
    first = await admin.list_offsets(dict.fromkeys(places, EARLIEST_TIMESTAMP))
    end = await admin.list_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
    for place in places:
        low, high = first[place].offset or 0, end[place].offset or 0
        if not low <= offset <= high:
            reason = f"partition {place} begins at {low} and ends at {high}, offset {offset} is not in it"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, reason)


async def _ends(
    admin: Admin, places: Sequence[TopicPartition], stop: Stop, now_ms: int, isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    """Where to stop in each partition; empty to go on for ever."""
    if stop.offset is not None:
        return dict.fromkeys(places, stop.offset)
    if stop.timestamp is not None:
        if stop.timestamp > now_ms:
            raise CommandError("--until-timestamp is still to come; --timeout and --max-messages can wait")
        return await starting_offsets(admin, places, stop.timestamp, isolation)
    if stop.to_end:
        return await starting_offsets(admin, places, LATEST_TIMESTAMP, isolation)
    return {}


class _Printer:
    """Prints what is wanted, and counts it."""

    def __init__(
        self,
        form: Callable[[TopicPartition, Record], bytes],
        matches: Test | None,
        max_messages: int | None,
        seen: Progress | None,
    ) -> None:
        self._form = form
        self._matches = matches
        self._left = max_messages
        self._seen = seen

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def show(self, place: TopicPartition, records: Sequence[Record]) -> None:
        if self._seen is not None:
            self._seen.update(len(records))
        if self._matches is not None:
            records = [record for record in records if self._matches(record)]
        if self._left is not None:
            records = records[: self._left]
            self._left -= len(records)
        out = sys.stdout.buffer
        out.write(b"".join([self._form(place, record) for record in records]))
        out.flush()


async def _print_records(
    runtime: RealRuntime,
    fetcher: Fetcher,
    printer: _Printer,
    ends: Mapping[TopicPartition, int],
    timeout_s: float | None,
) -> None:
    quiet_since = runtime.clock.monotonic()
    behind = ends.keys() & fetcher.positions.keys()
    while not printer.is_done:
        left_s = math.inf if timeout_s is None else quiet_since + timeout_s - runtime.clock.monotonic()
        fetched = await fetcher.poll(max(_DUE_S, min(left_s, _LOOK_S)))
        if fetched is not None and fetched.records:
            end = ends.get(fetched.place, math.inf)
            printer.show(fetched.place, [record for record in fetched.records if record.offset < end])
            quiet_since = runtime.clock.monotonic()
        elif fetched is None and left_s <= _LOOK_S:
            if fetcher.failure is not None:
                raise fetcher.failure
            # An answer comes twice a second even if there is nothing to tell.
            if fetcher.heard_since(max(quiet_since, runtime.clock.monotonic() - _LOOK_S)):
                return
        if fetched is not None and fetched.next_offset >= ends.get(fetched.place, math.inf):
            fetcher.unassign([fetched.place])
            behind.discard(fetched.place)
            if not behind:
                return
        if (fetched is None or not fetched.records) and reader_is_gone():
            raise BrokenPipeError


def _as_json(place: TopicPartition, record: Record) -> bytes:
    fields = {
        "topic": place.topic,
        "partition": place.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[_printable(name), json_bytes(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _text_form(
    with_headers: bool, with_key: bool, separator: bytes
) -> Callable[[TopicPartition, Record], bytes]:
    def form(place: TopicPartition, record: Record) -> bytes:
        parts: list[bytes] = []
        if with_headers:
            headers = [
                name.encode("utf-8", "surrogateescape") + b":" + (b"null" if value is None else value)
                for name, value in record.headers
            ]
            parts.append(b",".join(headers) or b"NO_HEADERS")
        if with_key:
            parts.append(b"null" if record.key is None else record.key)
        parts.append(b"null" if record.value is None else record.value)
        return separator.join(parts) + b"\n"

    return form


def _printable(name: str) -> str:
    """A header name that is not UTF-8 has no place in JSON; what can be shown of it is."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
