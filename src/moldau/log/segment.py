"""One segment of a log: a file of batches and its indexes.

Knows positions, sizes and headers; not leaders, producers or high watermarks. Files are opened when first
needed and may be let go of at any time; what a reader was handed stays readable as long as it holds the
`File`.
Invariant: `size` bytes of the file are whole batches. What may lie beyond was never acknowledged and is
overwritten.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from moldau.log.errors import CorruptFileError, is_disk_full, is_final
from moldau.log.flush import FlushWork
from moldau.log.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_name,
)
from moldau.log.offset_index import OffsetIndex, OffsetPosition
from moldau.log.open_files import OpenFiles
from moldau.log.time_index import TimeIndex, TimestampOffset, read_last_entry
from moldau.log.transaction_index import TransactionIndex
from moldau.records.batch import HEADER_BYTES, LOG_OVERHEAD, BatchHeader, parse_header
from moldau.runtime.interfaces import Buffer, File, FileSystem

RELATIVE_OFFSET_MAX = (1 << 31) - 1
OFFSET_MAX = (1 << 63) - 1
NEVER_CLEANED = -1
"""In the place of the offset up to which a log was compacted."""

_SPAN = struct.Struct(">qi11xi").unpack_from
"""Base offset, length and last offset delta of a batch."""
_SPAN_BYTES = 27
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD

_SCAN_BYTES = 4096
"""Read at a time while looking for a batch: index.interval.bytes by default, so mostly one read."""

_UNKNOWN = -2
FILE_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class BatchLocation(NamedTuple):
    position: int
    size: int
    base_offset: int
    last_offset: int


class Segment:
    __slots__ = (
        "_file",
        "_files",
        "_index_bytes_max",
        "_max_timestamp",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_open_files",
        "_time_index",
        "_touched",
        "_txn_index",
        "base_offset",
        "bytes_max",
        "bytes_since_index_entry",
        "created_ms",
        "directory",
        "first_timestamp",
        "index_interval_bytes",
        "next_base_offset",
        "recently_used",
        "size",
    )

    def __init__(
        self,
        files: FileSystem,
        open_files: OpenFiles,
        directory: str,
        base_offset: int,
        size: int,
        now_ms: int,
        index_bytes_max: int,
        index_interval_bytes: int,
    ) -> None:
        self._files = files
        self._open_files = open_files
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.created_ms = now_ms
        self.index_interval_bytes = index_interval_bytes
        self._index_bytes_max = index_bytes_max
        self.bytes_since_index_entry = 0
        self.first_timestamp = _UNKNOWN
        self.recently_used = False
        # Where the next segment starts: all batches here end below it.
        self.next_base_offset = OFFSET_MAX
        # The log stops appending here when it would pass this size; nothing fits any more once an index is
        # full.
        self.bytes_max = 0
        self._max_timestamp = _UNKNOWN
        self._offset_of_max_timestamp = base_offset
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TransactionIndex | None = None
        # Whether the indexes on disk are longer than their entries, or lack the one that closes the segment.
        self._touched = False

    def create(self, preallocated_bytes: int = 0) -> None:
        """Make the files of a new segment. Raises OSError, leaving none behind."""
        try:
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                file = self._files.open(self.path(suffix), create=True)
                file.truncate(0)
                if suffix == LOG_SUFFIX:
                    if preallocated_bytes:
                        file.truncate(preallocated_bytes)
                    self._file = file
                else:
                    file.close()
        except OSError:
            self._file = None
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                if self._files.exists(self.path(suffix)):
                    self._files.remove(self.path(suffix))
            raise
        self._touched = True
        self._max_timestamp = -1
        self._open_files.opened(self)

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{offset_name(self.base_offset, suffix)}"

    @property
    def file(self) -> File:
        """The file of batches, opened if need be."""
        return self._file or self.open()

    def open(self) -> File:
        self._file = self._files.open(self.path(LOG_SUFFIX))
        self._open_files.opened(self)
        return self._file

    # -- Writing

    def append(self, data: Buffer, count: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch of `count` bytes. After an OSError nothing has changed."""
        position = self.size
        self.recently_used = True
        try:
            (self._file or self.open()).write_at(data, position)
            if max_timestamp > self._max_timestamp:
                self._note_timestamp(max_timestamp, last_offset)
            if self.bytes_since_index_entry > self.index_interval_bytes:
                self._index(last_offset, position)
        except OSError:
            self._cut_file(position)
            raise
        self.bytes_since_index_entry += count
        self.size = position + count
        if not position:
            self.first_timestamp = max_timestamp

    def append_batches(self, data: memoryview, headers: list[BatchHeader]) -> None:
        """Write adjacent batches at once. After an OSError nothing has changed, but for index entries
        beyond the end, which the next append or the recovery puts right."""
        position = self.size
        if not position:
            self.first_timestamp = headers[0].max_timestamp
        try:
            self.file.write_at(data, position)
        except OSError:
            self._cut_file(self.size)
            raise
        for header in headers:
            if header.max_timestamp > self.max_timestamp:
                self._note_timestamp(header.max_timestamp, header.last_offset)
            if self.bytes_since_index_entry > self.index_interval_bytes:
                self._index(header.last_offset, position)
            self.bytes_since_index_entry += header.size
            position += header.size
        self.size = position

    def _note_timestamp(self, timestamp: int, offset: int) -> None:
        if timestamp > self.max_timestamp:
            self._max_timestamp = timestamp
            self._offset_of_max_timestamp = offset

    def _index(self, last_offset: int, position: int) -> None:
        """Indexes are sparse, so on a full disk, or without a descriptor to spare, the entry waits for a
        later batch, and a full index takes none. Both indexes get it or neither."""
        offsets, times = self.offset_index, self.time_index
        entries = offsets.entries
        is_full = offsets.is_full or times.is_full
        if not is_full:
            self._touched = True
            try:
                offsets.append(last_offset, position)
                times.append(self.max_timestamp, self._offset_of_max_timestamp)
                self.bytes_since_index_entry = 0
                is_full = offsets.is_full or times.is_full
            except OSError as error:
                offsets.truncate_entries(entries)
                if is_final(error):
                    raise
        if is_full:
            self.bytes_max = 0

    def _cut_file(self, size: int) -> None:
        """Try to take back what a failed write left. If that fails too, the next write goes over it."""
        try:
            self.file.truncate(size)
        except OSError:
            pass

    @property
    def has_full_index(self) -> bool:
        return self.offset_index.is_full or self.time_index.is_full

    # -- Reading

    def locate(self, offset: int) -> BatchLocation | None:
        """The first batch that ends at or after `offset`; None if all end before it."""
        position = self.offset_index.lookup(offset).position
        size = self.size
        file = self._file or self.open()
        self.recently_used = True
        while position < size:
            chunk = file.read_at(min(_SCAN_BYTES, size - position), position)
            at, end = 0, len(chunk) - _SPAN_BYTES
            if end < 0:
                raise self.corrupt(position)
            while at <= end:
                base_offset, length, delta = _SPAN(chunk, at)
                if base_offset + delta >= offset:
                    return BatchLocation(
                        position + at, length + LOG_OVERHEAD, base_offset, base_offset + delta
                    )
                if length < _LENGTH_MIN:
                    raise self.corrupt(position + at)
                at += length + LOG_OVERHEAD
            position += at
        return None

    def read_header(self, position: int) -> BatchHeader:
        return parse_header(self.file.read_at(HEADER_BYTES, position))

    def corrupt(self, position: int) -> CorruptFileError:
        return CorruptFileError(f"no batch at position {position} of {self.path(LOG_SUFFIX)}")

    # -- Indexes

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            path = self.path(INDEX_SUFFIX)
            index = OffsetIndex(
                self._files, path, self.base_offset, self._index_bytes_max, self._size_of(path)
            )
            self._offset_index = index
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            path = self.path(TIME_INDEX_SUFFIX)
            index = TimeIndex(self._files, path, self.base_offset, self._index_bytes_max, self._size_of(path))
            self._time_index = index
        return index

    @property
    def txn_index(self) -> TransactionIndex:
        index = self._txn_index
        if index is None:
            index = TransactionIndex(self._files, self.path(TXN_INDEX_SUFFIX), self.base_offset)
            self._txn_index = index
        return index

    def rebuild_aside(self) -> None:
        """Build the offset index under a name that the next start removes, until `put_in_place`: without an
        index a segment is read in whole."""
        path = self.path(INDEX_SUFFIX)
        if self._files.exists(path):
            self._files.remove(path)
        self._files.sync_dir(self.directory)
        self._offset_index = OffsetIndex(
            self._files, path + DELETED_SUFFIX, self.base_offset, self._index_bytes_max, 0
        )

    def put_in_place(self) -> None:
        """The indexes are complete: they are durable before the offset index vouches for them."""
        index = self.offset_index
        for path in (self.path(TIME_INDEX_SUFFIX), self.path(TXN_INDEX_SUFFIX), index.path):
            if self._files.exists(path):
                file = self._files.open(path)
                file.sync()
                file.close()
        self._files.rename(index.path, self.path(INDEX_SUFFIX))
        index.path = self.path(INDEX_SUFFIX)
        self._files.sync_dir(self.directory)

    def reset_indexes(self) -> None:
        """Begin the indexes anew, for a recovery that fills them."""
        for index in (self.offset_index, self.time_index):
            index.truncate_entries(0)
            index.trim()
        self.txn_index.reset()
        self._max_timestamp = -1
        self._offset_of_max_timestamp = self.base_offset
        self.bytes_since_index_entry = 0
        self._touched = True

    def keep_indexes_below(self, offset: int) -> OffsetPosition | None:
        """Keep what the indexes tell of batches below `offset`, all of which is on disk, for a recovery that
        goes on from the entry that is returned. None if they tell nothing."""
        if not self._files.exists(self.path(TIME_INDEX_SUFFIX)):
            return None
        self.offset_index.keep_below(offset, self.size)
        if not self.offset_index.entries:
            return None
        last = self.offset_index.last_entry()
        # Together with that entry went one for the largest timestamp up to there, if it was a new one.
        self.time_index.keep_below(last.offset + 1)
        self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last_entry()
        self.bytes_since_index_entry = 0
        self._touched = True
        return last

    def recover_entry(self, header: BatchHeader, position: int) -> None:
        """Account for a batch that is in the file already."""
        self.time_of(header, position)
        if self.bytes_since_index_entry > self.index_interval_bytes:
            self._index(header.last_offset, position)
        self.bytes_since_index_entry += header.size

    def time_of(self, header: BatchHeader, position: int) -> None:
        if not position:
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
            self._offset_of_max_timestamp = header.last_offset

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the segment as far as its time index tells; -1 if none."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> TimestampOffset:
        """With it, the last offset of the batch that has it."""
        return TimestampOffset(self.max_timestamp, self._offset_of_max_timestamp)

    def _load_max_timestamp(self) -> None:
        if self._time_index is None:
            path = self.path(TIME_INDEX_SUFFIX)
            entry = read_last_entry(self._files, path, self.base_offset, self._size_of(path))
        else:
            entry = self._time_index.last_entry()
        self._max_timestamp, self._offset_of_max_timestamp = entry

    def largest_timestamp(self) -> int:
        """What retention goes by: that of the records, or of the file where they have none."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._files.modified_ms(self.path(LOG_SUFFIX))

    def load_first_timestamp(self) -> int:
        """The timestamp that rolling by time counts from; negative if there is none."""
        if self.first_timestamp == _UNKNOWN and self.size:
            self.first_timestamp = self.read_header(0).max_timestamp
        return self.first_timestamp

    # -- Ends

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop all batches that reach `offset` or beyond."""
        location = self.locate(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self._touched = True
        if location is not None:
            self.cut(location.position)
        if not self.size:
            self.created_ms = now_ms
            self.first_timestamp = _UNKNOWN
        self.bytes_since_index_entry = 0
        self._find_max_timestamp()

    def cut(self, position: int) -> None:
        """Make the file end at the batch boundary `position`."""
        self.file.truncate(position)
        self.size = position

    def _find_max_timestamp(self) -> None:
        entry = self.time_index.last_entry()
        self._max_timestamp, self._offset_of_max_timestamp = entry
        position = self.offset_index.lookup(entry.offset).position
        while position < self.size:
            header = self.read_header(position)
            self.time_of(header, position)
            position += header.size

    def seal(self) -> bool:
        """Enter the largest timestamp and trim the indexes: the segment is rolled, or about to be closed.
        False if that was done."""
        if not self._touched:
            return False
        try:
            self.time_index.append(self.max_timestamp, self._offset_of_max_timestamp)
        except OSError as error:
            # Without room for it the segment only looks older than it is.
            if not is_disk_full(error):
                raise
        self.offset_index.trim()
        self.time_index.trim()
        if self.file.size() != self.size:
            self.file.truncate(self.size)
        self._touched = False
        return True

    def touch(self) -> None:
        """The segment is about to be appended to."""
        self._touched = True

    def flush(self, work: FlushWork) -> None:
        """Add to `work` what makes the segment durable."""
        work.files.append(self.file)
        for index, suffix in ((self._offset_index, INDEX_SUFFIX), (self._time_index, TIME_INDEX_SUFFIX)):
            if index is not None and index.mapping is not None:
                work.mappings.append(index.mapping)
            work.paths.append(self.path(suffix))
        if self._txn_index is not None:
            work.paths.append(self.path(TXN_INDEX_SUFFIX))

    def release_files(self) -> None:
        """Let go of descriptors and mappings. References are dropped, not closed: others may hold them."""
        self._file = None
        if self._offset_index is not None:
            self._offset_index.release()
        if self._time_index is not None:
            self._time_index.release()

    def abandon(self) -> None:
        """Let go of the files as they are."""
        self.release_files()
        self._open_files.closed(self)

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted`; the new paths, to be removed later."""
        self.abandon()
        renamed = []
        for suffix in FILE_SUFFIXES:
            path = self.path(suffix)
            if self._files.exists(path):
                self._files.rename(path, path + DELETED_SUFFIX)
                renamed.append(path + DELETED_SUFFIX)
        return renamed

    def moved_to(self, directory: str) -> None:
        """The directory of the log has a new name."""
        self.directory = directory
        if self._offset_index is not None:
            self._offset_index.path = self.path(INDEX_SUFFIX)
        if self._time_index is not None:
            self._time_index.path = self.path(TIME_INDEX_SUFFIX)
        self._txn_index = None

    def _size_of(self, path: str) -> int:
        return self._files.file_size(path) if self._files.exists(path) else 0
