"""The metrics of a client, as Kafka's tools print them with --print-metrics."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.perf.measure.numbers import fixed

# Kafka counts these for each topic; a run has one.
_OF_TOPIC = ("byte-", "compression-rate", "record-error-", "record-retry-", "record-send-")
_OF_TOPIC_ONLY = ("byte-",)


def producer_metrics(values: Mapping[str, float], client_id: str, topic: str) -> dict[str, float]:
    """By `group:name:{tags}`."""
    client = f"client-id={client_id}"
    named: dict[str, float] = {}
    for name, value in values.items():
        if not name.startswith(_OF_TOPIC_ONLY):
            named[f"producer-metrics:{name}:{{{client}}}"] = value
        if name.startswith(_OF_TOPIC):
            of_topic = "compression-rate" if name == "compression-rate-avg" else name
            named[f"producer-topic-metrics:{of_topic}:{{{client}, topic={topic}}}"] = value
    return named


def consumer_metrics(values: Mapping[str, float], client_id: str) -> dict[str, float]:
    return {
        f"consumer-fetch-manager-metrics:{name}:{{client-id={client_id}}}": value
        for name, value in values.items()
    }


def metric_lines(named: Mapping[str, float]) -> list[str]:
    """A table in the order of names, behind an empty line."""
    width = max((len(name) for name in named), default=0)
    return [
        "",
        f"{'Metric Name':<{width}}   Value",
        *(f"{name:<{width}} : {fixed(named[name], 3)}" for name in sorted(named)),
    ]
