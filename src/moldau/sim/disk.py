"""A simulated volume: a tree of directories over file contents, and a journal of what directories forgot
to sync.

Theory. Each directory has the entries programs see and those that are durable; a change of entries
(create, remove, rename) is one journal entry that touches one directory or two. `sync_dir` makes durable
the changes of that directory, together with the earlier ones they rest on. The sync of a file makes its
bytes durable but not its name: POSIX promises no more, though ext4 does. A crash keeps, of each
directory's unsynced changes, a prefix; a rename between two directories is never seen half done.
"""

from __future__ import annotations

import errno
import os
import posixpath
from dataclasses import dataclass
from random import Random

from .content import PAGE, Content
from .faults import Faults


class FileNode:
    def __init__(self, now_ms: int) -> None:
        self.content = Content()
        self.modified_ms = now_ms


class Directory:
    def __init__(self, now_ms: int) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.modified_ms = now_ms


Node = FileNode | Directory


@dataclass(frozen=True, slots=True)
class Change:
    """Entries that appear (a node) or go (None), all or none of them."""

    entries: tuple[tuple[Directory, str, Node | None], ...]

    def directories(self) -> set[Directory]:
        return {directory for directory, _, _ in self.entries}

    def commit(self) -> None:
        for directory, name, node in self.entries:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node


class SimDisk:
    def __init__(self, capacity: int | None = None, now_ms: int = 0) -> None:
        self.capacity = capacity
        self.is_cold = False  # nothing is in the page cache, whatever was read before
        self.faults = Faults()
        self.root = Directory(now_ms)
        self.locked: set[str] = set()
        self.generation = 0  # of the programs that have files open; a crash or a kill ends them all
        self._journal: list[Change] = []

    def lookup(self, path: str) -> Node:
        node: Node = self.root
        for name in _names(path):
            if not isinstance(node, Directory):
                raise error(errno.ENOTDIR, path)
            if name not in node.entries:
                raise error(errno.ENOENT, path)
            node = node.entries[name]
        return node

    def directory(self, path: str) -> Directory:
        node = self.lookup(path)
        if not isinstance(node, Directory):
            raise error(errno.ENOTDIR, path)
        return node

    def file(self, path: str) -> FileNode:
        node = self.lookup(path)
        if not isinstance(node, FileNode):
            raise error(errno.EISDIR, path)
        return node

    def parent(self, path: str) -> tuple[Directory, str]:
        names = _names(path)
        if not names:
            raise error(errno.EBUSY, path)
        return self.directory("/" + "/".join(names[:-1])), names[-1]

    def change(self, *entries: tuple[Directory, str, Node | None], now_ms: int) -> None:
        for directory, name, node in entries:
            if node is None:
                directory.entries.pop(name, None)
            else:
                directory.entries[name] = node
            directory.modified_ms = now_ms
        self._journal.append(Change(entries))

    def sync(self, directory: Directory) -> None:
        needed = {directory}
        committed: list[Change] = []
        rest: list[Change] = []
        for change in reversed(self._journal):
            if needed.isdisjoint(change.directories()):
                rest.append(change)
            else:
                needed |= change.directories()
                committed.append(change)
        for change in reversed(committed):
            change.commit()
        self._journal = rest[::-1]

    def crash(self, rng: Random) -> None:
        """Forget or tear what was not synced. Files open until here are dead; the power is on again."""
        survival = rng.choice((0.0, 0.7, 1.0))
        lost: set[Directory] = set()
        for change in self._journal:
            if lost.isdisjoint(change.directories()) and rng.random() < survival:
                change.commit()
            else:
                lost |= change.directories()
        self._journal.clear()
        self._forget(self.root, rng)
        self.end_programs()
        self.faults.power_on()

    def end_programs(self) -> None:
        """The processes are gone, and with them their open files and locks; the page cache stays."""
        self.generation += 1
        self.locked.clear()

    def free_bytes(self) -> int:
        if self.capacity is None:
            return 1 << 40
        return max(0, self.capacity - PAGE * _used_pages(self.root))

    def fill(self) -> None:
        """From here on there is no room but what is set free, until `capacity` is raised."""
        self.capacity = PAGE * _used_pages(self.root)

    def _forget(self, directory: Directory, rng: Random) -> None:
        directory.entries = dict(directory.durable)
        for _, node in sorted(directory.entries.items()):
            if isinstance(node, Directory):
                self._forget(node, rng)
            else:
                node.content.crash(rng)


def error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def normal(path: str) -> str:
    return "/" + "/".join(_names(path))


def _names(path: str) -> list[str]:
    return [name for name in posixpath.normpath("/" + path).split("/") if name]


def _used_pages(directory: Directory) -> int:
    used = 0
    for node in directory.entries.values():
        used += _used_pages(node) if isinstance(node, Directory) else len(node.content.pages)
    return used
