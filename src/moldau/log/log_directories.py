"""All of `log.dirs`: finds a partition's log, and chooses where a new one goes.

A directory that fails is taken out with its logs; the others go on. Everything that touches a disk raises
LogDirError for the directory at fault, and whoever drives this answers with `take_offline`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random

from moldau.config.topic import TopicConfig
from moldau.log.checkpoints import TopicPartition
from moldau.log.directory import LogDirectory
from moldau.log.errors import LogDirError
from moldau.log.log import Log
from moldau.log.open_files import OpenFiles
from moldau.runtime.interfaces import FileSystem
from moldau.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class LogDirectories:
    def __init__(self, directories: list[LogDirectory], offline: dict[str, LogDirError]) -> None:
        """Use `LogDirectories.open`."""
        self.online = directories
        self.offline = offline
        """Failed directories by path, with the reason."""

    @classmethod
    def open(
        cls, files: FileSystem, paths: Sequence[str], random: Random, open_files: OpenFiles | None = None
    ) -> LogDirectories:
        """Lock and identify each. One that fails is offline from the start; BlockingIOError if another
        process has one, LogDirError if none is left."""
        open_files = OpenFiles() if open_files is None else open_files
        online: list[LogDirectory] = []
        offline: dict[str, LogDirError] = {}
        try:
            for path in paths:
                try:
                    online.append(LogDirectory.open(files, open_files, path, random))
                except LogDirError as error:
                    offline[path] = error
        except BlockingIOError:
            for directory in online:
                directory.take_offline()
            raise
        if not online:
            raise next(iter(offline.values()))
        return cls(online, offline)

    def load(
        self,
        configs: Mapping[str, TopicConfig],
        default: TopicConfig,
        now_ms: int,
        home_of: Callable[[str, int], bytes | None] = lambda topic, partition: None,
    ) -> list[LogDirError]:
        """Open all logs. The failures of directories, each to be answered with `take_offline`; raises
        LogDirError when no directory is left, or a partition has two logs and `home_of`, which tells the id
        of the directory that a log belongs to, knows neither."""
        failures: list[LogDirError] = []
        loaded: list[LogDirectory] = []
        for directory in self.online:
            try:
                directory.load(configs, default, now_ms)
                loaded.append(directory)
            except LogDirError as error:
                failures.append(error)
        if not loaded:
            raise failures[0]
        seen: dict[TopicPartition, LogDirectory] = {}
        for directory in loaded:
            for key in list(directory.logs):
                seen[key] = _one_of(key, seen[key], directory, home_of(*key)) if key in seen else directory
        return failures

    def find(self, topic: str, partition: int) -> Log | None:
        directory = self.directory_of(topic, partition)
        return None if directory is None else directory.logs[topic, partition]

    def find_future(self, topic: str, partition: int) -> Log | None:
        for directory in self.online:
            log = directory.future_logs.get((topic, partition))
            if log is not None:
                return log
        return None

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        return next((directory for directory in self.online if (topic, partition) in directory.logs), None)

    def by_path(self, path: str) -> LogDirectory | None:
        return next((directory for directory in self.online if directory.path == path), None)

    def by_id(self, directory_id: bytes) -> LogDirectory | None:
        return next((directory for directory in self.online if directory.directory_id == directory_id), None)

    def choose(self) -> LogDirectory:
        """The directory for a new log: the one with the fewest, the first of them."""
        if not self.online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
        return min(self.online, key=lambda directory: len(directory.logs) + len(directory.future_logs))

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        now_ms: int,
        *,
        path: str | None = None,
    ) -> Log:
        """The log of the partition, created if there is none: in `path` if that is online, or else where
        `choose` says. INCONSISTENT_TOPIC_ID if there is one of another topic."""
        log = self.find(topic, partition)
        if log is not None:
            log.assign_topic_id(topic_id)
            return log
        directory = (self.by_path(path) if path is not None else None) or self.choose()
        return directory.create(topic, partition, topic_id, config, now_ms)

    def create_future(self, log: Log, path: str, now_ms: int) -> Log:
        """An empty log in another directory, to be filled and then take the place of `log`."""
        directory = self.by_path(path)
        if directory is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not an online log directory")
        return directory.create(log.topic, log.partition, log.topic_id, log.config, now_ms, is_future=True)

    def replace_with_future(self, topic: str, partition: int, now_ms: int) -> Log:
        """The future log has caught up: it takes over, and the log it replaces is deleted."""
        target = next(directory for directory in self.online if (topic, partition) in directory.future_logs)
        source = self.directory_of(topic, partition)
        # In this order a crash leaves two logs, of which the next start serves one, rather than none.
        log = target.promote_future(topic, partition)
        if source is not None:
            source.delete(topic, partition, now_ms)
        return log

    def delete(self, topic: str, partition: int, now_ms: int) -> None:
        """The partition's log and its future log, if there are any."""
        for directory in self.online:
            directory.delete(topic, partition, now_ms)
            directory.delete(topic, partition, now_ms, is_future=True)

    def take_offline(self, failure: LogDirError) -> list[TopicPartition]:
        """Give up the directory that failed. The partitions whose log was in it; none if it was offline
        already."""
        directory = self.by_path(failure.directory)
        if directory is None:
            return []
        self.online.remove(directory)
        self.offline[directory.path] = failure
        return directory.take_offline()

    def close(self, broker_epoch: int) -> None:
        """A clean shutdown of every directory that is online. The first failure is raised once all had their
        turn."""
        failures = []
        for directory in list(self.online):
            try:
                directory.close(broker_epoch)
            except KafkaError as error:
                directory.take_offline()
                failures.append(error)
        self.online.clear()
        if failures:
            raise failures[0]


def _one_of(
    key: TopicPartition, first: LogDirectory, second: LogDirectory, home: bytes | None
) -> LogDirectory:
    """Which of the two logs of a partition is to be served; the other is set aside.

    A move that was cut off while the new log took the place of the old one leaves both, with the new one's
    directory for a home. They are of one history, so the longer one has what the other has; the new one may
    have lost its tail, if the power went.
    """
    if home is None or home not in (first.directory_id, second.directory_id):
        raise LogDirError(
            second.path,
            FileExistsError(f"{key[0]}-{key[1]} is in {first.path} too; delete the copy that is out of date"),
        )
    new, old = (first, second) if home == first.directory_id else (second, first)
    if new.logs[key].log_end_offset < old.logs[key].log_end_offset:
        new, old = old, new
    logger.warning("%s-%d is in %s and, out of date, in %s", *key, new.path, old.path)
    old.mark_stray(*key)
    return new
