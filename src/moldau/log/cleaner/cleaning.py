"""Cleaning one log: reads its segments and writes what is left of them beside them.

This runs in a helper process (`runtime/helper.py`), because it burns CPU for as long as there is log to
clean. It reads what does not change, segments below the active one, and writes nothing but `.cleaned` files.
Putting those in place is the node's, which owns the log (`swap.py`).

It is a generator, so that whoever runs it can stop between any two steps: it yields the answers that are to
be told to the node, encoded, and the seconds it has to pause for the sake of
log.cleaner.io.max.bytes.per.second.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.log.batch_scan import marker_type
from moldau.log.cleaner.batch_filter import BatchFilter, check_is_readable, map_batch
from moldau.log.cleaner.cleaned_segment import CleanedSegment
from moldau.log.cleaner.dirt import group_segments
from moldau.log.cleaner.messages import (
    CleaningFailed,
    CleanLog,
    LogCleaned,
    SegmentCleaned,
    Source,
    encode_answer,
)
from moldau.log.cleaner.offset_map import OffsetMap
from moldau.log.cleaner.transactions import CleanedTransactions
from moldau.log.errors import CorruptFileError
from moldau.log.names import LOG_SUFFIX, offset_name
from moldau.records.batch import (
    HEADER_BYTES,
    MAX_TIMESTAMP,
    BatchHeader,
    check_crc,
    iterate_headers,
    parse_header,
)
from moldau.runtime.interfaces import FileSystem
from moldau.wire.errors import KafkaError

_MAX_TIMESTAMP = slice(MAX_TIMESTAMP, MAX_TIMESTAMP + 8)

Step = bytes | float
"""An answer, or how long to pause before the next step."""


def clean(files: FileSystem, request: bytes) -> Iterator[Step]:
    """Answer a `CleanLog`. Every failure is an answer too."""
    try:
        yield from _Cleaning(files, CleanLog.decode(request)).run()
    except OSError as error:
        yield encode_answer(CleaningFailed(errno=error.errno or 0, message=str(error)))
    except (KafkaError, CorruptFileError) as error:
        yield encode_answer(CleaningFailed(errno=0, message=str(error)))


class _Cleaning:
    def __init__(self, files: FileSystem, request: CleanLog) -> None:
        self._files = files
        self._request = request
        self._map = OffsetMap(request.dedupe_bytes, request.dedupe_load_factor)
        self._bytes_mapped = 0
        self._records_invalid = 0
        self._bytes_read = 0
        self._bytes_written = 0

    def run(self) -> Iterator[Step]:
        request = self._request
        yield from self._build_map()
        self._map.complete()
        end_offset = self._map.latest_offset + 1
        sources = [source for source in request.sources if source.base_offset < end_offset]
        transactions = CleanedTransactions(request.aborted)
        batch_filter = BatchFilter(
            self._map,
            transactions,
            request.last_batches,
            request.first_dirty_offset,
            request.end_offset,
            request.now_ms,
            request.delete_retention_ms,
        )
        number = 0
        for count in group_segments(
            sources, request.end_offset, request.segment_bytes, request.index_bytes_max
        ):
            group = sources[number : number + count]
            yield from self._clean_group(group, batch_filter, transactions)
            number += count
        yield encode_answer(
            LogCleaned(
                next_dirty_offset=end_offset,
                buffer_utilization=self._map.utilization,
                bytes_mapped=self._bytes_mapped,
                bytes_read=self._bytes_read,
                bytes_written=self._bytes_written,
                records_read=batch_filter.records_read,
                records_written=batch_filter.records_retained,
                records_invalid=self._records_invalid + batch_filter.records_invalid,
            )
        )

    def _build_map(self) -> Iterator[Step]:
        request, map = self._request, self._map
        start = request.first_dirty_offset
        # The end of those before is not met here, and would be waited for.
        transactions = CleanedTransactions(entry for entry in request.aborted if entry.last_offset >= start)
        sources = request.sources
        for number, source in enumerate(sources):
            end = sources[number + 1].base_offset if number + 1 < len(sources) else request.end_offset
            if end <= start:
                continue
            for chunk, headers in self._chunks(source):
                for position, header in headers:
                    if header.last_offset < start:
                        continue
                    batch = chunk[position : position + header.size]
                    if header.is_control:
                        transactions.on_marker(header, marker_type(batch))
                    elif not transactions.on_batch(header):
                        keyless = map_batch(map, header, batch, start)
                        if keyless < 0:
                            return
                        self._records_invalid += keyless
                    map.latest_offset = max(map.latest_offset, header.last_offset)
                self._bytes_mapped += len(chunk)
                yield self._pause(len(chunk))
            # Offsets may be missing at the end of a segment.
            map.latest_offset = max(map.latest_offset, end - 1)

    def _clean_group(
        self, group: list[Source], batch_filter: BatchFilter, transactions: CleanedTransactions
    ) -> Iterator[Step]:
        request = self._request
        cleaned = CleanedSegment(
            self._files,
            request.directory,
            group[0].base_offset,
            index_interval_bytes=request.index_interval_bytes,
            index_bytes_max=request.index_bytes_max,
            buffer_bytes=request.io_buffer_bytes,
        )
        for source in group:
            for chunk, headers in self._chunks(source):
                written = 0
                for position, header in headers:
                    retained = batch_filter.retain(header, chunk[position : position + header.size])
                    if retained is not None:
                        timestamp = int.from_bytes(retained[_MAX_TIMESTAMP], "big", signed=True)
                        written += cleaned.append(header, timestamp, retained)
                # What was kept as it is lies in the chunk, which is let go of.
                written += cleaned.flush()
                self._bytes_read += len(chunk)
                self._bytes_written += written
                yield self._pause(len(chunk) + written)
        modified_ms = self._files.modified_ms(self._path(group[-1]))
        cleaned.close(transactions.retained, modified_ms)
        transactions.retained = []
        yield encode_answer(SegmentCleaned(count=len(group), size=cleaned.size))

    def _chunks(self, source: Source) -> Iterator[tuple[memoryview, list[tuple[int, BatchHeader]]]]:
        """The batches of a segment, as many at a time as the buffer takes; one at least. Raises
        CorruptFileError or KafkaError unless all of it is sound batches in ascending order."""
        file = self._files.open(self._path(source), read_only=True)
        position, next_offset = 0, source.base_offset
        wanted = buffer_bytes = max(self._request.io_buffer_bytes, HEADER_BYTES)
        while position < source.size:
            data = memoryview(file.read_at(min(wanted, source.size - position), position))
            headers = list(iterate_headers(data))
            if not headers:
                size = parse_header(data).size
                if size <= len(data) or size > source.size - position:
                    raise CorruptFileError(f"no batch at position {position} of {self._path(source)}")
                wanted = size
                continue
            for at, header in headers:
                check_crc(data, header, at)
                check_is_readable(header)
                if header.base_offset < next_offset:
                    raise CorruptFileError(
                        f"a batch at offset {header.base_offset} of {self._path(source)} that does not follow"
                    )
                next_offset = header.next_offset
            at, header = headers[-1]
            end = at + header.size
            position += end
            wanted = buffer_bytes
            yield data[:end], headers
        file.close()

    def _path(self, source: Source) -> str:
        return f"{self._request.directory}/{offset_name(source.base_offset, LOG_SUFFIX)}"

    def _pause(self, io_bytes: int) -> float:
        return io_bytes / self._request.io_bytes_per_second
