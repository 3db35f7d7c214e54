from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from moldau.client.consuming.chunks import Chunk
from moldau.records.builder import build_batch
from moldau.records.control import ControlType, EndTxnMarker, build_end_txn_batch
from moldau.records.record import Record
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.fetch import AbortedTransaction

GOLDEN = Path(__file__).parent.parent.parent / "data" / "golden"


def plain(base_offset: int, *values: bytes) -> bytes:
    return build_batch([Record(0, 0, None, value) for value in values], base_offset=base_offset)


def transaction(producer_id: int, base_offset: int, *values: bytes) -> bytes:
    return build_batch(
        [Record(0, 0, None, value) for value in values],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=base_offset,
        is_transactional=True,
    )


def marker(producer_id: int, base_offset: int, kind: ControlType) -> bytes:
    return build_end_txn_batch(
        EndTxnMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=0, base_offset=base_offset
    )


def values(chunk: Chunk, limit: int = 1000) -> list[bytes | None]:
    found: list[bytes | None] = []
    while not chunk.is_over:
        found += chunk.take(limit).values
    return found


def test_aborted_transactions_are_left_out_and_the_next_of_the_producer_is_not() -> None:
    log = (
        transaction(1, 0, b"aborted")
        + transaction(2, 1, b"committed")
        + plain(2, b"plain")
        + marker(1, 3, ControlType.ABORT)
        + transaction(1, 4, b"second")
        + marker(2, 5, ControlType.COMMIT)
        + marker(1, 6, ControlType.COMMIT)
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    chunk = Chunk(log, 0, aborted, life=1)
    assert chunk.next_offset == 7
    assert values(chunk) == [b"committed", b"plain", b"second"]
    assert values(Chunk(log, 0, None, life=1)) == [b"aborted", b"committed", b"plain", b"second"]


def test_kafkas_own_transactions_are_read_as_its_consumer_reads_them() -> None:
    """Six transactions of ten records, every second one aborted, each with a plain record after it."""
    log = (GOLDEN / "txn-0.log").read_bytes()
    aborted = [AbortedTransaction(producer_id=1, first_offset=offset) for offset in (12, 36, 60)]
    chunk = Chunk(log, 0, aborted, life=1)
    offsets: list[int] = []
    while not chunk.is_over:
        offsets += chunk.take(7).offsets
    assert len(offsets) == 36
    assert not any(offset in span for offset in offsets for span in map(range, (12, 36, 60), (23, 47, 71)))
    assert len(values(Chunk(log, 0, None, life=1))) == 66


@pytest.mark.parametrize("seed", range(20))
def test_any_pieces_are_the_whole_from_the_position_on(seed: int) -> None:
    random = Random(seed)
    log, end = b"", 0
    for _ in range(random.randint(1, 5)):
        count = random.randint(1, 10)
        log += plain(end, *(b"%d" % number for number in range(end, end + count)))
        end += count
    start = random.randrange(end)
    chunk = Chunk(log + plain(end, b"cut")[:-1], start, None, life=1)
    found: list[bytes | None] = []
    while not chunk.is_over:
        limit = random.randint(1, 4)
        part = chunk.take(limit)
        assert 1 <= len(part) <= limit
        found += part.values
    assert found == [b"%d" % number for number in range(start, end)]
    assert (chunk.next_offset, chunk.error) == (end, None)


def test_what_comes_before_the_damage_is_good() -> None:
    bad = bytearray(plain(1, b"bad"))
    bad[-2] ^= 1
    chunk = Chunk(plain(0, b"good") + bytes(bad) + plain(2, b"never"), 0, None, life=1)
    assert chunk.take(10).values == [b"good"]
    with pytest.raises(KafkaError) as caught:
        chunk.take(10)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert chunk.is_over
    unchecked = Chunk(plain(0, b"good") + bytes(bad), 0, None, life=1, checks_crc=False)
    assert len(values(unchecked)) == 2


def test_where_no_batch_can_begin_what_came_before_is_good_too() -> None:
    chunk = Chunk(plain(0, b"good") + b"\xff" * 70, 0, None, life=1)
    assert values(chunk) == [b"good"]
    assert (chunk.next_offset, chunk.error and chunk.error.code) == (1, ErrorCode.CORRUPT_MESSAGE)


def test_a_batch_that_does_not_come_whole_is_an_error() -> None:
    chunk = Chunk(plain(0, b"large")[:-1], 0, None, life=1)
    assert chunk.is_over
    assert chunk.error is not None and chunk.error.code is ErrorCode.MESSAGE_TOO_LARGE
