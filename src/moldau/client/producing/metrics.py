"""The metrics of a producer, by Kafka's names (group `producer-metrics`)."""

from __future__ import annotations

from moldau.client.metrics import Sensor

_RATES = {
    "record-send": "records",
    "record-retry": "retries",
    "record-error": "errors",
    "byte": "bytes",
    "batch-split": "splits",
    "request": "requests",
    "response": "responses",
    "outgoing-byte": "outgoing",
    "incoming-byte": "incoming",
    "buffer-exhausted": "exhausted",
    "bufferpool-wait-time": "buffer_wait",
}
_AVERAGES = {
    "batch-size": "batch_sizes",
    "record-queue-time": "queue_times",
    "request-latency": "latencies",
    "request-size": "request_sizes",
    "record-size": "record_sizes",
    "produce-throttle-time": "throttles",
}
_TIMES = ("flush", "metadata_wait", "txn_init", "txn_begin", "txn_send_offsets", "txn_commit", "txn_abort")


class ProducerMetrics:
    def __init__(self) -> None:
        self.records = Sensor()
        self.retries = Sensor()
        self.errors = Sensor()
        self.bytes = Sensor()
        self.splits = Sensor()
        self.requests = Sensor()
        self.responses = Sensor()
        self.outgoing = Sensor()
        self.incoming = Sensor()
        self.exhausted = Sensor()
        self.buffer_wait = Sensor()  # ns
        self.batch_sizes = Sensor()
        self.compression = Sensor()
        self.queue_times = Sensor()
        self.latencies = Sensor()
        self.request_sizes = Sensor()
        self.record_sizes = Sensor()
        self.records_per_request = Sensor()
        self.throttles = Sensor()
        self.times_ns = dict.fromkeys(_TIMES, 0)

    def snapshot(
        self,
        now_ms: int,
        *,
        in_flight: int,
        memory: int,
        memory_used: int,
        waiting: int,
        connections: int,
        metadata_age_s: float,
    ) -> dict[str, float]:
        """All of them at this moment."""
        values: dict[str, float] = {}
        for name, attribute in _RATES.items():
            sensor: Sensor = getattr(self, attribute)
            values[f"{name}-total"] = sensor.total
            values[f"{name}-rate"] = sensor.rate(now_ms)
        # What is measured in nanoseconds has its unit in the name, and its rate is a part of the time.
        values["bufferpool-wait-time-ns-total"] = values.pop("bufferpool-wait-time-total")
        values["bufferpool-wait-ratio"] = values.pop("bufferpool-wait-time-rate") / 1e9
        for name, attribute in _AVERAGES.items():
            sensor = getattr(self, attribute)
            values[f"{name}-avg"] = sensor.average(now_ms)
            values[f"{name}-max"] = sensor.largest(now_ms)
        values["compression-rate-avg"] = self.compression.average(now_ms)
        values["records-per-request-avg"] = self.records_per_request.average(now_ms)
        for time, total in self.times_ns.items():
            values[f"{time.replace('_', '-')}-time-ns-total"] = total
        values["requests-in-flight"] = in_flight
        values["buffer-total-bytes"] = memory
        values["buffer-available-bytes"] = max(memory - memory_used, 0)
        values["waiting-threads"] = waiting
        values["connection-count"] = connections
        values["metadata-age"] = metadata_age_s
        return values
