"""What is to be cleaned of a log, as it is at this moment: the request for the helper, and how to tell later
whether the log is still the one that the request was about."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.config.sections.log import Cleaner
from moldau.log.cleaner.dirt import Dirt, first_dirty_offset, measure
from moldau.log.cleaner.messages import CleanLog, LastBatch, Source
from moldau.log.errors import storage_error
from moldau.log.log import Log
from moldau.log.segment import Segment

DEDUPE_BYTES_MAX = (1 << 31) - 1
"""As in Kafka, which cannot use more for one worker."""


def measure_log(log: Log, now_ms: int) -> Dirt:
    """Raises KafkaError, and CorruptFileError if an index of the log cannot be read."""
    segments = log.segments
    first_dirty = first_dirty_offset(log.cleaned_offset, log.log_start_offset, log.log_end_offset)
    try:
        return measure(segments.all, segments.bases, first_dirty, log.last_stable_offset, log.config, now_ms)
    except OSError as error:
        raise storage_error(log.log_dir, error) from error


@dataclass(slots=True)
class Cleaning:
    """One cleaning of one log."""

    log: Log
    request: CleanLog
    sources: list[Segment]
    """Those that are not replaced yet."""
    truncations: int

    @classmethod
    def of(cls, log: Log, dirt: Dirt, options: Cleaner, now_ms: int) -> Cleaning:
        """Raises KafkaError, and CorruptFileError if an index of the log cannot be read."""
        sources = [segment for segment in log.segments.all if segment.base_offset < dirt.end_offset]
        config = log.config
        try:
            described = [
                Source(
                    base_offset=segment.base_offset,
                    size=segment.size,
                    index_bytes=segment.offset_index.used_bytes,
                    time_index_bytes=segment.time_index.used_bytes,
                )
                for segment in sources
            ]
        except OSError as error:
            raise storage_error(log.log_dir, error) from error
        request = CleanLog(
            directory=log.directory,
            sources=described,
            first_dirty_offset=dirt.first_dirty_offset,
            end_offset=dirt.end_offset,
            aborted=log.aborted_transactions(sources[0].base_offset, dirt.end_offset),
            last_batches={
                producer_id: LastBatch(entry.last_offset, entry.epoch)
                for producer_id, entry in log.producers.producers.items()
            },
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            index_bytes_max=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            dedupe_bytes=min(options.dedupe_buffer_size // options.threads, DEDUPE_BYTES_MAX),
            dedupe_load_factor=options.io_buffer_load_factor,
            io_buffer_bytes=max(options.io_buffer_size // options.threads // 2, 1),
            io_bytes_per_second=options.io_max_bytes_per_second / options.threads,
        )
        return cls(log, request, sources, log.truncations)

    def is_current(self) -> bool:
        """Whether what is left to be cleaned is still there, and to be cleaned."""
        log = self.log
        return (
            log.directory == self.request.directory
            and log.truncations == self.truncations
            and log.config.compact
            and (not self.sources or log.segments.hold(self.sources))
        )

    def replace(self, count: int, size: int, now_ms: int) -> None:
        """Put what was made of the next `count` segments in their place. Raises LogDirError."""
        taken, self.sources = self.sources[:count], self.sources[count:]
        self.log.replace_segments(taken, size, now_ms)
