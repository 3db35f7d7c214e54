"""The options of a consumer, and how they hang together."""

from __future__ import annotations

import re
from typing import NamedTuple

from moldau.client.config import is_given
from moldau.config.option import (
    INT_MAX,
    ConfigError,
    Problem,
    Section,
    at_least,
    boolean,
    integer,
    long,
    one_of,
    one_of_any_case,
    string,
    strings,
)

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
_ASSIGNOR_CLASSES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_OF_CLASSIC_ONLY = ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms")
_DURATION = re.compile(
    r"by_duration:(?=P.)P(?:(\d+)D)?(?:(?=T.)T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


class Reset(NamedTuple):
    """Where to begin where nothing says so: a timestamp as ListOffsets has it, a time ago, or nowhere."""

    timestamp: int | None = None
    ago_ms: int | None = None

    def at(self, now_ms: int) -> int | None:
        """The timestamp to ask for; None if that is for the program to say."""
        return self.timestamp if self.ago_ms is None else max(now_ms - self.ago_ms, 0)


EARLIEST = Reset(timestamp=-2)
LATEST = Reset(timestamp=-1)
NO_RESET = Reset()


def parse_reset(text: str) -> Reset | None:
    match text.lower():
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
        case "none":
            return NO_RESET
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return Reset(ago_ms=int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000))


class ConsumerConfig(Section):
    TITLE = "Consumer"

    group_id = string(
        "group.id", None, importance="high", doc="The group that the consumer is a member of, or commits for."
    )
    group_instance_id = string(
        "group.instance.id",
        None,
        doc="The name of the member across its lives: one that comes back in time keeps what it had.",
    )
    group_protocol = string(
        "group.protocol",
        "classic",
        one_of_any_case("CLASSIC", "CONSUMER"),
        importance="high",
        doc="How groups agree: classic has a member assign, consumer (KIP-848) the coordinator.",
    )
    group_remote_assignor = string(
        "group.remote.assignor",
        None,
        doc="With the consumer protocol, the assignor of the coordinator to use; null leaves it the choice.",
    )
    partition_assignment_strategy = strings(
        "partition.assignment.strategy",
        ("range", "cooperative-sticky"),
        doc="With the classic protocol, the assignors that the member knows, those it likes best first.",
    )
    session_timeout_ms = integer(
        "session.timeout.ms",
        45_000,
        at_least(1),
        importance="high",
        doc="With the classic protocol, a member that is not heard of for so long is taken for dead.",
    )
    heartbeat_interval_ms = integer(
        "heartbeat.interval.ms",
        3000,
        at_least(1),
        importance="high",
        doc="With the classic protocol, the time between heartbeats.",
    )
    max_poll_interval_ms = integer(
        "max.poll.interval.ms",
        300_000,
        at_least(1),
        doc="A program that does not ask for records for so long loses its partitions to others.",
    )
    max_poll_records = integer("max.poll.records", 500, at_least(1), doc="The most records of one `poll`.")
    enable_auto_commit = boolean(
        "enable.auto.commit",
        True,
        doc="Offsets of what was handed out are committed by themselves, once the program asks for more.",
    )
    auto_commit_interval_ms = integer(
        "auto.commit.interval.ms", 5000, at_least(0), importance="low", doc="The time between such commits."
    )
    auto_offset_reset = string(
        "auto.offset.reset",
        "latest",
        doc="Where to begin without a committed offset, or if there is nothing there any more: earliest, "
        "latest, by_duration:PT1H (a time ago), or none, which is an error.",
    )
    isolation_level = string(
        "isolation.level",
        "read_uncommitted",
        one_of("read_committed", "read_uncommitted"),
        doc="Whether to wait for the end of transactions, and leave out what was aborted.",
    )
    fetch_min_bytes = integer(
        "fetch.min.bytes", 1, at_least(0), importance="high", doc="A fetch waits until there is so much,"
    )
    fetch_max_wait_ms = integer(
        "fetch.max.wait.ms", 500, at_least(0), importance="low", doc="or until so much time has passed."
    )
    fetch_max_bytes = integer("fetch.max.bytes", 50 << 20, at_least(0), doc="The most bytes of one fetch.")
    max_partition_fetch_bytes = integer(
        "max.partition.fetch.bytes",
        1 << 20,
        at_least(0),
        importance="high",
        doc="The most bytes of a partition in one fetch. A batch that is larger comes whole.",
    )
    prefetch_max_bytes = long(
        "prefetch.max.bytes",
        64 << 20,
        at_least(1),
        doc="Bytes that may wait here for the program to ask for them, over all partitions. Of Moldau's own.",
    )
    client_rack = string(
        "client.rack", "", importance="low", doc="Where the client is, to read from replicas that are near."
    )
    check_crcs = boolean("check.crcs", True, importance="low", doc="Whether to check checksums of batches.")
    default_api_timeout_ms = integer(
        "default.api.timeout.ms", 60_000, at_least(0), doc="How long calls wait that are given no other time."
    )
    allow_auto_create_topics = boolean(
        "allow.auto.create.topics", True, doc="Whether to have a topic created that is subscribed to."
    )
    exclude_internal_topics = boolean(
        "exclude.internal.topics", True, doc="Whether a pattern leaves out topics of Kafka's own."
    )

    @property
    def reset(self) -> Reset:
        found = parse_reset(self.auto_offset_reset)
        assert found is not None, "the options have been checked"
        return found

    @property
    def is_read_committed(self) -> bool:
        return self.isolation_level == "read_committed"

    @property
    def is_classic(self) -> bool:
        return self.group_protocol.lower() == "classic"


def checked(config: ConsumerConfig) -> ConsumerConfig:
    """The options as they are used. Raises ConfigError with all that is wrong."""
    problems: list[Problem] = []
    if config.group_id == "":
        problems.append(Problem("group.id", "group.id must not be empty"))
    if config.group_instance_id == "":
        problems.append(Problem("group.instance.id", "group.instance.id must not be empty"))
    if parse_reset(config.auto_offset_reset) is None:
        message = f"Invalid value {config.auto_offset_reset} for configuration auto.offset.reset"
        problems.append(Problem("auto.offset.reset", message))
    if config.is_classic:
        names = tuple(_ASSIGNOR_CLASSES.get(name, name) for name in config.partition_assignment_strategy)
        config = config.replace(partition_assignment_strategy=names)
        if not names:
            name = "partition.assignment.strategy"
            problems.append(Problem(name, f"{name} must name an assignor"))
        if config.heartbeat_interval_ms >= config.session_timeout_ms:
            message = "heartbeat.interval.ms must be lower than session.timeout.ms"
            problems.append(Problem("heartbeat.interval.ms", message))
        if config.group_remote_assignor is not None:
            message = "group.remote.assignor cannot be set when group.protocol=CLASSIC"
            problems.append(Problem("group.remote.assignor", message))
    else:
        for attribute in _OF_CLASSIC_ONLY:
            if is_given(config, attribute):
                name = attribute.replace("_", ".")
                problems.append(Problem(name, f"{name} cannot be set when group.protocol=CONSUMER"))
    if problems:
        raise ConfigError(tuple(problems))
    if config.group_id is None and not is_given(config, "enable_auto_commit"):
        config = config.replace(enable_auto_commit=False)
    return config


__all__ = [
    "ASSIGNORS",
    "EARLIEST",
    "INT_MAX",
    "LATEST",
    "NO_RESET",
    "ConsumerConfig",
    "Reset",
    "checked",
    "parse_reset",
]
