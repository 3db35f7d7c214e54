"""What a node asks of the helper that cleans a log, and what the helper tells it.

A request describes the log as it was: nothing in it changes while the helper works. Answers come in order:
the segments that were cleaned, one after another, and then how it went.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

from moldau.log.transaction_index import AbortedTransaction


class LastBatch(NamedTuple):
    """Of a producer: the last offset of its last batch of records, or -1 and the epoch of its last marker."""

    last_data_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    base_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanLog:
    """Clean `sources`, which are all segments below `end_offset`, of the log in `directory`. Everything below
    `first_dirty_offset` was cleaned before."""

    directory: str
    sources: list[Source]
    first_dirty_offset: int
    end_offset: int
    aborted: list[AbortedTransaction]
    last_batches: dict[int, LastBatch]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes_max: int
    index_interval_bytes: int
    dedupe_bytes: int
    dedupe_load_factor: float
    io_buffer_bytes: int
    io_bytes_per_second: float

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> CleanLog:
        fields = json.loads(data)
        fields["sources"] = [Source(**source) for source in fields["sources"]]
        fields["aborted"] = [AbortedTransaction(*entry) for entry in fields["aborted"]]
        fields["last_batches"] = {
            int(producer_id): LastBatch(*last) for producer_id, last in fields["last_batches"].items()
        }
        return cls(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCleaned:
    """The next `count` sources have become one, durable as `.cleaned` under the base offset of the first."""

    count: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleaned:
    """Everything below `next_dirty_offset` is clean, all segments having been told of."""

    next_dirty_offset: int
    buffer_utilization: float
    bytes_mapped: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_written: int
    records_invalid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningFailed:
    """`errno` is that of an OSError; 0 if the log itself cannot be cleaned."""

    errno: int
    message: str


Answer: TypeAlias = SegmentCleaned | LogCleaned | CleaningFailed
_KINDS: dict[str, type[Answer]] = {
    kind.__name__: kind for kind in (SegmentCleaned, LogCleaned, CleaningFailed)
}


def encode_answer(answer: Answer) -> bytes:
    return json.dumps([type(answer).__name__, asdict(answer)]).encode()


def decode_answer(data: bytes) -> Answer:
    kind: str
    fields: dict[str, Any]
    kind, fields = json.loads(data)
    return _KINDS[kind](**fields)
