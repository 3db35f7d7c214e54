"""Logs and batches for the tests of the log room."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.config.topic import TopicConfig
from moldau.log.log import AppendResult, Log
from moldau.log.open_files import OpenFiles
from moldau.log.producer_state import ONGOING
from moldau.records.batch import HEADER_BYTES, BatchHeader, iterate_headers, parse_header
from moldau.records.builder import build_batch
from moldau.records.compression import Codec
from moldau.records.record import Record, read_records
from moldau.runtime.interfaces import FileSystem

NOW_MS = 1_700_000_000_000
LOG_DIR = "/data"
NO_EPOCH = -1


def config(**changes: object) -> TopicConfig:
    """Indexes are small, because the simulated disk keeps a mapped file whole."""
    return TopicConfig.DEFAULTS.replace(**{"segment_index_bytes": 4096, **changes})


def batch(
    count: int = 1,
    *,
    size: int = 10,
    timestamp: int = NOW_MS,
    key: bytes | None = b"key",
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
    codec: Codec = Codec.NONE,
) -> memoryview:
    """`count` records of `size` bytes, a millisecond apart."""
    records = [Record(0, timestamp + number, key, bytes(size)) for number in range(count)]
    return memoryview(
        bytearray(
            build_batch(
                records,
                base_offset=base_offset,
                leader_epoch=leader_epoch,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=sequence,
                is_transactional=is_transactional,
                codec=codec,
            )
        )
    )


def open_log(
    files: FileSystem,
    settings: TopicConfig | None = None,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    had_clean_shutdown: bool = False,
    open_files: OpenFiles | None = None,
    log_dir: str = LOG_DIR,
) -> Log:
    return Log.open(
        files,
        open_files or OpenFiles(),
        log_dir,
        "topic-0",
        "topic",
        0,
        settings or config(),
        now_ms=NOW_MS,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        had_clean_shutdown=had_clean_shutdown,
    )


def append(log: Log, records: memoryview | None = None, leader_epoch: int = 0) -> AppendResult:
    """As somebody who has asked a transaction coordinator, if the batch is transactional."""
    records = batch() if records is None else records
    verification = None
    header = parse_header(records) if len(records) >= HEADER_BYTES else None
    if header is not None and header.is_transactional:
        verification = log.producers.begin_verification(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            NOW_MS,
            supports_epoch_bump=False,
        )
        verification = verification or ONGOING
    return log.append_as_leader(records, leader_epoch, NOW_MS, verification=verification)


def headers_from(log: Log, offset: int = 0, max_bytes: int = 1 << 20) -> Iterator[BatchHeader]:
    """Every batch header from `offset` on, by one read after another."""
    while True:
        found = log.read(offset, max_bytes, limit=log.log_end_offset)
        data = found.file.read_at(found.count, found.position)
        headers = [header for _, header in iterate_headers(data)]
        if not headers:
            return
        yield from headers
        offset = headers[-1].next_offset


def records_from(log: Log, offset: int = 0) -> list[Record]:
    records: list[Record] = []
    while True:
        found = log.read(offset, 1 << 20, limit=log.log_end_offset)
        data = found.file.read_at(found.count, found.position)
        ends = offset
        for position, header in iterate_headers(data):
            if not header.is_control:
                records += read_records(data[position : position + header.size])
            ends = header.next_offset
        if ends == offset:
            return records
        offset = ends
