"""The simulated FileSystem: the calls of the real one on a SimDisk, with the kernel's own errors.

One SimFileSystem is the door of one run of one program. When that run has ended (`shut`), every call
through the door and through the files opened by it raises PowerCut, so that clean-up code of the dead
cannot write.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable
from random import Random

from moldau.runtime.files import read_whole, replace_whole
from moldau.runtime.interfaces import Buffer

from .content import PAGE
from .disk import Directory, FileNode, SimDisk, error, normal
from .faults import Faults, PowerCut

EPOCH_MS = 1_700_000_000_000  # when every simulation begins


class SimFileSystem:
    def __init__(self, disk: SimDisk | None = None, now_ms: Callable[[], int] = lambda: EPOCH_MS) -> None:
        self.disk = disk or SimDisk(now_ms=now_ms())
        self.now_ms = now_ms
        self._is_shut = False

    @property
    def faults(self) -> Faults:
        return self.disk.faults

    def crash(self, rng: Random) -> None:
        """The power goes and comes back: `SimDisk.crash`. This door stays open, for tests without hosts."""
        self.disk.crash(rng)

    def shut(self) -> None:
        self._is_shut = True

    def check(self, operation: str, path: str, detail: str = "") -> None:
        if self._is_shut:
            raise PowerCut("the program has ended")
        self.disk.faults.check(operation, path, detail)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimFile:
        path = normal(path)
        if not create or self._is_there(path):
            self.check("open", path)
            return SimFile(self, path, self.disk.file(path), read_only)
        parent, name = self.disk.parent(path)
        self.check("create", path)
        node = FileNode(self.now_ms())
        self.disk.change((parent, name, node), now_ms=self.now_ms())
        return SimFile(self, path, node, read_only)

    def exists(self, path: str) -> bool:
        self.check("stat", normal(path))
        return self._is_there(path)

    def is_dir(self, path: str) -> bool:
        self.check("stat", normal(path))
        return self._is_there(path) and isinstance(self.disk.lookup(path), Directory)

    def list_dir(self, path: str) -> list[str]:
        self.check("list", normal(path))
        return sorted(self.disk.directory(path).entries)

    def make_dirs(self, path: str) -> None:
        path = normal(path)
        if path == "/":
            return
        if self._is_there(path):
            if isinstance(self.disk.lookup(path), FileNode):
                raise error(errno.EEXIST, path)
            return
        above = posixpath.dirname(path)
        if not self._is_there(above):
            self.make_dirs(above)
        parent, name = self.disk.parent(path)
        self.check("make_dir", path)
        self.disk.change((parent, name, Directory(self.now_ms())), now_ms=self.now_ms())

    def rename(self, old: str, new: str) -> None:
        old, new = normal(old), normal(new)
        from_directory, from_name = self.disk.parent(old)
        to_directory, to_name = self.disk.parent(new)
        node = self.disk.lookup(old)
        replaced = to_directory.entries.get(to_name)
        if new.startswith(old + "/"):
            raise error(errno.EINVAL, new)
        if replaced is node:
            return
        if isinstance(node, Directory) and isinstance(replaced, FileNode):
            raise error(errno.ENOTDIR, new)
        if isinstance(replaced, Directory):
            if isinstance(node, FileNode):
                raise error(errno.EISDIR, new)
            if replaced.entries:
                raise error(errno.ENOTEMPTY, new)
        self.check("rename", old, new)
        self.disk.change(
            (from_directory, from_name, None), (to_directory, to_name, node), now_ms=self.now_ms()
        )

    def remove(self, path: str) -> None:
        path = normal(path)
        self.disk.file(path)
        self._unlink(path)

    def remove_tree(self, path: str) -> None:
        path = normal(path)
        for name in sorted(self.disk.directory(path).entries):
            below = posixpath.join(path, name)
            if isinstance(self.disk.lookup(below), Directory):
                self.remove_tree(below)
            else:
                self._unlink(below)
        self._unlink(path)

    def sync_dir(self, path: str) -> None:
        directory = self.disk.directory(path)
        self.check("sync_dir", normal(path))
        self.disk.sync(directory)

    def file_size(self, path: str) -> int:
        self.check("stat", normal(path))
        return self.disk.file(path).content.size

    def modified_ms(self, path: str) -> int:
        self.check("stat", normal(path))
        return self.disk.lookup(path).modified_ms

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        node = self.disk.lookup(path)
        self.check("set_modified", normal(path))
        node.modified_ms = time_ms

    def disk_space(self, path: str) -> tuple[int, int]:
        self.check("stat", normal(path))
        self.disk.lookup(path)
        free = self.disk.free_bytes()
        return (self.disk.capacity if self.disk.capacity is not None else free), free

    def lock(self, path: str) -> SimLock:
        path = normal(path)
        self.check("lock", path)
        if path in self.disk.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "already locked", path)
        self.open(path, create=True).close()
        self.disk.locked.add(path)
        return SimLock(self.disk, path)

    def read_bytes(self, path: str) -> bytes:
        return read_whole(self, path)

    def write_atomically(self, path: str, data: Buffer) -> None:
        replace_whole(self, path, data)

    def _is_there(self, path: str) -> bool:
        try:
            self.disk.lookup(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def _unlink(self, path: str) -> None:
        parent, name = self.disk.parent(path)
        self.check("remove", path)
        self.disk.change((parent, name, None), now_ms=self.now_ms())


class SimFile:
    def __init__(self, files: SimFileSystem, path: str, node: FileNode, read_only: bool) -> None:
        self.path = path
        self._files = files
        self._node = node
        self._content = node.content
        self._read_only = read_only
        self._generation = files.disk.generation
        self._is_closed = False

    def write_at(self, data: Buffer, position: int) -> None:
        self._check_position(position)
        self._check_open(writes=errno.EBADF)
        piece = bytes(data)
        try:
            self._check("write", f"{len(piece)} at {position}")
        except PowerCut as cut:
            if cut.is_here:
                self._content.write(position, piece[: self._room_for(position, len(piece))])
            raise
        room = self._room_for(position, len(piece))
        self._content.write(position, piece[:room])
        if piece:
            self._node.modified_ms = self._files.now_ms()
        if room < len(piece):
            raise error(errno.ENOSPC, self.path)

    def read_at(self, count: int, position: int) -> bytes:
        self._check_position(position)
        self._check_open()
        self._check("read", f"{count} at {position}")
        return self._content.read(position, count)

    def is_cached(self, count: int, position: int) -> bool:
        return count <= 0 or not self._files.disk.is_cold

    def load(self, count: int, position: int) -> None:
        self._check_open()
        self._check("load", f"{count} at {position}")

    def size(self) -> int:
        self._check_open()
        self._check("stat")
        return self._content.size

    def truncate(self, size: int) -> None:
        self._check_position(size)
        self._check_open(writes=errno.EINVAL)
        self._check("truncate", str(size))
        self._content.resize(size)
        self._node.modified_ms = self._files.now_ms()

    def sync(self) -> None:
        self._check_open()
        self._sync("sync")

    def _sync(self, operation: str) -> None:
        try:
            self._check(operation)
        except OSError:
            self._content.lose_pending()
            raise
        self._content.sync()

    def map(self, size: int) -> SimMapping:
        self._check_open()
        if size <= 0:
            raise error(errno.EINVAL, self.path)
        if self._read_only:
            raise error(errno.EACCES, self.path)
        self._check("map", str(size))
        return SimMapping(self, self._content.open_mapping(size))

    def close(self) -> None:
        self._is_closed = True

    def _check_position(self, position: int) -> None:
        """What the kernel looks at before the descriptor."""
        if position < 0:
            raise error(errno.EINVAL, self.path)

    def _check_open(self, *, writes: int | None = None) -> None:
        if self._is_closed:
            raise error(errno.EBADF, self.path)
        if writes is not None and self._read_only:
            raise error(writes, self.path)

    def _check(self, operation: str, detail: str = "") -> None:
        if self._generation != self._files.disk.generation:
            raise PowerCut("the program that opened the file has ended")
        self._files.check(operation, self.path, detail)

    def _room_for(self, position: int, count: int) -> int:
        """How many of `count` bytes the volume still takes at `position`."""
        disk = self._files.disk
        if disk.capacity is None or not count:
            return count
        free_pages = disk.free_bytes() // PAGE
        for page in range(position // PAGE, (position + count - 1) // PAGE + 1):
            if page not in self._content.pages:
                if free_pages == 0:
                    return max(0, page * PAGE - position)
                free_pages -= 1
        return count


class SimMapping:
    def __init__(self, file: SimFile, view: memoryview) -> None:
        self.view = view
        self._file = file
        self._is_closed = False

    def flush(self) -> None:
        self._file._sync("flush")

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._file._generation == self._file._files.disk.generation:
            self._file._content.close_mapping()
        try:
            self.view.release()
        except BufferError:
            pass  # a slice is still in use

    def __del__(self) -> None:
        self.close()


class SimLock:
    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._generation = disk.generation
        self._is_held = True

    def release(self) -> None:
        if self._is_held and self._generation == self._disk.generation:
            self._disk.locked.discard(self._path)
        self._is_held = False
