"""The share partitions of this broker: one for each partition that it leads and each share group that fetches
from it.

What becomes of records is decided in `moldau.share.partition`; this loads the states of share partitions when
someone first fetches from them, has changes written before they count, ends locks in time, and wakes fetches
that wait for any of that. A share partition lasts as long as the leadership that it was loaded under, or
until the share coordinator says that another has taken over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from moldau.config.group import GroupConfig, reset_back_ms
from moldau.coordinator.decision import Waiter
from moldau.log.log import Log
from moldau.metadata.delta import Delta
from moldau.metadata.image import ClusterImage, ResourceType
from moldau.replica.partition import Partition
from moldau.replica.replicas import Replicas
from moldau.runtime.interfaces import Runtime, Timer
from moldau.server.share_persister import SharePersister
from moldau.share.batches import NO_START_OFFSET, StateBatch
from moldau.share.environment import ShareEnvironment
from moldau.share.partition import Acknowledgement, Change, Limits, SharePartition
from moldau.share.sessions import SessionKey, ShareSessions, TopicPartition
from moldau.share.states import ShareKey
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.read_share_group_state import PartitionResult
from moldau.wire.messages.write_share_group_state import PartitionResult as WriteResult

log = logging.getLogger(__name__)

# Who leads, or what the group is called, has changed: the next fetch finds out how things are now.
_OUTDATED = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)

# More sessions than that on one connection, and those that have ended are forgotten first.
_SESSIONS_NOTED = 16

Wake = Callable[[], None]


class LoadedShare:
    """A share partition, and what belongs to it here. `share` is None until its state was read."""

    __slots__ = (
        "_timer",
        "_timer_ms",
        "failure",
        "is_fetching",
        "is_gone",
        "key",
        "leader_epoch",
        "replica",
        "share",
        "waiting",
    )

    def __init__(self, key: ShareKey, replica: Partition) -> None:
        self.key = key
        self.replica = replica
        self.leader_epoch = replica.leader_epoch
        self.share: SharePartition | None = None
        self.is_fetching = False  # someone reads records for it, which no one else may meanwhile
        self.is_gone = False
        self.failure: KafkaError | None = None  # because of which it is gone, if that is known
        self.waiting: dict[Wake, None] = {}  # the first to wait is the first to be told
        self._timer: Timer | None = None
        self._timer_ms = 0

    @property
    def is_current(self) -> bool:
        replica = self.replica
        return (
            not self.is_gone
            and replica.is_leader
            and replica.leader_epoch == self.leader_epoch
            and replica.log is not None
        )

    def wake(self) -> None:
        for wake in tuple(self.waiting):
            wake()

    def arm(self, runtime: Runtime, now_ms: int, on_timer: Callable[[], None]) -> None:
        """`on_timer` when the first lock may end."""
        next_ms = None if self.share is None else self.share.next_deadline_ms
        if next_ms is None or (self._timer is not None and self._timer_ms <= next_ms):
            return
        self.disarm()
        self._timer_ms = next_ms
        self._timer = runtime.call_later(max(0, next_ms - now_ms) / 1000, on_timer)

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class SharePartitions:
    def __init__(
        self,
        runtime: Runtime,
        environment: ShareEnvironment,
        replicas: Replicas,
        persister: SharePersister,
    ) -> None:
        self.sessions = ShareSessions()
        self.persister = persister
        self._runtime = runtime
        self._environment = environment
        self._replicas = replicas
        self._loaded: dict[ShareKey, LoadedShare] = {}
        self._sessions_of: dict[object, set[SessionKey]] = {}

    def __len__(self) -> int:
        return len(self._loaded)

    def group_config(self, group_id: str) -> GroupConfig:
        image = self._environment.image
        return self._environment.config.group_in_effect(image.config(ResourceType.GROUP, group_id))

    def limits(self, group_id: str) -> Limits:
        config = self.group_config(group_id)
        return Limits(
            lock_duration_ms=config.share_record_lock_duration_ms,
            delivery_count_limit=config.share_delivery_count_limit,
            record_locks_max=config.share_partition_max_record_locks,
            is_renewal_enabled=config.share_renew_acknowledge_enable,
        )

    # ------------------------------------------------------------ sessions

    def note_session(self, connection: object, key: SessionKey) -> None:
        keys = self._sessions_of.setdefault(connection, set())
        if key not in keys and len(keys) >= _SESSIONS_NOTED:
            keys.intersection_update([each for each in keys if each in self.sessions])
        keys.add(key)

    def on_connection_closed(self, connection: object) -> None:
        """Sessions end with their connection, and the share partitions of a group with its last session."""
        keys = self._sessions_of.pop(connection, set())
        for session in self.sessions.close_those_of(connection, keys):
            self.release(session.key, session.partitions)
        for group_id in {key.group_id for key in keys}:
            if not self.sessions.has_group(group_id):
                for loaded in [each for each in self._loaded.values() if each.key.group_id == group_id]:
                    self.drop(loaded)

    def close_session(self, key: SessionKey) -> None:
        self.release(key, self.sessions.close(key))

    def release(self, key: SessionKey, partitions: Iterable[TopicPartition]) -> None:
        """What the member has acquired is for others."""
        for topic_id, index in partitions:
            loaded = self._loaded.get(ShareKey(key.group_id, topic_id, index))
            if loaded is not None and loaded.share is not None and loaded.is_current:
                self._write(
                    loaded, loaded.share, loaded.share.release(key.member_id, self.limits(key.group_id))
                )

    # ------------------------------------------------------------ loading

    def load(self, key: ShareKey) -> LoadedShare:
        """The share partition, which may have to be waited for. Raises KafkaError."""
        loaded = self._loaded.get(key)
        if loaded is not None:
            if loaded.is_current:
                return loaded
            self.drop(loaded)
        replica = self._replicas.by_id.get(key.topic_id, {}).get(key.partition)
        if replica is None:
            known = self._environment.image.topic_by_id(key.topic_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            is_elsewhere = key.partition in known.partitions
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else unknown)
        replica.leader_log()
        loaded = self._loaded[key] = LoadedShare(key, replica)
        state = self.persister.read(key, loaded.leader_epoch)
        state.when_done(partial(self._on_state, loaded, state))
        if state.failure is not None:
            raise _as_leader_tells(state.failure)
        return loaded

    def _on_state(self, loaded: LoadedShare, state: Waiter[PartitionResult]) -> None:
        if not loaded.is_current:
            self.drop(loaded)
            return
        try:
            loaded.share = self._share_of(loaded, state.result())
        except (KafkaError, ValueError) as failure:
            log.info("the state of share partition %s cannot be had: %s", loaded.key, failure)
            told = failure if isinstance(failure, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            self.drop(loaded, _as_leader_tells(told))
            return
        loaded.wake()

    def _share_of(self, loaded: LoadedShare, state: PartitionResult) -> SharePartition:
        start_offset = state.start_offset
        if start_offset == NO_START_OFFSET:
            start_offset = self._first_offset(loaded.key.group_id, loaded.replica.leader_log())
        return SharePartition(
            start_offset=start_offset,
            state_epoch=state.state_epoch,
            leader_epoch=loaded.leader_epoch,
            batches=[
                StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
                for batch in state.state_batches
            ],
        )

    def _first_offset(self, group_id: str, of_log: Log) -> int:
        """Where a group starts that is new to the partition."""
        reset = self.group_config(group_id).share_auto_offset_reset
        if reset == "latest":
            return of_log.high_watermark
        if reset == "earliest":
            return of_log.log_start_offset
        back_ms = reset_back_ms(reset)
        assert back_ms is not None, reset
        found = of_log.offset_for_timestamp(self._runtime.clock.now_ms() - back_ms)
        if found is None or found.offset >= of_log.high_watermark:
            return of_log.high_watermark
        return found.offset

    def drop(self, loaded: LoadedShare, failure: KafkaError | None = None) -> None:
        """Whoever waits for it finds out that it is gone."""
        loaded.is_gone, loaded.failure = True, failure
        loaded.disarm()
        if self._loaded.get(loaded.key) is loaded:
            del self._loaded[loaded.key]
        loaded.wake()

    # ------------------------------------------------------------ changes

    def acknowledge(
        self, key: ShareKey, member_id: str, acknowledgements: Sequence[Acknowledgement]
    ) -> Waiter[bool]:
        """Raises KafkaError."""
        loaded = self._loaded.get(key)
        if loaded is None or loaded.share is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
        if not loaded.is_current:
            self.drop(loaded)
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        share, now_ms = loaded.share, self._runtime.clock.now_ms()
        change = share.acknowledge(now_ms, member_id, acknowledgements, self.limits(key.group_id))
        return self._write(loaded, share, change)

    def _write(self, loaded: LoadedShare, share: SharePartition, change: Change) -> Waiter[bool]:
        """Done when the change is written, and counts."""
        done: Waiter[bool] = Waiter()
        if not change.batches:
            done.give(True)
            return done
        written = self.persister.write(loaded.key, share, share.to_write(change.batches))
        written.when_done(partial(self._on_written, loaded, share, change, written, done))
        return done

    def _on_written(
        self,
        loaded: LoadedShare,
        share: SharePartition,
        change: Change,
        written: Waiter[WriteResult],
        done: Waiter[bool],
    ) -> None:
        limits, now_ms = self.limits(loaded.key.group_id), self._runtime.clock.now_ms()
        share.complete(change, now_ms, limits, is_written=written.failure is None)
        if written.failure is None:
            done.give(True)
        else:
            failure = _as_leader_tells(written.failure)
            if failure.code in _OUTDATED:
                self.drop(loaded)
            done.fail(failure)
        self.arm(loaded)
        loaded.wake()

    def arm(self, loaded: LoadedShare) -> None:
        if not loaded.is_gone:
            loaded.arm(self._runtime, self._runtime.clock.now_ms(), partial(self._on_locks_end, loaded))

    def _on_locks_end(self, loaded: LoadedShare) -> None:
        loaded.disarm()
        if not loaded.is_current:
            self.drop(loaded)
            return
        share = loaded.share
        assert share is not None
        write = share.expire(self._runtime.clock.now_ms(), self.limits(loaded.key.group_id))
        if write is not None:
            written = self.persister.write(loaded.key, share, write)
            written.when_done(partial(self._on_locks_written, loaded, written))
            loaded.wake()
        self.arm(loaded)

    def _on_locks_written(self, loaded: LoadedShare, written: Waiter[WriteResult]) -> None:
        if written.failure is not None:
            log.info("ended locks of %s are not written: %s", loaded.key, written.failure)
            if _as_leader_tells(written.failure).code in _OUTDATED:
                self.drop(loaded)

    # ------------------------------------------------------------ the node

    def on_image(self, image: ClusterImage, delta: Delta) -> None:
        """Those that this broker does not lead any more go at once: fetches wait for them."""
        if delta.topics or delta.deleted_topics:
            for loaded in list(self._loaded.values()):
                topic_id = loaded.key.topic_id
                if (topic_id in delta.topics or topic_id in delta.deleted_topics) and not loaded.is_current:
                    self.drop(loaded)

    def close(self) -> None:
        for loaded in list(self._loaded.values()):
            self.drop(loaded)


def _as_leader_tells(failure: KafkaError) -> KafkaError:
    """What went wrong at the share coordinator, as it is told to members."""
    match failure.code:
        case (
            ErrorCode.NOT_COORDINATOR
            | ErrorCode.COORDINATOR_NOT_AVAILABLE
            | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        ):
            return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, failure.message)
        case ErrorCode.GROUP_ID_NOT_FOUND | ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return failure
        case ErrorCode.FENCED_LEADER_EPOCH | ErrorCode.FENCED_STATE_EPOCH:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, failure.message)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, failure.message)
