from __future__ import annotations

from moldau.perf.measure.metrics_table import consumer_metrics, metric_lines, producer_metrics


def test_a_producers_metrics_are_in_kafkas_groups() -> None:
    values = {
        "byte-rate": 1.0,
        "record-send-total": 2.0,
        "compression-rate-avg": 1.0,
        "batch-size-avg": 16205.1234,
    }
    assert producer_metrics(values, "me", "t") == {
        "producer-metrics:batch-size-avg:{client-id=me}": 16205.1234,
        "producer-metrics:compression-rate-avg:{client-id=me}": 1.0,
        "producer-metrics:record-send-total:{client-id=me}": 2.0,
        "producer-topic-metrics:byte-rate:{client-id=me, topic=t}": 1.0,
        "producer-topic-metrics:compression-rate:{client-id=me, topic=t}": 1.0,
        "producer-topic-metrics:record-send-total:{client-id=me, topic=t}": 2.0,
    }


def test_the_table_is_kafkas() -> None:
    named = consumer_metrics({"fetch-total": 4, "fetch-rate": float("nan")}, "me")
    assert metric_lines(named) == [
        "",
        "Metric Name                                                 Value",
        "consumer-fetch-manager-metrics:fetch-rate:{client-id=me}  : NaN",
        "consumer-fetch-manager-metrics:fetch-total:{client-id=me} : 4.000",
    ]
