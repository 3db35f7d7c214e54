"""A file system that is full whenever the rules say so: what would take room raises ENOSPC, the rest works,
and what is there can be read, overwritten within its size, and removed.

The files under it are real: what was written is there when there is room again.
"""

from __future__ import annotations

import errno
import os
from typing import NoReturn

from moldau.runtime.files import read_whole, replace_whole
from moldau.runtime.interfaces import Buffer, File, FileSystem, Lock, Mapping
from moldau.testing.faults import FaultRules


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class FillableFile:
    __slots__ = ("__weakref__", "_file", "_rules", "path")

    def __init__(self, file: File, rules: FaultRules) -> None:
        self._file = file
        self._rules = rules
        self.path = file.path

    def write_at(self, data: Buffer, position: int) -> None:
        self._check(position + len(data))
        self._file.write_at(data, position)

    def truncate(self, size: int) -> None:
        self._check(size)
        self._file.truncate(size)

    def map(self, size: int) -> Mapping:
        self._check(size)
        return self._file.map(size)

    def read_at(self, count: int, position: int) -> bytes:
        return self._file.read_at(count, position)

    def is_cached(self, count: int, position: int) -> bool:
        return self._file.is_cached(count, position)

    def load(self, count: int, position: int) -> None:
        self._file.load(count, position)

    def size(self) -> int:
        return self._file.size()

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def _check(self, size: int) -> None:
        if self._rules.disk_is_full and size > self._file.size():
            _refuse(self.path)


class FillableFileSystem:
    def __init__(self, files: FileSystem, rules: FaultRules) -> None:
        self._files = files
        self._rules = rules

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        if create and self._rules.disk_is_full and not self._files.exists(path):
            _refuse(path)
        return FillableFile(self._files.open(path, create=create, read_only=read_only), self._rules)

    def make_dirs(self, path: str) -> None:
        if self._rules.disk_is_full and not self._files.exists(path):
            _refuse(path)
        self._files.make_dirs(path)

    def disk_space(self, path: str) -> tuple[int, int]:
        total, usable = self._files.disk_space(path)
        return (total, 0 if self._rules.disk_is_full else usable)

    def read_bytes(self, path: str) -> bytes:
        return read_whole(self, path)

    def write_atomically(self, path: str, data: Buffer) -> None:
        replace_whole(self, path, data)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def is_dir(self, path: str) -> bool:
        return self._files.is_dir(path)

    def list_dir(self, path: str) -> list[str]:
        return self._files.list_dir(path)

    def rename(self, old: str, new: str) -> None:
        self._files.rename(old, new)

    def remove(self, path: str) -> None:
        self._files.remove(path)

    def remove_tree(self, path: str) -> None:
        self._files.remove_tree(path)

    def sync_dir(self, path: str) -> None:
        self._files.sync_dir(path)

    def file_size(self, path: str) -> int:
        return self._files.file_size(path)

    def modified_ms(self, path: str) -> int:
        return self._files.modified_ms(path)

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self._files.set_modified_ms(path, time_ms)

    def lock(self, path: str) -> Lock:
        return self._files.lock(path)
