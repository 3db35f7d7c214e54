"""What one fetch brought of one partition, until all of it has been handed out.

Answerable for what a reader shall not see: control records, records before the position, and with
read_committed those of aborted transactions. What may be seen is looked for when it comes, by headers alone;
records are decoded batch by batch, when somebody asks for them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable

from moldau.records.batch import BatchHeader, Buffer, check_crc, iterate_headers
from moldau.records.control import ControlType, read_control
from moldau.records.read_columns import RecordColumns, read_columns
from moldau.records.record import read_records
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.fetch import AbortedTransaction


class Chunk:
    """`next_offset` is the offset after all of it, `error` what came instead of the rest."""

    __slots__ = (
        "_batches",
        "_checks_crc",
        "_columns",
        "_data",
        "_start",
        "_taken",
        "error",
        "leader_epoch",
        "life",
        "next_offset",
        "size",
    )

    def __init__(
        self,
        data: Buffer,
        start: int,
        aborted: Iterable[AbortedTransaction] | None,
        *,
        life: int,
        checks_crc: bool = True,
    ) -> None:
        """`start` is the first offset that is wanted; `aborted` is None where transactions do not matter."""
        self.life = life
        self.size = len(data)
        self.next_offset = self._start = start
        self.leader_epoch = -1
        self.error: KafkaError | None = None
        self._checks_crc = checks_crc
        self._data = memoryview(data)
        self._batches: deque[tuple[int, BatchHeader]] = deque()
        self._columns: RecordColumns | None = None
        self._taken = 0
        try:
            self._find_visible(aborted)
        except KafkaError as error:
            self.error = error
        if self.next_offset == start and self.error is None:
            reason = f"a batch at offset {start} is larger than max.partition.fetch.bytes"
            self.error = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, reason)

    def _find_visible(self, aborted: Iterable[AbortedTransaction] | None) -> None:
        upcoming = deque(sorted(aborted or (), key=lambda transaction: transaction.first_offset))
        producers: set[int] = set()  # whose transaction, at this place of the log, will turn out aborted
        for position, header in iterate_headers(self._data):
            while upcoming and upcoming[0].first_offset <= header.last_offset:
                producers.add(upcoming.popleft().producer_id)
            if header.is_control:
                if header.producer_id in producers and self._ends_aborted(position, header):
                    producers.discard(header.producer_id)
            elif header.last_offset >= self._start and not (
                header.is_transactional and header.producer_id in producers
            ):
                self._batches.append((position, header))
            if header.next_offset > self.next_offset:
                self.next_offset = header.next_offset
                self.leader_epoch = header.leader_epoch

    def _ends_aborted(self, position: int, header: BatchHeader) -> bool:
        batch = self._data[position : position + header.size]
        if self._checks_crc:
            check_crc(batch, header)
        return any(read_control(record).type is ControlType.ABORT for record in read_records(batch))

    @property
    def is_over(self) -> bool:
        """Whether everything that may be seen has been taken."""
        return self._columns is None and not self._batches

    def take(self, limit: int) -> RecordColumns:
        """Up to `limit` records, at least one unless it is over. Raises when the next batch is damaged; then
        it is over, too."""
        if self._columns is None:
            self._decode_next()
        columns = self._columns
        if columns is None:
            return RecordColumns()
        if self._taken == 0 and len(columns) <= limit:
            self._columns = None
            return columns
        part = columns.part(self._taken, self._taken + limit)
        self._taken += len(part)
        if self._taken >= len(columns):
            self._columns = None
        return part

    def _decode_next(self) -> None:
        while self._batches and self._columns is None:
            position, header = self._batches.popleft()
            batch = self._data[position : position + header.size]
            try:
                if self._checks_crc:
                    check_crc(batch, header)
                columns = read_columns(batch, header)
            except KafkaError:
                self._batches.clear()
                raise
            if header.base_offset < self._start:
                columns = columns.part(bisect_left(columns.offsets, self._start), len(columns))
            if len(columns):  # compaction may have left none
                self._columns, self._taken = columns, 0
