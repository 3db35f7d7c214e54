"""Logs on the disk: the broker's defaults for topics, the work around logs, and compaction."""

from moldau.config.option import (
    CLUSTER_WIDE,
    DOUBLE_MAX,
    FILLED,
    LONG_MAX,
    PER_BROKER,
    Section,
    at_least,
    between,
    between_or,
    boolean,
    double,
    each_of,
    integer,
    long,
    one_of,
    string,
    strings,
)


class Log(Section):
    TITLE = "Log"
    PREFIX = "log."

    dir = strings(
        "log.dir",
        ("/tmp/kafka-logs",),
        FILLED,
        importance="high",
        doc="The directory of the logs, if log.dirs is not set.",
    )
    dirs = strings(
        "log.dirs", None, FILLED, importance="high", doc="The directories that the logs are spread over."
    )
    cordoned_log_dirs = strings(
        "cordoned.log.dirs",
        (),
        mode=PER_BROKER,
        effect=False,
        doc="Log directories that get no new partitions; * stands for all.",
    )
    segment_bytes = integer(
        "log.segment.bytes",
        1 << 30,
        at_least(1 << 20),
        mode=CLUSTER_WIDE,
        importance="high",
        doc="A segment that the next batch would make larger than this is closed and a new one begun.",
    )
    roll_ms = long(
        "log.roll.ms",
        None,
        mode=CLUSTER_WIDE,
        importance="high",
        doc="A segment older than this is closed even if it is small.",
    )
    roll_hours = integer(
        "log.roll.hours",
        168,
        at_least(1),
        importance="high",
        doc="As log.roll.ms, in hours; used if that is not set.",
    )
    roll_jitter_ms = long(
        "log.roll.jitter.ms",
        None,
        mode=CLUSTER_WIDE,
        importance="high",
        doc="Up to so much is taken off the age at which a segment is "
        "closed, at random, so that not all close at once.",
    )
    roll_jitter_hours = integer(
        "log.roll.jitter.hours",
        0,
        at_least(0),
        importance="high",
        doc="As log.roll.jitter.ms, in hours; used if that is not set.",
    )
    retention_ms = long(
        "log.retention.ms",
        None,
        mode=CLUSTER_WIDE,
        importance="high",
        doc="Closed segments whose newest record is older than this are deleted; -1 keeps them for ever.",
    )
    retention_minutes = integer(
        "log.retention.minutes",
        None,
        importance="high",
        doc="As log.retention.ms, in minutes; used if that is not set.",
    )
    retention_hours = integer(
        "log.retention.hours",
        168,
        importance="high",
        doc="As log.retention.ms, in hours; used if neither ms nor minutes are set.",
    )
    retention_bytes = long(
        "log.retention.bytes",
        -1,
        mode=CLUSTER_WIDE,
        importance="high",
        doc="The oldest segments of a partition larger than this are deleted; -1 for no limit.",
    )
    retention_check_interval_ms = long(
        "log.retention.check.interval.ms",
        300_000,
        at_least(1),
        doc="Time between looks for segments that retention lets go.",
    )
    cleanup_policy = strings(
        "log.cleanup.policy",
        ("delete",),
        each_of("compact", "delete", empty=True),
        mode=CLUSTER_WIDE,
        doc="What happens to old data: delete, compact (keep the newest record of each key), or both.",
    )
    index_size_max_bytes = integer(
        "log.index.size.max.bytes",
        10_485_760,
        at_least(4),
        mode=CLUSTER_WIDE,
        doc="Size reserved for the offset index of a segment; a full index closes the segment.",
    )
    index_interval_bytes = integer(
        "log.index.interval.bytes",
        1 << 12,
        at_least(0),
        mode=CLUSTER_WIDE,
        doc="An index entry is added about every so many bytes of log.",
    )
    flush_interval_messages = long(
        "log.flush.interval.messages",
        LONG_MAX,
        at_least(1),
        mode=CLUSTER_WIDE,
        importance="high",
        doc="Records written to a partition after which it is flushed to the disk.",
    )
    flush_interval_ms = long(
        "log.flush.interval.ms",
        None,
        mode=CLUSTER_WIDE,
        importance="high",
        doc="Time that records may stay in memory before they are flushed to "
        "the disk; log.flush.scheduler.interval.ms if unset.",
    )
    flush_scheduler_interval_ms = long(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        importance="high",
        effect=False,
        doc="Time between looks for logs that have to be flushed; Moldau looks every second.",
    )
    flush_offset_checkpoint_interval_ms = integer(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        importance="high",
        doc="Time between writes of the checkpoint that tells how far each log is flushed.",
    )
    flush_start_offset_checkpoint_interval_ms = integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        importance="high",
        doc="Time between writes of the checkpoint of the logs' start offsets.",
    )
    segment_delete_delay_ms = long(
        "log.segment.delete.delay.ms",
        60_000,
        at_least(0),
        mode=CLUSTER_WIDE,
        importance="high",
        doc="Time between taking a segment out of a log and removing its files.",
    )
    preallocate = boolean(
        "log.preallocate",
        False,
        mode=CLUSTER_WIDE,
        doc="Whether a new segment reserves its whole size on the disk.",
    )
    message_timestamp_type = string(
        "log.message.timestamp.type",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        mode=CLUSTER_WIDE,
        doc="Which time a record carries: the one its producer set, or the one of its arrival.",
    )
    message_timestamp_before_max_ms = long(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        at_least(0),
        mode=CLUSTER_WIDE,
        doc="Records whose timestamp lies further back than this at arrival are refused.",
    )
    message_timestamp_after_max_ms = long(
        "log.message.timestamp.after.max.ms",
        3_600_000,
        at_least(0),
        mode=CLUSTER_WIDE,
        doc="Records whose timestamp lies further ahead than this at arrival are refused.",
    )
    dir_failure_timeout_ms = long(
        "log.dir.failure.timeout.ms",
        30_000,
        at_least(1),
        importance="low",
        effect=False,
        doc="A broker that could not tell the controller of a failed log directory for so long stops.",
    )
    initial_task_delay_ms = long(
        "log.initial.task.delay.ms",
        30_000,
        at_least(0),
        importance="low",
        internal=True,
        doc="Pause after the start before the first retention, flush and checkpoint runs.",
    )
    message_max_bytes = integer(
        "message.max.bytes",
        1_048_588,
        at_least(0),
        mode=CLUSTER_WIDE,
        importance="high",
        doc="The largest record batch, after compression, that is taken.",
    )
    min_insync_replicas = integer(
        "min.insync.replicas",
        1,
        at_least(1),
        mode=CLUSTER_WIDE,
        importance="high",
        doc="In-sync replicas, the leader included, that a write with acks=all needs.",
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        False,
        mode=CLUSTER_WIDE,
        importance="high",
        effect=False,
        doc="Whether a replica that is behind may become leader when no "
        "other is left, at the price of lost records.",
    )
    compression_type = string(
        "compression.type",
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        mode=CLUSTER_WIDE,
        importance="high",
        doc="How batches are stored: as the producer sent them, or recompressed with the codec named.",
    )
    compression_gzip_level = integer(
        "compression.gzip.level",
        -1,
        between_or(1, 9, -1),
        mode=CLUSTER_WIDE,
        doc="The level when the broker compresses with gzip.",
    )
    compression_lz4_level = integer(
        "compression.lz4.level",
        9,
        between(1, 17),
        mode=CLUSTER_WIDE,
        doc="The level when the broker compresses with lz4.",
    )
    compression_zstd_level = integer(
        "compression.zstd.level",
        3,
        between(-131_072, 22),
        mode=CLUSTER_WIDE,
        doc="The level when the broker compresses with zstd.",
    )


class Cleaner(Section):
    TITLE = "Compaction"
    PREFIX = "log.cleaner."

    enable = boolean(
        "log.cleaner.enable",
        True,
        doc="Whether compacted topics are compacted. Without it they keep everything.",
    )
    threads = integer(
        "log.cleaner.threads",
        1,
        at_least(0),
        mode=CLUSTER_WIDE,
        doc="Workers that compact logs.",
    )
    backoff_ms = long(
        "log.cleaner.backoff.ms",
        15_000,
        at_least(0),
        mode=CLUSTER_WIDE,
        doc="Pause of a compaction worker that found nothing to do; a tenth of a second at least.",
    )
    dedupe_buffer_size = long(
        "log.cleaner.dedupe.buffer.size",
        1 << 27,
        mode=CLUSTER_WIDE,
        doc="Memory for the maps from key to newest offset, of all compaction workers together: 160 bytes a "
        "key, where Apache Kafka takes 24.",
    )
    io_buffer_size = integer(
        "log.cleaner.io.buffer.size",
        1 << 19,
        at_least(0),
        mode=CLUSTER_WIDE,
        doc="Memory for reading and writing, of all compaction workers together.",
    )
    io_buffer_load_factor = double(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        mode=CLUSTER_WIDE,
        doc="How full a map from key to offset may get; fuller means more log per pass and more collisions.",
    )
    io_max_bytes_per_second = double(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        mode=CLUSTER_WIDE,
        doc="Reads and writes of compaction together are held below this rate.",
    )
    min_cleanable_ratio = double(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        between(0, 1),
        mode=CLUSTER_WIDE,
        doc="Share of a log that has to be uncompacted before it is compacted.",
    )
    delete_retention_ms = long(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        at_least(0),
        mode=CLUSTER_WIDE,
        doc="How long the markers of deleted keys, and of transactions, outlive compaction.",
    )
    min_compaction_lag_ms = long(
        "log.cleaner.min.compaction.lag.ms",
        0,
        at_least(0),
        mode=CLUSTER_WIDE,
        doc="Records younger than this are not compacted.",
    )
    max_compaction_lag_ms = long(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        at_least(1),
        mode=CLUSTER_WIDE,
        doc="Records older than this are compacted even if little of the log is uncompacted.",
    )
