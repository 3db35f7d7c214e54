"""One replica of a partition on this broker, in the role of its leader.

The log stores; this decides who may append and how far readers may read. With a single replica every append
is committed when it is written, so the high watermark is the end of the log.
"""

from __future__ import annotations

from typing import Protocol

from moldau.log.log import AppendOrigin, AppendResult, Log, Slice
from moldau.log.producer_state import Verification
from moldau.wire.errors import ErrorCode, KafkaError

ALL_IN_SYNC = -1  # acks=all
NO_EPOCH = -1
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Waiter(Protocol):
    """A parked request that wants to know when there is more to read."""

    read_committed: bool
    """Whether it may read below the last stable offset only."""

    def on_append(self, appended_bytes: int) -> None: ...
    def on_gone(self) -> None:
        """It has to read again at once: the partition is gone, or nobody has counted what came."""
        ...


class Partition:
    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "in_sync_count",
        "index",
        "is_internal",
        "is_leader",
        "isr_expands",
        "isr_shrinks",
        "leader_epoch",
        "leader_id",
        "log",
        "messages_in",
        "produce_requests",
        "replica_count",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(self, topic: str, index: int, topic_id: bytes, log: Log | None) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log  # None while its log directory is offline
        self.is_internal = topic in INTERNAL_TOPICS
        self.is_leader = False
        self.leader_id = -1
        self.leader_epoch = -1
        self.in_sync_count = 0
        self.replica_count = 1
        self.waiters: dict[Waiter, None] | None = None  # the first to wait is the first to be told
        self.bytes_in = 0  # counted here and summed when someone looks: metrics cost the hot path an addition
        self.bytes_out = 0
        self.messages_in = 0
        self.produce_requests = 0
        self.fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0
        self.isr_shrinks = 0
        self.isr_expands = 0

    @property
    def min_in_sync(self) -> int:
        """What acks=all asks for: as in Kafka, never more replicas than the partition has."""
        asked = self.log.config.min_insync_replicas if self.log is not None else 1
        return min(asked, self.replica_count)

    def become_leader(
        self, leader_id: int, leader_epoch: int, in_sync_count: int, replica_count: int
    ) -> None:
        if self.is_leader:
            self.isr_shrinks += in_sync_count < self.in_sync_count
            self.isr_expands += in_sync_count > self.in_sync_count
        self.is_leader, self.leader_id = True, leader_id
        self.in_sync_count, self.replica_count = in_sync_count, replica_count
        log = self.log
        if leader_epoch > self.leader_epoch and log is not None:
            log.leader_epochs.assign(leader_epoch, log.log_end_offset)
        self.leader_epoch = leader_epoch
        if log is not None:
            log.advance_high_watermark(log.log_end_offset)

    def resign(self, leader_id: int, leader_epoch: int) -> None:
        self.is_leader, self.leader_id, self.leader_epoch = False, leader_id, leader_epoch
        self.release_waiters()

    def leader_log(self, current_leader_epoch: int = NO_EPOCH) -> Log:
        """The log, if this replica leads and the client's idea of the epoch, if it has one, is right."""
        log = self.local_log(current_leader_epoch)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    def local_log(self, current_leader_epoch: int = NO_EPOCH) -> Log:
        """The log, whoever leads."""
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self.log is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {self} is offline")
        return self.log

    def append(self, records: memoryview, acks: int, now_ms: int) -> AppendResult:
        self.produce_requests += 1
        log = self.log
        if log is None or not self.is_leader:
            log = self.leader_log()
        if (
            acks == ALL_IN_SYNC
            and self.in_sync_count < log.config.min_insync_replicas
            and self.in_sync_count < self.min_in_sync
        ):
            raise self._not_enough_replicas()
        result = log.append_as_leader(records, self.leader_epoch, now_ms)
        self._on_appended(log, result, len(records))
        return result

    def append_transactional(
        self, records: memoryview, acks: int, now_ms: int, verification: Verification
    ) -> AppendResult:
        """As `append`, for a batch of a transaction that somebody has looked after (see `Log`)."""
        self.produce_requests += 1
        log = self.leader_log()
        if acks == ALL_IN_SYNC:
            self._check_in_sync(log)
        result = log.append_as_leader(records, self.leader_epoch, now_ms, verification=verification)
        self._on_appended(log, result, len(records))
        return result

    def append_as_coordinator(
        self,
        records: memoryview,
        now_ms: int,
        *,
        verification: Verification | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """What a coordinator keeps in its topic: with acks=all, and without a client's rules."""
        log = self.log
        if log is None or not self.is_leader:
            log = self.leader_log()
        self._check_in_sync(log)
        result = log.append_as_leader(
            records,
            self.leader_epoch,
            now_ms,
            origin=AppendOrigin.COORDINATOR,
            verification=verification,
            transaction_version=transaction_version,
        )
        self._on_appended(log, result, len(records))
        return result

    def append_marker(self, records: memoryview, now_ms: int, transaction_version: int) -> AppendResult:
        """The end of a transaction. Who waits for what is decided finds out."""
        log = self.leader_log()
        stable = log.last_stable_offset
        result = self.append_as_coordinator(records, now_ms, transaction_version=transaction_version)
        if self.waiters and log.last_stable_offset > stable:
            self.tell_of_decision()
        return result

    def _check_in_sync(self, log: Log) -> None:
        if self.in_sync_count < log.config.min_insync_replicas and self.in_sync_count < self.min_in_sync:
            raise self._not_enough_replicas()

    def _not_enough_replicas(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{self} has {self.in_sync_count} in-sync replicas of the {self.min_in_sync} "
            "that min.insync.replicas asks for",
        )

    def _on_appended(self, log: Log, result: AppendResult, size: int) -> None:
        log.advance_high_watermark(log.log_end_offset)
        self.bytes_in += size
        self.messages_in += result.last_offset - result.base_offset + 1
        if self.waiters:
            self.tell_waiters(size)

    def read(self, offset: int, max_bytes: int, *, read_committed: bool, min_one_batch: bool) -> Slice:
        self.fetch_requests += 1
        log = self.log
        assert log is not None
        limit = log.last_stable_offset if read_committed else log.high_watermark
        return log.read(offset, max_bytes, limit=limit, min_one_batch=min_one_batch)

    def aborted_transactions(self, offset: int, found: Slice | None) -> list[tuple[int, int]]:
        """(producer id, first offset) of what a read_committed reader of `found` has to skip."""
        if found is None or not found.count:
            return []
        log = self.log
        assert log is not None
        return [(txn.producer_id, txn.first_offset) for txn in log.aborted_transactions_of(offset, found)]

    def wait(self, waiter: Waiter) -> None:
        if self.waiters is None:
            self.waiters = {}
        self.waiters[waiter] = None

    def stop_waiting(self, waiter: Waiter) -> None:
        if self.waiters is not None:
            self.waiters.pop(waiter, None)

    def tell_waiters(self, appended_bytes: int) -> None:
        is_undecided = self.log is not None and self.log.producers.has_transactions
        for waiter in tuple(self.waiters or ()):
            if not (is_undecided and waiter.read_committed):
                waiter.on_append(appended_bytes)

    def tell_of_decision(self) -> None:
        """A transaction has ended, and with it what lay above the last stable offset may be read: nobody has
        counted how much that is."""
        for waiter in tuple(self.waiters or ()):
            if waiter.read_committed:
                waiter.on_gone()

    def release_waiters(self) -> None:
        """The partition is no longer readable here: whoever waits for it must find out now."""
        for waiter in tuple(self.waiters or ()):
            waiter.on_gone()

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"
