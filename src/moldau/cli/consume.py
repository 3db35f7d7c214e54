"""`moldau consume`: the records of a topic, from where one likes, as text or JSON."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime

import click

from moldau.cli.output import json_bytes, reader_is_gone
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


@click.command("consume", help="Print the records of a topic.")
@click.argument("topic")
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
@click.option("--max-messages", type=click.IntRange(1), metavar="N", help="Stop after so many records.")
@click.option(
    "--timeout",
    type=seconds,
    metavar="SECONDS",
    help="Stop when no record has come for so long; by default it waits for ever.",
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
    max_messages: int | None,
    timeout: float | None,
    as_json: bool,
    with_headers: bool,
    with_key: bool,
    key_separator: str,
    isolation: str,
) -> None:
    if from_beginning + (offset is not None) + (timestamp is not None) > 1:
        raise click.UsageError("give one of --from-beginning, --offset and --timestamp")
    start: str | int = offset if offset is not None else "earliest" if from_beginning else "latest"
    if as_json:
        form: Callable[[TopicPartition, Record], bytes] = _as_json
    else:
        form = _text_form(with_headers, with_key, os.fsencode(key_separator))
    level = IsolationLevel[isolation.upper()]

    async def work(runtime: RealRuntime, cluster: Cluster) -> None:
        fetcher = Fetcher(runtime, cluster, isolation=level)
        fetcher.assign(await _start(cluster, topic, partitions, start, timestamp, level))
        try:
            await _print_records(runtime, fetcher, form, max_messages, timeout)
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
            reason = f"topic {topic!r} has no partition {place.partition} (it has {len(info.partitions)})"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
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


async def _print_records(
    runtime: RealRuntime,
    fetcher: Fetcher,
    form: Callable[[TopicPartition, Record], bytes],
    max_messages: int | None,
    timeout_s: float | None,
) -> None:
    out = sys.stdout.buffer
    left = max_messages
    quiet_since = runtime.clock.monotonic()
    while left is None or left > 0:
        left_s = math.inf if timeout_s is None else quiet_since + timeout_s - runtime.clock.monotonic()
        fetched = await fetcher.poll(max(_DUE_S, min(left_s, _LOOK_S)))
        if fetched is None or not fetched.records:
            if fetched is None and left_s <= _LOOK_S:
                if fetcher.failure is not None:
                    raise fetcher.failure
                # An answer comes twice a second even if there is nothing to tell.
                if fetcher.heard_since(max(quiet_since, runtime.clock.monotonic() - _LOOK_S)):
                    return
            if reader_is_gone():
                raise BrokenPipeError
            continue
        records = fetched.records if left is None else fetched.records[:left]
        out.write(b"".join([form(fetched.place, record) for record in records]))
        out.flush()
        if left is not None:
            left -= len(records)
        quiet_since = runtime.clock.monotonic()


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
