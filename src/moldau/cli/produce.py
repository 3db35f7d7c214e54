"""`moldau produce`: the lines of standard input as records."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from typing import Any

import click

from moldau.cli import complete
from moldau.cli.output import CommandError, bytes_from_json
from moldau.cli.progress import progress
from moldau.cli.remote import bootstrap_option, describe, with_cluster
from moldau.cli.stdin import LineTooLong, line_chunks
from moldau.cli.values import assignments_option
from moldau.client.cluster import Address, Cluster
from moldau.client.delivery import Delivery
from moldau.client.producer import AsyncProducer, ProducerRecord
from moldau.records.batch import NO_TIMESTAMP
from moldau.records.compression import Codec
from moldau.records.record import Header
from moldau.runtime.real import RealRuntime
from moldau.wire.errors import KafkaError

_INT32_MAX, _INT64_MAX = (1 << 31) - 1, (1 << 63) - 1
_ACKS = ("0", "1", "all", "-1")
_OPTIONS: dict[str, Any] = {
    # What comes together leaves together, and what is here leaves at once.
    "linger.ms": 0,
    "batch.size": 1_000_000,
    "delivery.timeout.ms": 60_000,
    # How large a record may be is for the topic to say.
    "max.request.size": 80 << 20,
    "buffer.memory": 256 << 20,
}


@click.command("produce", help="Write the lines of standard input to a topic.")
@click.argument("topic", shell_complete=complete.topics)
@bootstrap_option
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="What stands between key and value in a line; no keys if not given.",
)
@assignments_option("--header", "headers", help="Give every record this header. Repeatable.")
@click.option("--partition", type=click.IntRange(0), help="Write to this partition, whatever the key.")
@click.option(
    "--acks",
    type=click.Choice(_ACKS),
    default="all",
    show_default=True,
    help="Whose word to wait for: nobody's, the leader's, or that of all in-sync replicas.",
)
@click.option(
    "--compression",
    type=click.Choice([codec.name.lower() for codec in Codec]),
    default="none",
    show_default=True,
    help="The codec of the batches.",
)
@click.option(
    "--transactional-id",
    metavar="ID",
    help="Write all lines in one transaction of this id, or none of them.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Lines are JSON objects, as `moldau consume --json` prints."
)
def command(
    topic: str,
    bootstrap: list[Address],
    key_separator: str | None,
    headers: Sequence[tuple[str, str]],
    partition: int | None,
    acks: str,
    compression: str,
    transactional_id: str | None,
    as_json: bool,
) -> None:
    if transactional_id is not None and acks not in ("all", "-1"):
        raise click.UsageError("a transaction takes --acks all")
    if as_json and key_separator is not None:
        raise click.UsageError("--key-separator has no meaning with --json")
    if key_separator == "":
        raise click.UsageError("--key-separator is empty")
    fixed = tuple((name, os.fsencode(value)) for name, value in headers)
    if as_json:
        parse: Callable[[bytes], ProducerRecord] = lambda line: _from_json(topic, line, fixed, partition)  # noqa: E731
    else:
        separator = None if key_separator is None else os.fsencode(key_separator)
        parse = lambda line: _from_line(topic, line, separator, fixed, partition)  # noqa: E731

    async def work(runtime: RealRuntime, cluster: Cluster) -> None:
        options = {
            **_OPTIONS,
            "acks": acks,
            "compression.type": compression,
            "transactional.id": transactional_id,
        }
        async with AsyncProducer(options, runtime=runtime, cluster=cluster) as producer:
            if transactional_id is None:
                await write(producer, _written)
                return
            await producer.init_transactions()
            async with producer.transaction():
                await write(producer, _unwritten)

    async def write(producer: AsyncProducer, so_far: Callable[[int], str]) -> None:
        number = 0
        try:
            async for lines in line_chunks():
                first = number + 1
                seen.update(sum(map(len, lines)) + len(lines))
                records: list[ProducerRecord] = []
                problem: str | None = None
                for line in lines:
                    number += 1
                    try:
                        records.append(parse(line))
                    except ValueError as error:
                        problem = f"line {number} {error}"
                        break
                if records:
                    await _produce(producer, records, first)
                if problem is not None:
                    raise CommandError(f"{problem}{so_far(number - 1)}")
        except LineTooLong as error:
            raise CommandError(f"line {number + 1} {error}{so_far(number)}") from None

    try:
        with progress(_stdin_bytes(), topic, prints=False) as seen:
            with_cluster(bootstrap, work)
    except OSError as error:
        raise CommandError(f"cannot read standard input: {error.strerror}") from None


def _stdin_bytes() -> int:
    """How much there is to read, where that is a file; else nobody knows."""
    status = os.fstat(0)
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


async def _produce(producer: AsyncProducer, records: Sequence[ProducerRecord], first: int) -> None:
    """Of what is refused the cluster only tells the batch: people are told which lines were on their way."""
    deliveries: list[Delivery] = []
    failure: KafkaError | None = None
    try:
        for record in records:
            delivery = await producer.send(**record._asdict())
            deliveries.append(delivery)
    except KafkaError as error:
        failure = error
    await producer.flush()
    failure = next((error for error in (each.exception() for each in deliveries) if error), failure)
    if failure is not None:
        last = first + len(records) - 1
        which = f"lines {first} to {last}" if last > first else f"line {first}"
        raise CommandError(f"{which}: {describe(failure)}")


def _written(count: int) -> str:
    if count == 0:
        return ""
    return "; the line before it is written" if count == 1 else f"; the {count} lines before it are written"


def _unwritten(count: int) -> str:
    return "; the transaction is aborted" if count else ""


def _from_line(
    topic: str, line: bytes, separator: bytes | None, headers: tuple[Header, ...], partition: int | None
) -> ProducerRecord:
    if separator is None:
        return ProducerRecord(topic, line, None, partition, headers)
    key, found, value = line.partition(separator)
    if not found:
        raise ValueError(f"has no key separator {os.fsdecode(separator)!r}")
    return ProducerRecord(topic, value, key, partition, headers)


def _from_json(topic: str, line: bytes, headers: tuple[Header, ...], partition: int | None) -> ProducerRecord:
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    if not isinstance(record, dict):
        raise ValueError("is not a JSON object")
    return ProducerRecord(
        topic,
        value=_bytes_of(record, "value"),
        key=_bytes_of(record, "key"),
        headers=_headers_of(record) + headers,
        partition=partition if partition is not None else _number_of(record, "partition", 0, _INT32_MAX),
        timestamp_ms=_number_of(record, "timestamp", NO_TIMESTAMP, _INT64_MAX),
    )


def _bytes_of(record: dict[str, Any], name: str) -> bytes | None:
    try:
        return bytes_from_json(record.get(name))
    except ValueError as error:
        raise ValueError(f"has a {name} that {_reason(error)}") from None


def _headers_of(record: dict[str, Any]) -> tuple[Header, ...]:
    headers = record.get("headers") or []
    if isinstance(headers, dict):
        headers = list(headers.items())
    try:
        return tuple((_text(name), bytes_from_json(value)) for name, value in headers)
    except (TypeError, ValueError):
        raise ValueError("has headers that are no list of [name, value] pairs") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # ValueError: JSON can spell what UTF-8 cannot
    return value


def _number_of(record: dict[str, Any], name: str, least: int, largest: int) -> int | None:
    value = record.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= largest:
        raise ValueError(f"has a {name} that is no number from {least} to {largest}")
    return value


def _reason(error: ValueError) -> str:
    text = str(error)
    return text if text.startswith("is ") else "is no valid base64"
