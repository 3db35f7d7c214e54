"""Opening a log: from the files in its directory to segments, leader epochs and producers that agree with
them.

After a clean shutdown files are trusted and only the end is looked at. Otherwise everything from the
recovery point on is read: batches up to the first that is torn, corrupt or out of order stay, all after it
goes, and the indexes are built anew. What is below the recovery point was synced with its indexes and is not
read, but for what lies between it and the last entry of the offset index before it. Producers come from the
newest valid snapshot and the batches after it.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from moldau.config.topic import TopicConfig
from moldau.log.batch_scan import apply_batch, complete, scan_batches
from moldau.log.errors import CorruptFileError
from moldau.log.leader_epochs import LeaderEpochs
from moldau.log.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_name,
    offset_of,
)
from moldau.log.open_files import OpenFiles
from moldau.log.producer_snapshot import decode_snapshot
from moldau.log.producer_state import ProducerState
from moldau.log.segment import OFFSET_MAX, RELATIVE_OFFSET_MAX, Segment
from moldau.records.batch import HEADER_BYTES, LOG_OVERHEAD, BatchHeader, check_crc
from moldau.runtime.interfaces import FileSystem
from moldau.wire.errors import KafkaError

_INDEX_ENTRY = struct.Struct(">ii")
_SPAN = struct.Struct(">qi11xi").unpack_from
_SPAN_BYTES = 27
_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD
_TAIL_BYTES = 4096
_KRAFT_SNAPSHOT_DELETED = ".checkpoint.deleted"


class _DamageBelowRecoveryPoint(Exception):
    """What a snapshot of the producers tells of is not there, although it was synced."""


class _Start(NamedTuple):
    """Where reading begins in the first unsure segment."""

    position: int
    offset: int
    synced_offset: int
    """A snapshot up to there tells of what is on disk."""


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    segments: list[Segment]
    log_start_offset: int
    recovery_point: int
    log_end_offset: int
    epochs: LeaderEpochs
    producers: ProducerState
    snapshots: list[int]
    """Offsets of the producer snapshots that are kept, ascending."""


@dataclass(slots=True, kw_only=True)
class LogLoader:
    files: FileSystem
    open_files: OpenFiles
    directory: str
    name: str
    config: TopicConfig
    log_start_offset: int
    recovery_point: int
    had_clean_shutdown: bool
    now_ms: int
    trusts_indexes: bool = True
    """Whether those of a segment that was synced in part save reading that part."""

    def load(self) -> LoadedLog:
        """Raises OSError if the disk does not answer."""
        try:
            return self._load()
        except _DamageBelowRecoveryPoint:
            return replace(self, trusts_indexes=False)._load()

    def _load(self) -> LoadedLog:
        names = self._remove_leftovers(self.files.list_dir(self.directory))
        segments = self._find_segments(names)
        snapshots = sorted(
            offset for name in names if (offset := _named_by(name, SNAPSHOT_SUFFIX)) is not None
        )
        epochs, is_changed = self._load_epochs()
        producers = ProducerState(self.name)
        unsure = self._find_unsure(segments, names)
        end_offset = self._end_of(segments, unsure)
        start = self._find_start(unsure)
        self._load_producers(producers, snapshots, segments, start, end_offset)
        if start is not None:
            self._recover_from(segments, unsure, start, producers, epochs)
            end_offset = producers.end_offset
        if segments and end_offset < self.log_start_offset:
            # Files were lost. Nothing that is left may be served.
            self._remove(segments, 0)
            epochs.truncate_from_end(0)
            producers.reset(self.log_start_offset)
            is_changed = True
        if not segments:
            end_offset = self.log_start_offset
            producers.reset(end_offset)
            segments.append(self._segment(self.log_start_offset, 0))
            segments[0].create(self.config.segment_bytes if self.config.preallocate else 0)
        log_start_offset = max(self.log_start_offset, segments[0].base_offset)
        epochs.truncate_from_start(log_start_offset)
        if epochs.truncate_from_end(end_offset) or is_changed:
            epochs.write()
        return LoadedLog(
            segments=segments,
            log_start_offset=log_start_offset,
            recovery_point=end_offset
            if self.had_clean_shutdown and not unsure
            else min(self.recovery_point, end_offset),
            log_end_offset=end_offset,
            epochs=epochs,
            producers=producers,
            snapshots=self._keep_snapshots(snapshots, segments, end_offset),
        )

    def rebuild_producers(
        self, snapshots: list[int], segments: list[Segment], end_offset: int
    ) -> ProducerState:
        """The producers of a log that was truncated to `end_offset`. Bad snapshots are removed, from the list
        too."""
        producers = ProducerState(self.name)
        self._load_producers(producers, snapshots, segments, None, end_offset)
        return producers

    # -- What is there

    def _remove_leftovers(self, names: list[str]) -> list[str]:
        """Finish what a crash interrupted: deletions, and the swap of cleaned segments for the originals."""
        if not any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
            return names
        cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
        # A .cleaned file means that its group was not complete: swaps at or above it are not to be trusted.
        least_cleaned = min((offset_of(name) or 0 for name in cleaned), default=1 << 63)
        swaps = [
            name for name in names if name.endswith(SWAP_SUFFIX) and (offset_of(name) or 0) < least_cleaned
        ]
        for name in names:
            if name.endswith(_KRAFT_SNAPSHOT_DELETED):
                continue
            if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)) or (
                name.endswith(SWAP_SUFFIX) and name not in swaps
            ):
                self.files.remove(f"{self.directory}/{name}")
        self._complete_swaps(swaps)
        return self.files.list_dir(self.directory)

    def _complete_swaps(self, swaps: list[str]) -> None:
        logs = [name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
        if logs:
            first = min(offset_of(name) or 0 for name in logs)
            after = max(self._swap_end(name) for name in logs)
            for name in self.files.list_dir(self.directory):
                offset = offset_of(name)
                if offset is not None and first <= offset < after and not name.endswith(SWAP_SUFFIX):
                    self.files.remove(f"{self.directory}/{name}")
        for name in swaps:
            path = f"{self.directory}/{name}"
            self.files.rename(path, path.removesuffix(SWAP_SUFFIX))

    def _swap_end(self, name: str) -> int:
        file = self.files.open(f"{self.directory}/{name}", read_only=True)
        end = offset_of(name) or 0
        for _, header, _ in scan_batches(file, 0, file.size()):
            end = header.next_offset
        file.close()
        return end

    def _find_segments(self, names: list[str]) -> list[Segment]:
        present = set(names)
        segments = []
        for name in names:
            offset = _named_by(name, LOG_SUFFIX)
            if offset is not None:
                segments.append(self._segment(offset, self.files.file_size(f"{self.directory}/{name}")))
            elif name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)):
                offset = offset_of(name)
                if offset is not None and offset_name(offset, LOG_SUFFIX) not in present:
                    self.files.remove(f"{self.directory}/{name}")
        segments.sort(key=lambda segment: segment.base_offset)
        for segment, following in itertools.pairwise(segments):
            segment.next_base_offset = following.base_offset
        return segments

    def _segment(self, base_offset: int, size: int) -> Segment:
        config = self.config
        return Segment(
            self.files,
            self.open_files,
            self.directory,
            base_offset,
            size,
            self.now_ms,
            config.segment_index_bytes,
            config.index_interval_bytes,
        )

    def _load_epochs(self) -> tuple[LeaderEpochs, bool]:
        path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
        try:
            return LeaderEpochs.load(self.files, path), False
        except CorruptFileError:
            return LeaderEpochs(self.files, path), True

    # -- What can be trusted

    def _find_unsure(self, segments: list[Segment], names: list[str]) -> list[Segment]:
        """The segments to read in whole: all that may have been unsynced, and any without an index."""
        present = set(names)
        return [
            segment
            for segment in segments
            if (not self.had_clean_shutdown and segment.next_base_offset > self.recovery_point)
            or offset_name(segment.base_offset, INDEX_SUFFIX) not in present
        ]

    def _end_of(self, segments: list[Segment], unsure: list[Segment]) -> int:
        """The end offset, from the last segment. If that does not end as it should, it joins `unsure`."""
        if not segments or (unsure and unsure[-1] is segments[-1]):
            return 0
        end_offset = self._read_end(segments[-1])
        if end_offset is None:
            unsure.append(segments[-1])
            return 0
        return end_offset

    def _read_end(self, segment: Segment) -> int | None:
        """The offset after the last batch, found from the last index entry on; None if the file does not end
        with a whole batch, or the index is not one."""
        if not segment.size:
            return segment.base_offset
        index = self.files.open(segment.path(INDEX_SUFFIX), read_only=True)
        size = index.size()
        last = index.read_at(_INDEX_ENTRY.size, max(0, size - _INDEX_ENTRY.size))
        index.close()
        if size % _INDEX_ENTRY.size:
            return None
        relative, position = _INDEX_ENTRY.unpack(last) if size else (0, 0)
        if size and not position:
            # It was not trimmed: no entry is for the first batch.
            return None
        file = self.files.open(segment.path(LOG_SUFFIX), read_only=True)
        end_offset = _read_end(file.read_at, position, segment.size, segment.base_offset + relative)
        file.close()
        return end_offset

    def _find_start(self, unsure: list[Segment]) -> _Start | None:
        """The last batch below the recovery point that the index of its segment knows, or the beginning of
        the segment. None if there is nothing to read."""
        if not unsure:
            return None
        segment = unsure[0]
        beginning = _Start(0, segment.base_offset, segment.base_offset)
        if self.had_clean_shutdown or segment.base_offset >= self.recovery_point or not self.trusts_indexes:
            return beginning
        entry = segment.keep_indexes_below(self.recovery_point)
        if entry is None:
            return beginning
        try:
            segment.txn_index.entries()
            header = segment.read_header(entry.position)
        except (CorruptFileError, KafkaError):
            return beginning
        if not segment.base_offset <= header.base_offset <= header.last_offset == entry.offset:
            return beginning
        return _Start(entry.position, header.base_offset, self.recovery_point)

    # -- Producers

    def _load_producers(
        self,
        producers: ProducerState,
        snapshots: list[int],
        segments: list[Segment],
        start: _Start | None,
        end_offset: int,
    ) -> None:
        """Bring the producers up to where the recovery starts, or to the end. A snapshot may be from further
        on, as long as what it tells of was synced."""
        up_to = newest = end_offset
        if start is not None:
            up_to, newest = start.offset, start.synced_offset
        for offset in reversed([offset for offset in snapshots if offset <= newest]):
            path = f"{self.directory}/{offset_name(offset, SNAPSHOT_SUFFIX)}"
            try:
                producers.load(decode_snapshot(self.files.read_bytes(path), path), offset)
            except CorruptFileError:
                self.files.remove(path)
                snapshots.remove(offset)
                continue
            break
        else:
            if self.had_clean_shutdown and start is None:
                # No snapshot although it was closed properly: nothing to remember.
                producers.reset(up_to)
                return
            producers.reset(segments[0].base_offset if segments else 0)
        for segment in segments:
            if segment.next_base_offset > producers.end_offset < up_to and segment.base_offset < up_to:
                self._replay(segment, producers, up_to)
        producers.end_offset = max(producers.end_offset, up_to)

    def _replay(self, segment: Segment, producers: ProducerState, up_to: int) -> None:
        location = segment.locate(producers.end_offset)
        if location is None:
            return
        for _, header, batch in scan_batches(segment.file, location.position, segment.size):
            if header.base_offset >= up_to:
                return
            self._apply(header, batch, producers, None)

    def _apply(
        self, header: BatchHeader, batch: memoryview, producers: ProducerState, indexed: Segment | None
    ) -> None:
        """Tell the producers about a batch, and the transaction index of the segment being recovered."""
        completed = apply_batch(producers, header, batch)
        if completed is not None:
            complete(producers, completed, None if indexed is None else indexed.txn_index)
        producers.end_offset = header.next_offset

    # -- Recovery

    def _recover_from(
        self,
        segments: list[Segment],
        unsure: list[Segment],
        start: _Start,
        producers: ProducerState,
        epochs: LeaderEpochs,
    ) -> None:
        """Read the segments from the start in the first unsure one on. Afterwards `segments` are those that
        remain, and the producers are at the end of the log."""
        first = segments.index(unsure[0])
        for number in range(first, len(segments)):
            segment = segments[number]
            if number > first and self._is_after_hole(segment, producers.end_offset):
                self._remove(segments, number)
                segments[-1].next_base_offset = OFFSET_MAX
                return
            producers.end_offset = max(producers.end_offset, segment.base_offset)
            if segment not in unsure:
                self._replay(segment, producers, segment.next_base_offset)
                continue
            if number > first:
                start = _Start(0, segment.base_offset, segment.base_offset)
            is_aside = not start.position and self._will_be_trusted(segment)
            if is_aside:
                segment.rebuild_aside()
            valid_bytes = self._recover(segment, start, producers, epochs)
            is_whole = valid_bytes == segment.size
            if not is_whole:
                # What follows goes first, so that a crash in between leaves the damage to be found again.
                self._remove(segments, number + 1)
                segment.next_base_offset = OFFSET_MAX
                segment.cut(valid_bytes)
            segment.seal()
            if is_aside:
                segment.put_in_place()
            segment.abandon()
            if not is_whole:
                return

    def _will_be_trusted(self, segment: Segment) -> bool:
        """Whether the next recovery would take the indexes of this segment for synced with its batches,
        although they are being built anew. Where there is no index entry, that is no matter."""
        if self.had_clean_shutdown or segment.next_base_offset <= self.recovery_point:
            return True
        return segment.base_offset < self.recovery_point and segment.size > self.config.index_interval_bytes

    def _is_after_hole(self, segment: Segment, end_offset: int) -> bool:
        """Whether batches before an unsynced segment were lost with nothing to show for it: a file whose size
        or name was not durable. Compaction leaves such gaps on purpose. So may a follower's truncation, which
        then gets what is removed here from its leader once more."""
        return (
            end_offset < segment.base_offset
            and segment.base_offset > self.recovery_point
            and not self.had_clean_shutdown
            and "compact" not in self.config.cleanup_policy
        )

    def _recover(
        self, segment: Segment, start: _Start, producers: ProducerState, epochs: LeaderEpochs
    ) -> int:
        """Rebuild the indexes of a segment from there on. Up to which position its batches are valid."""
        if not start.position:
            segment.reset_indexes()
        else:
            segment.txn_index.truncate_to(max(start.offset, producers.end_offset))
        valid, last_offset = start.position, start.offset - 1
        for position, header, batch in scan_batches(segment.file, valid, segment.size):
            try:
                check_crc(batch, header)
                if (
                    not last_offset
                    < header.base_offset
                    <= header.last_offset
                    <= min(segment.base_offset + RELATIVE_OFFSET_MAX, segment.next_base_offset - 1)
                ):
                    break
                if header.base_offset >= producers.end_offset:
                    self._apply(header, batch, producers, segment)
            except (KafkaError, CorruptFileError):
                break
            segment.recover_entry(header, position)
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)
            valid = position + header.size
            last_offset = header.last_offset
        if last_offset + 1 < producers.end_offset:
            segment.abandon()
            raise _DamageBelowRecoveryPoint
        return valid

    def _remove(self, segments: list[Segment], start: int) -> None:
        """The last first, and durably: whatever a crash leaves of it, there is no hole."""
        if len(segments) > start:
            for segment in reversed(segments[start:]):
                for path in segment.mark_deleted():
                    self.files.remove(path)
            self.files.sync_dir(self.directory)
            del segments[start:]

    def _keep_snapshots(self, snapshots: list[int], segments: list[Segment], end_offset: int) -> list[int]:
        """Of the snapshots keep those a recovery can start from: at the base of a segment, and the newest."""
        bases = {segment.base_offset for segment in segments}
        usable = [offset for offset in snapshots if offset <= end_offset]
        kept = [offset for offset in usable if offset in bases or offset == usable[-1]]
        for offset in set(snapshots).difference(kept):
            self.files.remove(f"{self.directory}/{offset_name(offset, SNAPSHOT_SUFFIX)}")
        return kept


def _read_end(read_at: Callable[[int, int], bytes], position: int, size: int, last_offset: int) -> int | None:
    """Walk headers from `position`, where the batch that ends at `last_offset` starts (or the first batch, at
    zero), to `size`; None if they do not lead there."""
    is_first, next_offset = position > 0, -1
    while position < size:
        chunk = read_at(min(_TAIL_BYTES, size - position), position)
        at, end = 0, len(chunk) - _SPAN_BYTES
        if end < 0:
            return None
        while at <= end:
            base_offset, length, delta = _SPAN(chunk, at)
            if length < _LENGTH_MIN or delta < 0 or base_offset < next_offset:
                return None
            if is_first and base_offset + delta != last_offset:
                return None
            is_first = False
            next_offset = base_offset + delta + 1
            at += length + LOG_OVERHEAD
        position += at
    return next_offset if position == size else None


def _named_by(name: str, suffix: str) -> int | None:
    return offset_of(name) if name.endswith(suffix) and name.count(".") == 1 else None
