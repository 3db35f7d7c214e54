"""The settings that a measurement means nothing without, in a few lines: who acknowledges, what is on disk
by then, how many copies there are, and how large batches may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_NEVER = str((1 << 63) - 1)
TOPIC_OPTIONS = (
    "min.insync.replicas",
    "flush.messages",
    "flush.ms",
    "compression.type",
    "max.message.bytes",
    "message.timestamp.type",
)
BROKER_OPTIONS = (
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
)
PRODUCER_OPTIONS = (
    "acks",
    "enable.idempotence",
    "linger.ms",
    "batch.size",
    "compression.type",
    "max.in.flight.requests.per.connection",
    "buffer.memory",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """As far as the cluster tells. `configs` are those of the topic, `broker_configs` those of a leader of
    it."""

    topic: str
    brokers: int
    partitions: int
    replicas: tuple[int, int]  # the fewest and the most of a partition
    in_sync: tuple[int, int]
    configs: Mapping[str, str] = field(default_factory=dict)
    broker_configs: Mapping[str, str] = field(default_factory=dict)


def topic_lines(settings: TopicSettings) -> list[str]:
    least = settings.configs.get("min.insync.replicas", "?")
    lines = [
        f"topic      {settings.topic}: partitions={settings.partitions} "
        f"replication={_span(settings.replicas)} in-sync={_span(settings.in_sync)} "
        f"min.insync.replicas={least} brokers={settings.brokers}",
        f"fsync      {_fsync(settings)}",
    ]
    lines += _options("limits", settings.configs, TOPIC_OPTIONS[3:])
    lines += _options("broker", settings.broker_configs, BROKER_OPTIONS[2:])
    return lines


def producer_lines(options: Mapping[str, str]) -> list[str]:
    lines = _options("producer", options, PRODUCER_OPTIONS)
    promise = {
        "0": "nobody's word is waited for: latency is that of the client, and records may be lost unnoticed",
        "1": "the leader's word is waited for: what it has not passed on is lost with it",
    }.get(options.get("acks", ""), "all replicas in sync have a record before it is acknowledged")
    return [*lines, f"acks       {promise}"]


def _fsync(settings: TopicSettings) -> str:
    messages = settings.configs.get("flush.messages")
    ms = settings.configs.get("flush.ms")
    if messages is None and ms is None:
        return "the cluster does not tell"
    when: list[str] = []
    if messages not in (None, _NEVER):
        when.append("before every answer" if messages == "1" else f"every {messages} records of a partition")
    if ms not in (None, _NEVER):
        when.append(f"every {ms} ms")
    if not when:
        left = "left to the operating system: what is acknowledged is in memory"
        return f"{left} of one machine" if settings.replicas[0] <= 1 else f"{left}, and safe by its replicas"
    return ", ".join(when)


def _options(title: str, values: Mapping[str, str], names: tuple[str, ...]) -> list[str]:
    told = [f"{name}={values[name]}" for name in names if name in values]
    return [f"{title:<10} {' '.join(told)}"] if told else []


def _span(of: tuple[int, int]) -> str:
    low, high = of
    return str(low) if low == high else f"{low} to {high}"
