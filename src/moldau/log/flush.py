"""What has to be synced to make a log durable up to an offset: collected in one thread, carried out in
any."""

from __future__ import annotations

import errno

from moldau.log.errors import storage_error
from moldau.runtime.interfaces import File, FileSystem, Mapping
from moldau.runtime.replaced_file import Replacement


class FlushWork:
    """`run` blocks and may be called from another thread: it touches only what it holds itself. What was
    deleted meanwhile needs no sync."""

    __slots__ = (
        "_files",
        "_log_dir",
        "checkpoint",
        "directories",
        "files",
        "mappings",
        "paths",
        "truncations",
        "up_to",
    )

    def __init__(self, files: FileSystem, directory: str, up_to: int, truncations: int) -> None:
        """`truncations`: how often the log had been truncated when this was collected."""
        self._files = files
        self._log_dir = directory.rpartition("/")[0]
        self.directories = [directory]
        self.up_to = up_to
        self.truncations = truncations
        self.checkpoint: Replacement | None = None
        self.files: list[File] = []
        self.mappings: list[Mapping] = []
        self.paths: list[str] = []

    def run(self) -> None:
        """Raises OSError if the data's fate is unknown: the log directory has failed. KafkaError if there is
        no room for the checkpoint, or no descriptor: of the data nothing is lost, but nothing counts as
        flushed either, and this is tried again."""
        for file in self.files:
            file.sync()
        for mapping in self.mappings:
            mapping.flush()
        for path in self.paths:
            try:
                file = self._files.open(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise storage_error(self._log_dir, error) from error
            file.sync()
            file.close()
        if self.checkpoint is not None:
            try:
                self.checkpoint.run()
            except FileNotFoundError:
                pass
            except OSError as error:
                raise storage_error(self._log_dir, error) from error
        for path in self.directories:
            try:
                self._files.sync_dir(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):  # it was not even opened
                    raise storage_error(self._log_dir, error) from error
                raise
