"""The metadata log on disk: a partition's log in `__cluster_metadata-0`, and the snapshots beside it.

The log may begin in the middle: what is missing before it is in the newest snapshot. Knows nothing of votes;
whoever leads says which epoch to append with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from moldau.config.topic import TopicConfig
from moldau.log.errors import CorruptFileError, LogDirError, storage_error
from moldau.log.flush import FlushWork
from moldau.log.log import AppendOrigin, Log
from moldau.log.open_files import OpenFiles
from moldau.raft.batches import MetadataBatch, read_batches
from moldau.raft.format import METADATA_LOG
from moldau.raft.snapshots import (
    BOOTSTRAP_SNAPSHOT,
    DELETED_SUFFIX,
    PART_SUFFIX,
    Snapshot,
    SnapshotId,
    list_snapshots,
    read_snapshot,
    snapshot_name,
)
from moldau.runtime.interfaces import FileSystem
from moldau.wire.codec import ProtocolError
from moldau.wire.errors import KafkaError
from moldau.wire.ids import METADATA_TOPIC_ID

METADATA_TOPIC = "__cluster_metadata"

_READ_BYTES = 8 << 20
_NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogConfig:
    """The options `metadata.log.*` and `metadata.max.retention.*`, by Kafka's names and defaults."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    bytes_between_snapshots: int = 20_971_520
    snapshot_interval_ms: int = 3_600_000
    retention_bytes: int = 104_857_600
    retention_ms: int = 604_800_000
    delete_delay_ms: int = 60_000


class MetadataLog:
    def __init__(
        self,
        files: FileSystem,
        log: Log,
        snapshots: list[SnapshotId],
        config: MetadataLogConfig,
    ) -> None:
        """Use `open`."""
        self._files = files
        self._log = log
        self._config = config
        self.log_dir = log.log_dir
        self.directory = log.directory
        self.snapshots = snapshots

    @classmethod
    def open(
        cls,
        files: FileSystem,
        log_dir: str,
        config: MetadataLogConfig,
        *,
        now_ms: int,
        open_files: OpenFiles | None = None,
    ) -> MetadataLog:
        """Open or create it below `log_dir`. It is recovered as a whole: all of it is about to be read."""
        directory = f"{log_dir}/{METADATA_LOG}"
        try:
            if not files.exists(directory):
                files.make_dirs(directory)
                # What is synced inside it is only there if the directory itself is.
                files.sync_dir(log_dir)
            _remove_leftovers(files, directory)
            snapshots = list_snapshots(files, directory)
        except OSError as error:
            raise storage_error(log_dir, error) from error
        log = Log.open(
            files,
            open_files or OpenFiles(),
            log_dir,
            METADATA_LOG,
            METADATA_TOPIC,
            0,
            _log_config(config),
            now_ms=now_ms,
            topic_id=METADATA_TOPIC_ID,
        )
        if snapshots and snapshots[-1].end_offset > log.log_end_offset:
            # A snapshot is only taken of what is committed, so what the log lacks of it is not missed.
            log.truncate_fully_and_start_at(snapshots[-1].end_offset, now_ms)
        return cls(files, log, snapshots, config)

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @property
    def last_epoch(self) -> int:
        """Of the last batch, or of the snapshot that stands in its place; 0 if there is neither."""
        snapshot_epoch = self.snapshots[-1].epoch if self.snapshots else 0
        return max(self._log.leader_epochs.latest, snapshot_epoch, 0)

    def append(self, batches: bytes, epoch: int, now_ms: int) -> int:
        """Batches that continue the log, with their offsets and epoch. The last offset. Not durable yet."""
        view = memoryview(bytearray(batches))
        result = self._log.append_as_leader(view, epoch, now_ms, origin=AppendOrigin.RAFT_LEADER)
        return result.last_offset

    def prepare_flush(self) -> FlushWork | None:
        return self._log.prepare_flush()

    def complete_flush(self, work: FlushWork, now_ms: int) -> None:
        """The work was run: what it made durable is committed, if this node alone is a majority."""
        self._log.complete_flush(work, now_ms)
        self._log.advance_high_watermark(work.up_to)

    def flush(self, now_ms: int) -> None:
        """The same, before returning."""
        self._log.flush(now_ms)
        self._log.advance_high_watermark(self._log.log_end_offset)

    def read_snapshot(self, id: SnapshotId) -> Snapshot:
        try:
            return read_snapshot(self._files, self.snapshot_path(id))
        except (OSError, CorruptFileError) as error:
            raise LogDirError(self._log.log_dir, error) from error

    def snapshot_path(self, id: SnapshotId) -> str:
        return f"{self.directory}/{snapshot_name(id)}"

    def read(self, offset: int) -> Iterator[MetadataBatch]:
        """The batches from the one that holds `offset` to the end of the log."""
        end_offset = self._log.log_end_offset
        while offset < end_offset:
            found = self._log.read(offset, _READ_BYTES, limit=end_offset)
            try:
                data = found.file.read_at(found.count, found.position)
                for batch in read_batches(data):
                    offset = batch.last_offset + 1
                    yield batch
            except OSError as error:
                raise storage_error(self._log.log_dir, error) from error
            except (KafkaError, ProtocolError) as error:
                raise LogDirError(self._log.log_dir, error) from error

    def add_snapshot(self, id: SnapshotId) -> None:
        """It was written and is durable."""
        if id not in self.snapshots:
            self.snapshots.append(id)
            self.snapshots.sort()

    def clean(self, now_ms: int) -> None:
        """Forget old snapshots, and the part of the log that the oldest one left stands for, as far as
        metadata.max.retention.* says. The newest snapshot always stays."""
        try:
            while len(self.snapshots) > 1 and self._is_excess(self.snapshots[0], now_ms):
                oldest = self.snapshots.pop(0)
                self._files.remove(self.snapshot_path(oldest))
            if self.snapshots and self._log.log_start_offset < self.snapshots[0].end_offset:
                self._log.advance_log_start_offset(self.snapshots[0].end_offset)
                self._log.apply_retention(now_ms)
            for path in self._log.take_deletions(now_ms):
                self._files.remove(path)
        except OSError as error:
            raise storage_error(self._log.log_dir, error) from error

    def _is_excess(self, id: SnapshotId, now_ms: int) -> bool:
        config = self._config
        path = self.snapshot_path(id)
        if id == BOOTSTRAP_SNAPSHOT:
            return True
        if config.retention_ms >= 0 and now_ms - self._files.modified_ms(path) > config.retention_ms:
            return True
        kept = sum(self._files.file_size(self.snapshot_path(other)) for other in self.snapshots)
        return 0 <= config.retention_bytes < kept + self._log.size_bytes

    def close(self) -> None:
        self._log.close()


def _log_config(config: MetadataLogConfig) -> TopicConfig:
    """It is the snapshots that say what may be deleted."""
    return TopicConfig.DEFAULTS.replace(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        file_delete_delay_ms=config.delete_delay_ms,
        cleanup_policy=(),
        retention_ms=-1,
        retention_bytes=-1,
        flush_messages=_NEVER,
        flush_ms=_NEVER,
    )


def _remove_leftovers(files: FileSystem, directory: str) -> None:
    """Snapshots that were not finished, or whose deletion was not."""
    for name in files.list_dir(directory):
        if name.endswith((PART_SUFFIX, DELETED_SUFFIX)) or ".checkpoint." in name:
            files.remove(f"{directory}/{name}")
