"""The metadata quorum as one node sees it: opens the log, gets elected, appends, commits, takes snapshots.

Carries out what `Election` decides and holds no rules of its own. A record is committed when it is durable on
a majority; with one voter that is when it is synced here. Appends that come while a sync runs share the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from moldau.log.errors import DiskFullError, LogDirError, storage_error
from moldau.metadata.delta import InconsistentRecordError, MetadataReplay
from moldau.metadata.framing import MetadataRecord
from moldau.metadata.image import ClusterImage
from moldau.metadata.snapshot import image_records
from moldau.raft.batches import MetadataBatch, build_metadata_batches, build_quorum_batch
from moldau.raft.election import AskForVotes, BecomeLeader, Campaign, Election, Leader, Persist
from moldau.raft.election_state import (
    NO_ONE,
    QUORUM_STATE,
    ElectionState,
    encode_election_state,
    read_election_state,
)
from moldau.raft.metadata_log import METADATA_TOPIC, MetadataLog, MetadataLogConfig
from moldau.raft.snapshots import BOOTSTRAP_SNAPSHOT, SnapshotId, write_snapshot
from moldau.raft.voters import (
    KRAFT_VERSION_DYNAMIC,
    KRAFT_VERSION_STATIC,
    ReplicaKey,
    VoterSet,
    voters_record,
)
from moldau.raft.voters import voter_set as parse_voters
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import KafkaError
from moldau.wire.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    VotersRecord,
)
from moldau.wire.messages.describe_quorum import (
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from moldau.wire.schema import Message

logger = logging.getLogger(__name__)

FLUSH_RETRY_S = 1.0


class QuorumError(Exception):
    """This node cannot take part in the quorum as it is configured, or not alone."""


@dataclass(slots=True, kw_only=True)
class _Loaded:
    """What reading the log from its newest snapshot on gave."""

    replay: MetadataReplay
    voters: VoterSet
    kraft_version: int
    are_voters_in_log: bool
    bytes_since_snapshot: int
    snapshot_ms: int


class Quorum:
    """After `open` this node leads `epoch`, and `replay` holds the image of all that the log says."""

    def __init__(
        self,
        runtime: Runtime,
        log: MetadataLog,
        config: MetadataLogConfig,
        election: Election,
        loaded: _Loaded,
    ) -> None:
        """Use `open`."""
        self._runtime = runtime
        self._log = log
        self._config = config
        self._election = election
        self._flush: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._snapshot: asyncio.Future[None] | None = None  # done when the one being taken is
        self._bytes_since_snapshot = loaded.bytes_since_snapshot
        self._snapshot_ms = loaded.snapshot_ms
        self.replay = loaded.replay
        self.kraft_version = loaded.kraft_version
        self._are_voters_in_log = loaded.are_voters_in_log

    @classmethod
    def open(
        cls,
        runtime: Runtime,
        log_dir: str,
        *,
        me: ReplicaKey,
        voters: VoterSet,
        config: MetadataLogConfig,
    ) -> Quorum:
        """`voters` are those of the configuration; a log that keeps its own goes by these. Returns when this
        node is the leader, and the start of its epoch is committed. Raises QuorumError if it cannot be."""
        now_ms = runtime.clock.now_ms()
        log = MetadataLog.open(runtime.files, log_dir, config, now_ms=now_ms)
        try:
            loaded = _load(log, voters, now_ms)
            state = read_election_state(runtime.files, f"{log.directory}/{QUORUM_STATE}")
            quorum = cls(runtime, log, config, Election(me, loaded.voters, state), loaded)
            quorum._become_leader_alone()
        except BaseException:
            log.close()
            raise
        return quorum

    # ------------------------------------------------------------ state

    @property
    def epoch(self) -> int:
        return self._election.epoch

    @property
    def failure(self) -> BaseException | None:
        """Why nothing can be appended or committed any more."""
        return self._failure

    @property
    def leader_id(self) -> int:
        return self._election.me.id if isinstance(self._election.role, Leader) else NO_ONE

    @property
    def voters(self) -> VoterSet:
        return self._election.voters

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    def describe(self) -> DescribeQuorumResponse:
        """The answer to DescribeQuorum about the one partition there is."""
        now_ms = self._runtime.clock.now_ms()
        partition = ResponsePartitionData(
            partition_index=0,
            leader_id=self.leader_id,
            leader_epoch=self.epoch,
            high_watermark=self.high_watermark,
            current_voters=[
                ReplicaState(
                    replica_id=voter.key.id,
                    replica_directory_id=voter.key.directory_id,
                    log_end_offset=self.end_offset if voter.key.id == self.leader_id else -1,
                    last_fetch_timestamp=now_ms if voter.key.id == self.leader_id else -1,
                    last_caught_up_timestamp=now_ms if voter.key.id == self.leader_id else -1,
                )
                for voter in self.voters.values()
            ],
        )
        nodes = [
            Node(
                node_id=voter.key.id,
                listeners=[Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints],
            )
            for voter in self.voters.values()
        ]
        topic = ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        return DescribeQuorumResponse(topics=[topic], nodes=nodes)

    # ------------------------------------------------------------ append and commit

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        """Append as a whole, in one batch unless they are more than one may hold; the last offset. They
        are committed after `commit`."""
        self._check()
        batches = build_metadata_batches(
            records, base_offset=self._log.end_offset, epoch=self.epoch, timestamp_ms=now_ms
        )
        return self._append(b"".join(batches), now_ms)

    async def commit(self, offset: int) -> None:
        """Return when what is at `offset` is committed."""
        while self._log.high_watermark <= offset:
            self._check()
            if self._flush is None:
                self._flush = self._runtime.spawn(self._flush_all(), "metadata log flush")
            # One caller that gives up must not take the flush away from the others.
            await asyncio.shield(self._flush)

    def _append(self, batches: bytes, now_ms: int) -> int:
        end_offset = self._log.end_offset
        try:
            last_offset = self._log.append(batches, self.epoch, now_ms)
        except BaseException as error:
            if isinstance(error, DiskFullError) and self._log.end_offset == end_offset:
                raise  # everything is as it was before, and the next append may find room
            self._failure = error
            raise
        self._bytes_since_snapshot += len(batches)
        return last_offset

    async def _flush_all(self) -> None:
        try:
            work = self._log.prepare_flush()
            if work is not None:
                await self._runtime.run_blocking(work.run)
                self._log.complete_flush(work, self._runtime.clock.now_ms())
        except OSError as error:
            self._failure = LogDirError(self._log.log_dir, error)
            raise self._failure from error
        except BaseException as error:
            if isinstance(error, KafkaError) and not isinstance(error, LogDirError):
                # No room, or no descriptor: nothing is lost, and who waits for the commit goes on waiting.
                logger.warning("the metadata log is not flushed this time: %s", error.message)
                await asyncio.sleep(FLUSH_RETRY_S)
                return
            self._failure = error
            raise
        finally:
            self._flush = None

    def _check(self) -> None:
        if self._failure is not None:
            raise QuorumError("the metadata log has failed") from self._failure

    async def close(self) -> None:
        """Let what is being written come to its end, then close the files."""
        if self._flush is not None:
            await asyncio.wait([self._flush])
        if self._snapshot is not None:
            await self._snapshot
        self._log.close()

    # ------------------------------------------------------------ snapshots

    def is_snapshot_due(self, now_ms: int) -> bool:
        """Whether enough was appended, or enough time has passed with anything appended, since the last."""
        if self._snapshot is not None or not self._bytes_since_snapshot:
            return False
        interval_ms = self._config.snapshot_interval_ms
        return self._bytes_since_snapshot >= self._config.bytes_between_snapshots or (
            interval_ms > 0 and now_ms - self._snapshot_ms >= interval_ms
        )

    async def take_snapshot(self, image: ClusterImage) -> SnapshotId | None:
        """Write `image`, a committed one, as a snapshot and clean up behind it. None if there is nothing to
        do: a snapshot is running, or a transaction is open, whose records no image holds."""
        id = SnapshotId(image.offset + 1, image.epoch)
        if self._snapshot is not None or self.replay.in_transaction or id in self._log.snapshots:
            return None
        if image.offset >= self._log.high_watermark:
            raise ValueError(f"a snapshot of offset {image.offset}, which is not committed")
        taken = self._snapshot = asyncio.get_running_loop().create_future()
        appended_bytes = self._bytes_since_snapshot
        now_ms = self._runtime.clock.now_ms()
        try:
            await self._runtime.run_blocking(self._write_snapshot, id, image, now_ms)
            self._log.add_snapshot(id)
            self._bytes_since_snapshot -= appended_bytes
            self._snapshot_ms = now_ms
            self._log.clean(now_ms)
        except OSError as error:
            raise storage_error(self._log.log_dir, error) from error
        finally:
            self._snapshot = None
            taken.set_result(None)
        return id

    def _write_snapshot(self, id: SnapshotId, image: ClusterImage, now_ms: int) -> None:
        """Runs in another thread: an image does not change."""
        write_snapshot(
            self._runtime.files,
            self._log.snapshot_path(id),
            image_records(image),
            epoch=id.epoch,
            now_ms=now_ms,
            last_contained_timestamp_ms=image.timestamp_ms,
            voters=self.voters if self.kraft_version == KRAFT_VERSION_DYNAMIC else None,
        )

    # ------------------------------------------------------------ becoming leader

    def _become_leader_alone(self) -> None:
        election = self._election
        for effect in election.step(Campaign(log_epoch=self._log.last_epoch)):
            match effect:
                case Persist():
                    self._persist(effect.state)
                case AskForVotes():
                    others = ", ".join(map(str, effect.voters))
                    raise QuorumError(
                        f"node {election.me.id} needs votes of {others}: a quorum of several voters is not "
                        "supported"
                    )
                case BecomeLeader():
                    self._start_epoch(effect)
        if not isinstance(election.role, Leader):
            raise QuorumError(
                f"node {election.me.id} is not among the voters of the metadata quorum, which are "
                f"{', '.join(f'{id}' for id in election.voters) or 'none'}"
            )

    def _persist(self, state: ElectionState) -> None:
        data = encode_election_state(state, self.kraft_version, list(self.voters))
        try:
            self._runtime.files.write_atomically(f"{self._log.directory}/{QUORUM_STATE}", data)
        except OSError as error:
            raise storage_error(self._log.log_dir, error) from error

    def _start_epoch(self, effect: BecomeLeader) -> None:
        """The leader's first batch. What comes before it is committed with it."""
        messages: list[Message] = [
            LeaderChangeMessage(
                leader_id=self._election.me.id,
                voters=[LeaderChangeMessageVoter(voter_id=id) for id in self.voters],
                granting_voters=[LeaderChangeMessageVoter(voter_id=id) for id in effect.granted_by],
            )
        ]
        if self.kraft_version == KRAFT_VERSION_DYNAMIC and not self._are_voters_in_log:
            # So far they are only in the snapshot that the directory was formatted with.
            messages += [KRaftVersionRecord(k_raft_version=self.kraft_version), voters_record(self.voters)]
        now_ms = self._runtime.clock.now_ms()
        batch = build_quorum_batch(
            messages, base_offset=self._log.end_offset, epoch=effect.epoch, timestamp_ms=now_ms
        )
        last_offset = self._append(batch, now_ms)
        self._log.flush(now_ms)
        self.replay.publish(last_offset, effect.epoch, now_ms)


def _load(log: MetadataLog, configured: VoterSet, now_ms: int) -> _Loaded:
    loaded = _Loaded(
        replay=MetadataReplay(ClusterImage()),
        voters=configured,
        kraft_version=KRAFT_VERSION_STATIC,
        are_voters_in_log=False,
        bytes_since_snapshot=0,
        snapshot_ms=now_ms,
    )
    try:
        start = _load_snapshot(log, log.snapshots[-1], loaded) if log.snapshots else 0
        if log.start_offset > start:
            raise QuorumError(
                f"the metadata log in {log.directory} starts at {log.start_offset}, and no snapshot holds "
                "what was before"
            )
        for batch in log.read(start):
            _load_batch(batch, loaded)
    except InconsistentRecordError as error:
        raise QuorumError(f"the metadata log in {log.directory} contradicts itself: {error}") from error
    return loaded


def _load_snapshot(log: MetadataLog, id: SnapshotId, loaded: _Loaded) -> int:
    snapshot = log.read_snapshot(id)
    for message in snapshot.messages:
        loaded.replay.apply(message)
    if snapshot.voters is not None:
        loaded.voters, loaded.kraft_version = snapshot.voters, snapshot.kraft_version
        loaded.are_voters_in_log = id != BOOTSTRAP_SNAPSHOT
    return id.end_offset


def _load_batch(batch: MetadataBatch, loaded: _Loaded) -> None:
    for message in batch.messages:
        match message:
            case LeaderChangeMessage():
                pass
            case KRaftVersionRecord() if batch.is_control:
                loaded.kraft_version = message.k_raft_version
            case VotersRecord() if batch.is_control:
                loaded.voters, loaded.are_voters_in_log = parse_voters(message), True
            case _ if not batch.is_control:
                loaded.replay.apply(message)
            case _:
                pass
    loaded.bytes_since_snapshot += batch.size
