"""Share groups, and where their state is kept."""

from moldau.config.option import (
    CLUSTER_WIDE,
    FILLED,
    Section,
    at_least,
    between,
    integer,
    short,
    string,
    strings,
)


class ShareGroups(Section):
    TITLE = "Share groups"
    PREFIX = "group.share."

    session_timeout_ms = integer(
        "group.share.session.timeout.ms",
        45_000,
        at_least(1),
        doc="A member of a share group that is silent for so long is taken out.",
    )
    min_session_timeout_ms = integer(
        "group.share.min.session.timeout.ms",
        45_000,
        at_least(1),
        doc="The least that a share group may set for its session timeout.",
    )
    max_session_timeout_ms = integer(
        "group.share.max.session.timeout.ms",
        60_000,
        at_least(1),
        doc="The most that a share group may set for its session timeout.",
    )
    heartbeat_interval_ms = integer(
        "group.share.heartbeat.interval.ms",
        5000,
        at_least(1),
        doc="Time between heartbeats that members of share groups are told to keep.",
    )
    min_heartbeat_interval_ms = integer(
        "group.share.min.heartbeat.interval.ms",
        5000,
        at_least(1),
        doc="The least that a share group may set for its heartbeat interval.",
    )
    max_heartbeat_interval_ms = integer(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        doc="The most that a share group may set for its heartbeat interval.",
    )
    max_size = integer(
        "group.share.max.size", 200, between(1, 1000), doc="The most members of a share group."
    )
    assignors = strings(
        "group.share.assignors",
        ("simple",),
        FILLED,
        effect=False,
        doc="Assignors of the broker for share groups; the first is used.",
    )
    assignment_interval_ms = integer(
        "group.share.assignment.interval.ms",
        1000,
        at_least(0),
        mode=CLUSTER_WIDE,
        doc="The least time between new assignments of a share group.",
    )
    min_assignment_interval_ms = integer(
        "group.share.min.assignment.interval.ms",
        0,
        at_least(0),
        doc="The least that a share group may set for its assignment interval.",
    )
    max_assignment_interval_ms = integer(
        "group.share.max.assignment.interval.ms",
        15_000,
        at_least(0),
        doc="The most that a share group may set for its assignment interval.",
    )
    initialize_retry_interval_ms = integer(
        "group.share.initialize.retry.interval.ms",
        30_000,
        at_least(1),
        importance="low",
        internal=True,
        doc="Pause before the share state of a partition that failed to initialize is tried again.",
    )
    delivery_count_limit = integer(
        "group.share.delivery.count.limit",
        5,
        between(2, 10),
        doc="How often a record is handed to members of a share group before it is given up.",
    )
    min_delivery_count_limit = integer(
        "group.share.min.delivery.count.limit",
        2,
        between(2, 5),
        doc="The least that a share group may set for its delivery count limit.",
    )
    max_delivery_count_limit = integer(
        "group.share.max.delivery.count.limit",
        10,
        between(5, 25),
        doc="The most that a share group may set for its delivery count limit.",
    )
    record_lock_duration_ms = integer(
        "group.share.record.lock.duration.ms",
        30_000,
        between(1000, 3_600_000),
        doc="How long a member holds a record before it is handed to another.",
    )
    min_record_lock_duration_ms = integer(
        "group.share.min.record.lock.duration.ms",
        15_000,
        between(1000, 30_000),
        doc="The least that a share group may set for its lock duration.",
    )
    max_record_lock_duration_ms = integer(
        "group.share.max.record.lock.duration.ms",
        60_000,
        between(30_000, 3_600_000),
        doc="The most that a share group may set for its lock duration.",
    )
    partition_max_record_locks = integer(
        "group.share.partition.max.record.locks",
        2000,
        between(100, 10_000),
        doc="Records of one partition that may be out with members at one time.",
    )
    min_partition_max_record_locks = integer(
        "group.share.min.partition.max.record.locks",
        100,
        between(100, 2000),
        doc="The least that a share group may set for its record locks.",
    )
    max_partition_max_record_locks = integer(
        "group.share.max.partition.max.record.locks",
        4000,
        between(2000, 10_000),
        doc="The most that a share group may set for its record locks.",
    )
    max_share_sessions = integer(
        "group.share.max.share.sessions",
        2000,
        at_least(1),
        doc="Share sessions that a broker keeps.",
    )
    persister_class_name = string(
        "group.share.persister.class.name",
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        internal=True,
        effect=False,
        doc="A Java class that keeps the state of share groups.",
    )
    share_fetch_purgatory_purge_interval_requests = integer(
        "share.fetch.purgatory.purge.interval.requests",
        1000,
        effect=False,
        doc="Waiting share fetches after which finished ones are swept out.",
    )


class ShareCoordinator(Section):
    TITLE = "Share coordinator"
    PREFIX = "share.coordinator."

    state_topic_num_partitions = integer(
        "share.coordinator.state.topic.num.partitions",
        50,
        at_least(1),
        importance="high",
        doc="Partitions of __share_group_state; fixed once the topic exists.",
    )
    state_topic_replication_factor = short(
        "share.coordinator.state.topic.replication.factor",
        3,
        at_least(1),
        importance="high",
        doc="Replicas of each partition of __share_group_state.",
    )
    state_topic_min_isr = short(
        "share.coordinator.state.topic.min.isr",
        2,
        at_least(1),
        importance="high",
        doc="In-sync replicas that a write to __share_group_state needs.",
    )
    state_topic_segment_bytes = integer(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        at_least(1),
        importance="high",
        doc="Segment size of __share_group_state.",
    )
    state_topic_compression_codec = integer(
        "share.coordinator.state.topic.compression.codec",
        0,
        between(0, 4),
        importance="high",
        doc="The codec, by number, of batches in __share_group_state.",
    )
    state_topic_prune_interval_ms = integer(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        at_least(1),
        importance="low",
        internal=True,
        doc="Time between removals of records that no share partition needs.",
    )
    threads = integer(
        "share.coordinator.threads", 1, at_least(1), effect=False, doc="Threads of the share coordinator."
    )
    snapshot_update_records_per_snapshot = integer(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        between(0, 500),
        doc="Updates of a share partition after which a snapshot of it is written.",
    )
    load_buffer_size = integer(
        "share.coordinator.load.buffer.size",
        5_242_880,
        at_least(1),
        importance="high",
        doc="Size of the reads that load a partition of __share_group_state.",
    )
    append_linger_ms = integer(
        "share.coordinator.append.linger.ms",
        -1,
        at_least(-1),
        effect=False,
        doc="How long the share coordinator gathers records before it writes them; -1 lets it choose.",
    )
    write_timeout_ms = integer(
        "share.coordinator.write.timeout.ms",
        5000,
        at_least(1),
        importance="high",
        effect=False,
        doc="How long a write waits for the replicas of __share_group_state.",
    )
    cold_partition_snapshot_interval_ms = integer(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        at_least(1),
        importance="low",
        internal=True,
        doc="A share partition without news for so long gets a snapshot, so that older records can go.",
    )
    cached_buffer_max_bytes = integer(
        "share.coordinator.cached.buffer.max.bytes",
        1_048_588,
        at_least(1 << 19),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="The largest write buffer that the share coordinator keeps for reuse.",
    )
