"""Windows of the quotas, and throttles that are only set on a running broker."""

from moldau.config.option import CLUSTER_WIDE, LONG_MAX, Section, at_least, class_name, integer, long


class Quotas(Section):
    TITLE = "Quotas"

    quota_window_num = integer(
        "quota.window.num",
        11,
        at_least(1),
        importance="low",
        effect=False,
        doc="Windows kept to measure client quotas.",
    )
    quota_window_size_seconds = integer(
        "quota.window.size.seconds",
        1,
        at_least(1),
        importance="low",
        effect=False,
        doc="Length of one window of client quotas.",
    )
    replication_quota_window_num = integer(
        "replication.quota.window.num",
        11,
        at_least(1),
        importance="low",
        effect=False,
        doc="Windows kept to measure replication quotas.",
    )
    replication_quota_window_size_seconds = integer(
        "replication.quota.window.size.seconds",
        1,
        at_least(1),
        importance="low",
        effect=False,
        doc="Length of one window of replication quotas.",
    )
    alter_log_dirs_replication_quota_window_num = integer(
        "alter.log.dirs.replication.quota.window.num",
        11,
        at_least(1),
        importance="low",
        effect=False,
        doc="Windows kept to measure moves between log directories.",
    )
    alter_log_dirs_replication_quota_window_size_seconds = integer(
        "alter.log.dirs.replication.quota.window.size.seconds",
        1,
        at_least(1),
        importance="low",
        effect=False,
        doc="Length of one window of moves between log directories.",
    )
    controller_quota_window_num = integer(
        "controller.quota.window.num",
        11,
        at_least(1),
        importance="low",
        effect=False,
        doc="Windows kept to measure controller mutation quotas.",
    )
    controller_quota_window_size_seconds = integer(
        "controller.quota.window.size.seconds",
        1,
        at_least(1),
        importance="low",
        effect=False,
        doc="Length of one window of controller mutation quotas.",
    )
    client_quota_callback_class = class_name(
        "client.quota.callback.class",
        None,
        importance="low",
        effect=False,
        doc="A Java class that decides on client quotas.",
    )
    leader_replication_throttled_rate = long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        at_least(0),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="Bytes per second that leaders may send to throttled replicas.",
    )
    follower_replication_throttled_rate = long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        at_least(0),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="Bytes per second that throttled replicas may fetch from leaders.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second = long(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        at_least(0),
        mode=CLUSTER_WIDE,
        doc="Bytes per second that moves between log directories may use.",
    )


DYNAMIC_ONLY = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Options that Kafka knows only as dynamic ones: not listed unless they are set."""
