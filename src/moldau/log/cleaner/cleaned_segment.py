"""The files of a segment that a cleaning writes: batches and indexes, each with `.cleaned` behind its name.

Nobody trusts a file of that name: a recovery removes it. Once `close` has returned everything is durable, and
whoever owns the log may rename the files into place.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from moldau.log.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_name,
)
from moldau.log.offset_index import OffsetIndex
from moldau.log.segment import FILE_SUFFIXES
from moldau.log.time_index import TimeIndex
from moldau.log.transaction_index import AbortedTransaction, TransactionIndex
from moldau.records.batch import BatchHeader
from moldau.runtime.interfaces import Buffer, File, FileSystem

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class CleanedSegment:
    __slots__ = (
        "_buffer",
        "_buffer_bytes",
        "_bytes_since_entry",
        "_directory",
        "_file",
        "_files",
        "_index",
        "_index_bytes_max",
        "_index_interval_bytes",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_time_index",
        "_time_index_last",
        "_written",
        "base_offset",
        "size",
    )

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        index_bytes_max: int,
        buffer_bytes: int,
    ) -> None:
        """Creates the file of batches; one that an earlier cleaning left behind is gone."""
        self._files = files
        self._directory = directory
        self.base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._index_bytes_max = index_bytes_max
        self._buffer_bytes = buffer_bytes
        self._buffer: list[Buffer] = []
        self.size = 0
        self._written = 0
        self._bytes_since_entry = 0
        self._index = bytearray()
        self._time_index = bytearray()
        self._time_index_last = -1
        self._max_timestamp = -1
        self._offset_of_max_timestamp = base_offset
        for suffix in FILE_SUFFIXES:
            if files.exists(self._path(suffix)):
                files.remove(self._path(suffix))
        self._file: File = files.open(self._path(LOG_SUFFIX), create=True)

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{offset_name(self.base_offset, suffix)}{CLEANED_SUFFIX}"

    def append(self, header: BatchHeader, max_timestamp: int, batch: Buffer) -> int:
        """Append a batch that has these offsets. How many bytes went to the file meanwhile."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = header.last_offset
        if self._bytes_since_entry > self._index_interval_bytes:
            self._enter(header.last_offset)
        self._buffer.append(batch)
        size = len(batch)
        self._bytes_since_entry += size
        self.size += size
        return self.flush() if self.size - self._written >= self._buffer_bytes else 0

    def flush(self) -> int:
        count = self.size - self._written
        if count:
            self._file.write_at(b"".join(self._buffer), self._written)
            self._buffer.clear()
            self._written = self.size
        return count

    def _enter(self, last_offset: int) -> None:
        """Both indexes get an entry, or neither. One slot is kept for the entry that closes the segment."""
        is_full = (
            len(self._index) + OffsetIndex.ENTRY_BYTES > self._index_bytes_max
            or len(self._time_index) + 2 * TimeIndex.ENTRY_BYTES > self._index_bytes_max
        )
        if is_full:
            return
        self._index += _OFFSET_ENTRY.pack(last_offset - self.base_offset, self.size)
        self._enter_time()
        self._bytes_since_entry = 0

    def _enter_time(self) -> None:
        if self._max_timestamp > self._time_index_last:
            self._time_index += _TIME_ENTRY.pack(
                self._max_timestamp, self._offset_of_max_timestamp - self.base_offset
            )
            self._time_index_last = self._max_timestamp

    def close(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> None:
        """Write what is left, and the indexes, and make everything durable. The file of batches is as old as
        `modified_ms` says: retention goes by that where records have no time."""
        self.flush()
        self._enter_time()
        for suffix, data in ((INDEX_SUFFIX, self._index), (TIME_INDEX_SUFFIX, self._time_index)):
            file = self._files.open(self._path(suffix), create=True)
            if data:
                file.write_at(data, 0)
            file.sync()
            file.close()
        if aborted:
            index = TransactionIndex(self._files, self._path(TXN_INDEX_SUFFIX), self.base_offset)
            for transaction in aborted:
                index.append(transaction)
            index.flush()
        self._file.sync()
        self._file.close()
        self._files.set_modified_ms(self._path(LOG_SUFFIX), modified_ms)
        self._files.sync_dir(self._directory)
