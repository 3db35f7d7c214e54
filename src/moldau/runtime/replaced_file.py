"""A small file that is replaced as a whole, from more than one thread.

What is to be in it is decided in one thread; writing it blocks, and so is done in another, unless someone
waits for it. Both may happen at once. Hence replacements are numbered in the order in which they were asked
for: one is written at a time, and one that a later one has overtaken is left out.
"""

from __future__ import annotations

from threading import Lock

from .interfaces import FileSystem


class ReplacedFile:
    __slots__ = ("_asked", "_files", "_lock", "_written", "path")

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self.path = path
        self._lock = Lock()
        self._asked = 0
        self._written = 0

    def replacement(self, data: bytes) -> Replacement:
        """What is to be in the file from here on: nothing changes before it is run."""
        self._asked += 1
        return Replacement(self, self._asked, data)

    def write(self, data: bytes) -> None:
        self.replacement(data).run()

    def _write(self, number: int, data: bytes) -> None:
        with self._lock:
            if number > self._written:
                self._files.write_atomically(self.path, data)
                self._written = number


class Replacement:
    __slots__ = ("_file", "_number", "data")

    def __init__(self, file: ReplacedFile, number: int, data: bytes) -> None:
        self._file = file
        self._number = number
        self.data = data

    def run(self) -> None:
        """Durable when this returns; blocks, and may be called from another thread. Raises OSError."""
        self._file._write(self._number, self.data)
