"""Consumer and streams groups, and where their offsets are kept."""

from moldau.config.option import (
    CLUSTER_WIDE,
    FILLED,
    INT_MAX,
    Section,
    at_least,
    between,
    each_of,
    integer,
    long,
    one_of_any_case,
    short,
    string,
    strings,
)


class Groups(Section):
    TITLE = "Groups"
    PREFIX = "group."

    coordinator_rebalance_protocols = strings(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer", "streams"),
        each_of("consumer", "classic", "share", "streams"),
        doc="The group protocols that are served.",
    )
    coordinator_threads = integer(
        "group.coordinator.threads",
        4,
        at_least(1),
        importance="high",
        effect=False,
        doc="Threads of the group coordinator.",
    )
    coordinator_background_threads = integer(
        "group.coordinator.background.threads",
        2,
        at_least(1),
        importance="high",
        effect=False,
        doc="Threads of the group coordinator for assignments and regular expressions.",
    )
    coordinator_append_linger_ms = integer(
        "group.coordinator.append.linger.ms",
        -1,
        at_least(-1),
        effect=False,
        doc="How long the group coordinator gathers records before it writes them; -1 lets it choose.",
    )
    coordinator_cached_buffer_max_bytes = integer(
        "group.coordinator.cached.buffer.max.bytes",
        1_048_588,
        at_least(1 << 19),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="The largest write buffer that the group coordinator keeps for reuse.",
    )
    min_session_timeout_ms = integer(
        "group.min.session.timeout.ms",
        6000,
        doc="The shortest session timeout that a member of a classic group may ask for.",
    )
    max_session_timeout_ms = integer(
        "group.max.session.timeout.ms",
        1_800_000,
        doc="The longest session timeout that a member of a classic group may ask for.",
    )
    initial_rebalance_delay_ms = integer(
        "group.initial.rebalance.delay.ms",
        3000,
        doc="How long the first rebalance of an empty classic group waits for more members.",
    )
    max_size = integer("group.max.size", INT_MAX, at_least(1), doc="The most members of a classic group.")
    consumer_session_timeout_ms = integer(
        "group.consumer.session.timeout.ms",
        45_000,
        at_least(1),
        doc="A member of a consumer group that is silent for so long is taken out.",
    )
    consumer_min_session_timeout_ms = integer(
        "group.consumer.min.session.timeout.ms",
        45_000,
        at_least(1),
        doc="The least that a consumer group may set for its session timeout.",
    )
    consumer_max_session_timeout_ms = integer(
        "group.consumer.max.session.timeout.ms",
        60_000,
        at_least(1),
        doc="The most that a consumer group may set for its session timeout.",
    )
    consumer_heartbeat_interval_ms = integer(
        "group.consumer.heartbeat.interval.ms",
        5000,
        at_least(1),
        doc="Time between heartbeats that members of consumer groups are told to keep.",
    )
    consumer_min_heartbeat_interval_ms = integer(
        "group.consumer.min.heartbeat.interval.ms",
        5000,
        at_least(1),
        doc="The least that a consumer group may set for its heartbeat interval.",
    )
    consumer_max_heartbeat_interval_ms = integer(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        doc="The most that a consumer group may set for its heartbeat interval.",
    )
    consumer_max_size = integer(
        "group.consumer.max.size",
        INT_MAX,
        at_least(1),
        doc="The most members of a consumer group.",
    )
    consumer_assignors = strings(
        "group.consumer.assignors",
        ("uniform", "range"),
        FILLED,
        doc="Assignors of the broker for consumer groups; the first is used when a member names none.",
    )
    consumer_migration_policy = string(
        "group.consumer.migration.policy",
        "bidirectional",
        one_of_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
        doc="Which live changes are allowed between classic and consumer groups.",
    )
    consumer_assignment_interval_ms = integer(
        "group.consumer.assignment.interval.ms",
        1000,
        at_least(0),
        mode=CLUSTER_WIDE,
        doc="The least time between new assignments of a consumer group.",
    )
    consumer_min_assignment_interval_ms = integer(
        "group.consumer.min.assignment.interval.ms",
        0,
        at_least(0),
        doc="The least that a consumer group may set for its assignment interval.",
    )
    consumer_max_assignment_interval_ms = integer(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        at_least(0),
        doc="The most that a consumer group may set for its assignment interval.",
    )
    consumer_regex_refresh_interval_ms = integer(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        at_least(10_000),
        internal=True,
        doc="Time between fresh matches of subscribed patterns against the topics.",
    )


class Streams(Section):
    TITLE = "Streams groups"
    PREFIX = "group.streams."

    session_timeout_ms = integer(
        "group.streams.session.timeout.ms",
        45_000,
        at_least(1),
        effect=False,
        doc="A member of a streams group that is silent for so long is taken out.",
    )
    min_session_timeout_ms = integer(
        "group.streams.min.session.timeout.ms",
        45_000,
        at_least(1),
        effect=False,
        doc="The least that a streams group may set for its session timeout.",
    )
    max_session_timeout_ms = integer(
        "group.streams.max.session.timeout.ms",
        60_000,
        at_least(1),
        effect=False,
        doc="The most that a streams group may set for its session timeout.",
    )
    heartbeat_interval_ms = integer(
        "group.streams.heartbeat.interval.ms",
        5000,
        at_least(1),
        effect=False,
        doc="Time between heartbeats that members of streams groups are told to keep.",
    )
    min_heartbeat_interval_ms = integer(
        "group.streams.min.heartbeat.interval.ms",
        5000,
        at_least(1),
        effect=False,
        doc="The least that a streams group may set for its heartbeat interval.",
    )
    max_heartbeat_interval_ms = integer(
        "group.streams.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        effect=False,
        doc="The most that a streams group may set for its heartbeat interval.",
    )
    max_size = integer(
        "group.streams.max.size",
        INT_MAX,
        at_least(1),
        effect=False,
        doc="The most members of a streams group.",
    )
    num_standby_replicas = integer(
        "group.streams.num.standby.replicas",
        0,
        at_least(0),
        effect=False,
        doc="Standby copies of each stateful task.",
    )
    max_standby_replicas = integer(
        "group.streams.max.standby.replicas",
        2,
        at_least(0),
        effect=False,
        doc="The most standby copies that a streams group may set.",
    )
    initial_rebalance_delay_ms = integer(
        "group.streams.initial.rebalance.delay.ms",
        3000,
        at_least(0),
        effect=False,
        doc="How long the first assignment of an empty streams group waits for more members.",
    )
    assignment_interval_ms = integer(
        "group.streams.assignment.interval.ms",
        1000,
        at_least(0),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="The least time between new assignments of a streams group.",
    )
    min_assignment_interval_ms = integer(
        "group.streams.min.assignment.interval.ms",
        0,
        at_least(0),
        effect=False,
        doc="The least that a streams group may set for its assignment interval.",
    )
    max_assignment_interval_ms = integer(
        "group.streams.max.assignment.interval.ms",
        15_000,
        at_least(0),
        effect=False,
        doc="The most that a streams group may set for its assignment interval.",
    )


class Offsets(Section):
    TITLE = "Group offsets"
    PREFIX = "offsets."

    topic_replication_factor = short(
        "offsets.topic.replication.factor",
        3,
        at_least(1),
        importance="high",
        doc="Replicas of each partition of __consumer_offsets.",
    )
    topic_num_partitions = integer(
        "offsets.topic.num.partitions",
        50,
        at_least(1),
        importance="high",
        doc="Partitions of __consumer_offsets; fixed once the topic exists.",
    )
    topic_segment_bytes = integer(
        "offsets.topic.segment.bytes",
        104_857_600,
        at_least(1),
        importance="high",
        doc="Segment size of __consumer_offsets; small ones load and compact quickly.",
    )
    topic_compression_codec = integer(
        "offsets.topic.compression.codec",
        0,
        between(0, 4),
        importance="high",
        doc="The codec, by number, of batches in __consumer_offsets.",
    )
    commit_timeout_ms = integer(
        "offsets.commit.timeout.ms",
        5000,
        at_least(1),
        importance="high",
        effect=False,
        doc="How long a commit waits for the replicas of __consumer_offsets.",
    )
    load_buffer_size = integer(
        "offsets.load.buffer.size",
        5_242_880,
        at_least(1),
        importance="high",
        doc="Size of the reads that load a partition of __consumer_offsets; larger batches are read whole.",
    )
    retention_minutes = integer(
        "offsets.retention.minutes",
        10_080,
        at_least(1),
        importance="high",
        doc="Offsets of a group without members are forgotten after so long.",
    )
    retention_check_interval_ms = long(
        "offsets.retention.check.interval.ms",
        600_000,
        at_least(1),
        importance="high",
        doc="Time between looks for offsets to forget.",
    )
    offset_metadata_max_bytes = integer(
        "offset.metadata.max.bytes",
        1 << 12,
        importance="high",
        doc="The longest note that a client may commit with an offset.",
    )
