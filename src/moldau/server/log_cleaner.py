"""Compacts the logs of the node: the filthiest first, each by a helper process, `log.cleaner.threads` at a
time.

What a cleaning decides is in `log/cleaner/`. Here is who is cleaned, when, and what becomes of the result.
The helper reads what does not change and writes files that nobody trusts; on the loop, which owns the log,
these are put in place. So nothing has to be locked, and nobody has to wait for a cleaning: a log that was
truncated, moved, deleted, or is no longer to be compacted is not the one that the cleaning was about, and
what it made is dropped.

A helper that dies or says nothing is replaced, and the log tried once more. A log that cannot be cleaned is
set aside until the next start, for all to see in the metrics, and the others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from moldau.config.broker import BrokerConfig
from moldau.log.cleaner.dirt import Dirt
from moldau.log.cleaner.messages import (
    CleaningFailed,
    LogCleaned,
    SegmentCleaned,
    decode_answer,
)
from moldau.log.cleaner.plan import Cleaning, measure_log
from moldau.log.directory import LogDirectory
from moldau.log.errors import CorruptFileError, LogDirError, storage_error
from moldau.log.log import Log
from moldau.log.log_directories import LogDirectories
from moldau.log.names import CLEANED_SUFFIX
from moldau.runtime.interfaces import Helper, HelperGone, Runtime
from moldau.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

WORK = "moldau.log.cleaner.cleaning:clean"
BACKOFF_MIN_MS = 100
"""Every log is looked at after a pause: without one that would be all the node does."""
RETRY_MS = 60_000
"""A log that could not be cleaned for the time being, on a full disk above all, has to wait for so long."""
WATCH_S = 0.5
"""How often a cleaning is looked after: the helper of one that has become pointless is killed."""
HELPER_LOSSES_MAX = 2
LOGS_AT_ONCE = 100


class _Uncleanable(Exception):
    """The log is at fault."""


class _Dropped(Exception):
    """The log has become another than the one that was being cleaned."""


@dataclass(slots=True)
class CleaningStats:
    """The last cleaning of a worker."""

    seconds: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    buffer_utilization: float = 0.0
    delay_ms: int = 0
    """For how long the log that was overdue the longest had been so, when the worker last chose one."""


@dataclass(slots=True)
class _Worker:
    number: int
    helper: Helper | None = None
    stats: CleaningStats = field(default_factory=CleaningStats)


class LogCleaner:
    def __init__(
        self,
        runtime: Runtime,
        config: Callable[[], BrokerConfig],
        log_directories: LogDirectories,
        on_log_dir_failure: Callable[[LogDirError], None],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._log_directories = log_directories
        self._on_log_dir_failure = on_log_dir_failure
        self._workers: dict[int, _Worker] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._in_progress: set[str] = set()  # directories: a topic may be deleted, and be there anew
        self._uncleanable: set[Log] = set()
        self._losses: dict[Log, int] = {}
        self._wait_until: dict[Log, float] = {}
        self._retention_due_at = 0.0
        self._last_run_at = runtime.clock.monotonic()
        self.dirtiest_ratio = 0.0

    def start(self) -> None:
        if self._config().cleaner.enable:
            self._start_workers()

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    # -- What the metrics tell

    @property
    def last_cleanings(self) -> list[CleaningStats]:
        return [worker.stats for worker in self._workers.values()]

    @property
    def dead_workers(self) -> int:
        return sum(task.done() for task in self._tasks.values())

    @property
    def ms_since_last_run(self) -> int:
        return int((self._runtime.clock.monotonic() - self._last_run_at) * 1000)

    def uncleanable(self, directory: LogDirectory) -> tuple[int, int]:
        """How many logs of the directory were set aside, and how many of their bytes could be cleaned."""
        logs = [each for each in self._uncleanable if self._is_there(each) and each.log_dir == directory.path]
        dirty_bytes = 0
        for each in logs:
            try:
                dirty_bytes += measure_log(each, self._runtime.clock.now_ms()).dirty_bytes
            except (KafkaError, CorruptFileError):
                dirty_bytes += each.size_bytes
        return len(logs), dirty_bytes

    # -- Workers

    def _start_workers(self) -> None:
        for number in range(self._config().cleaner.threads):
            if number not in self._tasks:
                worker = self._workers[number] = _Worker(number)
                self._tasks[number] = self._runtime.spawn(self._work(worker), f"log cleaner {number}")

    async def _work(self, worker: _Worker) -> None:
        try:
            while worker.number < self._config().cleaner.threads:
                self._start_workers()
                has_cleaned = False
                try:
                    has_cleaned = await self._clean_filthiest(worker)
                    await self._apply_retention()
                except LogDirError as failure:
                    self._on_log_dir_failure(failure)
                except KafkaError as failure:
                    logger.warning("compaction: %s", failure.message)
                except Exception:
                    # Our bug; but a node that never compacts again would be a worse one.
                    logger.exception("compaction failed")
                if not has_cleaned:
                    await self._dismiss(worker)
                    backoff_ms = max(self._config().cleaner.backoff_ms, BACKOFF_MIN_MS)
                    await asyncio.sleep(backoff_ms / 1000)
            del self._workers[worker.number], self._tasks[worker.number]
        finally:
            await self._dismiss(worker)

    async def _dismiss(self, worker: _Worker) -> None:
        """End the worker's helper, so that an idle node is a small one."""
        helper, worker.helper = worker.helper, None
        if helper is not None:
            helper.kill()
            await helper.ended()

    # -- Which log

    async def _clean_filthiest(self, worker: _Worker) -> bool:
        """False if there is nothing to clean, or it could not be cleaned."""
        self._forget_gone()
        self._last_run_at = self._runtime.clock.monotonic()
        chosen = await self._choose(worker)
        if chosen is None:
            return False
        directory, each, dirt = chosen
        in_progress = each.directory
        self._in_progress.add(in_progress)
        try:
            await self._clean(worker, directory, each, dirt)
            self._losses.pop(each, None)
            return True
        except _Dropped:
            logger.info("the cleaning of %s was dropped: it is no longer what it was", each)
            return True
        except (_Uncleanable, CorruptFileError) as failure:
            self._set_aside(each, str(failure))
        except HelperGone as failure:
            self._on_helper_lost(each, failure)
        except LogDirError:
            raise
        except KafkaError as failure:
            logger.warning("the cleaning of %s has to wait: %s", each, failure.message)
            self._wait_until[each] = self._runtime.clock.monotonic() + RETRY_MS / 1000
        finally:
            self._in_progress.discard(in_progress)
        return False

    async def _choose(self, worker: _Worker) -> tuple[LogDirectory, Log, Dirt] | None:
        now_ms, now = self._runtime.clock.now_ms(), self._runtime.clock.monotonic()
        chosen: tuple[LogDirectory, Log, Dirt] | None = None
        dirtiest, delay_ms, looked_at = 0.0, 0, 0
        for directory in list(self._log_directories.online):
            for each in list(directory.logs.values()):
                looked_at += 1
                if looked_at % LOGS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                if not each.config.compact or each.segment_count == 1 or not self._may_be_cleaned(each):
                    continue
                if self._wait_until.get(each, now) > now:
                    continue
                try:
                    dirt = measure_log(each, now_ms)
                except CorruptFileError as failure:
                    self._set_aside(each, str(failure))
                    continue
                dirtiest, delay_ms = max(dirtiest, dirt.ratio), max(delay_ms, dirt.delay_ms)
                if dirt.is_due(each.config) and (chosen is None or dirt.ratio > chosen[2].ratio):
                    chosen = directory, each, dirt
        self.dirtiest_ratio = dirtiest
        worker.stats.delay_ms = delay_ms
        # Other logs were looked at since, and others may have been at work.
        return chosen if chosen is not None and self._may_be_cleaned(chosen[1]) else None

    def _may_be_cleaned(self, each: Log) -> bool:
        """A log that moves to another directory is left alone meanwhile."""
        return (
            each.directory not in self._in_progress
            and each not in self._uncleanable
            and self._is_there(each)
            and self._log_directories.find_future(each.topic, each.partition) is None
        )

    def _is_there(self, each: Log) -> bool:
        return self._log_directories.find(each.topic, each.partition) is each

    def _forget_gone(self) -> None:
        for logs in (self._losses, self._wait_until):
            for each in [each for each in logs if not self._is_there(each)]:
                del logs[each]
        self._uncleanable = {each for each in self._uncleanable if self._is_there(each)}

    def _set_aside(self, each: Log, reason: str) -> None:
        if self._is_there(each):
            logger.warning("%s cannot be cleaned and is set aside: %s", each, reason)
            self._uncleanable.add(each)

    def _on_helper_lost(self, each: Log, failure: HelperGone) -> None:
        losses = self._losses[each] = self._losses.get(each, 0) + 1
        if losses < HELPER_LOSSES_MAX:
            logger.warning("the cleaning of %s is tried again: %s", each, failure)
        else:
            self._set_aside(each, str(failure))

    # -- One cleaning

    async def _clean(self, worker: _Worker, directory: LogDirectory, each: Log, dirt: Dirt) -> None:
        begun_at = self._runtime.clock.monotonic()
        await self._make_durable(directory, each, dirt.end_offset)
        cleaning = Cleaning.of(each, dirt, self._config().cleaner, self._runtime.clock.now_ms())
        helper = await self._helper_of(worker, each)
        watch = self._runtime.spawn(self._watch(cleaning, helper), "log cleaner: watch")
        is_done = False
        try:
            result = await self._follow(cleaning, helper)
            is_done = True
        except HelperGone:
            if not self._is_current(cleaning):
                raise _Dropped from None
            raise
        finally:
            watch.cancel()
            if not is_done:
                await self._dismiss(worker)
                await self._remove_leftovers(cleaning)
        if result.next_dirty_offset <= dirt.first_dirty_offset:
            raise _Uncleanable("there was no progress")
        await self._finish(directory, cleaning, result)
        seconds = self._runtime.clock.monotonic() - begun_at
        worker.stats = CleaningStats(
            seconds, result.bytes_read, result.bytes_written, result.buffer_utilization, worker.stats.delay_ms
        )
        _tell(each, dirt, result, seconds)

    async def _make_durable(self, directory: LogDirectory, each: Log, end_offset: int) -> None:
        """What is cleaned lies below the recovery point, also for a recovery after a crash: where offsets are
        missing below it, that is no damage."""
        work = each.prepare_flush(end_offset)
        if work is not None:
            try:
                await self._runtime.run_blocking(work.run)
            except OSError as error:
                raise LogDirError(directory.path, error) from error
            each.complete_flush(work, self._runtime.clock.now_ms())
        await self._runtime.run_blocking(directory.write, directory.prepare_recovery_points())
        if each.recovery_point < end_offset or not self._is_there(each):
            raise _Dropped

    async def _helper_of(self, worker: _Worker, each: Log) -> Helper:
        if worker.helper is None:
            try:
                worker.helper = await self._runtime.start_helper(WORK)
            except OSError as error:
                message = f"no process can be started: {error}"
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message) from error
        return worker.helper

    def _is_current(self, cleaning: Cleaning) -> bool:
        each = cleaning.log
        return (
            cleaning.is_current()
            and self._is_there(each)
            and self._log_directories.find_future(each.topic, each.partition) is None
        )

    async def _watch(self, cleaning: Cleaning, helper: Helper) -> None:
        while self._is_current(cleaning):
            await asyncio.sleep(WATCH_S)
        helper.kill()

    async def _follow(self, cleaning: Cleaning, helper: Helper) -> LogCleaned:
        """Put in place what the helper makes, up to its last word."""
        helper.send(cleaning.request.encode())
        while True:
            answer = decode_answer(await helper.receive())
            if not self._is_current(cleaning):
                raise _Dropped
            match answer:
                case SegmentCleaned():
                    cleaning.replace(answer.count, answer.size, self._runtime.clock.now_ms())
                case LogCleaned():
                    return answer
                case CleaningFailed(errno=0):
                    raise _Uncleanable(answer.message)
                case CleaningFailed():
                    error = OSError(answer.errno, answer.message)
                    raise storage_error(cleaning.log.log_dir, error)

    async def _finish(self, directory: LogDirectory, cleaning: Cleaning, result: LogCleaned) -> None:
        """What was put in place is durable before the checkpoint says so."""
        each = cleaning.log
        try:
            await self._runtime.run_blocking(self._runtime.files.sync_dir, each.directory)
        except FileNotFoundError:
            raise _Dropped from None
        except OSError as error:
            raise storage_error(directory.path, error) from error
        if not self._is_current(cleaning):
            raise _Dropped
        each.cleaned_offset = result.next_dirty_offset
        await self._runtime.run_blocking(directory.write, directory.prepare_cleaned_offsets())

    async def _remove_leftovers(self, cleaning: Cleaning) -> None:
        """What a helper that is gone has left. The directory may be another log's by now; nobody else cleans
        it before this is done."""
        try:
            await self._runtime.run_blocking(_remove_cleaned, self._runtime, cleaning.request.directory)
        except OSError as error:
            # Nobody trusts them, and the next start removes them.
            logger.warning("what a cleaning left in %s stays: %s", cleaning.request.directory, error)

    # -- Retention

    async def _apply_retention(self) -> None:
        """Of compacted logs, too, segments go that are below the log start offset, and with
        cleanup.policy=compact,delete by size and time. Not while they are being cleaned."""
        now = self._runtime.clock.monotonic()
        if now < self._retention_due_at:
            return
        self._retention_due_at = now + self._config().cleaner.backoff_ms / 1000
        looked_at = 0
        for directory in list(self._log_directories.online):
            for each in list(directory.logs.values()):
                looked_at += 1
                if looked_at % LOGS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                if each.config.compact and each.segment_count > 1 and self._may_be_cleaned(each):
                    try:
                        each.apply_retention(self._runtime.clock.now_ms())
                    except LogDirError:
                        raise
                    except KafkaError as failure:
                        logger.warning("the retention of %s has to wait: %s", each, failure.message)


def _remove_cleaned(runtime: Runtime, directory: str) -> None:
    files = runtime.files
    if files.is_dir(directory):
        for name in files.list_dir(directory):
            if name.endswith(CLEANED_SUFFIX):
                files.remove(f"{directory}/{name}")


def _tell(each: Log, dirt: Dirt, result: LogCleaned, seconds: float) -> None:
    logger.info(
        "cleaned %s, dirty from %d to %d: %d bytes became %d, %d records %d, in %.1f s",
        each,
        dirt.first_dirty_offset,
        result.next_dirty_offset,
        result.bytes_read,
        result.bytes_written,
        result.records_read,
        result.records_written,
        seconds,
    )
    if result.records_invalid:
        logger.warning("%d records of %s had no key and are gone", result.records_invalid, each)
