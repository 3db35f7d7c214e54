"""Files of the machine: positioned reads and writes, shared mappings, directories, locks.

Everything here is a thin name for a system call. It knows no formats and keeps no caches; the page cache is
the cache. A file that was closed answers EBADF, because its descriptor becomes -1 and is never reused by
accident. A file must not be closed while another thread is inside one of its calls: drop the reference
instead, the descriptor goes with the last one.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import stat
import sys
import threading
from os import pread, pwrite

from .interfaces import Buffer, File, FileSystem

# Darwin has no fdatasync; there fsync is the nearest.
_sync_data = getattr(os, "fdatasync", os.fsync)

# Before 3.13 each mapping holds a duplicate of the descriptor, which counts against the limit on open files.
_MAP_OPTIONS: dict[str, bool] = {"trackfd": False} if sys.version_info >= (3, 13) else {}

# Linux can be asked for what is in memory and nothing else; elsewhere everything is taken to be.
_NO_WAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_LOAD_BYTES = 128 * 1024


class RealFile:
    __slots__ = ("__weakref__", "_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def write_at(self, data: Buffer, position: int) -> None:
        written = pwrite(self._fd, data, position)
        if written != len(data):
            self._write_rest(memoryview(data).cast("B"), position, written)

    def _write_rest(self, data: memoryview, position: int, written: int) -> None:
        """The kernel takes less than offered at a full disk, at a size limit, or beyond 2 GiB in one call."""
        while written < len(data):
            taken = pwrite(self._fd, data[written:], position + written)
            if taken == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            written += taken

    def read_at(self, count: int, position: int) -> bytes:
        data = pread(self._fd, count, position)
        if len(data) == count or not data:
            return data
        parts = [data]
        missing = count - len(data)
        while missing:
            data = pread(self._fd, missing, position + count - missing)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def is_cached(self, count: int, position: int) -> bool:
        if _NO_WAIT is None or count <= 0:
            return True
        probe = bytearray(1)
        try:
            os.preadv(self._fd, (probe,), position + count - 1, _NO_WAIT)
            os.preadv(self._fd, (probe,), position, _NO_WAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system that cannot be asked, or a fault that the read itself will tell of
        return True

    def load(self, count: int, position: int) -> None:
        self._check_open()
        scratch = memoryview(bytearray(min(max(count, 0), _LOAD_BYTES)))
        while count > 0:
            read = os.preadv(self._fd, (scratch[:count],), position)
            if not read:
                return
            position += read
            count -= read

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        self._check_open()
        _sync_data(self._fd)

    def map(self, size: int) -> RealMapping:
        self._check_open()
        if size <= 0:
            raise OSError(errno.EINVAL, "a mapping needs at least one byte", self.path)
        if fcntl.fcntl(self._fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.path)
        if os.fstat(self._fd).st_size < size:
            os.ftruncate(self._fd, size)
        return RealMapping(mmap.mmap(self._fd, size, mmap.MAP_SHARED, **_MAP_OPTIONS))

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def _check_open(self) -> None:
        """For the few calls that answer ValueError to descriptor -1 where the others say EBADF."""
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)


class RealMapping:
    __slots__ = ("_mmap", "view")

    def __init__(self, mapped: mmap.mmap) -> None:
        self._mmap = mapped
        self.view = memoryview(mapped)

    def flush(self) -> None:
        self._mmap.flush()

    def close(self) -> None:
        # A slice of the view that is still in use keeps the pages; they go with the last slice.
        try:
            self.view.release()
            self._mmap.close()
        except BufferError:
            pass


class RealFileSystem:
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RealFile:
        flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        fd = os.open(path, flags, 0o644)
        if read_only and stat.S_ISDIR(os.fstat(fd).st_mode):
            os.close(fd)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return RealFile(path, fd)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def disk_space(self, path: str) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_frsize * volume.f_blocks, volume.f_frsize * volume.f_bavail

    def lock(self, path: str) -> RealLock:
        return RealLock(path)

    def read_bytes(self, path: str) -> bytes:
        return read_whole(self, path)

    def write_atomically(self, path: str, data: Buffer) -> None:
        replace_whole(self, path, data)


class RealLock:
    """The lock file stays behind, as Kafka's `.lock` does: its presence means nothing, the lock does.

    Two kinds of lock, because they do not see each other: POSIX locks are what Java takes, so that an Apache
    Kafka on the same directory is refused and refuses us; but a process loses its POSIX lock when it closes
    any descriptor of the file, hence flock as well. Neither kind surely refuses a second lock from inside
    this process (flock may be emulated, as on NFS): the set does, before the file is opened again.
    """

    _held: set[tuple[int, int]] = set()  # noqa: RUF012 (device, inode); shared by the process on purpose
    _guard = threading.Lock()

    def __init__(self, path: str) -> None:
        with self._guard:
            if os.path.exists(path) and _identity(os.stat(path)) in self._held:
                raise BlockingIOError(errno.EWOULDBLOCK, "already locked by this process", path)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BaseException as error:
                os.close(self._fd)
                if isinstance(error, OSError):
                    error.filename = path  # the kernel's calls on descriptors do not know it
                raise
            self._key = _identity(os.fstat(self._fd))
            self._held.add(self._key)

    def release(self) -> None:
        with self._guard:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                self._held.discard(self._key)
                os.close(fd)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def read_whole(files: FileSystem, path: str) -> bytes:
    file = files.open(path, read_only=True)
    try:
        return file.read_at(file.size(), 0)
    finally:
        file.close()


def replace_whole(files: FileSystem, path: str, data: Buffer) -> None:
    """After a crash at any point `path` has its old content or the new, whole. The directory entry is durable
    on return. What the real and the simulated file system share, so that the recipe itself is under test."""
    temporary = path + ".tmp"
    file: File = files.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(data, 0)
        file.sync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_dir(os.path.dirname(path) or ".")
