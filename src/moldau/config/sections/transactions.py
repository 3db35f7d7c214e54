"""Transactions and producer ids."""

from moldau.config.option import CLUSTER_WIDE, Section, at_least, boolean, integer, short


class Transactions(Section):
    TITLE = "Transactions"

    transaction_state_log_num_partitions = integer(
        "transaction.state.log.num.partitions",
        50,
        at_least(1),
        importance="high",
        doc="Partitions of __transaction_state; fixed once the topic exists.",
    )
    transaction_state_log_replication_factor = short(
        "transaction.state.log.replication.factor",
        3,
        at_least(1),
        importance="high",
        doc="Replicas of each partition of __transaction_state.",
    )
    transaction_state_log_min_isr = integer(
        "transaction.state.log.min.isr",
        2,
        at_least(1),
        importance="high",
        doc="In-sync replicas that a write to __transaction_state needs.",
    )
    transaction_state_log_segment_bytes = integer(
        "transaction.state.log.segment.bytes",
        104_857_600,
        at_least(1),
        importance="high",
        doc="Segment size of __transaction_state.",
    )
    transaction_state_log_load_buffer_size = integer(
        "transaction.state.log.load.buffer.size",
        5_242_880,
        at_least(1),
        importance="high",
        doc="Size of the reads that load a partition of __transaction_state.",
    )
    transaction_max_timeout_ms = integer(
        "transaction.max.timeout.ms",
        900_000,
        at_least(1),
        importance="high",
        doc="The longest timeout that a producer may ask for its transactions.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        at_least(1),
        importance="low",
        doc="Time between looks for transactions that ran out of time.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        at_least(1),
        importance="low",
        doc="Time between looks for transactional ids to forget.",
    )
    transaction_two_phase_commit_enable = boolean(
        "transaction.two.phase.commit.enable",
        False,
        importance="low",
        doc="Whether a transaction may be left prepared, for an outside coordinator to decide.",
    )
    transaction_partition_verification_enable = boolean(
        "transaction.partition.verification.enable",
        True,
        mode=CLUSTER_WIDE,
        importance="low",
        doc="Whether a transactional write is checked against the "
        "coordinator's list of the transaction's partitions.",
    )
    transactional_id_expiration_ms = integer(
        "transactional.id.expiration.ms",
        604_800_000,
        at_least(1),
        importance="high",
        doc="A transactional id without use for so long is forgotten.",
    )
    producer_id_expiration_ms = integer(
        "producer.id.expiration.ms",
        86_400_000,
        at_least(1),
        mode=CLUSTER_WIDE,
        importance="low",
        doc="A producer id without writes for so long is forgotten by "
        "the partition, with its sequence numbers.",
    )
    producer_id_expiration_check_interval_ms = integer(
        "producer.id.expiration.check.interval.ms",
        600_000,
        at_least(1),
        importance="low",
        internal=True,
        doc="Time between looks for producer ids to forget.",
    )
    add_partitions_to_txn_retry_backoff_ms = integer(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        at_least(1),
        importance="high",
        doc="Pause before the broker tries again to add partitions to a transaction, because the last one "
        "of the same producer is still being ended.",
    )
    add_partitions_to_txn_retry_backoff_max_ms = integer(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        at_least(0),
        importance="high",
        doc="How long the broker tries that before it leaves it to the client.",
    )
