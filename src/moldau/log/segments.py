"""The segments of a log, in order, the last of which is active.

Answers for where a batch is and where the next goes: lookup, rolling, truncation, deletion of the oldest.
Knows neither producers nor epochs nor who may read how far.
Invariants: there is at least one segment; each ends below the base offset of the next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from random import Random

from moldau.config.topic import TopicConfig
from moldau.log.flush import FlushWork
from moldau.log.names import CLEANED_SUFFIX, SWAP_SUFFIX
from moldau.log.open_files import OpenFiles
from moldau.log.segment import FILE_SUFFIXES, OFFSET_MAX, RELATIVE_OFFSET_MAX, BatchLocation, Segment
from moldau.records.batch import BatchHeader
from moldau.records.timestamps import find_timestamp, max_timestamp_offset
from moldau.runtime.interfaces import FileSystem

_NEVER = -(1 << 63)
_POSITIONS_MAX = 64
"""Recent batch boundaries remembered, so that readers at the end need no index. At this many, the older half
is forgotten."""


class Segments:
    __slots__ = (
        "_config",
        "_files",
        "_open_files",
        "active",
        "all",
        "bases",
        "directory",
        "offset_max",
        "positions",
        "roll_timestamp",
    )

    def __init__(
        self,
        files: FileSystem,
        open_files: OpenFiles,
        directory: str,
        config: TopicConfig,
        segments: list[Segment],
    ) -> None:
        self._files = files
        self._open_files = open_files
        self._config = config
        self.directory = directory
        self.all = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.positions: dict[int, tuple[Segment, int]] = {}
        # A batch beyond either of these has to go through `segment_for`; so has the first.
        self.roll_timestamp = _NEVER
        self.offset_max = _NEVER

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.all)

    def update_config(self, config: TopicConfig) -> None:
        self._config = config
        self.roll_timestamp = _NEVER
        for segment in self.all:
            segment.index_interval_bytes = config.index_interval_bytes

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """The batch that begins with `offset` is there."""
        positions = self.positions
        positions[offset] = (segment, position)
        if len(positions) >= _POSITIONS_MAX:
            for old in list(positions)[: _POSITIONS_MAX // 2]:
                del positions[old]

    # -- Where the next batch goes

    def segment_for(
        self, count: int, max_timestamp: int, first_offset: int, last_offset: int, now_ms: int
    ) -> tuple[Segment, bool]:
        """The segment to append `count` bytes to, and whether it was begun for them: the active one is full
        or old."""
        segment = self.active
        if self.roll_timestamp == _NEVER:
            self._set_limits(segment)
        rolls = (
            (segment.size and segment.size + count > self._config.segment_bytes)
            or (segment.size and self._has_waited(segment, max_timestamp, now_ms))
            or last_offset > self.offset_max
            or segment.has_full_index
        )
        if rolls and first_offset != segment.base_offset:
            segment = self.roll(first_offset, now_ms)
            self._set_limits(segment)
        if not segment.size:
            self._count_age_from(max_timestamp)
        return segment, segment.base_offset == first_offset

    def _set_limits(self, segment: Segment) -> None:
        segment.touch()
        segment.bytes_max = 0 if segment.has_full_index else self._config.segment_bytes
        self.offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        self._count_age_from(segment.load_first_timestamp())

    def _count_age_from(self, timestamp: int) -> None:
        """Age counts from the first batch; where that has no time, every append has to look at the clock."""
        self.roll_timestamp = timestamp + self._roll_after_ms() if timestamp >= 0 else _NEVER + 1

    def _roll_after_ms(self) -> int:
        config = self._config
        jitter = min(config.segment_jitter_ms, config.segment_ms_max)
        if jitter > 0:
            # The same as often as it is asked for one segment, and another for each segment.
            jitter = Random(f"{self.directory}/{self.active.base_offset}").randrange(jitter)
        return config.segment_ms_max - jitter

    def _has_waited(self, segment: Segment, max_timestamp: int, now_ms: int) -> bool:
        first = segment.load_first_timestamp()
        waited = max_timestamp - first if first >= 0 else now_ms - segment.created_ms
        return waited > self._roll_after_ms()

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Begin a new segment. After an OSError the old one is active still, and no file is left that says
        otherwise: a recovery would cut the old one off where the new one was to begin."""
        previous = self.active
        previous.seal()
        try:
            segment = self._create(base_offset, now_ms)
        except OSError:
            previous.touch()
            raise
        previous.next_base_offset = base_offset
        self.all.append(segment)
        self.bases.append(base_offset)
        self._changed()
        return segment

    def _create(self, base_offset: int, now_ms: int) -> Segment:
        config = self._config
        segment = self._segment(base_offset, 0, now_ms)
        segment.create(config.segment_bytes if config.preallocate else 0)
        return segment

    def _segment(self, base_offset: int, size: int, now_ms: int) -> Segment:
        config = self._config
        return Segment(
            self._files,
            self._open_files,
            self.directory,
            base_offset,
            size,
            now_ms,
            config.segment_index_bytes,
            config.index_interval_bytes,
        )

    def _changed(self) -> None:
        self.active = self.all[-1]
        self.active.next_base_offset = OFFSET_MAX
        self.positions.clear()
        self.roll_timestamp = _NEVER

    # -- Where a batch is

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that `offset` falls into, and those after it."""
        return self.all[max(bisect_right(self.bases, offset) - 1, 0) :]

    def locate(self, offset: int) -> tuple[Segment, BatchLocation] | None:
        """The first batch that ends at or after `offset`, in whichever segment it is."""
        for segment in self.from_offset(offset):
            location = segment.locate(offset)
            if location is not None:
                return segment, location
        return None

    def position_of(self, offset: int, segment: Segment) -> int:
        """Where in `segment` the batches begin that reach `offset` or beyond."""
        known = self.positions.get(offset)
        if known is not None and known[0] is segment:
            return known[1]
        location = segment.locate(offset)
        if location is None:
            return segment.size
        self.remember(offset, segment, location.position)
        return location.position

    def end_of(self, base_offset: int, position: int, log_end_offset: int) -> int:
        """An offset above every batch that begins before `position` in the segment of that base: as near as
        the index tells without reading."""
        number = bisect_right(self.bases, base_offset) - 1
        entry = self.all[number].offset_index.first_at_or_after(position) if number >= 0 else None
        if entry is not None:
            return entry.offset
        return self.bases[number + 1] if number + 1 < len(self.bases) else log_end_offset

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> tuple[int, int, int] | None:
        """Timestamp, offset and leader epoch of the first record at or after both."""
        for segment in self.from_offset(start_offset):
            if segment.largest_timestamp() < timestamp_ms:
                continue
            start = max(segment.time_index.lookup(timestamp_ms).offset, start_offset)
            for header, position in self._headers(segment, start):
                if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
                    found = find_timestamp(
                        segment.file.read_at(header.size, position), timestamp_ms, start_offset
                    )
                    if found is not None:
                        return (*found, header.leader_epoch)
        return None

    def find_max_timestamp(self) -> tuple[int, int, int] | None:
        """Timestamp, offset and leader epoch of the first record with the largest timestamp."""
        segment = max(self.all, key=lambda segment: segment.max_timestamp)
        timestamp, last_offset = segment.max_timestamp_offset
        for header, position in self._headers(segment, last_offset):
            if header.max_timestamp == timestamp:
                offset = max_timestamp_offset(segment.file.read_at(header.size, position))
                if offset is not None:  # compaction leaves a batch without records its time
                    return timestamp, offset, header.leader_epoch
        return None

    @staticmethod
    def _headers(segment: Segment, offset: int) -> Iterator[tuple[BatchHeader, int]]:
        position = segment.offset_index.lookup(offset).position
        while position < segment.size:
            header = segment.read_header(position)
            yield header, position
            position += header.size

    # -- Ends

    def end_offsets(self, log_end_offset: int) -> list[int]:
        return [*self.bases[1:], log_end_offset]

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop all batches that reach `offset` or beyond. The first segment starts at or below it."""
        while self.bases[-1] > offset:
            self._remove(self.all.pop())
            self.bases.pop()
        self._changed()
        self.active.truncate_to(offset, now_ms)

    def start_at(self, offset: int, now_ms: int) -> None:
        """Drop everything, and begin anew. If there is no room for that, nothing has changed."""
        first = next((segment for segment in self.all if segment.base_offset == offset), None)
        if first is None:
            first = self._create(offset, now_ms)
        for segment in self.all:
            if segment is not first:
                self._remove(segment)
        if first.size:
            first.truncate_to(offset, now_ms)
        self.all[:] = [first]
        self.bases[:] = [offset]
        self._changed()

    def _remove(self, segment: Segment) -> None:
        for path in segment.mark_deleted():
            self._files.remove(path)

    def take_oldest(self, count: int) -> list[Segment]:
        """Take the `count` oldest segments out; there must be more than that."""
        taken = self.all[:count]
        del self.all[:count], self.bases[:count]
        self.positions.clear()
        return taken

    def hold(self, sources: list[Segment]) -> bool:
        """Whether these are neighbours here, below the active one."""
        start = bisect_right(self.bases, sources[0].base_offset) - 1
        end = start + len(sources)
        return start >= 0 and end < len(self.all) and self.all[start:end] == sources

    def replace(self, sources: list[Segment], size: int, now_ms: int) -> list[str]:
        """Put the `.cleaned` files in the place of `sources`; the paths of what is to be removed later.

        The order is what makes a crash harmless. As long as one file is `.cleaned` the next start drops them
        all; once all are `.swap` it finishes this. Sources go from the first on, so that those that are left
        are the newest of them, whole.
        """
        assert self.hold(sources)
        segment = self._segment(sources[0].base_offset, size, now_ms)
        segment.next_base_offset = sources[-1].next_base_offset
        paths = [
            path
            for suffix in FILE_SUFFIXES
            if self._files.exists((path := segment.path(suffix)) + CLEANED_SUFFIX)
        ]
        for path in paths:
            self._files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        deleted: list[str] = []
        for source in sources:
            deleted += source.mark_deleted()
        for path in paths:
            self._files.rename(path + SWAP_SUFFIX, path)
        start = bisect_right(self.bases, segment.base_offset) - 1
        end = start + len(sources)
        self.all[start:end] = [segment]
        self.bases[start:end] = [segment.base_offset]
        self.positions.clear()
        return deleted

    def flush(self, work: FlushWork, start_offset: int) -> None:
        for segment in self.from_offset(start_offset):
            if segment.base_offset < work.up_to:
                segment.flush(work)

    def moved_to(self, directory: str) -> None:
        self.directory = directory
        for segment in self.all:
            segment.moved_to(directory)
