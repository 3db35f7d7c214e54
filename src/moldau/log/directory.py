"""A log directory: one entry of `log.dirs`, with the logs in it and what the broker keeps beside them.

It is locked while open. `.kafka_cleanshutdown` is written last of all when it is closed and removed first of
all when it is loaded, so a crash at any point in between means a recovery. The checkpoints are written now
and then by whoever drives this; all of them may be old, none may be ahead of the logs.

Any OSError that is not a full disk ends the directory: it is raised as LogDirError, and `take_offline` lets
go of it without touching the disk again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from moldau.config.topic import TopicConfig
from moldau.log.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    TopicPartition,
    encode_offsets,
    read_offsets,
)
from moldau.log.errors import CorruptFileError, DiskFullError, LogDirError, storage_error
from moldau.log.log import Log
from moldau.log.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from moldau.log.names import Fate, LogDirName, log_dir_name, marked_dir_name, parse_log_dir_name
from moldau.log.open_files import OpenFiles
from moldau.log.segment import NEVER_CLEANED
from moldau.runtime.interfaces import FileSystem, Lock
from moldau.runtime.replaced_file import ReplacedFile, Replacement

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
METADATA_TOPIC = "__cluster_metadata"


class LogDirectory:
    def __init__(
        self, files: FileSystem, open_files: OpenFiles, path: str, random: Random, lock: Lock
    ) -> None:
        """Use `LogDirectory.open`."""
        self._files = files
        self._open_files = open_files
        self._random = random
        self._lock = lock
        self.path = path
        self.properties: MetaProperties | None = None
        self.logs: dict[TopicPartition, Log] = {}
        self.future_logs: dict[TopicPartition, Log] = {}
        self.stray_logs: list[Log] = []
        self.had_clean_shutdown = False
        self.previous_broker_epoch = -1
        self._deletions: list[tuple[int, str]] = []
        self._recovery_points = ReplacedFile(files, f"{path}/{RECOVERY_POINT_CHECKPOINT}")
        self._start_offsets = ReplacedFile(files, f"{path}/{LOG_START_OFFSET_CHECKPOINT}")
        self._cleaned_offsets = ReplacedFile(files, f"{path}/{CLEANER_OFFSET_CHECKPOINT}")
        self._high_watermarks = ReplacedFile(files, f"{path}/{REPLICATION_OFFSET_CHECKPOINT}")
        # What the first three tell, or are about to; unless one could not be written.
        self._checkpointed: dict[str, Mapping[TopicPartition, int]] = {}
        self._is_checkpointed = True

    @classmethod
    def open(cls, files: FileSystem, open_files: OpenFiles, path: str, random: Random) -> LogDirectory:
        """Lock the directory, made if it is not there, and read whose it is. Raises LogDirError;
        BlockingIOError if another process has it."""
        try:
            files.make_dirs(path)
            lock = files.lock(f"{path}/{LOCK}")
        except BlockingIOError:
            raise
        except OSError as error:
            raise LogDirError(path, error) from error
        directory = cls(files, open_files, path, random, lock)
        try:
            directory._read_properties()
            directory._read_clean_shutdown()
        except (OSError, CorruptFileError) as error:
            lock.release()
            raise LogDirError(path, error) from error
        return directory

    def __repr__(self) -> str:
        return f"LogDirectory({self.path}, {len(self.logs)} logs)"

    @property
    def directory_id(self) -> bytes | None:
        return None if self.properties is None else self.properties.directory_id

    def write_properties(self, properties: MetaProperties) -> None:
        self._write_atomically(META_PROPERTIES, encode_meta_properties(properties))
        self.properties = properties

    def _read_properties(self) -> None:
        path = f"{self.path}/{META_PROPERTIES}"
        if self._files.exists(path):
            self.properties = decode_meta_properties(self._files.read_bytes(path), path)

    # -- Logs

    def load(self, configs: Mapping[str, TopicConfig], default: TopicConfig, now_ms: int) -> None:
        """Open every log in the directory; `configs` are those of topics that have their own. What was being
        deleted is queued again. The metadata log is left to the quorum."""
        try:
            self._remove_clean_shutdown()
            recovery_points = self._read_checkpoint(RECOVERY_POINT_CHECKPOINT)
            start_offsets = self._read_checkpoint(LOG_START_OFFSET_CHECKPOINT)
            high_watermarks = self._read_checkpoint(REPLICATION_OFFSET_CHECKPOINT)
            cleaned_offsets = self._read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
            self._checkpointed = {
                RECOVERY_POINT_CHECKPOINT: recovery_points,
                LOG_START_OFFSET_CHECKPOINT: start_offsets,
                CLEANER_OFFSET_CHECKPOINT: cleaned_offsets,
            }
            names = self._files.list_dir(self.path)
            for name in names:
                parsed = parse_log_dir_name(name)
                if (
                    parsed is None
                    or parsed.topic == METADATA_TOPIC
                    or not self._files.is_dir(f"{self.path}/{name}")
                ):
                    continue
                key = parsed.topic, parsed.partition
                config = configs.get(parsed.topic, default)
                if parsed.fate is Fate.DELETE:
                    self._deletions.append((now_ms + config.file_delete_delay_ms, f"{self.path}/{name}"))
                    continue
                log = Log.open(
                    self._files,
                    self._open_files,
                    self.path,
                    name,
                    parsed.topic,
                    parsed.partition,
                    config,
                    now_ms=now_ms,
                    log_start_offset=start_offsets.get(key, 0),
                    recovery_point=recovery_points.get(key, 0),
                    had_clean_shutdown=self.had_clean_shutdown,
                )
                log.advance_high_watermark(high_watermarks.get(key, 0))
                log.cleaned_offset = cleaned_offsets.get(key, NEVER_CLEANED)
                self._enter(parsed, log)
        except OSError as error:
            raise LogDirError(self.path, error) from error
        except DiskFullError as error:
            # A log that cannot even be opened cannot be left out either: it would look empty.
            raise LogDirError(self.path, error.cause) from error

    def _read_clean_shutdown(self) -> None:
        """Before the logs are opened: the broker registers with the epoch that its last clean stop left."""
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        self.had_clean_shutdown = self._files.exists(path)
        if not self.had_clean_shutdown:
            return
        try:
            self.previous_broker_epoch = int(json.loads(self._files.read_bytes(path))["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            # Before 3.8 the file was empty: a clean shutdown of an unknown epoch.
            self.previous_broker_epoch = -1

    def _remove_clean_shutdown(self) -> None:
        """A node that only opened the directory left it as clean as it was."""
        if self.had_clean_shutdown:
            self._files.remove(f"{self.path}/{CLEAN_SHUTDOWN}")
            self._files.sync_dir(self.path)

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Without a readable checkpoint everything is recovered and served from its beginning, as in
        Kafka."""
        try:
            return read_offsets(self._files, f"{self.path}/{name}")
        except CorruptFileError:
            return {}

    def _enter(self, name: LogDirName, log: Log) -> None:
        key = name.topic, name.partition
        match name.fate:
            case Fate.STRAY:
                self.stray_logs.append(log)
            case Fate.FUTURE:
                if key in self.future_logs:
                    raise LogDirError(
                        self.path, FileExistsError(f"two future logs of {name.topic}-{name.partition}")
                    )
                self.future_logs[key] = log
            case _:
                self.logs[key] = log

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        now_ms: int,
        *,
        is_future: bool = False,
    ) -> Log:
        """A new log, empty."""
        self._forget_predecessor((topic, partition))
        fate = Fate.FUTURE if is_future else Fate.CURRENT
        name = (
            marked_dir_name(topic, partition, fate, self._random)
            if is_future
            else log_dir_name(topic, partition)
        )
        log = Log.open(
            self._files,
            self._open_files,
            self.path,
            name,
            topic,
            partition,
            config,
            now_ms=now_ms,
            topic_id=topic_id,
        )
        (self.future_logs if is_future else self.logs)[topic, partition] = log
        return log

    def _forget_predecessor(self, key: TopicPartition) -> None:
        """What the checkpoints tell of a deleted log of that name is not true of the new one: after a crash
        its records would be taken for deleted ones, or for synced ones."""
        if not self._is_checkpointed or any(key in offsets for offsets in self._checkpointed.values()):
            self.checkpoint_recovery_points()
            self.checkpoint_log_start_offsets()
            self.checkpoint_cleaned_offsets()
            self._is_checkpointed = True

    def delete(self, topic: str, partition: int, now_ms: int, *, is_future: bool = False) -> None:
        """Take the log out of service; its files go after file.delete.delay.ms. Until then nothing finds them
        by name, so that a topic of the same name can be created at once."""
        log = (self.future_logs if is_future else self.logs).pop((topic, partition), None)
        if log is not None:
            self._condemn(log, now_ms)

    def delete_stray(self, log: Log, now_ms: int) -> None:
        self.stray_logs.remove(log)
        self._condemn(log, now_ms)

    def mark_stray(self, topic: str, partition: int) -> None:
        """No one asked for this log: it is set aside, for an operator or a later decision."""
        log = self.logs.pop((topic, partition))
        log.rename(marked_dir_name(topic, partition, Fate.STRAY, self._random))
        self.stray_logs.append(log)

    def promote_future(self, topic: str, partition: int) -> Log:
        """The future log has caught up and becomes the log. The one it replaces is in another directory."""
        log = self.future_logs.pop((topic, partition))
        log.rename(log_dir_name(topic, partition))
        self.logs[topic, partition] = log
        return log

    def _condemn(self, log: Log, now_ms: int) -> None:
        log.abandon()
        log.rename(marked_dir_name(log.topic, log.partition, Fate.DELETE, self._random))
        self._deletions.append((now_ms + log.config.file_delete_delay_ms, log.directory))

    def all_logs(self) -> Iterator[Log]:
        yield from self.logs.values()
        yield from self.future_logs.values()
        yield from self.stray_logs

    def holds(self, log: Log) -> bool:
        """Whether it was neither deleted nor taken elsewhere."""
        key = log.topic, log.partition
        return self.logs.get(key) is log or self.future_logs.get(key) is log or log in self.stray_logs

    # -- Chores: each to be called now and then

    def take_deletions(self, now_ms: int) -> list[str]:
        """The directories of deleted logs whose delay is over, to be handed to `remove_all`."""
        due = [path for due_ms, path in self._deletions if due_ms <= now_ms]
        self._deletions = [deletion for deletion in self._deletions if deletion[0] > now_ms]
        return due

    def remove_all(self, paths: Sequence[str]) -> None:
        """Remove what `take_deletions` gave, here or of a log. Blocks, since large files take their time, and
        may be called from another thread. What cannot be removed is at the next start."""
        try:
            for path in paths:
                try:
                    if self._files.is_dir(path):
                        self._files.remove_tree(path)
                    else:
                        self._files.remove(path)
                except FileNotFoundError:
                    pass  # the log was renamed meanwhile
        except OSError as error:
            raise storage_error(self.path, error) from error

    def prepare_recovery_points(self) -> Replacement:
        """What to write down, in whatever thread. So are the others of that kind."""
        offsets = {key: log.recovery_point for key, log in self.logs.items()}
        self._checkpointed[RECOVERY_POINT_CHECKPOINT] = offsets
        return self._recovery_points.replacement(encode_offsets(offsets))

    def prepare_log_start_offsets(self) -> Replacement:
        """Only those that the name of the first segment does not say."""
        offsets = {
            key: log.log_start_offset
            for key, log in self.logs.items()
            if log.log_start_offset > log.first_segment_base_offset
        }
        self._checkpointed[LOG_START_OFFSET_CHECKPOINT] = offsets
        return self._start_offsets.replacement(encode_offsets(offsets))

    def prepare_cleaned_offsets(self) -> Replacement:
        """Only of logs that were ever compacted."""
        offsets = {
            key: log.cleaned_offset for key, log in self.logs.items() if log.cleaned_offset != NEVER_CLEANED
        }
        self._checkpointed[CLEANER_OFFSET_CHECKPOINT] = offsets
        return self._cleaned_offsets.replacement(encode_offsets(offsets))

    def prepare_high_watermarks(self) -> Replacement:
        return self._high_watermarks.replacement(
            encode_offsets({key: log.high_watermark for key, log in self.logs.items()})
        )

    def checkpoint_recovery_points(self) -> None:
        self.write(self.prepare_recovery_points())

    def checkpoint_log_start_offsets(self) -> None:
        self.write(self.prepare_log_start_offsets())

    def checkpoint_cleaned_offsets(self) -> None:
        self.write(self.prepare_cleaned_offsets())

    def checkpoint_high_watermarks(self) -> None:
        self.write(self.prepare_high_watermarks())

    def write(self, checkpoint: Replacement) -> None:
        """Blocks, and may be called from another thread."""
        try:
            checkpoint.run()
        except OSError as error:
            self._is_checkpointed = False
            raise storage_error(self.path, error) from error

    def disk_space(self) -> tuple[int, int]:
        """Total and usable bytes of the volume."""
        try:
            return self._files.disk_space(self.path)
        except OSError as error:
            raise storage_error(self.path, error) from error

    # -- Ends

    def close(self, broker_epoch: int) -> None:
        """A clean shutdown: everything synced, checkpointed, and said so."""
        for log in self.all_logs():
            log.close()
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.checkpoint_high_watermarks()
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._write_atomically(CLEAN_SHUTDOWN, content.encode())
        self._lock.release()

    def take_offline(self) -> list[TopicPartition]:
        """Let go of everything without touching the disk. The partitions whose log was here."""
        for log in self.all_logs():
            log.abandon()
        lost = list(self.logs)
        self.logs.clear()
        self.future_logs.clear()
        self.stray_logs.clear()
        self._deletions.clear()
        self._lock.release()
        return lost

    def _write_atomically(self, name: str, data: bytes) -> None:
        try:
            self._files.write_atomically(f"{self.path}/{name}", data)
        except OSError as error:
            raise storage_error(self.path, error) from error
