"""Moves replicas between the log directories of this broker (AlterReplicaLogDirs), one after another, while
they go on serving.

What to do next is `moldau.replica.future_log`'s to say. Disks are read and synced off the loop and in steps
of bounded size; the last step, which finds nothing more to copy and puts the future log in the place of the
current one, is one without a wait. A move that the node's end interrupts goes on when it starts again: the
future log is still there. Whoever wants to end one removes the future log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from moldau.config.broker import BrokerConfig
from moldau.log.directory import LogDirectory
from moldau.log.errors import DiskFullError, LogDirError, storage_error
from moldau.log.log import Log
from moldau.log.log_directories import LogDirectories
from moldau.replica.future_log import AdvanceStart, CaughtUp, Copy, StartAt, TruncateTo, next_step
from moldau.replica.partition import Partition
from moldau.replica.replicas import Replicas
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

# One step: enough to keep a disk busy, and few enough of the smallest batches not to hold the loop up.
STEP_BYTES = 256 * 1024
# How long a move waits whose disk is full.
RETRY_S = 1.0
# A directory's name holds the partition, a mark, a unique id and what it is: topic-0.<32 digits>-future.
_MARK_BYTES = len(".") + 32 + len("-future")
_NAME_BYTES_MAX = 255

Assign = Callable[[Partition, bytes], Awaitable[None]]
"""Makes the metadata say that the replica lies in the directory of that id."""


class ReplicaMover:
    def __init__(
        self,
        runtime: Runtime,
        config: Callable[[], BrokerConfig],
        replicas: Replicas,
        log_directories: LogDirectories,
        assign: Assign,
        on_log_dir_failure: Callable[[LogDirError], None],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._replicas = replicas
        self._log_directories = log_directories
        self._assign = assign
        self._on_log_dir_failure = on_log_dir_failure
        self._line: dict[tuple[str, int], None] = {}
        self._task: asyncio.Task[None] | None = None

    def check_path(self, path: str) -> None:
        """Raises LOG_DIR_NOT_FOUND, or KAFKA_STORAGE_ERROR for a directory that is offline."""
        if path not in self._config().log_dirs:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
        if self._log_directories.by_path(path) is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")

    def move(self, partition: Partition, path: str) -> None:
        """Begin to move the replica; back to where it is now ends a move that is under way. Raises
        KafkaError."""
        self.check_path(path)
        topic, index = partition.topic, partition.index
        if len(f"{topic}-{index}") + _MARK_BYTES > _NAME_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        current = partition.local_log()
        now_ms = self._runtime.clock.now_ms()
        future = self._log_directories.find_future(topic, index)
        if future is not None and future.log_dir != path:
            self._directory(future).delete(topic, index, now_ms, is_future=True)
            future = None
        if current.log_dir == path:
            return
        if future is None:
            if self._log_directories.offline:
                # There may be a future log in one of those already.
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "A log directory is offline")
            self._log_directories.create_future(current, path, now_ms)
        self._enqueue(topic, index)

    def resume(self) -> None:
        """Go on with the moves that are under way on disk."""
        now_ms = self._runtime.clock.now_ms()
        for directory in self._log_directories.online:
            for topic, index in list(directory.future_logs):
                if self._replicas.get(topic, index) is None:
                    directory.delete(topic, index, now_ms, is_future=True)
                else:
                    self._enqueue(topic, index)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _enqueue(self, topic: str, index: int) -> None:
        self._line.setdefault((topic, index))
        if self._task is None or self._task.done():
            self._task = self._runtime.spawn(self._run(), "replica mover")

    async def _run(self) -> None:
        while self._line:
            key = next(iter(self._line))
            try:
                await self._move(*key)
            except LogDirError as failure:
                self._on_log_dir_failure(failure)
            except DiskFullError as failure:
                log.warning("moving %s-%d waits: %s", *key, failure.message)
                del self._line[key]
                self._line[key] = None
                await asyncio.sleep(RETRY_S)
                continue
            except KafkaError as failure:
                log.error("moving %s-%d has failed: %s", *key, failure)
            self._line.pop(key, None)

    async def _move(self, topic: str, index: int) -> None:
        is_durable = False
        while True:
            found = self._logs(topic, index)
            if found is None:
                return
            partition, current, future = found
            now_ms = self._runtime.clock.now_ms()
            match next_step(current, future):
                case StartAt(offset):
                    future.truncate_fully_and_start_at(offset, now_ms)
                case TruncateTo(offset):
                    future.truncate_to(offset, now_ms)
                case AdvanceStart(offset):
                    future.advance_log_start_offset(offset)
                case Copy(offset):
                    await self._copy(current, future, offset, nearly_done=is_durable)
                case CaughtUp() if not is_durable:
                    await self._flush(future)
                    await self._assign(partition, self._directory(future).directory_id or bytes(16))
                    is_durable = True
                case CaughtUp():
                    self._swap(partition, current, future)
                    return

    def _logs(self, topic: str, index: int) -> tuple[Partition, Log, Log] | None:
        """Looked up anew after each wait: a topic may be deleted, a directory fail, a move be called off."""
        partition = self._replicas.get(topic, index)
        future = self._log_directories.find_future(topic, index)
        if partition is None or partition.log is None or future is None:
            return None
        return partition, partition.log, future

    def _are(self, current: Log, future: Log) -> bool:
        """Whether these are the logs still."""
        found = self._logs(current.topic, current.partition)
        return found is not None and found[1] is current and found[2] is future

    async def _copy(self, current: Log, future: Log, offset: int, *, nearly_done: bool) -> None:
        rate = self._config().quotas.replica_alter_log_dirs_io_max_bytes_per_second
        step_bytes = max(1, min(STEP_BYTES, rate))
        found = current.read(offset, step_bytes, limit=current.log_end_offset)
        records: bytes | None = None
        try:
            if nearly_done and found.count < step_bytes:
                # Just appended, hence in memory. Waiting for it would let the next records come in between.
                records = found.file.read_at(found.count, found.position)
            else:
                records = await self._runtime.run_blocking(found.file.read_at, found.count, found.position)
        except OSError as error:
            if self._are(current, future):
                raise storage_error(current.log_dir, error) from error
        if records is None or not self._are(current, future) or future.log_end_offset != offset:
            return  # deleted, moved or truncated while it was read
        appended = future.append_as_follower(memoryview(records), self._runtime.clock.now_ms())
        if appended is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no whole batch at offset {offset}")
        if not nearly_done:
            await asyncio.sleep(len(records) / max(rate, 1))

    async def _flush(self, future: Log) -> None:
        work = future.prepare_flush()
        if work is None:
            return
        try:
            await self._runtime.run_blocking(work.run)
        except OSError as error:
            if self._log_directories.find_future(future.topic, future.partition) is not future:
                return  # deleted meanwhile, and no loss
            raise LogDirError(future.log_dir, error) from error
        future.complete_flush(work, self._runtime.clock.now_ms())

    def _swap(self, partition: Partition, current: Log, future: Log) -> None:
        source, target = self._directory(current), self._directory(future)
        _take_over_epochs(current, future)
        future.update_config(current.config)
        future.advance_high_watermark(current.high_watermark)
        future.cleaned_offset = current.cleaned_offset
        partition.log = self._log_directories.replace_with_future(
            partition.topic, partition.index, self._runtime.clock.now_ms()
        )
        # What the source's checkpoints say of this partition must not outlive it: it may move back.
        for directory in (target, source):
            directory.checkpoint_recovery_points()
            directory.checkpoint_log_start_offsets()
            directory.checkpoint_high_watermarks()
            directory.checkpoint_cleaned_offsets()
        log.info("moved %s from %s to %s", partition, source.path, target.path)

    def _directory(self, of_log: Log) -> LogDirectory:
        directory = self._log_directories.by_path(of_log.log_dir)
        if directory is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {of_log.log_dir} is offline")
        return directory


def _take_over_epochs(current: Log, future: Log) -> None:
    """Batches tell of most epochs, but not of one that has none yet."""
    entries, epochs = current.leader_epochs.entries(), future.leader_epochs
    if entries == epochs.entries():
        return
    try:
        epochs.clear()
        for epoch, start_offset in entries:
            epochs.assign(epoch, start_offset)
        epochs.write()
    except OSError as error:
        raise storage_error(future.log_dir, error) from error
