"""The owners a request handler may turn to, each with its own state.

A value without behaviour worth the name: the node makes one, handlers read from it. What is `None` until
the node has started is not reachable before that either, since no connection is accepted earlier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from moldau.config.broker import BrokerConfig
from moldau.controller.driver import Controller
from moldau.log.errors import LogDirError
from moldau.log.log_directories import LogDirectories
from moldau.metadata.image import ClusterImage
from moldau.raft.quorum import Quorum
from moldau.replica.fetch_session import FetchSessionCache
from moldau.replica.partition import Partition
from moldau.replica.purgatory import Purgatory
from moldau.replica.replicas import Replicas
from moldau.runtime.interfaces import Runtime
from moldau.server.group_coordinator import GroupCoordinator
from moldau.server.loggers import Loggers
from moldau.server.producer_ids import ProducerIds
from moldau.server.replica_mover import ReplicaMover
from moldau.server.share_coordinator import ShareCoordinator
from moldau.server.share_partitions import SharePartitions
from moldau.server.telemetry import Telemetry
from moldau.server.transaction_coordinator import TransactionCoordinator
from moldau.server.txn_markers import TxnMarkers
from moldau.server.txn_verification import TxnVerification
from moldau.wire.errors import ErrorCode, KafkaError


@dataclass(slots=True, kw_only=True)
class Services:
    runtime: Runtime
    node_id: int
    cluster_id: str
    config: BrokerConfig  # the current one: replaced as a whole when dynamic options change
    controller: Controller
    quorum: Quorum
    replicas: Replicas
    groups: GroupCoordinator
    share_coordinator: ShareCoordinator
    share_partitions: SharePartitions
    log_directories: LogDirectories
    fetch_sessions: FetchSessionCache
    fetch_purgatory: Purgatory
    producer_ids: ProducerIds
    txn_markers: TxnMarkers
    txn_verification: TxnVerification
    transactions: TransactionCoordinator
    replica_mover: ReplicaMover
    telemetry: Telemetry
    loggers: Loggers
    on_log_dir_failure: Callable[[LogDirError], None]
    fetch_max_bytes: int = 55 << 20
    # By error code, for the handlers that answer without the dispatcher's help.
    produce_errors: Counter[int] = field(default_factory=lambda: Counter({0: 0}))
    fetch_errors: Counter[int] = field(default_factory=lambda: Counter({0: 0}))

    def image(self) -> ClusterImage:
        return self.controller.image

    def partition(self, topic: str, index: int) -> Partition:
        """The replica on this broker. Raises KafkaError: either no broker has one, or another."""
        partition = self.replicas.get(topic, index)
        if partition is None:
            is_elsewhere = self.image().partition(topic, index) is not None
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else unknown)
        return partition

    def on_storage_failure(self, failure: KafkaError) -> None:
        """Takes the directory offline if the failure is of that kind."""
        if failure.code == ErrorCode.KAFKA_STORAGE_ERROR and isinstance(failure, LogDirError):
            self.on_log_dir_failure(failure)
