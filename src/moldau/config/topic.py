"""The options of a topic, and their values for one topic.

A topic's value comes from its own overrides, else from the broker's options that stand for the same thing
(the option's `synonyms`, each with the factor that brings its unit to the topic's), else from the default
here.

Rooms below the server get a `TopicConfig` as a value and know neither brokers nor where overrides are kept.
`BrokerConfig.topic(overrides)` makes one; tests write `TopicConfig.DEFAULTS.replace(segment_bytes=200)`.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

from moldau.config.option import (
    LONG_MAX,
    Bound,
    ConfigError,
    InvalidValue,
    Option,
    Problem,
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

_REPLICA = r"([0-9]+:[0-9]+)?\Z"


def _check_throttled(values: tuple[str, ...]) -> None:
    if values != ("*",) and not all(re.match(_REPLICA, value) for value in values):
        raise InvalidValue(
            "Must be the literal '*' or a list of replicas in the form [partitionId]:[brokerId],…"
        )


THROTTLED: Final = Bound("partition:broker of each, or *", _check_throttled)


class TopicConfig(Section):
    """Values of a topic's options, with what the log asks most already worked out."""

    TITLE = "Topics"

    DEFAULTS: ClassVar["TopicConfig"]
    """What a topic has when neither it nor the broker says anything."""

    segment_bytes = integer(
        "segment.bytes",
        1 << 30,
        at_least(1 << 20),
        synonyms=(("log.segment.bytes", 1),),
        doc="A segment that the next batch would make larger than this is closed and a new one begun.",
    )
    segment_ms = long(
        "segment.ms",
        604_800_000,
        at_least(1),
        synonyms=(
            ("log.roll.ms", 1),
            ("log.roll.hours", 3_600_000),
        ),
        doc="A segment older than this is closed even if it is small.",
    )
    segment_jitter_ms = long(
        "segment.jitter.ms",
        0,
        at_least(0),
        synonyms=(
            ("log.roll.jitter.ms", 1),
            ("log.roll.jitter.hours", 3_600_000),
        ),
        doc="Up to so much is taken off the age at which a segment is "
        "closed, at random, so that not all close at once.",
    )
    segment_index_bytes = integer(
        "segment.index.bytes",
        10_485_760,
        at_least(4),
        synonyms=(("log.index.size.max.bytes", 1),),
        doc="Size reserved for the offset index of a segment; a full index closes the segment.",
    )
    flush_messages = long(
        "flush.messages",
        LONG_MAX,
        at_least(1),
        synonyms=(("log.flush.interval.messages", 1),),
        doc="Records written to a partition after which it is flushed to the disk.",
    )
    flush_ms = long(
        "flush.ms",
        LONG_MAX,
        at_least(0),
        synonyms=(
            ("log.flush.interval.ms", 1),
            ("log.flush.scheduler.interval.ms", 1),
        ),
        doc="Time that records may stay in memory before they are flushed to the disk.",
    )
    retention_bytes = long(
        "retention.bytes",
        -1,
        synonyms=(("log.retention.bytes", 1),),
        doc="The oldest segments of a partition larger than this are deleted; -1 for no limit.",
    )
    retention_ms = long(
        "retention.ms",
        604_800_000,
        at_least(-1),
        synonyms=(
            ("log.retention.ms", 1),
            ("log.retention.minutes", 60_000),
            ("log.retention.hours", 3_600_000),
        ),
        doc="Closed segments whose newest record is older than this are deleted; -1 keeps them for ever.",
    )
    max_message_bytes = integer(
        "max.message.bytes",
        1_048_588,
        at_least(0),
        synonyms=(("message.max.bytes", 1),),
        doc="The largest record batch, after compression, that is taken.",
    )
    index_interval_bytes = integer(
        "index.interval.bytes",
        1 << 12,
        at_least(0),
        synonyms=(("log.index.interval.bytes", 1),),
        doc="An index entry is added about every so many bytes of log.",
    )
    file_delete_delay_ms = long(
        "file.delete.delay.ms",
        60_000,
        at_least(0),
        synonyms=(("log.segment.delete.delay.ms", 1),),
        doc="Time between taking a segment out of a log and removing its files.",
    )
    delete_retention_ms = long(
        "delete.retention.ms",
        86_400_000,
        at_least(0),
        synonyms=(("log.cleaner.delete.retention.ms", 1),),
        doc="How long the markers of deleted keys, and of transactions, outlive compaction.",
    )
    min_compaction_lag_ms = long(
        "min.compaction.lag.ms",
        0,
        at_least(0),
        synonyms=(("log.cleaner.min.compaction.lag.ms", 1),),
        doc="Records younger than this are not compacted.",
    )
    max_compaction_lag_ms = long(
        "max.compaction.lag.ms",
        LONG_MAX,
        at_least(1),
        synonyms=(("log.cleaner.max.compaction.lag.ms", 1),),
        doc="Records older than this are compacted even if little of the log is uncompacted.",
    )
    min_cleanable_dirty_ratio = double(
        "min.cleanable.dirty.ratio",
        0.5,
        between(0, 1),
        synonyms=(("log.cleaner.min.cleanable.ratio", 1),),
        doc="Share of a log that has to be uncompacted before it is compacted.",
    )
    cleanup_policy = strings(
        "cleanup.policy",
        ("delete",),
        each_of("compact", "delete", empty=True),
        synonyms=(("log.cleanup.policy", 1),),
        doc="What happens to old data: delete, compact (keep the newest "
        "record of each key), or both; empty keeps everything.",
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        False,
        effect=False,
        synonyms=(("unclean.leader.election.enable", 1),),
        doc="Whether a replica that is behind may become leader when no "
        "other is left, at the price of lost records.",
    )
    min_insync_replicas = integer(
        "min.insync.replicas",
        1,
        at_least(1),
        synonyms=(("min.insync.replicas", 1),),
        doc="In-sync replicas, the leader included, that a write with acks=all needs.",
    )
    compression_type = string(
        "compression.type",
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=(("compression.type", 1),),
        doc="How batches are stored: as the producer sent them, or recompressed with the codec named.",
    )
    compression_gzip_level = integer(
        "compression.gzip.level",
        -1,
        between_or(1, 9, -1),
        synonyms=(("compression.gzip.level", 1),),
        doc="The level when the broker compresses with gzip.",
    )
    compression_lz4_level = integer(
        "compression.lz4.level",
        9,
        between(1, 17),
        synonyms=(("compression.lz4.level", 1),),
        doc="The level when the broker compresses with lz4.",
    )
    compression_zstd_level = integer(
        "compression.zstd.level",
        3,
        between(-131_072, 22),
        synonyms=(("compression.zstd.level", 1),),
        doc="The level when the broker compresses with zstd.",
    )
    preallocate = boolean(
        "preallocate",
        False,
        synonyms=(("log.preallocate", 1),),
        doc="Whether a new segment reserves its whole size on the disk.",
    )
    message_timestamp_type = string(
        "message.timestamp.type",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        synonyms=(("log.message.timestamp.type", 1),),
        doc="Which time a record carries: the one its producer set, or the one of its arrival.",
    )
    message_timestamp_before_max_ms = long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        at_least(0),
        synonyms=(("log.message.timestamp.before.max.ms", 1),),
        doc="Records whose timestamp lies further back than this at arrival are refused.",
    )
    message_timestamp_after_max_ms = long(
        "message.timestamp.after.max.ms",
        3_600_000,
        at_least(0),
        synonyms=(("log.message.timestamp.after.max.ms", 1),),
        doc="Records whose timestamp lies further ahead than this at arrival are refused.",
    )
    leader_replication_throttled_replicas = strings(
        "leader.replication.throttled.replicas",
        (),
        THROTTLED,
        effect=False,
        doc="Replicas whose leaders are throttled, as partition:broker; * for all.",
    )
    follower_replication_throttled_replicas = strings(
        "follower.replication.throttled.replicas",
        (),
        THROTTLED,
        effect=False,
        doc="Replicas that are throttled as followers, as partition:broker; * for all.",
    )
    remote_storage_enable = boolean(
        "remote.storage.enable", False, effect=False, doc="Whether the topic is tiered to a remote storage."
    )
    local_retention_ms = long(
        "local.retention.ms",
        -2,
        at_least(-2),
        effect=False,
        synonyms=(("log.local.retention.ms", 1),),
        doc="How long tiered segments stay on the brokers' own disks; "
        "-2 for as long as retention keeps them at all.",
    )
    local_retention_bytes = long(
        "local.retention.bytes",
        -2,
        at_least(-2),
        effect=False,
        synonyms=(("log.local.retention.bytes", 1),),
        doc="How much of a tiered partition stays on the brokers' own "
        "disks; -2 for as much as retention keeps at all.",
    )
    remote_log_copy_disable = boolean(
        "remote.log.copy.disable",
        False,
        effect=False,
        doc="Whether copying to the remote storage stops while what is there stays readable.",
    )
    remote_log_delete_on_disable = boolean(
        "remote.log.delete.on.disable",
        False,
        effect=False,
        doc="Whether turning tiering off deletes what is in the remote storage.",
    )
    internal_segment_bytes = integer(
        "internal.segment.bytes",
        None,
        internal=True,
        doc="Replaces segment.bytes without its lower bound, for tests.",
    )

    compact: bool
    """Whether cleanup_policy holds compact."""
    delete: bool
    """Whether cleanup_policy holds delete."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        policy = self.cleanup_policy
        self.__dict__.update(compact="compact" in policy, delete="delete" in policy)
        if self.internal_segment_bytes is not None:
            self.__dict__["segment_bytes"] = self.internal_segment_bytes

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str], defaults: "TopicConfig | None" = None) -> Self:
        """The config of a topic with `overrides`, by option name, on top of `defaults`.

        Raises ConfigError for unknown names, values out of bounds, and values at odds with one another.
        """
        base = (defaults or cls.DEFAULTS).__dict__
        problems: list[Problem] = []
        values: dict[str, Any] = {}
        for name, text in overrides.items():
            option = TOPIC_OPTIONS.get(name)
            if option is None:
                problems.append(Problem(name, f"Unknown topic config name: {name}"))
                continue
            try:
                values[option.attribute] = option.parse(text)
            except ConfigError as error:
                problems.extend(error.problems)
        config = cls({**base, **values})
        problems.extend(config.check())
        if problems:
            raise ConfigError(tuple(problems))
        return config

    def check(self) -> list[Problem]:
        """What is wrong with the values taken together."""
        problems: list[Problem] = []
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            problems.append(
                Problem(
                    "min.compaction.lag.ms",
                    f"conflict topic config setting min.compaction.lag.ms ({self.min_compaction_lag_ms}) > "
                    f"max.compaction.lag.ms ({self.max_compaction_lag_ms})",
                )
            )
        if self.remote_storage_enable:
            problems.extend(self._check_remote())
        return problems

    def _check_remote(self) -> list[Problem]:
        problems: list[Problem] = []
        if self.compact:
            message = "Remote log storage is unsupported for the compacted topics"
            problems.append(Problem("remote.storage.enable", message))
        for name, local, total in (
            ("retention.ms", self.local_retention_ms, self.retention_ms),
            ("retention.bytes", self.local_retention_bytes, self.retention_bytes),
        ):
            if local == -2 or local == total:
                continue
            if self.remote_log_copy_disable:
                message = f"must be identical to {name} when `remote.log.copy.disable` is set to true"
            elif total <= -1:
                continue
            elif local == -1:
                message = f"Value must not be -1 as {name} value is set as {total}."
            elif local > total:
                message = f"Value must not be more than {name} property value: {total}"
            else:
                continue
            name = f"local.{name}"
            problems.append(Problem(name, f"Invalid value {local} for configuration {name}: {message}"))
        return problems

    @property
    def segment_ms_max(self) -> int:
        """The age at which a segment is closed: compaction by a deadline needs closed segments by then."""
        if self.compact and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    @property
    def recompression_level(self) -> int | None:
        """The level that goes with compression_type; None for codecs without levels and for `producer`."""
        level: int | None = self.__dict__.get(f"compression_{self.compression_type}_level")
        return level


TOPIC_OPTIONS: Final[dict[str, Option[Any]]] = {option.name: option for option in TopicConfig.OPTIONS}
"""Every topic option by its name."""

TopicConfig.DEFAULTS = TopicConfig({option.attribute: option.default for option in TopicConfig.OPTIONS})
