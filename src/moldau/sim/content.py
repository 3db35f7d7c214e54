"""The bytes of one simulated file: what programs see, what the disk would still have, and what is between.

Theory. A write goes to the page cache (`seen`) and is remembered in `pending`; a sync applies `pending` to
`durable`. At a crash each pending write is cut at page boundaries, and each piece is kept, lost, or torn
at a byte, independently of the others: the kernel writes pages back in any order. A lost piece below a
kept one is a hole of zeros. Changes of size are journalled by real file systems: a crash keeps a prefix of
them.

While a file is mapped, `seen` lives in anonymous memory that views share. Stores through a view leave no
trace, so they are found by comparing pages with what the writes alone would have made.

Restriction: while it is mapped, a file can grow by GROWTH_WHILE_MAPPED only (the real one has no such bound).
"""

from __future__ import annotations

import mmap
from random import Random

PAGE = 4096
BLOCK = 16 * PAGE  # what is compared at once, since mapped files are mostly holes
GROWTH_WHILE_MAPPED = 32 << 20  # address space only


_ZEROS = bytes(BLOCK)


class Extent:
    """Bytes with a size; what lies behind `data` and before `size` is zeros that take no memory."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0

    def copy(self) -> Extent:
        twin = Extent()
        twin.data, twin.size = bytearray(self.data), self.size
        return twin

    def read(self, position: int, count: int) -> bytes:
        end = min(position + count, self.size)
        if position >= end:
            return b""
        return bytes(self.data[position:end]).ljust(end - position, b"\0")

    def write(self, position: int, piece: bytes) -> None:
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(piece)] = piece
        self.size = max(self.size, position + len(piece))

    def resize(self, size: int) -> None:
        del self.data[size:]
        self.size = size


class MappedExtent(Extent):
    """The same, in memory that views can share. The room is reserved, and real only where it was touched."""

    def __init__(self, origin: Extent, room: int) -> None:
        super().__init__()
        self.arena = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.arena[: len(origin.data)] = bytes(origin.data)
        self.size = origin.size
        self.room = room

    def copy(self) -> Extent:
        twin = Extent()
        end = self.size
        while end > 0 and self.arena[max(0, end - BLOCK) : end] == _ZEROS[: min(end, BLOCK)]:
            end = max(0, end - BLOCK)
        twin.data, twin.size = bytearray(self.arena[:end]), self.size
        return twin

    def read(self, position: int, count: int) -> bytes:
        return self.arena[position : min(position + count, self.size)] if position < self.size else b""

    def write(self, position: int, piece: bytes) -> None:
        end = position + len(piece)
        self._check_room(end)
        self.arena[position:end] = piece
        self.size = max(self.size, end)

    def resize(self, size: int) -> None:
        self._check_room(size)
        for start in range(size, self.size, BLOCK):
            end = min(start + BLOCK, self.size)
            if self.arena[start:end] != _ZEROS[: end - start]:
                self.arena[start:end] = bytes(end - start)
        self.size = size

    def _check_room(self, end: int) -> None:
        if end > self.room:
            raise RuntimeError(f"the simulator cannot grow a mapped file to {end}, only to {self.room}")


class Content:
    def __init__(self) -> None:
        self.seen: Extent = Extent()
        self.durable = Extent()
        self.pending: list[tuple[int, bytes] | int] = []  # a write, or a new size
        self.pages: set[int] = set()  # that have been written: what the file takes of the volume
        self._mappings = 0

    @property
    def size(self) -> int:
        return self.seen.size

    def read(self, position: int, count: int) -> bytes:
        return self.seen.read(position, count)

    def write(self, position: int, piece: bytes) -> None:
        if not piece:
            return
        self.seen.write(position, piece)
        self.pending.append((position, piece))
        self.pages.update(range(position // PAGE, (position + len(piece) - 1) // PAGE + 1))

    def resize(self, size: int) -> None:
        self.seen.resize(size)
        self.pending.append(size)
        self.pages = {page for page in self.pages if page * PAGE < size}

    def sync(self) -> None:
        self._find_stores()
        for change in self.pending:
            _apply(change, self.durable)
        self.pending.clear()

    def lose_pending(self) -> None:
        """A sync failed: the kernel takes the pages for clean, and no later sync will write them."""
        self.pending.clear()

    def open_mapping(self, size: int) -> memoryview:
        if self._mappings == 0:
            self.seen = MappedExtent(self.seen, max(size, self.seen.size) + GROWTH_WHILE_MAPPED)
        if size > self.seen.size:
            self.resize(size)
        self._mappings += 1
        assert isinstance(self.seen, MappedExtent)
        return memoryview(self.seen.arena)[:size]

    def close_mapping(self) -> None:
        if self._mappings == 1:
            self._find_stores()
        self._mappings -= 1
        if self._mappings == 0:
            self.seen = self.seen.copy()

    def crash(self, rng: Random) -> None:
        self._find_stores()
        survival = rng.choice((0.0, 0.5, 0.9, 1.0))  # none, some, most, all: each is an interesting crash
        sizes_survive = True
        for change in self.pending:
            if isinstance(change, int):
                sizes_survive = sizes_survive and rng.random() < survival
                if sizes_survive:
                    _apply(change, self.durable)
                continue
            for position, piece in _split_at_pages(*change):
                if rng.random() < survival:
                    self.durable.write(position, piece)
                elif rng.random() < 0.3:
                    torn = piece[: rng.randrange(len(piece))]
                    if torn:
                        self.durable.write(position, torn)
        self.pending.clear()
        self._mappings = 0
        self.seen = self.durable.copy()
        self.pages = set(range((len(self.durable.data) + PAGE - 1) // PAGE))

    def _find_stores(self) -> None:
        """Turn what was stored through views into pending writes of whole pages."""
        if self._mappings == 0:
            return
        written = self.durable.copy()
        for change in self.pending:
            _apply(change, written)
        for block in range(0, self.size, BLOCK):
            if self.seen.read(block, BLOCK) == written.read(block, BLOCK):
                continue
            for start in range(block, min(block + BLOCK, self.size), PAGE):
                page = self.seen.read(start, PAGE)
                if page != written.read(start, PAGE):
                    self.pending.append((start, page))
                    self.pages.add(start // PAGE)


def _apply(change: tuple[int, bytes] | int, extent: Extent) -> None:
    if isinstance(change, int):
        extent.resize(change)
    else:
        extent.write(*change)


def _split_at_pages(position: int, data: bytes) -> list[tuple[int, bytes]]:
    pieces = []
    start = position
    while start < position + len(data):
        end = min((start // PAGE + 1) * PAGE, position + len(data))
        pieces.append((start, data[start - position : end - position]))
        start = end
    return pieces
