"""The markers that end transactions in the partitions that this broker leads.

A transaction coordinator, here or on another broker, asks for them one by one. A marker is a control batch
like any other to the log; in `__consumer_offsets` it is also the moment from which the offsets of the
transaction count, so there the group coordinator writes it.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.log.errors import LogDirError
from moldau.records.control import ControlType, EndTxnMarker, build_end_txn_batch
from moldau.replica.partition import Partition
from moldau.replica.replicas import Replicas
from moldau.runtime.interfaces import Clock
from moldau.server.group_coordinator import TOPIC as OFFSETS_TOPIC
from moldau.server.group_coordinator import GroupCoordinator
from moldau.wire.errors import ErrorCode, KafkaError

# What a group coordinator that is not ready says to clients. The transaction coordinator knows leaders only,
# and asks again when it hears that this is none.
_NOT_READY = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    )
)


class TxnMarkers:
    def __init__(
        self,
        clock: Clock,
        replicas: Replicas,
        groups: GroupCoordinator,
        on_log_dir_failure: Callable[[LogDirError], None],
    ) -> None:
        self._clock = clock
        self._replicas = replicas
        self._groups = groups
        self._on_log_dir_failure = on_log_dir_failure

    def write_marker(
        self,
        topic: str,
        index: int,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_committed: bool,
        transaction_version: int,
    ) -> ErrorCode:
        """Ends the transaction of a producer in one partition. With NONE the marker is in the log."""
        partition = self._replicas.get(topic, index)
        if partition is None or partition.log is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        marker = EndTxnMarker(ControlType.COMMIT if is_committed else ControlType.ABORT, coordinator_epoch)
        producer = producer_id, producer_epoch
        try:
            if topic == OFFSETS_TOPIC:
                self._groups.end_transaction(index, marker, producer, transaction_version)
            else:
                self._append(partition, marker, producer, transaction_version)
        except KafkaError as failure:
            if isinstance(failure, LogDirError):
                self._on_log_dir_failure(failure)
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if failure.code in _NOT_READY else failure.code
        return ErrorCode.NONE

    def _append(
        self, partition: Partition, marker: EndTxnMarker, producer: tuple[int, int], transaction_version: int
    ) -> None:
        now_ms = self._clock.now_ms()
        producer_id, producer_epoch = producer
        batch = build_end_txn_batch(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp=now_ms
        )
        partition.append_marker(memoryview(bytearray(batch)), now_ms, transaction_version)
