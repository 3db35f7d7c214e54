"""One batch of a producer: the records of a partition that leave together, from the first one to what became
of them.

Answerable for the columns of the records, their bytes once they are built, and the outcome that all of them
share. Knows nothing of requests, nor of who waits: `waiters` belongs to whoever performs effects.

Invariants: a batch is built once, and sent again as the same bytes, unless it is numbered anew. It comes to
its end once, and gives its records up then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.client.errors import RecordError, error_of
from moldau.records.batch import HEADER, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Buffer, stamp_crc
from moldau.records.columns import RECORD_OVERHEAD_MAX, build_columns, headers_size
from moldau.records.compression import Codec
from moldau.records.record import Header
from moldau.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from moldau.client.producing.accumulator import PartitionQueue

Headers = tuple[Header, ...]

RECORD_OVERHEAD = 12
"""What a record takes beside its parts, nearly always at most: it is for filling batches, not a bound."""
_SEQUENCES = 1 << 31


class ProducerBatch:
    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "created_ms",
        "data",
        "drained_ms",
        "error",
        "headers",
        "is_closed",
        "is_done",
        "is_transactional",
        "keys",
        "last_code",
        "leader_epoch",
        "limit",
        "log_append_time_ms",
        "not_before_ms",
        "order",
        "parts",
        "producer_epoch",
        "producer_id",
        "queue",
        "record_count",
        "record_errors",
        "sent_to",
        "sequence_was_reset",
        "size",
        "timestamps",
        "values",
        "waiters",
    )

    def __init__(self, queue: PartitionQueue, created_ms: int, limit: int, order: tuple[int, ...]) -> None:
        self.queue = queue
        self.created_ms = created_ms
        self.limit = limit  # bytes of records, before compression, that fill it
        self.order = order  # its place among the batches of its partition
        self.values: list[Buffer | None] = []
        self.keys: list[Buffer | None] | None = None  # made with the first key, as headers are
        self.timestamps: list[int] = []
        self.headers: list[Headers] | None = None
        self.size = 0  # of its records, estimated, before compression
        self.record_count = 0  # kept when the records are gone
        self.is_closed = False
        self.data: bytearray | None = None
        self.attempts = 0
        self.last_code: ErrorCode | None = None  # why it is tried again
        self.not_before_ms = 0  # when it may be tried again
        self.drained_ms = 0
        self.leader_epoch = -1  # under which it was tried last,
        self.sent_to = -1  # and at which node
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.sequence_was_reset = False
        self.is_transactional = False
        self.is_done = False
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.error: KafkaError | None = None
        self.record_errors: dict[int, KafkaError] | None = None
        self.parts: list[tuple[int, ProducerBatch]] = []  # where its records went when it was split
        self.waiters: list[Any] = []

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.record_count - 1) % _SEQUENCES

    # Filling ----------------------------------------------------------------------------------------------

    def add_key(self, index: int, key: Buffer | None) -> None:
        """The key of the record with this index, which is the last one."""
        if self.keys is None:
            self.keys = [None] * index
        self.keys.append(key)

    def add_headers(self, index: int, headers: Headers) -> None:
        if self.headers is None:
            self.headers = [()] * index
        self.headers.append(headers)

    def extend(
        self,
        keys: list[Buffer | None] | None,
        values: list[Buffer | None],
        timestamps: list[int],
        headers: list[Headers] | None,
        size: int,
    ) -> int:
        """Add records; the index of the first one is returned."""
        index = len(self.values)
        self.values += values
        self.timestamps += timestamps
        self.size += size
        if keys is not None and self.keys is None:
            self.keys = [None] * index
        if self.keys is not None:
            self.keys += [None] * len(values) if keys is None else keys
        if headers is not None and self.headers is None:
            self.headers = [()] * index
        if self.headers is not None:
            self.headers += [()] * len(values) if headers is None else headers
        return index

    def close(self) -> None:
        """No more records: it is on its way."""
        self.is_closed = True
        self.record_count = len(self.values)

    def build(self, codec: Codec, level: int | None) -> bytearray:
        """Its bytes, built when first asked for."""
        if self.data is None:
            self.data = build_columns(
                self.values,
                self.keys,
                self.timestamps,
                self.headers,
                codec=codec,
                level=level,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
                is_transactional=self.is_transactional,
            )
        return self.data

    def number(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Give it its place in what its partition gets of this producer. A batch that is built already gets
        new bytes: the old ones may be on their way to a socket."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.base_sequence = base_sequence
        if self.data is not None:
            data = bytearray(self.data)
            fields = list(HEADER.unpack_from(data))
            fields[9:12] = producer_id, producer_epoch, base_sequence
            HEADER.pack_into(data, 0, *fields)
            stamp_crc(data, len(data))
            self.data = data

    def split(self, size_max: int) -> list[ProducerBatch]:
        """Its records in batches of about this size, at least two, with the same numbers. It has to have two
        records; it is done itself, and knows where its records went."""
        assert self.record_count > 1
        sizes = [
            RECORD_OVERHEAD + len(value or b"") + len(key or b"") + (headers_size(headers) if headers else 0)
            for key, value, headers in zip(
                self.keys or [None] * self.record_count,
                self.values,
                self.headers or [()] * self.record_count,
                strict=True,
            )
        ]
        starts, filled = [0], 0
        for index, size in enumerate(sizes):
            if index > starts[-1] and filled + size > size_max:
                starts.append(index)
                filled = 0
            filled += size
        if len(starts) == 1:
            starts.append(self.record_count // 2)
        for number, (start, end) in enumerate(zip(starts, [*starts[1:], self.record_count], strict=True)):
            part = ProducerBatch(self.queue, self.created_ms, self.limit, (*self.order, number))
            part.extend(
                None if self.keys is None else self.keys[start:end],
                self.values[start:end],
                self.timestamps[start:end],
                None if self.headers is None else self.headers[start:end],
                sum(sizes[start:end]),
            )
            part.close()
            part.attempts = self.attempts
            part.drained_ms = self.drained_ms
            part.is_transactional = self.is_transactional
            if self.has_sequence:
                part.producer_id, part.producer_epoch = self.producer_id, self.producer_epoch
                part.base_sequence = (self.base_sequence + start) % _SEQUENCES
                part.sequence_was_reset = self.sequence_was_reset
            self.parts.append((start, part))
        self._end()
        return [part for _, part in self.parts]

    # Its end ----------------------------------------------------------------------------------------------

    def complete(self, base_offset: int, log_append_time_ms: int) -> None:
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._end()

    def fail(
        self,
        error: KafkaError,
        record_errors: tuple[tuple[int, str | None], ...] = (),
        message: str | None = None,
    ) -> None:
        """As in Kafka, a record that is told to be the cause gets its own error, and the others are told that
        they were in its company."""
        self.error = error
        if record_errors:
            only = len(record_errors) == 1
            self.record_errors = {
                index: error_of(error.code if only else ErrorCode.INVALID_RECORD, text or message)
                for index, text in record_errors
            }
        self._end()

    def error_of_record(self, index: int) -> KafkaError | None:
        if self.record_errors is None:
            return self.error
        own = self.record_errors.get(index)
        if own is not None:
            return own
        return RecordError(
            ErrorCode.INVALID_RECORD, "the record was in one batch with others that are invalid"
        )

    def locate(self, index: int) -> tuple[ProducerBatch, int]:
        """The batch that a record ended up in, and its index there."""
        batch: ProducerBatch = self
        while batch.parts:
            start, part = next(part for part in reversed(batch.parts) if part[0] <= index)
            batch, index = part, index - start
        return batch, index

    def _end(self) -> None:
        assert not self.is_done
        if not self.is_closed:
            self.close()
        self.is_done = True
        self.values, self.keys, self.headers, self.data = [], None, None, None


def record_size(key: Buffer | None, value: Buffer | None, headers: Headers) -> int:
    """What a record takes in a batch before compression, estimated."""
    size = RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    return size + headers_size(headers) if headers else size


def record_size_max(key: Buffer | None, value: Buffer | None, headers: Headers) -> int:
    """The most that it can take."""
    return record_size(key, value, headers) - RECORD_OVERHEAD + RECORD_OVERHEAD_MAX
