"""Replication between brokers."""

from moldau.config.option import CLUSTER_WIDE, Section, at_least, boolean, integer, long, one_of, string


class Replication(Section):
    TITLE = "Replication"

    controller_socket_timeout_ms = integer(
        "controller.socket.timeout.ms",
        30_000,
        effect=False,
        doc="Kept for compatibility: the socket timeout between controller and brokers.",
    )
    replica_lag_time_max_ms = long(
        "replica.lag.time.max.ms",
        30_000,
        importance="high",
        effect=False,
        doc="A follower that has not caught up with its leader for so long leaves the in-sync replicas.",
    )
    replica_socket_timeout_ms = integer(
        "replica.socket.timeout.ms",
        30_000,
        importance="high",
        effect=False,
        doc="How long a follower waits for the answer to a fetch; never less than replica.fetch.wait.max.ms.",
    )
    replica_socket_receive_buffer_bytes = integer(
        "replica.socket.receive.buffer.bytes",
        1 << 16,
        importance="high",
        effect=False,
        doc="The receive buffer of a follower's connection to a leader.",
    )
    replica_fetch_max_bytes = integer(
        "replica.fetch.max.bytes",
        1 << 20,
        at_least(0),
        effect=False,
        doc="Bytes per partition that a follower asks for; a first batch that is larger comes whole.",
    )
    replica_fetch_wait_max_ms = integer(
        "replica.fetch.wait.max.ms",
        500,
        importance="high",
        effect=False,
        doc="How long a leader may hold a follower's fetch back to gather replica.fetch.min.bytes.",
    )
    replica_fetch_backoff_ms = integer(
        "replica.fetch.backoff.ms",
        1000,
        at_least(0),
        effect=False,
        doc="Pause of a follower after a fetch that failed.",
    )
    replica_fetch_min_bytes = integer(
        "replica.fetch.min.bytes",
        1,
        importance="high",
        effect=False,
        doc="Bytes that a leader gathers before it answers a follower's fetch.",
    )
    replica_fetch_response_max_bytes = integer(
        "replica.fetch.response.max.bytes",
        10_485_760,
        at_least(0),
        effect=False,
        doc="Bytes that a follower asks for in one fetch, over all "
        "partitions; a first batch that is larger comes whole.",
    )
    num_replica_fetchers = integer(
        "num.replica.fetchers",
        1,
        at_least(1),
        mode=CLUSTER_WIDE,
        importance="high",
        effect=False,
        doc="Fetchers per leader that a follower runs side by side.",
    )
    num_replica_alter_log_dirs_threads = integer(
        "num.replica.alter.log.dirs.threads",
        None,
        importance="high",
        effect=False,
        doc="Threads that move replicas between log directories; as many as directories if unset.",
    )
    replica_high_watermark_checkpoint_interval_ms = long(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        importance="high",
        doc="Time between writes of the checkpoint of high watermarks.",
    )
    fetch_purgatory_purge_interval_requests = integer(
        "fetch.purgatory.purge.interval.requests",
        1000,
        effect=False,
        doc="Waiting fetches after which finished ones are swept out.",
    )
    producer_purgatory_purge_interval_requests = integer(
        "producer.purgatory.purge.interval.requests",
        1000,
        effect=False,
        doc="Waiting produce requests after which finished ones are swept out.",
    )
    delete_records_purgatory_purge_interval_requests = integer(
        "delete.records.purgatory.purge.interval.requests",
        1,
        effect=False,
        doc="Waiting delete-records requests after which finished ones are swept out.",
    )
    auto_leader_rebalance_enable = boolean(
        "auto.leader.rebalance.enable",
        True,
        importance="high",
        effect=False,
        doc="Whether leadership is moved back to preferred replicas from time to time.",
    )
    leader_imbalance_check_interval_seconds = long(
        "leader.imbalance.check.interval.seconds",
        300,
        at_least(1),
        importance="high",
        effect=False,
        doc="Time between looks for leaderships that could move back to preferred replicas.",
    )
    unclean_leader_election_interval_ms = long(
        "unclean.leader.election.interval.ms",
        300_000,
        at_least(1),
        internal=True,
        effect=False,
        doc="Time between looks for leaderless partitions that may elect an out-of-sync replica.",
    )
    security_inter_broker_protocol = string(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        effect=False,
        doc="The security protocol between brokers, if inter.broker.listener.name is not set.",
    )
    inter_broker_listener_name = string(
        "inter.broker.listener.name", None, doc="The listener that brokers use among themselves."
    )
    replica_selector_class = string(
        "replica.selector.class",
        None,
        effect=False,
        doc="A Java class that tells a consumer which replica to read from.",
    )
    follower_fetch_last_tiered_offset_enable = boolean(
        "follower.fetch.last.tiered.offset.enable",
        False,
        mode=CLUSTER_WIDE,
        effect=False,
        doc="Whether a new follower starts at the last tiered offset and leaves what is tiered where it is.",
    )
