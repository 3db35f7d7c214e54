"""Walking through the batches of a file, and telling the producer state about them."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.log.producer_state import CompletedTransaction, ProducerState, Verification
from moldau.log.transaction_index import AbortedTransaction, TransactionIndex
from moldau.records.batch import HEADER_BYTES, BatchHeader, iterate_headers, parse_header
from moldau.records.control import ControlType, EndTxnMarker, read_control, read_end_txn_marker
from moldau.records.record import read_records
from moldau.runtime.interfaces import File
from moldau.wire.errors import KafkaError

_CHUNK_BYTES = 1 << 20


def scan_batches(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of each whole batch in [position, end).

    Stops where no whole batch can be: at the end, at a torn one, at rubbish. Checksums are not looked at.
    """
    wanted = _CHUNK_BYTES
    while end - position >= HEADER_BYTES:
        chunk = memoryview(file.read_at(min(wanted, end - position), position))
        following = 0
        try:
            for at, header in iterate_headers(chunk):
                following = at + header.size
                yield position + at, header, chunk[at:following]
            if not following:
                size = parse_header(chunk).size
                if size > end - position or size <= len(chunk):
                    return
                wanted = size
                continue
        except KafkaError:
            return
        position += following
        wanted = _CHUNK_BYTES


def read_marker(batch: memoryview) -> tuple[EndTxnMarker, int] | None:
    """The end of transaction marker in a control batch and its timestamp; None if all of it was cleaned away.
    Raises KafkaError if it holds something else."""
    record = next(read_records(batch), None)
    return None if record is None else (read_end_txn_marker(record), record.timestamp)


def marker_type(batch: memoryview) -> ControlType | None:
    """What kind of control batch it is; None if all of it was cleaned away."""
    record = next(read_records(batch), None)
    return None if record is None else read_control(record).type


def apply_batch(state: ProducerState, header: BatchHeader, batch: memoryview) -> CompletedTransaction | None:
    """Reflect a batch of the log in the producer state. The transaction it ends, if any, is yet to be
    completed there (`ProducerState.complete`)."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        state.append(
            header.producer_id,
            header.producer_epoch,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.is_transactional,
        )
        return None
    found = read_marker(batch)
    if found is None:
        return None
    marker, timestamp = found
    aborted = marker.type is ControlType.ABORT
    return state.append_marker(
        header.producer_id,
        header.producer_epoch,
        marker.coordinator_epoch,
        header.base_offset,
        timestamp,
        aborted,
    )


def complete(state: ProducerState, completed: CompletedTransaction, index: TransactionIndex | None) -> None:
    """The marker that `apply_batch` told of is in the log: an abort is entered in the index of its segment
    first."""
    if completed.aborted and index is not None:
        last_stable_offset = state.last_stable_offset_after(completed)
        index.append(
            AbortedTransaction(
                completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset
            )
        )
    state.complete(completed)


def check_coordinator_batch(
    state: ProducerState,
    header: BatchHeader,
    batch: memoryview,
    offset: int,
    *,
    verification: Verification | None,
    transaction_version: int,
) -> None:
    """May a coordinator append this batch, data or marker, at `offset`? Raises the KafkaError if not."""
    if header.producer_id < 0:
        return
    if not header.is_control:
        state.check_coordinator_batch(
            header.producer_id, header.producer_epoch, header.is_transactional, offset, verification
        )
        return
    found = read_marker(batch)
    if found is not None:
        state.check_marker(
            header.producer_id,
            header.producer_epoch,
            found[0].coordinator_epoch,
            transaction_version,
            offset,
        )
