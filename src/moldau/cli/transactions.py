"""`moldau transactions`: see the transactions of any cluster, find those that hang, and end them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from moldau.cli.group_scope import parse_scopes, places_in_scope, places_text, scope_option
from moldau.cli.output import CommandError, print_error, print_json, print_table
from moldau.cli.remote import bootstrap_option, describe, with_cluster
from moldau.cli.values import json_option, one_of
from moldau.client.admin import Admin
from moldau.client.cluster import Address, Cluster, TopicPartition
from moldau.client.group_description import by_topic
from moldau.client.hanging import OpenTransaction, find_hanging, open_transactions
from moldau.client.transaction_admin import (
    STATES,
    ActiveProducer,
    Producers,
    TransactionAdmin,
    TransactionDescription,
)
from moldau.runtime.real import RealRuntime
from moldau.wire.errors import ErrorCode, KafkaError

EXIT_FOUND = 3
_INT16_MAX, _INT32_MAX, _INT64_MAX = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1
_MINUTE_MS = 60_000

broker_option = click.option(
    "--broker", type=click.IntRange(0, _INT32_MAX), metavar="ID", help="Ask the replicas on this broker."
)


@click.group("transactions", help="List and describe transactions; find and end those that hang.")
def command() -> None:
    pass


# ---------------------------------------------------------------- coordinators


@command.command("list", help="List transactional ids.")
@bootstrap_option
@click.option(
    "--state",
    "states",
    metavar="STATE,…",
    multiple=True,
    callback=one_of(STATES),
    help=f"Only those in one of these states: {', '.join(STATES)}.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=click.IntRange(0, _INT64_MAX),
    metavar="ID",
    multiple=True,
    help="Only the one with this producer id. Repeatable.",
)
@click.option(
    "--duration",
    "duration_ms",
    type=click.IntRange(-1, _INT64_MAX),
    metavar="MS",
    default=-1,
    help="Only transactions that have been under way for longer.",
)
@click.option(
    "--pattern",
    metavar="REGEX",
    help="Only transactional ids that this regular expression matches as a whole.",
)
@json_option
def list_transactions(
    bootstrap: list[Address],
    states: Sequence[str],
    producer_ids: Sequence[int],
    duration_ms: int,
    pattern: str | None,
    as_json: bool,
) -> None:
    listings = with_cluster(
        bootstrap,
        lambda runtime, cluster: TransactionAdmin(cluster).list_transactions(
            states=states, producer_ids=producer_ids, duration_ms=duration_ms, pattern=pattern
        ),
    )
    if as_json:
        print_json([asdict(listing) for listing in listings])
    elif listings:
        print_table(
            ("TRANSACTIONAL ID", "COORDINATOR", "PRODUCER ID", "STATE"),
            [(each.transactional_id, each.coordinator, each.producer_id, each.state) for each in listings],
        )


@command.command("describe", help="Show what transactional ids, or all, have under way.")
@click.argument("names", metavar="[ID...]", nargs=-1)
@bootstrap_option
@json_option
def describe_transactions(names: Sequence[str], bootstrap: list[Address], as_json: bool) -> None:
    async def ask(
        runtime: RealRuntime, cluster: Cluster
    ) -> tuple[int, dict[str, TransactionDescription | KafkaError]]:
        transactions = TransactionAdmin(cluster)
        wanted = names or [each.transactional_id for each in await transactions.list_transactions()]
        outcomes = await transactions.describe(wanted)
        return runtime.clock.now_ms(), outcomes

    now_ms, outcomes = with_cluster(bootstrap, ask)
    found = [each for each in outcomes.values() if not isinstance(each, KafkaError)]
    if as_json:
        print_json([_described(each, now_ms) for each in found])
    elif found:
        print_table(
            (
                "TRANSACTIONAL ID",
                "COORDINATOR",
                "PRODUCER ID",
                "EPOCH",
                "STATE",
                "TIMEOUT MS",
                "STARTED",
                "DURATION MS",
                "PARTITIONS",
            ),
            [
                (
                    each.transactional_id,
                    each.coordinator,
                    each.producer_id,
                    each.producer_epoch,
                    each.state,
                    each.timeout_ms,
                    _time(each.start_time_ms),
                    _duration(each, now_ms),
                    places_text(each.partitions),
                )
                for each in found
            ],
        )
    _end([each for each in outcomes.values() if isinstance(each, KafkaError)])


def _described(each: TransactionDescription, now_ms: int) -> dict[str, Any]:
    return {
        "transactional_id": each.transactional_id,
        "coordinator": each.coordinator,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "state": each.state,
        "timeout_ms": each.timeout_ms,
        "start_time_ms": each.start_time_ms,
        "duration_ms": _duration(each, now_ms),
        "partitions": by_topic(each.partitions),
    }


def _duration(each: TransactionDescription, now_ms: int) -> int | None:
    return None if each.start_time_ms is None else max(0, now_ms - each.start_time_ms)


@command.command(
    "force-terminate", help="Abort what a transactional id has under way, and fence its producer."
)
@click.argument("names", metavar="ID...", nargs=-1, required=True)
@bootstrap_option
def force_terminate(names: Sequence[str], bootstrap: list[Address]) -> None:
    async def terminate(runtime: RealRuntime, cluster: Cluster) -> list[KafkaError]:
        transactions = TransactionAdmin(cluster)
        failures: list[KafkaError] = []
        # An id that nobody has would come to be by this.
        for name, outcome in (await transactions.describe(names)).items():
            if isinstance(outcome, KafkaError):
                failures.append(outcome)
                continue
            try:
                await transactions.force_terminate(name)
            except KafkaError as error:
                failures.append(error)
            else:
                click.echo(f"terminated {name}, which was {outcome.state}")
        return failures

    _end(with_cluster(bootstrap, terminate))


# ---------------------------------------------------------------- leaders


@command.command("describe-producers", help="Show the producers that partitions remember.")
@bootstrap_option
@scope_option
@broker_option
@click.option("--open", "only_open", is_flag=True, help="Only those that have a transaction open.")
@json_option
def describe_producers(
    bootstrap: list[Address], scopes: Sequence[str], broker: int | None, only_open: bool, as_json: bool
) -> None:
    if not scopes:
        raise click.UsageError("say of which partitions: give --topic")
    wanted = parse_scopes(scopes)

    async def ask(runtime: RealRuntime, cluster: Cluster) -> tuple[Producers, list[KafkaError]]:
        places, failures = await places_in_scope(Admin(cluster), wanted)
        return await TransactionAdmin(cluster).describe_producers(places, node_id=broker), failures

    told, failures = with_cluster(bootstrap, ask)
    if only_open:
        rows = [(each.place, each.producer) for each in open_transactions(told)]
    else:
        rows = [
            (place, producer)
            for place, outcome in told.items()
            if not isinstance(outcome, KafkaError)
            for producer in outcome
        ]
    if as_json:
        print_json([_producer(place, producer) for place, producer in rows])
    elif rows:
        print_table(
            (
                "TOPIC",
                "PARTITION",
                "PRODUCER ID",
                "EPOCH",
                "COORDINATOR EPOCH",
                "LAST SEQUENCE",
                "LAST WRITTEN",
                "TRANSACTION START",
            ),
            [
                (
                    place.topic,
                    place.partition,
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.last_sequence,
                    _time(each.last_timestamp),
                    each.transaction_start,
                )
                for place, each in rows
            ],
        )
    _end([*failures, *(each for each in told.values() if isinstance(each, KafkaError))])


def _producer(place: TopicPartition, producer: ActiveProducer) -> dict[str, Any]:
    return {"topic": place.topic, "partition": place.partition, **asdict(producer)}


@command.command(
    "find-hanging",
    help="""Find transactions that nobody will end.

    Of the topics given, or of all. The exit code is 0 if there are none, and 3 if there are some.""",
)
@bootstrap_option
@scope_option
@broker_option
@click.option(
    "--max-transaction-timeout",
    "minutes",
    type=click.IntRange(0, _INT32_MAX),
    metavar="MINUTES",
    default=15,
    show_default=True,
    help="How long a transaction may last: transaction.max.timeout.ms of the brokers.",
)
@json_option
def find_hanging_transactions(
    bootstrap: list[Address], scopes: Sequence[str], broker: int | None, minutes: int, as_json: bool
) -> None:
    wanted = parse_scopes(scopes)

    async def ask(
        runtime: RealRuntime, cluster: Cluster
    ) -> tuple[int, list[OpenTransaction], list[KafkaError]]:
        admin = Admin(cluster)
        if wanted:
            places, failures = await places_in_scope(admin, wanted)
        else:
            places, failures = await _all_places(admin, broker)
        now_ms = runtime.clock.now_ms()
        found, failed = await find_hanging(
            TransactionAdmin(cluster),
            places,
            now_ms=now_ms,
            timeout_ms=minutes * _MINUTE_MS,
            node_id=broker,
        )
        return now_ms, found, [*failures, *failed.values()]

    now_ms, found, failures = with_cluster(bootstrap, ask)
    if as_json:
        print_json([_producer(each.place, each.producer) for each in found])
    elif found:
        print_table(
            (
                "TOPIC",
                "PARTITION",
                "PRODUCER ID",
                "EPOCH",
                "COORDINATOR EPOCH",
                "TRANSACTION START",
                "LAST WRITTEN",
                "MINUTES",
            ),
            [
                (
                    each.place.topic,
                    each.place.partition,
                    each.producer.producer_id,
                    each.producer.producer_epoch,
                    each.producer.coordinator_epoch,
                    each.start_offset,
                    _time(each.producer.last_timestamp),
                    (now_ms - each.producer.last_timestamp) // _MINUTE_MS,
                )
                for each in found
            ],
        )
    _end(failures)
    if found:
        sys.exit(EXIT_FOUND)


async def _all_places(admin: Admin, broker: int | None) -> tuple[list[TopicPartition], list[KafkaError]]:
    """Every partition, or those that the broker has a replica of. One without a leader is told of: waiting
    for it would keep the answer about all others."""
    view = await admin.describe_topics()
    places: list[TopicPartition] = []
    failures: list[KafkaError] = []
    for name, topic in sorted(view.topics.items()):
        for partition in topic.partitions:
            place = TopicPartition(name, partition.index)
            if broker is not None:
                if broker in partition.replicas:
                    places.append(place)
            elif partition.leader is None:
                failures.append(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {place}"))
            else:
                places.append(place)
    return places, failures


@command.command(
    "abort",
    help="""Abort a hanging transaction in one partition.

    It is named by --start-offset, or, for brokers before 3.0, by producer id, producer epoch and coordinator
    epoch.""",
)
@bootstrap_option
@click.option("--topic", required=True, help="The topic.")
@click.option("--partition", type=click.IntRange(0, _INT32_MAX), required=True, help="The partition.")
@click.option(
    "--start-offset", type=click.IntRange(0, _INT64_MAX), metavar="N", help="Where the transaction begins."
)
@click.option("--producer-id", type=click.IntRange(0, _INT64_MAX), metavar="ID", help="Its producer id.")
@click.option("--producer-epoch", type=click.IntRange(0, _INT16_MAX), metavar="N", help="Its producer epoch.")
@click.option(
    "--coordinator-epoch",
    type=click.IntRange(-1, _INT32_MAX),
    metavar="N",
    help="The epoch of the last coordinator that wrote a marker of the producer; -1 if none did.",
)
def abort(
    bootstrap: list[Address],
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    place = TopicPartition(topic, partition)
    by_producer = (producer_id, producer_epoch, coordinator_epoch)
    if start_offset is not None:
        if by_producer != (None, None, None):
            raise click.UsageError("give either --start-offset or what names the producer")
    elif producer_id is None or producer_epoch is None or coordinator_epoch is None:
        raise click.UsageError(
            "give --start-offset, or all of --producer-id, --producer-epoch and --coordinator-epoch"
        )

    async def work(runtime: RealRuntime, cluster: Cluster) -> int:
        transactions = TransactionAdmin(cluster)
        if start_offset is None:
            assert producer_id is not None and producer_epoch is not None and coordinator_epoch is not None
            ids = producer_id, producer_epoch, coordinator_epoch
        else:
            producer = await _producer_at(transactions, place, start_offset)
            ids = producer.producer_id, producer.producer_epoch, producer.coordinator_epoch or 0
        await transactions.abort(
            place,
            producer_id=ids[0],
            producer_epoch=ids[1],
            # Without a marker so far, an epoch that no coordinator's is below.
            coordinator_epoch=max(ids[2], 0),
        )
        return ids[0]

    aborted = with_cluster(bootstrap, work)
    click.echo(f"aborted the transaction of producer {aborted} in {place}")


async def _producer_at(
    transactions: TransactionAdmin, place: TopicPartition, start_offset: int
) -> ActiveProducer:
    outcome = (await transactions.describe_producers([place]))[place]
    if isinstance(outcome, KafkaError):
        raise outcome
    for producer in outcome:
        if producer.transaction_start == start_offset:
            return producer
    raise CommandError(f"partition {place}: no open transaction begins at offset {start_offset}")


# ---------------------------------------------------------------- what is printed


def _time(time_ms: int | None) -> str | None:
    if time_ms is None or time_ms < 0:
        return None
    try:
        time = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError):  # producers may say any time
        return str(time_ms)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _end(failures: Sequence[KafkaError]) -> None:
    for error in failures:
        print_error(describe(error))
    if failures:
        sys.exit(1)
