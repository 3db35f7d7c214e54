"""What is measured and who is told."""

from moldau.config.option import CLUSTER_WIDE, Section, at_least, between, integer, long, string, strings


class Metrics(Section):
    TITLE = "Metrics"

    metrics_num_samples = integer(
        "metrics.num.samples",
        2,
        at_least(1),
        importance="low",
        effect=False,
        doc="Samples kept for each metric.",
    )
    metrics_sample_window_ms = long(
        "metrics.sample.window.ms",
        30_000,
        at_least(1),
        importance="low",
        effect=False,
        doc="Length of one sample of a metric.",
    )
    metrics_recording_level = string(
        "metrics.recording.level",
        "INFO",
        importance="low",
        effect=False,
        doc="How much is measured: INFO, DEBUG or TRACE.",
    )
    metric_reporters = strings(
        "metric.reporters",
        ("org.apache.kafka.common.metrics.JmxReporter",),
        mode=CLUSTER_WIDE,
        importance="low",
        effect=False,
        doc="Java classes that pass metrics on.",
    )
    kafka_metrics_reporters = strings(
        "kafka.metrics.reporters",
        (),
        importance="low",
        effect=False,
        doc="Java classes that pass the older kind of metrics on.",
    )
    kafka_metrics_polling_interval_secs = integer(
        "kafka.metrics.polling.interval.secs",
        10,
        at_least(1),
        importance="low",
        effect=False,
        doc="Time between two passes of kafka.metrics.reporters.",
    )
    telemetry_max_bytes = integer(
        "telemetry.max.bytes",
        1 << 20,
        at_least(1),
        importance="low",
        doc="The largest set of metrics that a client may push.",
    )
    moldau_metrics_port = integer(
        "moldau.metrics.port",
        -1,
        between(-1, 65535),
        importance="low",
        doc="Where /metrics and /health are served over HTTP: 0 takes a free port, -1 is none. Not an option "
        "of Kafka.",
    )
    moldau_metrics_host = string(
        "moldau.metrics.host",
        "127.0.0.1",
        importance="low",
        doc="The address that moldau.metrics.port is on; empty for every interface. Not an option of Kafka.",
    )
