"""What a node is and does, and the limits of its answers."""

from moldau.config.option import (
    CLUSTER_WIDE,
    FILLED,
    LONG_MAX,
    REQUIRED,
    Section,
    at_least,
    boolean,
    class_name,
    each_of,
    integer,
    long,
    string,
    strings,
)


class Node(Section):
    TITLE = "Node"

    process_roles = strings(
        "process.roles",
        REQUIRED,
        each_of("broker", "controller"),
        importance="high",
        doc="What this node does: broker, controller, or both in one process.",
    )
    node_id = integer(
        "node.id",
        REQUIRED,
        at_least(0),
        importance="high",
        doc="The number that identifies this node in its cluster, unique among brokers and controllers.",
    )
    broker_id = integer(
        "broker.id",
        -1,
        importance="high",
        doc="The older name of node.id; if both are set they have to agree.",
    )
    broker_rack = string(
        "broker.rack",
        None,
        doc="Where this broker stands, a rack or a zone; replicas of "
        "a partition are spread over different ones.",
    )
    num_io_threads = integer(
        "num.io.threads",
        8,
        at_least(1),
        mode=CLUSTER_WIDE,
        importance="high",
        doc="Threads for work that may block: synchronous flushes, "
        "cold reads, index rebuilding, compression.",
    )
    background_threads = integer(
        "background.threads",
        10,
        at_least(1),
        mode=CLUSTER_WIDE,
        importance="high",
        effect=False,
        doc="Threads for housekeeping such as deleting files and expiring state.",
    )
    num_recovery_threads_per_data_dir = integer(
        "num.recovery.threads.per.data.dir",
        2,
        at_least(1),
        mode=CLUSTER_WIDE,
        importance="high",
        effect=False,
        doc="Threads per log directory that load logs at start-up and flush them at shutdown.",
    )
    request_timeout_ms = integer(
        "request.timeout.ms",
        30_000,
        importance="high",
        effect=False,
        doc="How long this node waits for an answer to a request of its own.",
    )
    socket_connection_setup_timeout_ms = long(
        "socket.connection.setup.timeout.ms",
        10_000,
        effect=False,
        doc="How long a connection from this node to another may take to come about, at the first attempt.",
    )
    socket_connection_setup_timeout_max_ms = long(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        effect=False,
        doc="The longest that setting up a connection may take after repeated failures.",
    )
    controlled_shutdown_enable = boolean(
        "controlled.shutdown.enable",
        True,
        effect=False,
        doc="Whether a stopping broker first hands its leaderships over to other replicas.",
    )
    delete_topic_enable = boolean(
        "delete.topic.enable", True, importance="high", doc="Whether topics may be deleted at all."
    )
    auto_create_topics_enable = boolean(
        "auto.create.topics.enable",
        True,
        importance="high",
        doc="Whether asking for the metadata of a topic that does not exist, as producers do, creates it.",
    )
    num_partitions = integer(
        "num.partitions", 1, at_least(1), doc="Partitions of a topic whose creator does not say how many."
    )
    default_replication_factor = integer(
        "default.replication.factor",
        1,
        doc="Replicas of each partition of a topic whose creator does not say how many.",
    )
    initial_broker_registration_timeout_ms = integer(
        "initial.broker.registration.timeout.ms",
        60_000,
        effect=False,
        doc="A broker that could not register with the controller for so long after its start gives up.",
    )
    broker_heartbeat_interval_ms = integer(
        "broker.heartbeat.interval.ms",
        2000,
        effect=False,
        doc="Time between the heartbeats of a broker to the controller.",
    )
    broker_session_timeout_ms = integer(
        "broker.session.timeout.ms",
        9000,
        effect=False,
        doc="A broker whose heartbeats stay away for so long is fenced by the controller.",
    )
    controller_listener_names = strings(
        "controller.listener.names",
        REQUIRED,
        FILLED,
        importance="high",
        doc="The listeners that controllers talk on, as one list; a "
        "broker uses the first to reach the controller.",
    )
    sasl_mechanism_controller_protocol = string(
        "sasl.mechanism.controller.protocol",
        "GSSAPI",
        importance="high",
        effect=False,
        doc="The SASL mechanism for connections to controllers.",
    )
    controller_performance_sample_period_ms = long(
        "controller.performance.sample.period.ms",
        60_000,
        at_least(100),
        internal=True,
        effect=False,
        doc="Length of the window over which the controller measures its event times.",
    )
    controller_performance_always_log_threshold_ms = long(
        "controller.performance.always.log.threshold.ms",
        2000,
        at_least(0),
        internal=True,
        effect=False,
        doc="A controller event that takes longer than this is always logged.",
    )
    server_max_startup_time_ms = long(
        "server.max.startup.time.ms",
        LONG_MAX,
        at_least(0),
        internal=True,
        effect=False,
        doc="A node that is not up after so long gives up.",
    )
    config_providers = strings(
        "config.providers",
        (),
        mode=CLUSTER_WIDE,
        importance="low",
        effect=False,
        doc="Names of the plug-ins that fetch configuration values from elsewhere.",
    )
    create_topic_policy_class_name = class_name(
        "create.topic.policy.class.name",
        None,
        importance="low",
        effect=False,
        doc="A Java class that may veto the creation of topics.",
    )
    alter_config_policy_class_name = class_name(
        "alter.config.policy.class.name",
        None,
        importance="low",
        effect=False,
        doc="A Java class that may veto changes of configurations.",
    )
    early_start_listeners = strings(
        "early.start.listeners",
        None,
        importance="high",
        effect=False,
        doc="Listeners that accept connections before the authorizer has finished loading.",
    )
    max_request_partition_size_limit = integer(
        "max.request.partition.size.limit",
        2000,
        at_least(1),
        doc="The most partitions that one request may list, in requests that page over partitions.",
    )
    unstable_api_versions_enable = boolean(
        "unstable.api.versions.enable",
        False,
        importance="high",
        internal=True,
        effect=False,
        doc="Whether API versions still under development are offered to clients.",
    )
    unstable_feature_versions_enable = boolean(
        "unstable.feature.versions.enable",
        False,
        importance="high",
        internal=True,
        effect=False,
        doc="Whether feature versions still under development can be turned on.",
    )
    max_incremental_fetch_session_cache_slots = integer(
        "max.incremental.fetch.session.cache.slots",
        1000,
        at_least(0),
        doc="How many incremental fetch sessions are kept; when full, old ones make room.",
    )
    fetch_max_bytes = integer(
        "fetch.max.bytes",
        57_671_680,
        at_least(1 << 10),
        doc="The most bytes in one fetch response, whatever the client asks for.",
    )
