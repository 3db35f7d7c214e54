"""Request handlers, one file for each API (or for a few that are one thing), and the table of them all.

What is not in the table is not advertised and closes the connection, as in Kafka. Handlers are imported when
their API is first used, so that a node starts without the ones it may never need.

A module may have a `handle_usual` beside its `handle`, which takes requests of the shape that most of them
have from frame to frame, and leaves others to `handle`: it returns None then, and nothing has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.config.broker import BrokerConfig
from moldau.wire.api import ApiKey


class Api(NamedTuple):
    """`hot` handlers get the frame and give back bytes; the others get and give messages."""

    key: ApiKey
    first: int
    last: int
    module: str
    hot: bool = False


APIS = (
    Api(ApiKey.PRODUCE, 3, 13, "produce", hot=True),
    Api(ApiKey.FETCH, 4, 18, "fetch", hot=True),
    Api(ApiKey.LIST_OFFSETS, 1, 11, "list_offsets"),
    Api(ApiKey.METADATA, 0, 13, "metadata"),
    Api(ApiKey.OFFSET_COMMIT, 2, 10, "offset_commit"),
    Api(ApiKey.OFFSET_FETCH, 1, 10, "offset_fetch"),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, "find_coordinator"),
    Api(ApiKey.JOIN_GROUP, 0, 9, "join_group"),
    Api(ApiKey.HEARTBEAT, 0, 4, "heartbeat"),
    Api(ApiKey.LEAVE_GROUP, 0, 5, "leave_group"),
    Api(ApiKey.SYNC_GROUP, 0, 5, "sync_group"),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, "describe_groups"),
    Api(ApiKey.LIST_GROUPS, 0, 5, "list_groups"),
    Api(ApiKey.API_VERSIONS, 0, 4, "api_versions"),
    Api(ApiKey.CREATE_TOPICS, 2, 7, "create_topics"),
    Api(ApiKey.DELETE_TOPICS, 1, 6, "delete_topics"),
    Api(ApiKey.DELETE_RECORDS, 0, 2, "delete_records"),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, "init_producer_id"),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, "offset_for_leader_epoch"),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, "add_partitions_to_txn"),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, "add_offsets_to_txn"),
    Api(ApiKey.END_TXN, 0, 5, "end_txn"),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, "write_txn_markers"),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, "txn_offset_commit"),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, "describe_configs"),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, "alter_configs"),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, "alter_replica_log_dirs"),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, "describe_log_dirs"),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, "create_partitions"),
    Api(ApiKey.DELETE_GROUPS, 0, 2, "delete_groups"),
    Api(ApiKey.OFFSET_DELETE, 0, 0, "offset_delete"),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, "incremental_alter_configs"),
    Api(ApiKey.DESCRIBE_QUORUM, 0, 2, "describe_quorum"),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, "update_features"),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, "describe_cluster"),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, "describe_producers"),
    Api(ApiKey.UNREGISTER_BROKER, 0, 0, "unregister_broker"),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, "describe_transactions"),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2, "list_transactions"),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, "consumer_group_heartbeat"),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, "consumer_group_describe"),
    Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, "get_telemetry_subscriptions"),
    Api(ApiKey.PUSH_TELEMETRY, 0, 0, "push_telemetry"),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, "list_config_resources"),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, "describe_topic_partitions"),
    Api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, "share_group_heartbeat"),
    Api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, "share_group_describe"),
    Api(ApiKey.SHARE_FETCH, 1, 2, "share_fetch"),
    Api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, "share_acknowledge"),
    Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, "initialize_share_group_state"),
    Api(ApiKey.READ_SHARE_GROUP_STATE, 0, 0, "read_share_group_state"),
    Api(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, "write_share_group_state"),
    Api(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, "delete_share_group_state"),
    Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, "read_share_group_state_summary"),
    Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, "describe_share_group_offsets"),
    Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, "alter_share_group_offsets"),
    Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, "delete_share_group_offsets"),
)

# Kafka 4.3 has this version, and keeps it to itself unless told otherwise.
_INIT_PRODUCER_ID_WITH_TWO_PHASE_COMMIT = 6


def apis(config: BrokerConfig) -> Sequence[Api]:
    """What this node speaks."""
    if not config.transactions.transaction_two_phase_commit_enable:
        return APIS
    return [
        api._replace(last=_INIT_PRODUCER_ID_WITH_TWO_PHASE_COMMIT)
        if api.key == ApiKey.INIT_PRODUCER_ID
        else api
        for api in APIS
    ]
