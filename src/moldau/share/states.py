"""One partition of `__share_group_state`: the states of the share partitions that hash to it.

The leader of a partition reads the state of each of its share partitions, and writes what members did to it.
Two epochs keep the wrong ones away: the leader epoch rises with each leader, the state epoch whenever the
state is begun anew. What is written is mostly what has changed; after so many changes, or a while without
any, the whole is written, and what lies before the oldest whole is no longer needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from moldau.coordinator.decision import Decision, Waiter
from moldau.coordinator.record import CoordinatorRecord
from moldau.coordinator.timers import Timers
from moldau.metadata.delta import Delta
from moldau.share.batches import NO_START_OFFSET, StateBatch, combined
from moldau.share.environment import ShareEnvironment
from moldau.share.records import (
    RECORD_TYPES,
    RecordedBatch,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid
from moldau.wire.messages import delete_share_group_state as delete
from moldau.wire.messages import initialize_share_group_state as initialize
from moldau.wire.messages import read_share_group_state as read
from moldau.wire.messages import read_share_group_state_summary as summary
from moldau.wire.messages import write_share_group_state as write

NO_EPOCH = -1
NO_COUNT = -1
_UNKNOWN_LEADER_EPOCH, _UNKNOWN_STATE_EPOCH = 0, 0


class ShareKey(NamedTuple):
    """A share partition: a group and a partition."""

    group_id: str
    topic_id: Uuid
    partition: int


class ShareState(NamedTuple):
    """`created_ms` is of the last snapshot that a change brought about, `written_ms` of the last at all."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]
    created_ms: int
    written_ms: int


class SnapshotCold(NamedTuple):
    """Time to look for share partitions that had no snapshot for a while."""


class _Kept:
    """A state, and what is known of it beside."""

    __slots__ = ("leader_epoch", "snapshot_at", "state", "state_epoch", "update_count")

    def __init__(self, state: ShareState) -> None:
        self.state = state
        self.leader_epoch = state.leader_epoch  # the highest there ever was
        self.state_epoch = state.state_epoch
        self.update_count = 0  # since the last snapshot
        self.snapshot_at = 0  # its offset in the log


class ShareStateShard:
    record_types = RECORD_TYPES

    def __init__(self, index: int, environment: ShareEnvironment) -> None:
        self.index = index
        self.timers = Timers()
        self.applied_offset = 0
        self._environment = environment
        self._kept: dict[ShareKey, _Kept] = {}
        self._deleted_at = 0  # where in the log the last state was deleted

    def state(self, key: ShareKey) -> ShareState | None:
        kept = self._kept.get(key)
        return None if kept is None else kept.state

    # ------------------------------------------------------------ requests

    def read(self, now_ms: int, key: ShareKey, leader_epoch: int) -> Decision[read.PartitionResult]:
        """Raises KafkaError. A leader that is new is remembered, so that those before it are kept away."""
        self._check_partition_id(key)
        kept = self._kept.get(key)
        if kept is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed."
            )
        if kept.leader_epoch > leader_epoch:
            raise _fenced_leader()
        self._check_exists(key)
        state = kept.state
        result = read.PartitionResult(
            partition=key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                read.StateBatch(
                    first_offset=batch.first,
                    last_offset=batch.last,
                    delivery_state=batch.state,
                    delivery_count=batch.delivery_count,
                )
                for batch in state.batches
            ],
        )
        if leader_epoch in (NO_EPOCH, kept.leader_epoch):
            return Decision(reply=result)
        record = self._changed(
            now_ms, key, kept, leader_epoch, state.start_offset, state.delivery_complete_count, ()
        )
        return Decision(records=[record], reply=result)

    def write(self, now_ms: int, key: ShareKey, data: write.PartitionData) -> Decision[write.PartitionResult]:
        """Raises KafkaError."""
        self._check_partition_id(key)
        kept = self._kept.get(key)
        if kept is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed."
            )
        if data.leader_epoch != NO_EPOCH and kept.leader_epoch > data.leader_epoch:
            raise _fenced_leader()
        self._check_state_epoch(kept, data.state_epoch)
        self._check_exists(key)
        if any(batch.last_offset < batch.first_offset for batch in data.state_batches):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A state batch ends before it begins.")
        batches = [
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in data.state_batches
        ]
        record = self._changed(
            now_ms,
            key,
            kept,
            kept.state.leader_epoch,
            data.start_offset,
            data.delivery_complete_count,
            batches,
        )
        return Decision(records=[record], reply=write.PartitionResult(partition=key.partition))

    def initialize(
        self, now_ms: int, key: ShareKey, data: initialize.PartitionData
    ) -> Decision[initialize.PartitionResult]:
        """Raises KafkaError. Whatever was there before is forgotten."""
        self._check_partition_id(key)
        kept = self._kept.get(key)
        if kept is not None:
            self._check_state_epoch(kept, data.state_epoch)
        self._check_exists(key)
        state = ShareState(
            snapshot_epoch=0 if kept is None else kept.state.snapshot_epoch + 1,
            state_epoch=data.state_epoch,
            leader_epoch=_UNKNOWN_LEADER_EPOCH,
            start_offset=data.start_offset,
            # As long as nobody knows where to start, nobody knows how far it is from the end.
            delivery_complete_count=NO_COUNT if data.start_offset == NO_START_OFFSET else 0,
            batches=(),
            created_ms=now_ms,
            written_ms=now_ms,
        )
        return Decision(
            records=[_snapshot(key, state)], reply=initialize.PartitionResult(partition=key.partition)
        )

    def delete(self, key: ShareKey) -> Decision[delete.PartitionResult]:
        """Raises KafkaError. What is not there is deleted already."""
        self._check_partition_id(key)
        self._check_exists(key)
        records = [_tombstone(key)] if key in self._kept else ()
        return Decision(records=records, reply=delete.PartitionResult(partition=key.partition))

    def summarize(self, key: ShareKey) -> Decision[summary.PartitionResult]:
        """Raises KafkaError."""
        self._check_partition_id(key)
        self._check_exists(key)
        state = self.state(key)
        if state is None:
            return Decision(
                reply=summary.PartitionResult(
                    partition=key.partition,
                    start_offset=NO_START_OFFSET,
                    delivery_complete_count=NO_COUNT,
                    leader_epoch=_UNKNOWN_LEADER_EPOCH,
                    state_epoch=_UNKNOWN_STATE_EPOCH,
                )
            )
        return Decision(
            reply=summary.PartitionResult(
                partition=key.partition,
                start_offset=state.start_offset,
                delivery_complete_count=state.delivery_complete_count,
                leader_epoch=state.leader_epoch,
                state_epoch=state.state_epoch,
            )
        )

    def _check_partition_id(self, key: ShareKey) -> None:
        if key.partition < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")

    def _check_state_epoch(self, kept: _Kept, state_epoch: int) -> None:
        if state_epoch != NO_EPOCH and kept.state_epoch > state_epoch:
            raise KafkaError(
                ErrorCode.FENCED_STATE_EPOCH,
                "The share coordinator rejected the request because the share-group state epoch did not "
                "match.",
            )

    def _check_exists(self, key: ShareKey) -> None:
        topic = self._environment.image.topic_by_id(key.topic_id)
        if topic is None or key.partition not in topic.partitions:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )

    def _changed(
        self,
        now_ms: int,
        key: ShareKey,
        kept: _Kept,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        news: Iterable[StateBatch],
    ) -> CoordinatorRecord:
        """What is new, or everything if there was much that was new since everything was written."""
        state = kept.state
        if kept.update_count >= self._updates_max:
            start = state.start_offset if start_offset == NO_START_OFFSET else start_offset
            return _snapshot(
                key,
                ShareState(
                    snapshot_epoch=state.snapshot_epoch + 1,
                    state_epoch=state.state_epoch,
                    leader_epoch=leader_epoch,
                    start_offset=start,
                    delivery_complete_count=delivery_complete_count,
                    batches=combined(state.batches, news, start),
                    created_ms=now_ms,
                    written_ms=now_ms,
                ),
            )
        return CoordinatorRecord(
            ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition),
            ShareUpdateValue(
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=delivery_complete_count,
                state_batches=_recorded(combined((), news, start_offset)),
            ),
        )

    @property
    def _updates_max(self) -> int:
        return self._environment.config.share_coordinator.snapshot_update_records_per_snapshot

    # ------------------------------------------------------------ the log

    def needed_from(self) -> int:
        """What lies before that offset is not needed any more."""
        if not self._kept:
            return self._deleted_at
        return min(kept.snapshot_at for kept in self._kept.values())

    def _snapshot_cold(self, now_ms: int, event: SnapshotCold) -> Decision[Any]:
        """States that were not written whole for a while hold up the start of the log, unless all are like
        that: then nothing goes on, and nothing is to be gained."""
        interval_ms = self._cold_interval_ms
        self.timers.set(SnapshotCold, now_ms + interval_ms, event)
        if all(kept.state.created_ms != kept.state.written_ms for kept in self._kept.values()):
            return Decision()
        return Decision(
            records=[
                _snapshot(
                    key,
                    kept.state._replace(snapshot_epoch=kept.state.snapshot_epoch + 1, written_ms=now_ms),
                )
                for key, kept in self._kept.items()
                if now_ms - kept.state.written_ms >= interval_ms
            ],
            is_atomic=False,
        )

    @property
    def _cold_interval_ms(self) -> int:
        return self._environment.config.share_coordinator.cold_partition_snapshot_interval_ms

    # ------------------------------------------------------------ the coordinator's

    def apply(self, record: CoordinatorRecord, producer_id: int) -> None:
        # The types of the records' fields are those of their declarations.
        key: Any = record.key
        value: Any = record.value
        share_key = ShareKey(key.group_id, key.topic_id, key.partition)
        if isinstance(key, ShareSnapshotKey):
            self._apply_snapshot(share_key, value)
        elif value is not None:
            self._apply_update(share_key, value)

    def _apply_snapshot(self, key: ShareKey, value: ShareSnapshotValue | None) -> None:
        if value is None:
            self._kept.pop(key, None)
            self._deleted_at = self.applied_offset
            return
        state = ShareState(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=value.state_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            batches=_batches(value.state_batches),
            created_ms=value.create_timestamp,
            written_ms=value.write_timestamp,
        )
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(state)
        kept.state = state
        kept.leader_epoch = max(kept.leader_epoch, state.leader_epoch)
        kept.state_epoch = max(kept.state_epoch, state.state_epoch)
        if kept.update_count >= self._updates_max:
            kept.update_count = 0
        kept.snapshot_at = self.applied_offset

    def _apply_update(self, key: ShareKey, value: ShareUpdateValue) -> None:
        kept = self._kept.get(key)
        if kept is None:
            return  # its snapshot was not needed any more, so neither is this
        state = kept.state
        start = state.start_offset if value.start_offset == NO_START_OFFSET else value.start_offset
        kept.state = state._replace(
            start_offset=start,
            leader_epoch=state.leader_epoch if value.leader_epoch == NO_EPOCH else value.leader_epoch,
            delivery_complete_count=value.delivery_complete_count,
            batches=combined(state.batches, _batches(value.state_batches), start),
        )
        kept.leader_epoch = max(kept.leader_epoch, value.leader_epoch)
        kept.update_count += 1

    def apply_marker(self, producer_id: int, *, is_committed: bool) -> None:
        pass

    def on_loaded(self, now_ms: int) -> Decision[Any]:
        self.timers.set(SnapshotCold, now_ms + self._cold_interval_ms, SnapshotCold())
        gone = [key for key in self._kept if self._environment.image.topic_by_id(key.topic_id) is None]
        return Decision(records=[_tombstone(key) for key in gone], is_atomic=False)

    def on_image(self, now_ms: int, delta: Delta) -> Decision[Any]:
        """What is known of topics that were deleted goes with them."""
        gone = [key for key in self._kept if key.topic_id in delta.deleted_topics]
        return Decision(records=[_tombstone(key) for key in gone], is_atomic=False)

    def on_timer(self, now_ms: int, event: Any) -> Decision[Any]:
        return self._snapshot_cold(now_ms, event)

    def on_unloaded(self) -> Sequence[Waiter[Any]]:
        self.timers.clear()
        return ()


def _fenced_leader() -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_LEADER_EPOCH,
        "The leader epoch in the request is older than the epoch on the broker.",
    )


def _snapshot(key: ShareKey, state: ShareState) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition),
        ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            create_timestamp=state.created_ms,
            write_timestamp=state.written_ms,
            state_batches=_recorded(state.batches),
        ),
    )


def _tombstone(key: ShareKey) -> CoordinatorRecord:
    return CoordinatorRecord(
        ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), None
    )


def _recorded(batches: Iterable[StateBatch]) -> list[RecordedBatch]:
    return [
        RecordedBatch(
            first_offset=batch.first,
            last_offset=batch.last,
            delivery_state=batch.state,
            delivery_count=batch.delivery_count,
        )
        for batch in batches
    ]


def _batches(recorded: Iterable[RecordedBatch]) -> list[StateBatch]:
    return [
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in recorded
    ]
