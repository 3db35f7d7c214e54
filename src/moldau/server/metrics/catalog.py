"""Every metric of the node, declared once: the page that scrapers read and docs/metrics.md come from here.

Names are those that the Prometheus JMX exporter gives Kafka's MBeans with its usual rules, so that dashboards
made for Kafka work. What Kafka has no MBean for begins with `moldau_`, or is what Prometheus' own client
libraries tell of every process.
"""

from __future__ import annotations

from typing import NamedTuple

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class Family(NamedTuple):
    """`mbean` is Kafka's name, empty if it has none; a name's suffix `_total` stands for its `Count`."""

    name: str
    type: str  # counter, gauge or summary
    labels: tuple[str, ...]
    unit: str
    doc: str
    mbean: str = ""


class Group(NamedTuple):
    title: str
    families: tuple[Family, ...]


def _stage(stage: str, doc: str) -> Family:
    return Family(
        f"kafka_network_requestmetrics_{stage.lower()}",
        "summary",
        ("request",),
        "ms",
        doc,
        f"kafka.network:type=RequestMetrics,name={stage},request=…",
    )


REQUESTS = Family(
    "kafka_network_requestmetrics_requests_total",
    "counter",
    ("request", "version"),
    "requests",
    "Requests received.",
    "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=…,version=…",
)
ERRORS = Family(
    "kafka_network_requestmetrics_errors_total",
    "counter",
    ("request", "error"),
    "codes",
    "Error codes in responses, successes (`NONE`) included. Produce has one for each partition, fetch "
    "has one more for the response.",
    "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=…,error=…",
)
REQUEST_BYTES = Family(
    "kafka_network_requestmetrics_requestbytes",
    "summary",
    ("request",),
    "bytes",
    "Sizes of requests; without quantiles.",
    "kafka.network:type=RequestMetrics,name=RequestBytes,request=…",
)
REQUEST_QUEUE_TIME = _stage("RequestQueueTimeMs", "From the arrival of a request until its handling begins.")
LOCAL_TIME = _stage("LocalTimeMs", "Handling a request.")
REMOTE_TIME = _stage(
    "RemoteTimeMs", "Waiting for others: for records, for a flush of the metadata log, for other requests."
)
THROTTLE_TIME = _stage("ThrottleTimeMs", "Held back by quotas: always 0, there are none in this version.")
RESPONSE_QUEUE_TIME = _stage("ResponseQueueTimeMs", "From a response being ready until its sending begins.")
RESPONSE_SEND_TIME = _stage("ResponseSendTimeMs", "Sending a response, until the system has taken all of it.")
TOTAL_TIME = _stage("TotalTimeMs", "From the arrival of a request until its response was sent.")
REQUEST_QUEUE_SIZE = Family(
    "kafka_network_requestchannel_requestqueuesize",
    "gauge",
    (),
    "requests",
    "Requests in line because `queued.max.requests` others are waiting for something already.",
    "kafka.network:type=RequestChannel,name=RequestQueueSize",
)
RESPONSE_QUEUE_SIZE = Family(
    "kafka_network_requestchannel_responsequeuesize",
    "gauge",
    (),
    "responses",
    "Responses that wait for their clients to take them.",
    "kafka.network:type=RequestChannel,name=ResponseQueueSize",
)
REQUESTS_IN_PROGRESS = Family(
    "moldau_requests_in_progress",
    "gauge",
    (),
    "requests",
    "Requests that wait for something, or in line; parked fetches are in the purgatory and not counted here.",
)


def _topic(name: str, mbean: str, unit: str, doc: str) -> Family:
    return Family(
        f"kafka_server_brokertopicmetrics_{name}_total",
        "counter",
        ("topic",),
        unit,
        f"{doc} Without the label, of all topics, deleted ones included.",
        f"kafka.server:type=BrokerTopicMetrics,name={mbean},topic=…",
    )


TOPIC_COUNTERS = {
    "bytes_in": _topic("bytesin", "BytesInPerSec", "bytes", "Record batches appended by producers."),
    "bytes_out": _topic("bytesout", "BytesOutPerSec", "bytes", "Record batches found for consumers."),
    "messages_in": _topic("messagesin", "MessagesInPerSec", "records", "Records appended by producers."),
    "produce_requests": _topic(
        "totalproducerequests", "TotalProduceRequestsPerSec", "partitions", "Appends to partitions, tried."
    ),
    "fetch_requests": _topic(
        "totalfetchrequests",
        "TotalFetchRequestsPerSec",
        "partitions",
        "Reads of partitions; a fetch that waits reads twice.",
    ),
    "failed_produce_requests": _topic(
        "failedproducerequests",
        "FailedProduceRequestsPerSec",
        "partitions",
        "Appends that failed for a reason that is neither the client's nor the cluster's ordinary state.",
    ),
    "failed_fetch_requests": _topic(
        "failedfetchrequests",
        "FailedFetchRequestsPerSec",
        "partitions",
        "Reads that failed for a reason that is neither the client's nor the cluster's ordinary state.",
    ),
}
"""By what a partition calls them."""

CONNECTION_COUNT = Family(
    "kafka_server_socket_server_metrics_connection_count",
    "gauge",
    ("listener", "networkprocessor"),
    "connections",
    "Open connections. There is one network processor, 0.",
    "kafka.server:type=socket-server-metrics,listener=…,networkProcessor=…",
)
CONNECTIONS_CREATED = Family(
    "kafka_server_socket_server_metrics_connection_creation_total",
    "counter",
    ("listener", "networkprocessor"),
    "connections",
    "Connections accepted.",
    "kafka.server:type=socket-server-metrics,listener=…,networkProcessor=…",
)
CONNECTIONS_CLOSED = Family(
    "kafka_server_socket_server_metrics_connection_close_total",
    "counter",
    ("listener", "networkprocessor"),
    "connections",
    "Accepted connections that are no more.",
    "kafka.server:type=socket-server-metrics,listener=…,networkProcessor=…",
)
CONNECTIONS_REAPED = Family(
    "moldau_connections_reaped_total",
    "counter",
    ("listener",),
    "connections",
    "Connections closed because they were idle for `connections.max.idle.ms`.",
)
CONNECTIONS_REFUSED = Family(
    "moldau_connections_refused_total",
    "counter",
    ("listener",),
    "connections",
    "Connections closed as they came, because of `max.connections` or `max.connections.per.ip`.",
)
IDLE_PERCENT = Family(
    "kafka_network_socketserver_networkprocessoravgidlepercent",
    "gauge",
    (),
    "ratio",
    "The share of the time since the last scrape in which the event loop's thread used no CPU, 0 to 1.",
    "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
)

PURGATORY_SIZE = Family(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "gauge",
    ("delayedoperation",),
    "requests",
    "Parked requests: fetches that wait for `fetch.min.bytes`.",
    "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=…",
)
FETCH_EXPIRES = Family(
    "kafka_server_delayedfetchmetrics_expires_total",
    "counter",
    ("fetchertype",),
    "requests",
    "Fetches that `fetch.max.wait.ms` ended.",
    "kafka.server:type=DelayedFetchMetrics,name=ExpiresPerSec,fetcherType=…",
)
FETCH_SESSIONS = Family(
    "kafka_server_fetchsessioncache_numincrementalfetchsessions",
    "gauge",
    (),
    "sessions",
    "Fetch sessions.",
    "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions",
)
FETCH_SESSION_PARTITIONS = Family(
    "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
    "gauge",
    (),
    "partitions",
    "Partitions in fetch sessions.",
    "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached",
)
FETCH_SESSION_EVICTIONS = Family(
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
    "counter",
    (),
    "sessions",
    "Fetch sessions that had to make room.",
    "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec",
)


def _markers(name: str, doc: str) -> Family:
    return Family(
        f"kafka_coordinator_transaction_transactionmarkerchannelmanager_{name.lower()}",
        "gauge",
        (),
        "transactions",
        doc,
        f"kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name={name}",
    )


OPEN_TRANSACTIONS = Family(
    "moldau_transactions_open",
    "gauge",
    (),
    "transactions",
    "Transactions that this broker coordinates and that nobody has decided about.",
)
DECIDED_TRANSACTIONS = Family(
    "moldau_transactions_decided",
    "gauge",
    (),
    "transactions",
    "Transactions that are decided, and whose markers are being written.",
)
UNREACHED_MARKERS = _markers(
    "UnknownDestinationQueueSize",
    "Of the transactions that are decided, those with a partition whose leader does not take its marker.",
)
UNCOMPLETED_TRANSACTIONS = _markers(
    "LogAppendRetryQueueSize",
    "Transactions with all their markers, whose end could not be written yet.",
)


def _replicas(name: str, type: str, unit: str, doc: str) -> Family:
    family = f"kafka_server_replicamanager_{name.removesuffix('PerSec').lower()}"
    return Family(
        f"{family}_total" if type == "counter" else family,
        type,
        (),
        unit,
        doc,
        f"kafka.server:type=ReplicaManager,name={name}",
    )


PARTITION_COUNT = _replicas("PartitionCount", "gauge", "partitions", "Replicas on this broker.")
LEADER_COUNT = _replicas("LeaderCount", "gauge", "partitions", "Partitions that this broker leads.")
UNDER_REPLICATED = _replicas(
    "UnderReplicatedPartitions",
    "gauge",
    "partitions",
    "Partitions led here of which not all replicas are in sync.",
)
UNDER_MIN_ISR = _replicas(
    "UnderMinIsrPartitionCount",
    "gauge",
    "partitions",
    "Partitions led here with fewer replicas in sync than `min.insync.replicas`: not writable with acks=all.",
)
AT_MIN_ISR = _replicas(
    "AtMinIsrPartitionCount",
    "gauge",
    "partitions",
    "Partitions led here with exactly `min.insync.replicas` replicas in sync.",
)
OFFLINE_REPLICAS = _replicas(
    "OfflineReplicaCount", "gauge", "partitions", "Replicas here whose log directory has failed."
)
LATE_TRANSACTIONS = _replicas(
    "PartitionsWithLateTransactionsCount",
    "gauge",
    "partitions",
    "Partitions led here with a transaction that is open for five minutes more than "
    "`transaction.max.timeout.ms` allows: nobody seems to end it.",
)
PRODUCER_ID_COUNT = _replicas(
    "ProducerIdCount",
    "gauge",
    "producers",
    "Producers that partitions here remember; one that writes to two partitions counts twice.",
)
ISR_SHRINKS = _replicas(
    "IsrShrinksPerSec", "counter", "changes", "Partitions led here that lost a replica in sync."
)
ISR_EXPANDS = _replicas(
    "IsrExpandsPerSec", "counter", "changes", "Partitions led here that won a replica in sync."
)
REPLICA_HEALTH = (
    LEADER_COUNT,
    UNDER_REPLICATED,
    UNDER_MIN_ISR,
    AT_MIN_ISR,
    OFFLINE_REPLICAS,
    LATE_TRANSACTIONS,
)
"""How many partitions each holds for."""
REPLICA_COUNTERS = {"isr_shrinks": ISR_SHRINKS, "isr_expands": ISR_EXPANDS}
"""By what a partition calls them."""


def _log(name: str, unit: str, doc: str) -> Family:
    return Family(
        f"kafka_log_log_{name.lower()}",
        "gauge",
        ("topic", "partition"),
        unit,
        doc,
        f"kafka.log:type=Log,name={name},topic=…,partition=…",
    )


LOG_SIZE = _log("Size", "bytes", "Size of all segments.")
LOG_SEGMENTS = _log("NumLogSegments", "segments", "Segments.")
LOG_START_OFFSET = _log("LogStartOffset", "offset", "The first offset that can be read.")
LOG_END_OFFSET = _log("LogEndOffset", "offset", "The offset that the next record gets.")
LOG_FLUSHES = Family(
    "kafka_log_logflushstats_logflushrateandtimems",
    "summary",
    (),
    "ms",
    "Flushes of partitions in the background, from being handed over to being done; not those that "
    "`flush.messages` makes producers wait for.",
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
OFFLINE_LOG_DIRECTORIES = Family(
    "kafka_log_logmanager_offlinelogdirectorycount",
    "gauge",
    (),
    "directories",
    "Directories of `log.dirs` that have failed.",
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
)
LOG_DIRECTORY_OFFLINE = Family(
    "kafka_log_logmanager_logdirectoryoffline",
    "gauge",
    ("logdirectory",),
    "0 or 1",
    "Whether the directory has failed.",
    "kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory=…",
)


def _cleaner(name: str, unit: str, doc: str) -> Family:
    return Family(
        f"kafka_log_logcleaner_{name.lower().replace('-', '_')}",
        "gauge",
        (),
        unit,
        doc,
        f"kafka.log:type=LogCleaner,name={name}",
    )


def _cleaner_manager(name: str, labels: tuple[str, ...], unit: str, doc: str) -> Family:
    return Family(
        f"kafka_log_logcleanermanager_{name.lower().replace('-', '_')}",
        "gauge",
        labels,
        unit,
        doc,
        f"kafka.log:type=LogCleanerManager,name={name}" + (",logDirectory=…" if labels else ""),
    )


CLEANER_BUFFER_UTILIZATION = _cleaner(
    "max-buffer-utilization-percent", "percent", "How full the map of keys was in the last cleaning."
)
CLEANER_RECOPY = _cleaner(
    "cleaner-recopy-percent", "percent", "Bytes that the last cleanings kept, of those that they read."
)
CLEANER_TIME = _cleaner("max-clean-time-secs", "s", "What the last cleaning took.")
CLEANER_DELAY = _cleaner(
    "max-compaction-delay-secs",
    "s",
    "For how long the log that is overdue the longest by `max.compaction.lag.ms` has been so.",
)
CLEANER_DEAD_THREADS = _cleaner("DeadThreadCount", "workers", "Workers that have failed. 0, or it is a bug.")
CLEANER_DIRTIEST = _cleaner_manager(
    "max-dirty-percent", (), "percent", "Share of the dirtiest log that could be cleaned."
)
CLEANER_LAST_RUN = _cleaner_manager(
    "time-since-last-run-ms", (), "ms", "Since a worker last looked for a log to clean."
)
UNCLEANABLE_PARTITIONS = _cleaner_manager(
    "uncleanable-partitions-count",
    ("logdirectory",),
    "partitions",
    "Logs that could not be cleaned and were set aside until the next start.",
)
UNCLEANABLE_BYTES = _cleaner_manager(
    "uncleanable-bytes", ("logdirectory",), "bytes", "What could be cleaned of those."
)


def _controller(name: str, unit: str, doc: str) -> Family:
    return Family(
        f"kafka_controller_kafkacontroller_{name.lower()}",
        "gauge",
        (),
        unit,
        doc,
        f"kafka.controller:type=KafkaController,name={name}",
    )


ACTIVE_CONTROLLERS = _controller(
    "ActiveControllerCount", "0 or 1", "Whether this node is the active controller."
)
ACTIVE_BROKERS = _controller("ActiveBrokerCount", "brokers", "Brokers that are registered and not fenced.")
FENCED_BROKERS = _controller("FencedBrokerCount", "brokers", "Brokers that are registered and fenced.")
GLOBAL_TOPICS = _controller("GlobalTopicCount", "topics", "Topics of the cluster.")
GLOBAL_PARTITIONS = _controller("GlobalPartitionCount", "partitions", "Partitions of the cluster.")
OFFLINE_PARTITIONS = _controller(
    "OfflinePartitionsCount", "partitions", "Partitions of the cluster without a leader."
)
PREFERRED_IMBALANCE = _controller(
    "PreferredReplicaImbalanceCount",
    "partitions",
    "Partitions of the cluster whose leader is not their first replica.",
)
LAST_APPLIED_OFFSET = _controller(
    "LastAppliedRecordOffset", "offset", "The last metadata record that the cluster's image contains."
)
LAST_APPLIED_TIMESTAMP = _controller(
    "LastAppliedRecordTimestamp", "ms since 1970", "When that record was appended."
)
LAST_APPLIED_LAG = _controller(
    "LastAppliedRecordLagMs",
    "ms",
    "How far the image is behind: as in Kafka always 0 on the active controller, which applies what it "
    "appends. The time of the last record is no measure of it: nothing is appended while nothing changes.",
)
LAST_COMMITTED_OFFSET = _controller(
    "LastCommittedRecordOffset", "offset", "The last metadata record that is committed."
)


def _raft(name: str, unit: str, doc: str) -> Family:
    return Family(
        f"kafka_server_raft_metrics_{name.replace('-', '_')}",
        "gauge",
        (),
        unit,
        doc,
        f"kafka.server:type=raft-metrics ({name})",
    )


RAFT_EPOCH = _raft("current-epoch", "epoch", "Epoch of the metadata quorum.")
RAFT_LEADER = _raft("current-leader", "node id", "Leader of the metadata quorum; -1 if unknown.")
RAFT_HIGH_WATERMARK = _raft("high-watermark", "offset", "Metadata records below it are committed.")
RAFT_END_OFFSET = _raft("log-end-offset", "offset", "End of the metadata log.")
RAFT_VOTERS = _raft("number-of-voters", "nodes", "Voters of the metadata quorum.")

CLIENT_SERIES_MAX = 2_000
GROUP_SERIES_MAX = 10_000
"""Names of clients and groups are anybody's choice: so many partitions of them have series of their own."""


def _of_client(name: str, unit: str, doc: str) -> Family:
    return Family(f"moldau_client_{name}", "gauge", ("client_id", "host", "topic", "partition"), unit, doc)


def _of_group(name: str, unit: str, doc: str) -> Family:
    return Family(f"moldau_group_{name}", "gauge", ("group", "topic", "partition"), unit, doc)


CLIENT_POSITION = _of_client(
    "fetch_position",
    "offset",
    "The offset that a client asked for last, whether or not it is in a group or ever commits; for ten "
    f"minutes. The {CLIENT_SERIES_MAX} partitions of clients that are most behind are shown.",
)
CLIENT_LAG = _of_client(
    "fetch_lag", "records", "How far it is behind the high watermark, of the same partitions."
)
CLIENT_POSITIONS_LEFT_OUT = Family(
    "moldau_client_fetch_positions_left_out",
    "gauge",
    (),
    "partitions",
    f"Partitions of clients that are not shown because there are more than {CLIENT_SERIES_MAX}.",
)
GROUP_OFFSET = _of_group(
    "committed_offset",
    "offset",
    "What a group that this broker coordinates has committed. "
    f"The {GROUP_SERIES_MAX} partitions of groups that are most behind are shown.",
)
GROUP_LAG = _of_group(
    "lag",
    "records",
    "How far that is behind the high watermark, of the same partitions if they are led here.",
)
GROUP_OFFSETS_LEFT_OUT = Family(
    "moldau_group_offsets_left_out",
    "gauge",
    (),
    "partitions",
    f"Partitions of groups that are not shown because there are more than {GROUP_SERIES_MAX}.",
)

BROKER_STATE = Family(
    "kafka_server_kafkaserver_brokerstate",
    "gauge",
    (),
    "state",
    "Kafka's number for what the broker is doing: 3 is running.",
    "kafka.server:type=KafkaServer,name=BrokerState",
)
INFO = Family(
    "moldau_info", "gauge", ("version", "cluster_id", "node_id"), "1", "Who this is; the value is always 1."
)
SCRAPE_TIME = Family(
    "moldau_metrics_render_seconds", "gauge", (), "s", "What it took to collect this page, pauses included."
)
CPU_SECONDS = Family(
    "process_cpu_seconds_total", "counter", (), "s", "CPU time of the process, user and system."
)
LOOP_CPU_SECONDS = Family(
    "moldau_loop_cpu_seconds_total", "counter", (), "s", "CPU time of the event loop's thread."
)
RESIDENT_BYTES = Family("process_resident_memory_bytes", "gauge", (), "bytes", "Resident memory.")
VIRTUAL_BYTES = Family("process_virtual_memory_bytes", "gauge", (), "bytes", "Virtual memory.")
OPEN_FDS = Family("process_open_fds", "gauge", (), "descriptors", "Open file descriptors.")
MAX_FDS = Family("process_max_fds", "gauge", (), "descriptors", "The limit on them.")
START_TIME = Family(
    "process_start_time_seconds", "gauge", (), "s since 1970", "When the process was started."
)
GC_RUNS = Family(
    "python_gc_collections_total", "counter", ("generation",), "runs", "Runs of the garbage collector."
)
GC_OBJECTS = Family(
    "python_gc_objects_collected_total", "counter", ("generation",), "objects", "Objects that it found."
)

GROUPS = (
    Group(
        "Requests",
        (
            REQUESTS,
            ERRORS,
            REQUEST_BYTES,
            REQUEST_QUEUE_TIME,
            LOCAL_TIME,
            REMOTE_TIME,
            THROTTLE_TIME,
            RESPONSE_QUEUE_TIME,
            RESPONSE_SEND_TIME,
            TOTAL_TIME,
            REQUEST_QUEUE_SIZE,
            RESPONSE_QUEUE_SIZE,
            REQUESTS_IN_PROGRESS,
        ),
    ),
    Group("Topics", tuple(TOPIC_COUNTERS.values())),
    Group(
        "Connections",
        (
            CONNECTION_COUNT,
            CONNECTIONS_CREATED,
            CONNECTIONS_CLOSED,
            CONNECTIONS_REAPED,
            CONNECTIONS_REFUSED,
            IDLE_PERCENT,
        ),
    ),
    Group(
        "Fetches",
        (PURGATORY_SIZE, FETCH_EXPIRES, FETCH_SESSIONS, FETCH_SESSION_PARTITIONS, FETCH_SESSION_EVICTIONS),
    ),
    Group(
        "Groups and readers",
        (
            GROUP_OFFSET,
            GROUP_LAG,
            GROUP_OFFSETS_LEFT_OUT,
            CLIENT_POSITION,
            CLIENT_LAG,
            CLIENT_POSITIONS_LEFT_OUT,
        ),
    ),
    Group(
        "Transactions",
        (OPEN_TRANSACTIONS, DECIDED_TRANSACTIONS, UNREACHED_MARKERS, UNCOMPLETED_TRANSACTIONS),
    ),
    Group(
        "Replicas",
        (
            PARTITION_COUNT,
            *REPLICA_HEALTH,
            PRODUCER_ID_COUNT,
            *REPLICA_COUNTERS.values(),
        ),
    ),
    Group(
        "Logs",
        (
            LOG_SIZE,
            LOG_SEGMENTS,
            LOG_START_OFFSET,
            LOG_END_OFFSET,
            LOG_FLUSHES,
            OFFLINE_LOG_DIRECTORIES,
            LOG_DIRECTORY_OFFLINE,
        ),
    ),
    Group(
        "Compaction",
        (
            CLEANER_DIRTIEST,
            CLEANER_LAST_RUN,
            UNCLEANABLE_PARTITIONS,
            UNCLEANABLE_BYTES,
            CLEANER_TIME,
            CLEANER_RECOPY,
            CLEANER_BUFFER_UTILIZATION,
            CLEANER_DELAY,
            CLEANER_DEAD_THREADS,
        ),
    ),
    Group(
        "Controller and metadata quorum",
        (
            ACTIVE_CONTROLLERS,
            ACTIVE_BROKERS,
            FENCED_BROKERS,
            GLOBAL_TOPICS,
            GLOBAL_PARTITIONS,
            OFFLINE_PARTITIONS,
            PREFERRED_IMBALANCE,
            LAST_APPLIED_OFFSET,
            LAST_APPLIED_TIMESTAMP,
            LAST_APPLIED_LAG,
            LAST_COMMITTED_OFFSET,
            RAFT_EPOCH,
            RAFT_LEADER,
            RAFT_HIGH_WATERMARK,
            RAFT_END_OFFSET,
            RAFT_VOTERS,
        ),
    ),
    Group(
        "Node and process",
        (
            BROKER_STATE,
            INFO,
            SCRAPE_TIME,
            CPU_SECONDS,
            LOOP_CPU_SECONDS,
            RESIDENT_BYTES,
            VIRTUAL_BYTES,
            OPEN_FDS,
            MAX_FDS,
            START_TIME,
            GC_RUNS,
            GC_OBJECTS,
        ),
    ),
)

FAMILIES = tuple(family for group in GROUPS for family in group.families)
