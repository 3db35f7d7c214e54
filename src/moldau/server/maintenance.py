"""What is done to the logs without being asked: retention, flushes, checkpoints, deletions, expiry.

Everything that may take long at a disk runs in the pool; what is to be done is collected on the loop, which
owns the logs, a few of them at a time. One task, one timer for each kind of work, nothing for each partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

from moldau.config.broker import BrokerConfig
from moldau.log.directory import LogDirectory
from moldau.log.errors import LogDirError
from moldau.log.flush import FlushWork
from moldau.log.log import Log
from moldau.log.log_directories import LogDirectories
from moldau.runtime.interfaces import Runtime
from moldau.server.metrics.histogram import Histogram
from moldau.wire.errors import KafkaError

log = logging.getLogger(__name__)

# How often renamed segments and topics are looked for whose time to go has come.
DELETION_INTERVAL_MS = 1_000
# Rolled segments are flushed soon after, whatever log.flush.scheduler.interval.ms says: a roll asks for it.
FLUSH_INTERVAL_MS = 1_000
# Synced side by side when the node stops: syncs of several files share a commit of the file system's journal.
CLOSED_AT_ONCE = 8
# Looked at between two turns of the loop: requests do not wait for thousands of logs.
LOGS_AT_ONCE = 100


class Maintenance:
    def __init__(
        self,
        runtime: Runtime,
        config: Callable[[], BrokerConfig],
        log_directories: LogDirectories,
        on_log_dir_failure: Callable[[LogDirError], None],
        retry_unopened: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._log_directories = log_directories
        self._on_log_dir_failure = on_log_dir_failure
        self._retry_unopened = retry_unopened
        self._tasks: list[asyncio.Task[None]] = []
        self.flushes = Histogram()

    def start(self) -> None:
        config = self._config()
        first_ms = config.log.initial_task_delay_ms
        for name, delay_ms, interval_ms, work in (
            ("retention", first_ms, config.log.retention_check_interval_ms, self._apply_retention),
            ("flush", FLUSH_INTERVAL_MS, FLUSH_INTERVAL_MS, self._flush),
            ("deletion", DELETION_INTERVAL_MS, DELETION_INTERVAL_MS, self._remove_deleted),
            (
                "recovery points",
                first_ms,
                config.log.flush_offset_checkpoint_interval_ms,
                self._checkpoint_recovery_points,
            ),
            (
                "start offsets",
                first_ms,
                config.log.flush_start_offset_checkpoint_interval_ms,
                self._checkpoint_start_offsets,
            ),
            (
                "high watermarks",
                first_ms,
                config.replication.replica_high_watermark_checkpoint_interval_ms,
                self._checkpoint_high_watermarks,
            ),
            (
                # At once, because recovery brings back those that had expired: to Kafka they are not there.
                "producer expiry",
                0,
                config.transactions.producer_id_expiration_check_interval_ms,
                self._expire_producers,
            ),
        ):
            self._tasks.append(
                self._runtime.spawn(self._repeat(delay_ms, interval_ms, work), f"maintenance: {name}")
            )

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def prepare_close(self) -> None:
        """Sync every log, so that closing them, one after another and on the loop, finds nothing to do."""
        online = self._log_directories.online
        logs = iter([(directory, each) for directory in online for each in directory.all_logs()])
        workers = [
            self._runtime.spawn(self._sync_for_close(logs), f"maintenance: close {number}")
            for number in range(CLOSED_AT_ONCE)
        ]
        await asyncio.gather(*workers)

    async def _sync_for_close(self, logs: Iterator[tuple[LogDirectory, Log]]) -> None:
        for directory, each in logs:
            try:
                if directory.holds(each):
                    await self._sync(directory, each, each.prepare_close())
            except LogDirError as failure:
                self._on_log_dir_failure(failure)
            except KafkaError as failure:
                log.warning("%s", failure.message)

    async def _sync(self, directory: LogDirectory, of_log: Log, work: FlushWork | None) -> None:
        if work is None:
            return
        clock = self._runtime.clock
        begun_at = clock.monotonic()
        try:
            await self._runtime.run_blocking(work.run)
        except OSError as error:
            raise LogDirError(directory.path, error) from error
        done_at = clock.monotonic()
        self.flushes.record((done_at - begun_at,), done_at)
        of_log.complete_flush(work, clock.now_ms())

    async def _repeat(
        self, delay_ms: int, interval_ms: int, work: Callable[[LogDirectory], Awaitable[None]]
    ) -> None:
        await asyncio.sleep(delay_ms / 1000)
        while True:
            for directory in list(self._log_directories.online):
                try:
                    await work(directory)
                except LogDirError as failure:
                    self._on_log_dir_failure(failure)
                except KafkaError as failure:
                    log.warning("%s", failure.message)
                except Exception:
                    # Our bug; but a node that never deletes or checkpoints again would be a worse one.
                    log.exception("maintenance of %s failed", directory.path)
            await asyncio.sleep(interval_ms / 1000)

    async def _each(self, directory: LogDirectory, logs: Iterable[Log]) -> AsyncIterator[Log]:
        """Those of the logs that are still there when it is their turn."""
        for number, each in enumerate(list(logs), 1):
            if directory.holds(each):
                yield each
            if number % LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _apply_retention(self, directory: LogDirectory) -> None:
        freed_bytes = 0
        failures: list[KafkaError] = []
        # The compacted ones are the cleaner's: it knows which of them are being cleaned.
        logs = [each for each in directory.logs.values() if not each.config.compact]
        async for each in self._each(directory, logs):
            try:
                freed_bytes += each.apply_retention(self._runtime.clock.now_ms())
            except LogDirError:
                raise
            except KafkaError as failure:
                # On a full disk, above all, it must not keep the other logs from making room.
                failures.append(failure)
        _tell("retention", directory, failures)
        if freed_bytes:
            log.info("retention takes %d bytes out of %s", freed_bytes, directory.path)

    async def _flush(self, directory: LogDirectory) -> None:
        failures: list[KafkaError] = []
        async for each in self._each(directory, directory.logs.values()):
            up_to = each.flush_due(self._runtime.clock.now_ms())
            if up_to is None:
                continue
            try:
                await self._sync(directory, each, each.prepare_flush(up_to))
            except LogDirError:
                raise
            except KafkaError as failure:
                failures.append(failure)
        _tell("flush", directory, failures)

    async def _remove_deleted(self, directory: LogDirectory) -> None:
        now_ms = self._runtime.clock.now_ms()
        due = directory.take_deletions(now_ms)
        async for each in self._each(directory, directory.all_logs()):
            due += each.take_deletions(now_ms)
        if due:
            await self._runtime.run_blocking(directory.remove_all, due)
        self._retry_unopened()

    async def _checkpoint_recovery_points(self, directory: LogDirectory) -> None:
        await self._runtime.run_blocking(directory.write, directory.prepare_recovery_points())

    async def _checkpoint_start_offsets(self, directory: LogDirectory) -> None:
        await self._runtime.run_blocking(directory.write, directory.prepare_log_start_offsets())

    async def _checkpoint_high_watermarks(self, directory: LogDirectory) -> None:
        await self._runtime.run_blocking(directory.write, directory.prepare_high_watermarks())

    async def _expire_producers(self, directory: LogDirectory) -> None:
        expiration_ms = self._config().transactions.producer_id_expiration_ms
        async for each in self._each(directory, directory.logs.values()):
            each.expire_producers(self._runtime.clock.now_ms(), expiration_ms)


def _tell(chore: str, directory: LogDirectory, failures: list[KafkaError]) -> None:
    """One line for all the logs that a chore could do nothing for this time."""
    if failures:
        log.warning(
            "the %s of %d logs in %s has to wait: %s",
            chore,
            len(failures),
            directory.path,
            failures[0].message,
        )
