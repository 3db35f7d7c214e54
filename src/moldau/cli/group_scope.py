"""Of which groups and partitions a command is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from moldau.client.admin import Admin
from moldau.client.cluster import TopicPartition, topic_error
from moldau.client.group_admin import GroupAdmin
from moldau.client.group_description import CLASSIC, CONSUMER, CONSUMER_PROTOCOLS, by_topic
from moldau.wire.errors import ErrorCode, KafkaError

F = TypeVar("F", bound=Callable[..., Any])
Scopes = Mapping[str, Sequence[int] | None]
"""The partitions of each topic; None stands for all."""


def scope_option(command: F) -> F:
    return click.option(
        "--topic",
        "scopes",
        metavar="TOPIC[:0,1,…]",
        multiple=True,
        help="A topic, or some partitions of it. Repeatable.",
    )(command)


def parse_scopes(texts: Sequence[str]) -> Scopes:
    scopes: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, indexes = text.partition(":")
        numbers = indexes.split(",")
        if not topic or (colon and not all(each.isascii() and each.isdigit() for each in numbers)):
            raise click.BadParameter(f"{text!r} is neither TOPIC nor TOPIC:PARTITION,…", param_hint="--topic")
        known = scopes.get(topic, [])
        scopes[topic] = None if known is None or not colon else [*known, *map(int, numbers)]
    return scopes


def places_text(places: Sequence[TopicPartition] | None) -> str | None:
    """orders:0,1;payments:2"""
    if not places:
        return None
    return ";".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in by_topic(places).items())


async def places_in_scope(admin: Admin, scopes: Scopes) -> tuple[list[TopicPartition], list[KafkaError]]:
    """Those that exist, and what is wrong with the others."""
    view = await admin.describe_topics(list(scopes))
    places: list[TopicPartition] = []
    failures = [topic_error(name, code) for name, code in view.errors.items()]
    for name, indexes in scopes.items():
        topic = view.topics.get(name)
        if topic is None:
            continue
        if indexes is None:
            places += [TopicPartition(name, partition.index) for partition in topic.partitions]
            continue
        for index in dict.fromkeys(indexes):
            if topic.partition(index) is None:
                reason = f"topic {name!r} has no partition {index} (it has {len(topic.partitions)})"
                failures.append(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason))
            else:
                places.append(TopicPartition(name, index))
    return sorted(places), failures


async def consumer_group_ids(groups: GroupAdmin) -> list[str]:
    """All groups of consumers: not those of others that coordinate themselves by groups, nor share groups."""
    return [
        listing.group_id
        for listing in await groups.list_groups()
        if listing.type in (CLASSIC, CONSUMER, "") and listing.protocol_type in CONSUMER_PROTOCOLS
    ]
