"""Tiered storage."""

from moldau.config.option import (
    CLUSTER_WIDE,
    FILLED,
    LONG_MAX,
    Section,
    at_least,
    between,
    boolean,
    double,
    integer,
    long,
    string,
)


class Remote(Section):
    TITLE = "Tiered storage"
    PREFIX = "remote."

    log_local_retention_ms = long(
        "log.local.retention.ms",
        -2,
        at_least(-2),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="How long segments that are tiered stay on the broker's own "
        "disk; -2 for as long as retention keeps them at all.",
    )
    log_local_retention_bytes = long(
        "log.local.retention.bytes",
        -2,
        at_least(-2),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="How much of a tiered partition stays on the broker's own "
        "disk; -2 for as much as retention keeps at all.",
    )
    log_storage_system_enable = boolean(
        "remote.log.storage.system.enable",
        False,
        effect=False,
        doc="Whether tiered storage is available on this broker.",
    )
    log_storage_manager_class_name = string(
        "remote.log.storage.manager.class.name",
        None,
        FILLED,
        effect=False,
        doc="A Java class that stores segments remotely.",
    )
    log_storage_manager_class_path = string(
        "remote.log.storage.manager.class.path", None, effect=False, doc="Where that class is loaded from."
    )
    log_storage_manager_impl_prefix = string(
        "remote.log.storage.manager.impl.prefix",
        "rsm.config.",
        FILLED,
        effect=False,
        doc="Properties with this prefix are passed to the remote storage.",
    )
    log_metadata_manager_class_name = string(
        "remote.log.metadata.manager.class.name",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        FILLED,
        effect=False,
        doc="A Java class that keeps track of remote segments.",
    )
    log_metadata_manager_class_path = string(
        "remote.log.metadata.manager.class.path", None, effect=False, doc="Where that class is loaded from."
    )
    log_metadata_manager_impl_prefix = string(
        "remote.log.metadata.manager.impl.prefix",
        "rlmm.config.",
        FILLED,
        effect=False,
        doc="Properties with this prefix are passed to the tracker of remote segments.",
    )
    log_metadata_manager_listener_name = string(
        "remote.log.metadata.manager.listener.name",
        None,
        FILLED,
        effect=False,
        doc="The listener by which the tracker of remote segments reaches the brokers.",
    )
    log_metadata_custom_metadata_max_bytes = integer(
        "remote.log.metadata.custom.metadata.max.bytes",
        128,
        at_least(0),
        importance="low",
        effect=False,
        doc="The largest note that the remote storage may attach to a segment.",
    )
    log_index_file_cache_total_size_bytes = long(
        "remote.log.index.file.cache.total.size.bytes",
        1 << 30,
        at_least(1),
        mode=CLUSTER_WIDE,
        importance="low",
        effect=False,
        doc="Disk space for indexes fetched from the remote storage.",
    )
    log_index_file_cache_ttl_ms = long(
        "remote.log.index.file.cache.ttl.ms",
        900_000,
        at_least(-1),
        importance="low",
        internal=True,
        effect=False,
        doc="An index fetched from the remote storage and unused for so long is dropped; -1 for never.",
    )
    log_manager_thread_pool_size = integer(
        "remote.log.manager.thread.pool.size",
        2,
        at_least(1),
        effect=False,
        doc="Threads that tend the tiering of partitions.",
    )
    log_manager_copier_thread_pool_size = integer(
        "remote.log.manager.copier.thread.pool.size",
        10,
        at_least(1),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="Threads that copy segments to the remote storage.",
    )
    log_manager_expiration_thread_pool_size = integer(
        "remote.log.manager.expiration.thread.pool.size",
        10,
        at_least(1),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="Threads that delete remote segments.",
    )
    log_manager_follower_thread_pool_size = integer(
        "remote.log.manager.follower.thread.pool.size",
        2,
        at_least(1),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="Threads that follow the tiering of other leaders.",
    )
    log_manager_task_interval_ms = long(
        "remote.log.manager.task.interval.ms",
        30_000,
        at_least(1),
        importance="low",
        effect=False,
        doc="Pause between two rounds of copying and deleting remote segments.",
    )
    log_manager_task_retry_backoff_ms = long(
        "remote.log.manager.task.retry.backoff.ms",
        500,
        at_least(1),
        importance="low",
        internal=True,
        effect=False,
        doc="First pause after a tiering round that failed.",
    )
    log_manager_task_retry_backoff_max_ms = long(
        "remote.log.manager.task.retry.backoff.max.ms",
        30_000,
        at_least(1),
        importance="low",
        internal=True,
        effect=False,
        doc="Longest pause after tiering rounds that failed.",
    )
    log_manager_task_retry_jitter = double(
        "remote.log.manager.task.retry.jitter",
        0.2,
        between(0, 0.5),
        importance="low",
        internal=True,
        effect=False,
        doc="Share by which those pauses vary at random.",
    )
    log_manager_copy_max_bytes_per_second = long(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG_MAX,
        at_least(1),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="Rate of copying to the remote storage.",
    )
    log_manager_copy_quota_window_num = integer(
        "remote.log.manager.copy.quota.window.num",
        11,
        at_least(1),
        effect=False,
        doc="Windows kept to measure copying to the remote storage.",
    )
    log_manager_copy_quota_window_size_seconds = integer(
        "remote.log.manager.copy.quota.window.size.seconds",
        1,
        at_least(1),
        effect=False,
        doc="Length of one of those windows.",
    )
    log_manager_fetch_max_bytes_per_second = long(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG_MAX,
        at_least(1),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="Rate of reading from the remote storage.",
    )
    log_manager_fetch_quota_window_num = integer(
        "remote.log.manager.fetch.quota.window.num",
        11,
        at_least(1),
        effect=False,
        doc="Windows kept to measure reading from the remote storage.",
    )
    log_manager_fetch_quota_window_size_seconds = integer(
        "remote.log.manager.fetch.quota.window.size.seconds",
        1,
        at_least(1),
        effect=False,
        doc="Length of one of those windows.",
    )
    log_reader_threads = integer(
        "remote.log.reader.threads",
        10,
        at_least(1),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="Threads that read from the remote storage for consumers.",
    )
    log_reader_max_pending_tasks = integer(
        "remote.log.reader.max.pending.tasks",
        100,
        at_least(1),
        effect=False,
        doc="Reads from the remote storage that may wait for a thread.",
    )
    fetch_max_wait_ms = integer(
        "remote.fetch.max.wait.ms",
        500,
        at_least(1),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="How long a fetch waits for the remote storage.",
    )
    list_offsets_request_timeout_ms = long(
        "remote.list.offsets.request.timeout.ms",
        30_000,
        at_least(1),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="How long a lookup of offsets waits for the remote storage.",
    )
