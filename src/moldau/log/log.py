"""One partition's log in one directory: append, read, truncate, retain.

Offsets are given here, errors are Kafka's, and the file system is the one passed in. Knows nothing of
replication: whoever does says where the high watermark is. Synchronous, and used from one thread; only a
`FlushWork` may run in another.
Invariants: log_start_offset <= high_watermark <= log_end_offset; what is acknowledged is in the file, in the
segment list and in the producer state, and what failed is in none of them.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from moldau.config.topic import TopicConfig
from moldau.log.append_rules import AppendRules, whole_batch
from moldau.log.batch_scan import apply_batch, check_coordinator_batch, complete
from moldau.log.errors import CorruptFileError, LogDirError, NotInTransaction, storage_error
from moldau.log.flush import FlushWork
from moldau.log.names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from moldau.log.open_files import OpenFiles
from moldau.log.partition_metadata import NO_TOPIC_ID, encode_partition_metadata, read_topic_id
from moldau.log.producer_snapshots import ProducerSnapshots
from moldau.log.producer_state import ProducerState, Verification
from moldau.log.recovery import LoadedLog, LogLoader
from moldau.log.retention import breached_by_size, breached_by_start, breached_by_time
from moldau.log.segment import NEVER_CLEANED, Segment
from moldau.log.segments import Segments
from moldau.log.transaction_index import AbortedTransaction
from moldau.records.batch import HEADER, BatchHeader, check_crc, iterate_headers, stamp
from moldau.runtime.interfaces import File, FileSystem
from moldau.wire.errors import ErrorCode, KafkaError

_unpack_header = HEADER.unpack_from
_new_tuple = tuple.__new__
_pack_stamp = struct.Struct(">qii").pack_into


class AppendOrigin(Enum):
    """Who appends decides what is checked: Kafka's own names."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2
    RAFT_LEADER = 3


_CLIENT, _COORDINATOR = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


class Slice(NamedTuple):
    """`count` bytes of `file`: whole batches, of which the last may be cut short by the limit on bytes."""

    file: File
    position: int
    count: int  # type: ignore[assignment]
    segment_base_offset: int
    is_recent: bool = False
    """It begins with one of the newest batches, which are in the page cache for sure."""

    @property
    def is_cached(self) -> bool:
        """Reading it will not wait for the disk."""
        return self.is_recent or not self.count or self.file.is_cached(self.count, self.position)


class FoundOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class Log:
    __slots__ = (
        "_deletions",
        "_files",
        "_flush_messages",
        "_is_entry_synced",
        "_last_flush_ms",
        "_producers",
        "_rules",
        "_segments",
        "_snapshots",
        "_truncations",
        "cleaned_offset",
        "config",
        "directory",
        "high_watermark",
        "leader_epochs",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "recovery_point",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        files: FileSystem,
        open_files: OpenFiles,
        log_dir: str,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        loaded: LoadedLog,
        now_ms: int,
    ) -> None:
        """Use `Log.open`."""
        self._files = files
        self.log_dir = log_dir
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.leader_epochs = loaded.epochs
        self._producers = loaded.producers
        self._snapshots = ProducerSnapshots(files, directory, loaded.snapshots)
        self._segments = Segments(files, open_files, directory, config, loaded.segments)
        self._deletions: list[tuple[int, list[str]]] = []
        self._last_flush_ms = now_ms
        self._truncations = 0
        self.cleaned_offset = NEVER_CLEANED
        """Everything below was compacted; the cleaner's checkpoint."""
        # Whether the name of the directory is known to be durable: a log that is lost whole is lost, too.
        self._is_entry_synced = False
        self.update_config(config)

    @classmethod
    def open(
        cls,
        files: FileSystem,
        open_files: OpenFiles,
        log_dir: str,
        name: str,
        topic: str,
        partition: int,
        config: TopicConfig,
        *,
        now_ms: int,
        topic_id: bytes = NO_TOPIC_ID,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        had_clean_shutdown: bool = False,
    ) -> Log:
        """Open the log in `log_dir`/`name`, or create it there. A topic id is written if none is on disk;
        another one than on disk is INCONSISTENT_TOPIC_ID."""
        directory = f"{log_dir}/{name}"
        try:
            files.make_dirs(directory)
            loader = LogLoader(
                files=files,
                open_files=open_files,
                directory=directory,
                name=f"{topic}-{partition}",
                config=config,
                log_start_offset=log_start_offset,
                recovery_point=recovery_point,
                had_clean_shutdown=had_clean_shutdown,
                now_ms=now_ms,
            )
            stored_id = read_topic_id(files, directory)
            loaded = loader.load()
        except OSError as error:
            raise storage_error(log_dir, error) from error
        except CorruptFileError as error:
            raise LogDirError(log_dir, error) from error
        log = cls(files, open_files, log_dir, directory, topic, partition, stored_id, config, loaded, now_ms)
        if topic_id != NO_TOPIC_ID:
            log.assign_topic_id(topic_id)
        return log

    def __repr__(self) -> str:
        return f"Log({self.directory}, [{self.log_start_offset}, {self.log_end_offset}))"

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments.all)

    @property
    def first_segment_base_offset(self) -> int:
        return self._segments.bases[0]

    @property
    def producers(self) -> ProducerState:
        """To look at, as DescribeProducers does."""
        return self._producers

    @property
    def segments(self) -> Segments:
        """To look at, as the cleaner does."""
        return self._segments

    @property
    def truncations(self) -> int:
        """How often the log was truncated."""
        return self._truncations

    @property
    def active_segment_base_offset(self) -> int:
        return self._segments.active.base_offset

    def update_config(self, config: TopicConfig) -> None:
        self.config = config
        self._rules = AppendRules.of(config)
        self._flush_messages = config.flush_messages
        self._segments.update_config(config)

    def assign_topic_id(self, topic_id: bytes) -> None:
        if self.topic_id == topic_id:
            return
        if self.topic_id != NO_TOPIC_ID:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.directory} belongs to another topic of the same name"
            )
        try:
            self._files.write_atomically(
                f"{self.directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id)
            )
        except OSError as error:
            raise storage_error(self.log_dir, error) from error
        self.topic_id = topic_id

    # -- Append

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: AppendOrigin = _CLIENT,
        verification: Verification | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Give the one batch in `records` its offsets and write it. `records` is written to: the base offset
        and the leader epoch are stamped in place.

        A batch that a producer has sent before is not written again; the result is that of the first time.
        `verification` says that a coordinator knows of the transaction that a batch belongs to; `ONGOING`,
        that nobody was asked because it is open. A transactional batch without either is refused: no marker
        would ever end its transaction, and readers of what is committed would wait for ever.
        `transaction_version` is that of the transaction which a marker ends.
        """
        count = len(records)
        rules = self._rules
        try:
            (
                base_offset,
                length,
                _,
                magic,
                crc,
                attributes,
                last_delta,
                _,
                max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                record_count,
            ) = _unpack_header(records)
        except struct.error:
            length = magic = producer_id = -1
        is_client = origin is _CLIENT
        # One batch of a coordinator's plain records has its place in the log as quickly as a client's.
        if not is_client and (
            origin is not _COORDINATOR or producer_id >= 0 or length != count - 12 or magic != 2
        ):
            return self._append_own(records, leader_epoch, now_ms, origin, verification, transaction_version)
        if length != count - 12 or magic != 2:
            return self.append_as_leader(
                whole_batch(records), leader_epoch, now_ms, verification=verification
            )
        if base_offset or count > rules.message_bytes_max or crc32c(records[21:]) != crc:
            raise rules.refusal(records, f"{self.topic}-{self.partition}")
        append_time = -1
        if is_client and (
            (attributes & 0x38 and (attributes & 0x28 or verification is None))
            or attributes & 0x07 > 4
            or not 0 < record_count <= count
            or last_delta != record_count - 1
            or (producer_id >= 0 and base_sequence < 0)
            or max_timestamp - now_ms > rules.timestamp_after_max_ms
            or rules.look_closer
        ):
            if attributes & 0x10 and verification is None:
                raise NotInTransaction(f"{self.topic}-{self.partition}")
            records, max_timestamp, append_time = rules.apply(records, now_ms)
            count = len(records)
            length = count - 12
        base_offset = self.log_end_offset
        last_offset = base_offset + last_delta
        if producer_id >= 0:
            last_sequence = (base_sequence + last_delta) & 0x7FFFFFFF
            if verification is None:
                repeated = self._producers.check(
                    producer_id, producer_epoch, base_sequence, last_sequence, False, base_offset
                )
            else:
                repeated = self._producers.check_with_verification(
                    producer_id,
                    producer_epoch,
                    base_sequence,
                    last_sequence,
                    attributes & 0x10 != 0,
                    base_offset,
                    verification,
                )
            if repeated is not None:
                if base_offset - self.recovery_point >= self._flush_messages:
                    # Written before a crash, perhaps, and not synced: acknowledging it again is a promise.
                    self.flush(now_ms)
                return AppendResult(
                    repeated.first_offset, repeated.last_offset, repeated.timestamp, self.log_start_offset
                )
        segments = self._segments
        segment = segments.active
        position = segment.size
        if (
            position + count > segment.bytes_max
            or max_timestamp > segments.roll_timestamp
            or last_offset > segments.offset_max
        ):
            segment = self._segment_for(count, max_timestamp, base_offset, last_offset, now_ms)
            position = segment.size
        _pack_stamp(records, 0, base_offset, length, leader_epoch)
        try:
            if leader_epoch != self.leader_epochs.latest:
                self.leader_epochs.assign(leader_epoch, base_offset)
            segment.append(records, count, last_offset, max_timestamp)
        except OSError as error:
            raise storage_error(self.log_dir, error) from error
        self.log_end_offset = last_offset + 1
        if producer_id >= 0:
            self._producers.append(
                producer_id,
                producer_epoch,
                last_sequence,
                base_offset,
                last_offset,
                max_timestamp,
                attributes & 0x10 != 0,
            )
        if is_client:
            segments.remember(base_offset, segment, position)  # for the consumers at its end
        if last_offset + 1 - self.recovery_point >= self._flush_messages:
            self.flush(now_ms)
        # Half the time that the class itself takes.
        return _new_tuple(AppendResult, (base_offset, last_offset, append_time, self.log_start_offset))

    def append_as_follower(self, records: memoryview, now_ms: int) -> AppendResult | None:
        """Write what the leader sent as it is: whole batches with their offsets and epochs. A torn batch at
        the end is left out. None if there is no whole batch.

        Raises CORRUPT_MESSAGE for a bad checksum, and OFFSET_OUT_OF_RANGE if the batches are not above the
        end of the log in ascending order; then nothing was written.
        """
        headers: list[BatchHeader] = []
        next_offset = self.log_end_offset
        for position, header in iterate_headers(records):
            check_crc(records, header, position)
            # The first batch may reach back, to hold a log start offset that lies inside it.
            first = (
                header.last_offset
                if not headers and self.log_end_offset == self.log_start_offset
                else header.base_offset
            )
            if first < next_offset or header.last_offset_delta < 0:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"Unexpected offset in append to {self.topic}-{self.partition}: "
                    f"{header.base_offset} is less than "
                    f"the next offset {next_offset}",
                )
            next_offset = header.next_offset
            headers.append(header)
        if not headers:
            return None
        base_offset = headers[0].base_offset
        if base_offset < self.log_end_offset:
            try:
                # No batch begins below the segment that it is in, nor below the end of the one before it: a
                # recovery would take it for damage.
                self._segments.start_at(base_offset, now_ms)
                self._snapshots.remove_above(base_offset)
            except OSError as error:
                raise storage_error(self.log_dir, error) from error
        self._write_batches(records, headers, now_ms)
        return AppendResult(headers[0].base_offset, headers[-1].last_offset, -1, self.log_start_offset)

    def _append_own(
        self,
        records: memoryview,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin,
        verification: Verification | None,
        transaction_version: int,
    ) -> AppendResult:
        """Batches from the broker itself: a coordinator's (control batches included) are given offsets one
        after another, the quorum leader's have them. None of a client's rules apply."""
        headers: list[BatchHeader] = []
        next_offset = self.log_end_offset
        end = 0
        for position, header in iterate_headers(records):
            check_crc(records, header, position)
            end = position + header.size
            if header.size > self.config.max_message_bytes and origin is AppendOrigin.COORDINATOR:
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, self._rules.too_large(header.size))
            if origin is AppendOrigin.COORDINATOR:
                check_coordinator_batch(
                    self._producers,
                    header,
                    records[position:end],
                    next_offset,
                    verification=verification,
                    transaction_version=transaction_version,
                )
                stamp(records, next_offset, leader_epoch, position)
                header = header._replace(base_offset=next_offset, leader_epoch=leader_epoch)
            elif header.base_offset != next_offset or header.leader_epoch != leader_epoch:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD,
                    f"a batch at {header.base_offset} of epoch {header.leader_epoch} does not continue "
                    f"the log, "
                    f"which is at {next_offset} of epoch {leader_epoch}",
                )
            next_offset = header.next_offset
            headers.append(header)
        if end != len(records) or not headers:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the records do not end with a whole batch")
        self._write_batches(records, headers, now_ms)
        return AppendResult(headers[0].base_offset, headers[-1].last_offset, -1, self.log_start_offset)

    def _write_batches(self, records: memoryview, headers: list[BatchHeader], now_ms: int) -> None:
        """Write adjacent batches, as many at once as their segment takes."""
        start = number = 0
        while number < len(headers):
            first = headers[number]
            segment = self._segment_for(
                first.size, first.max_timestamp, first.base_offset, first.last_offset, now_ms
            )
            segment_bytes = self.config.segment_bytes
            end = start
            run: list[BatchHeader] = []
            for header in headers[number:]:
                fits = segment.size + end - start + header.size <= segment_bytes
                if run and (
                    not fits
                    or header.last_offset > self._segments.offset_max
                    or header.leader_epoch != first.leader_epoch
                ):
                    break
                run.append(header)
                end += header.size
            try:
                if first.leader_epoch >= 0 and first.leader_epoch != self.leader_epochs.latest:
                    self.leader_epochs.assign(first.leader_epoch, first.base_offset)
                segment.append_batches(records[start:end], run)
            except OSError as error:
                raise storage_error(self.log_dir, error) from error
            self.log_end_offset = run[-1].next_offset
            for header in run:
                if header.producer_id >= 0:
                    self._apply(segment, header, records[start : start + header.size])
                start += header.size
            number += len(run)
        if self.log_end_offset - self.recovery_point >= self._flush_messages:
            self.flush(now_ms)

    def _apply(self, segment: Segment, header: BatchHeader, batch: memoryview) -> None:
        """Tell the producers, and the transaction index if the batch is an abort."""
        completed = apply_batch(self._producers, header, batch)
        if completed is None:
            return
        try:
            complete(self._producers, completed, segment.txn_index)
        except (OSError, CorruptFileError) as error:
            # Without its entry an aborted transaction would look committed. The marker is written, so the
            # transaction must stay open here until a recovery builds the index anew.
            raise LogDirError(self.log_dir, error) from error

    def _segment_for(
        self, count: int, max_timestamp: int, first_offset: int, last_offset: int, now_ms: int
    ) -> Segment:
        """The segment to append to. Where a new one begins, so does a producer snapshot."""
        if count > self.config.segment_bytes:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, self._rules.too_long(count))
        try:
            segment, is_new = self._segments.segment_for(
                count, max_timestamp, first_offset, last_offset, now_ms
            )
            if is_new:
                self._snapshots.take(first_offset, self._producers.producers)
        except OSError as error:
            raise storage_error(self.log_dir, error) from error
        return segment

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        if not self._segments.active.size:
            return
        try:
            self._segments.roll(self.log_end_offset, now_ms)
            self._snapshots.take(self.log_end_offset, self._producers.producers)
        except OSError as error:
            raise storage_error(self.log_dir, error) from error

    # -- Read

    def read(self, offset: int, max_bytes: int, *, limit: int, min_one_batch: bool = True) -> Slice:
        """Batches from the one that holds `offset` on, all of them below `limit`.

        With `min_one_batch` the first comes whole even if it is larger than `max_bytes`; otherwise nothing
        comes in that case. Raises OFFSET_OUT_OF_RANGE.
        """
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {offset} for partition {self.topic}-{self.partition}, but "
                f"we only have "
                f"log segments from offset {self.log_start_offset} up to {end_offset}.",
            )
        try:
            segments = self._segments
            if offset >= limit or offset == end_offset:
                segment = segments.active
                return Slice(segment.file, segment.size, 0, segment.base_offset)
            known = segments.positions.get(offset)
            if known is not None:
                segment, position = known
                first_size = 0
            else:
                found = segments.locate(offset)
                if found is None:
                    segment = segments.active
                    return Slice(segment.file, segment.size, 0, segment.base_offset)
                segment, location = found
                position = location.position
                first_size = location.size
            if limit >= end_offset or limit >= segment.next_base_offset:
                count = segment.size - position
            else:
                count = segments.position_of(limit, segment) - position
            if count > max_bytes:
                if max_bytes < 0:
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"cannot read {max_bytes} bytes")
                if not first_size:
                    first_size = segment.read_header(position).size
                if first_size <= max_bytes:
                    count = max_bytes
                elif min_one_batch:
                    count = min(count, first_size)
                else:
                    count = 0
            segment.recently_used = True
            return Slice(segment.file, position, max(count, 0), segment.base_offset, known is not None)
        except (OSError, CorruptFileError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        if isinstance(error, OSError):
            raise storage_error(self.log_dir, error) from error
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def aborted_transactions_of(self, offset: int, found: Slice) -> list[AbortedTransaction]:
        """Those that a read_committed reader needs to know who asked for `offset` and got `found`."""
        return self.aborted_transactions(
            offset,
            self._segments.end_of(
                found.segment_base_offset, found.position + found.count, self.log_end_offset
            ),
        )

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [first, end)."""
        found: list[AbortedTransaction] = []
        try:
            for segment in self._segments.from_offset(first_offset):
                if segment.txn_index.collect(first_offset, end_offset, found):
                    break
        except (OSError, CorruptFileError) as error:
            self._fail(error)
        return found

    # -- Offsets

    def offset_for_timestamp(self, timestamp_ms: int) -> FoundOffset | None:
        """The first record at or after that time; None if there is none."""
        try:
            found = self._segments.find_timestamp(timestamp_ms, self.log_start_offset)
        except (OSError, CorruptFileError) as error:
            self._fail(error)
        return None if found is None else FoundOffset(*found)

    def offset_of_max_timestamp(self) -> FoundOffset | None:
        """The first record with the largest timestamp; None if no record has one."""
        try:
            found = self._segments.find_max_timestamp()
        except (OSError, CorruptFileError) as error:
            self._fail(error)
        return None if found is None else FoundOffset(*found)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch at or below `epoch` and where it ends; (-1, -1) if that is not known."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def advance_high_watermark(self, offset: int) -> bool:
        """Move it forward to `offset`, at most to the end of the log. True if it moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self._producers.unreplicated:
            self._producers.on_high_watermark(offset)
        return True

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided, and decided for good."""
        if not self._producers.has_transactions:
            return self.high_watermark
        first = self._producers.first_unstable_offset
        return (
            self.high_watermark
            if first is None
            else min(max(first, self.log_start_offset), self.high_watermark)
        )

    # -- Truncation and deletion

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop every batch that reaches `offset` or beyond. True if there were any."""
        if offset >= self.log_end_offset:
            return False
        if offset < self._segments.bases[0]:
            self.truncate_fully_and_start_at(max(offset, 0), now_ms)
            return True
        try:
            self._segments.truncate_to(offset, now_ms)
            self._after_truncation(offset)
            self._reload_producers()
        except (OSError, CorruptFileError) as error:
            self._fail(error)
        return True

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drop everything; the next batch gets `offset`."""
        try:
            self._segments.start_at(offset, now_ms)
            self._producers.reset(offset)
            self._snapshots.remove_above(-1)
            self.log_start_offset = self.high_watermark = offset
            self.leader_epochs.clear()
            self._after_truncation(offset)
        except OSError as error:
            self._fail(error)

    def _after_truncation(self, offset: int) -> None:
        # The last batch may reach below the offset that was asked for: offsets go on there all the same.
        self._truncations += 1
        self.cleaned_offset = min(self.cleaned_offset, offset)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)
        if self.leader_epochs.truncate_from_end(offset):
            self.leader_epochs.write()

    def _reload_producers(self) -> None:
        """Producer state goes back to the newest snapshot at or below the end, and forward by the batches
        since."""
        end_offset = self.log_end_offset
        self._snapshots.remove_above(end_offset)
        self._producers = LogLoader(
            files=self._files,
            open_files=OpenFiles(),
            directory=self.directory,
            name=f"{self.topic}-{self.partition}",
            config=self.config,
            log_start_offset=self.log_start_offset,
            recovery_point=self.recovery_point,
            had_clean_shutdown=False,
            now_ms=0,
        ).rebuild_producers(self._snapshots.offsets, self._segments.all, end_offset)
        self._producers.on_high_watermark(self.high_watermark)

    def delete_records_before(self, offset: int) -> int:
        """Move the log start offset up to `offset`, which -1 says is the high watermark. Where it is
        afterwards. The segments below it go with the next `apply_retention`."""
        if offset == -1:
            offset = self.high_watermark
        if offset < 0 or offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition "
                f"{self.topic}-{self.partition} since "
                f"it is larger than the high watermark {self.high_watermark}",
            )
        self.advance_log_start_offset(offset)
        return self.log_start_offset

    def advance_log_start_offset(self, offset: int) -> None:
        """As told by a leader, or by retention. It never goes back."""
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        if self.high_watermark < offset:
            self.high_watermark = min(offset, self.log_end_offset)
        self._segments.positions.clear()
        self.leader_epochs.truncate_from_start(offset)

    def apply_retention(self, now_ms: int) -> int:
        """Delete the segments that are below the log start offset, and with cleanup.policy=delete those
        beyond retention.bytes and retention.ms. How many bytes went."""
        config = self.config
        segments = self._segments.all
        before = self.size_bytes
        try:
            self._delete_segments(breached_by_start(self._end_offsets(), self.log_start_offset), now_ms)
            if config.delete:
                count = breached_by_size(
                    segments, self._end_offsets(), self.high_watermark, config.retention_bytes
                )
                self._delete_segments(count, now_ms)
                count = breached_by_time(
                    segments, self._end_offsets(), self.high_watermark, config.retention_ms, now_ms
                )
                self._delete_segments(count, now_ms)
        except OSError as error:
            raise storage_error(self.log_dir, error) from error
        return before - self.size_bytes

    def _end_offsets(self) -> list[int]:
        return self._segments.end_offsets(self.log_end_offset)

    def _delete_segments(self, count: int, now_ms: int) -> None:
        if not count:
            return
        if count == self.segment_count:
            self.roll(now_ms)
        self.advance_log_start_offset(self._segments.bases[count])
        paths: list[str] = []
        for segment in self._segments.take_oldest(count):
            paths += segment.mark_deleted()
            paths += self._snapshots.mark_deleted(segment.base_offset)
        self._deletions.append((now_ms + self.config.file_delete_delay_ms, paths))

    def replace_segments(self, sources: list[Segment], size: int, now_ms: int) -> None:
        """Put in the place of `sources`, neighbours below the active segment, what a cleaning has made of
        them: one segment of `size` bytes, whose files are there as `.cleaned`. Who still holds a file of one
        can read it to the end. A failure leaves it to the next start to finish this or to undo it."""
        try:
            paths = self._segments.replace(sources, size, now_ms)
            for source in sources[1:]:
                paths += self._snapshots.mark_deleted(source.base_offset)
        except OSError as error:
            raise LogDirError(self.log_dir, error) from error
        self._deletions.append((now_ms + self.config.file_delete_delay_ms, paths))

    def take_deletions(self, now_ms: int) -> list[str]:
        """The files whose file.delete.delay.ms is over, for the caller to remove. Who still holds one can
        read it to the end."""
        due: list[str] = []
        while self._deletions and self._deletions[0][0] <= now_ms:
            due += self._deletions.pop(0)[1]
        return due

    # -- Durability

    def flush(self, now_ms: int, up_to: int | None = None) -> None:
        """Make everything below `up_to` (default: the end) durable before returning."""
        work = self.prepare_flush(up_to)
        if work is not None:
            try:
                work.run()
            except OSError as error:
                raise LogDirError(self.log_dir, error) from error
            self.complete_flush(work, now_ms)

    def prepare_flush(self, up_to: int | None = None) -> FlushWork | None:
        """What `flush` would do, to be run in another thread and then handed to `complete_flush`; None if
        nothing is unflushed."""
        up_to = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        if up_to <= self.recovery_point:
            return None
        try:
            return self._flush_work(up_to)
        except OSError as error:
            raise storage_error(self.log_dir, error) from error

    def _flush_work(self, up_to: int) -> FlushWork:
        work = FlushWork(self._files, self.directory, up_to, self._truncations)
        self._segments.flush(work, self.recovery_point)
        if not self._is_entry_synced:
            work.directories.append(self.log_dir)
        work.paths += self._snapshots.paths_above(self.recovery_point)
        work.checkpoint = self.leader_epochs.unwritten(up_to)
        return work

    def complete_flush(self, work: FlushWork, now_ms: int) -> None:
        """The work was run. If the log was truncated meanwhile, what is there may have come after it, and is
        left to the next flush."""
        self._last_flush_ms = now_ms
        self._is_entry_synced = True
        if work.checkpoint is not None:
            self.leader_epochs.written(work.checkpoint)
        if work.truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, work.up_to)

    def flush_due(self, now_ms: int) -> int | None:
        """Up to where a flush is due: rolled segments always, the active one by flush.ms; None if not."""
        if self.log_end_offset > self.recovery_point and now_ms - self._last_flush_ms >= self.config.flush_ms:
            return self.log_end_offset
        base_offset = self.active_segment_base_offset
        return base_offset if base_offset > self.recovery_point else None

    def take_producer_snapshot(self) -> None:
        """Write what is known of the producers at the end of the log, unless that was done."""
        try:
            self._snapshots.take(self.log_end_offset, self._producers.producers)
        except OSError as error:
            raise storage_error(self.log_dir, error) from error

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        return self._producers.expire(now_ms, expiration_ms)

    def prepare_close(self) -> FlushWork | None:
        """Trim the indexes and leave a producer snapshot, so that the next open has nothing to do. What that
        and all else leaves to be synced, as of `prepare_flush`: the next open trusts the length of an
        index."""
        end_offset = self.log_end_offset
        try:
            is_changed = self._snapshots.take(end_offset, self._producers.producers)
            for segment in self._segments.all:
                is_changed = segment.seal() or is_changed
            is_changed = is_changed or self.leader_epochs.unwritten(end_offset) is not None
            if not is_changed and self.recovery_point >= end_offset:
                return None
            work = self._flush_work(end_offset)
        except OSError as error:
            raise storage_error(self.log_dir, error) from error
        work.paths.append(self._snapshots.path(end_offset))
        return work

    def close(self) -> None:
        """Everything is durable on return, and nothing is left to do for the next open."""
        work = self.prepare_close()
        if work is not None:
            try:
                work.run()
            except OSError as error:
                raise LogDirError(self.log_dir, error) from error
            self.complete_flush(work, self._last_flush_ms)
        self.abandon()

    def abandon(self) -> None:
        """Let go of all files as they are: the directory is offline, or the log is being deleted."""
        for segment in self._segments.all:
            segment.abandon()

    def rename(self, name: str) -> None:
        """Give the directory of the log another name in the same log directory."""
        directory = f"{self.log_dir}/{name}"
        try:
            self._files.rename(self.directory, directory)
            self._files.sync_dir(self.log_dir)
        except OSError as error:
            raise storage_error(self.log_dir, error) from error
        self._deletions = [
            (due_ms, [path.replace(self.directory, directory, 1) for path in paths])
            for due_ms, paths in self._deletions
        ]
        self.directory = directory
        self.leader_epochs.moved_to(f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        self._segments.moved_to(directory)
        self._snapshots.directory = directory
