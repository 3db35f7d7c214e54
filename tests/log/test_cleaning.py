"""What compaction leaves of a log, against an obvious model of what Kafka's leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from cleaner_harness import clean_log
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import LOG_DIR, NOW_MS, append, config, headers_from, open_log

from moldau.log.log import AppendOrigin, Log
from moldau.records.batch import iterate_headers
from moldau.records.builder import build_batch
from moldau.records.compression import Codec
from moldau.records.control import ControlType, EndTxnMarker, build_end_txn_batch
from moldau.records.record import Record, read_records
from moldau.sim.files import SimFileSystem

DAY_MS = 86_400_000


def compacted(**changes: object):
    return config(
        **{"cleanup_policy": ("compact",), "segment_bytes": 600, "index_interval_bytes": 100, **changes}
    )


def put(log: Log, *pairs: tuple[bytes | None, bytes | None], codec: Codec = Codec.NONE, **options) -> None:
    records = [Record(0, NOW_MS + number, key, value) for number, (key, value) in enumerate(pairs)]
    batch = memoryview(bytearray(build_batch(records, codec=codec, **options)))
    append(log, batch)


def end_transaction(log: Log, kind: ControlType, producer_id: int, epoch: int = 0) -> None:
    marker = build_end_txn_batch(
        EndTxnMarker(kind, 0), producer_id=producer_id, producer_epoch=epoch, timestamp=NOW_MS
    )
    log.append_as_leader(memoryview(bytearray(marker)), 0, NOW_MS, origin=AppendOrigin.COORDINATOR)


def all_records(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Of data batches and control batches alike: offset, key, value."""
    records: list[tuple[int, bytes | None, bytes | None]] = []
    for segment in log.segments.all:
        data = segment.file.read_at(segment.size, 0)
        for position, header in iterate_headers(data):
            batch = data[position : position + header.size]
            records += [(record.offset, record.key, record.value) for record in read_records(batch)]
    return records


def finish(log: Log) -> None:
    log.advance_high_watermark(log.log_end_offset)
    log.segments.roll(log.log_end_offset, NOW_MS)


@pytest.fixture
def log(files: SimFileSystem) -> Log:
    return open_log(files, compacted())


def test_the_newest_record_of_each_key_stays_at_its_offset(files: SimFileSystem, log: Log) -> None:
    for number in range(30):
        put(log, (b"k%d" % (number % 3), b"v%d" % number))
    finish(log)
    result = clean_log(files, log)
    assert result.next_dirty_offset == 30
    assert all_records(log) == [(27, b"k0", b"v27"), (28, b"k1", b"v28"), (29, b"k2", b"v29")]
    assert [header.base_offset for header in headers_from(log)] == [27, 28, 29]


def test_nothing_is_cleaned_beyond_what_is_decided(files: SimFileSystem, log: Log) -> None:
    for number in range(10):
        put(log, (b"key", b"%d" % number))
    log.segments.roll(10, NOW_MS)
    assert clean_log(files, log) is None  # nothing is committed
    log.advance_high_watermark(10)
    put(log, (b"key", b"later"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    finish(log)
    assert clean_log(files, log).next_dirty_offset == 10
    assert [offset for offset, _, _ in all_records(log)] == [9, 10]


def test_a_tombstone_stays_for_the_time_it_is_given_and_is_marked(files: SimFileSystem, log: Log) -> None:
    put(log, (b"key", b"value"), (b"other", b"value"))
    put(log, (b"key", None))
    finish(log)
    clean_log(files, log)
    assert all_records(log) == [(1, b"other", b"value"), (2, b"key", None)]
    marked = [header for header in headers_from(log) if header.delete_horizon_ms is not None]
    assert [(header.base_offset, header.delete_horizon_ms) for header in marked] == [(2, NOW_MS + DAY_MS)]
    # Its time is told from the horizon on, and is what it was.
    found = log.read(2, 1000, limit=3)
    assert next(read_records(found.file.read_at(found.count, found.position))).timestamp == NOW_MS

    put(log, (b"more", b"value"))
    finish(log)
    clean_log(files, log, now_ms=NOW_MS + DAY_MS - 1)
    assert (2, b"key", None) in all_records(log)
    put(log, (b"more", b"value"))
    finish(log)
    clean_log(files, log, now_ms=NOW_MS + DAY_MS)
    assert [key for _, key, _ in all_records(log)] == [b"other", b"more"]


def test_records_of_aborted_transactions_go_and_markers_follow(files: SimFileSystem, log: Log) -> None:
    put(log, (b"a", b"committed"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    put(log, (b"a", b"aborted"), producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, ControlType.COMMIT, 1)
    end_transaction(log, ControlType.ABORT, 2)
    put(log, (b"b", b"plain"))
    finish(log)
    clean_log(files, log)
    kept = all_records(log)
    assert [(offset, value) for offset, key, value in kept if key in (b"a", b"b")] == [
        (0, b"committed"),
        (4, b"plain"),
    ]
    # Of the aborted batch the sequence is kept, and so is the marker after it.
    assert [offset for offset, _, _ in kept] == [0, 2, 3, 4]
    assert [entry[:3] for entry in log.aborted_transactions(0, 5)] == [(2, 1, 3)]
    log.expire_producers(NOW_MS + DAY_MS, DAY_MS)
    left = []
    for day in (1, 2, 3):
        put(log, (b"c", b"%d" % day))
        finish(log)
        clean_log(files, log, now_ms=NOW_MS + day * (DAY_MS + 1))
        left.append([offset for offset, _, _ in all_records(log)])
    # The batch goes, then the marker gets its horizon, then it goes; the other marker stays with its record.
    assert left == [[0, 2, 3, 4, 5], [0, 2, 3, 4, 6], [0, 2, 4, 7]]
    assert log.aborted_transactions(0, 5) == []


def test_the_last_sequence_of_a_producer_is_kept_in_an_empty_batch(files: SimFileSystem, log: Log) -> None:
    for sequence in range(3):
        put(log, (b"key", b"%d" % sequence), producer_id=5, producer_epoch=1, base_sequence=sequence)
    put(log, (b"key", b"newest"))
    finish(log)
    clean_log(files, log)
    assert [
        (header.base_offset, header.record_count, header.base_sequence) for header in headers_from(log)
    ] == [
        (2, 0, 2),
        (3, 1, -1),
    ]
    again = open_log(files, compacted(), recovery_point=0)
    assert again.producers.producers[5].last_sequence == 2


def test_records_without_a_key_go(files: SimFileSystem, log: Log) -> None:
    log.update_config(config(segment_bytes=600))
    put(log, (None, b"no key"), (b"key", b"value"))
    log.update_config(compacted())
    finish(log)
    result = clean_log(files, log)
    assert all_records(log) == [(1, b"key", b"value")]
    assert result.records_invalid == 1


def test_a_map_that_is_full_cleans_up_to_there(files: SimFileSystem, log: Log) -> None:
    for number in range(40):
        put(log, (b"k%d" % (number % 20), b"%d" % number))
    finish(log)
    result = clean_log(files, log, dedupe_bytes=160 * 10, dedupe_load_factor=1.0)
    assert result.next_dirty_offset == 10
    assert len(all_records(log)) == 40
    while result is not None:
        result = clean_log(files, log, dedupe_bytes=160 * 10, dedupe_load_factor=1.0)
    assert [offset for offset, _, _ in all_records(log)] == list(range(20, 40))


def test_long_keys_are_told_apart(files: SimFileSystem, log: Log) -> None:
    log.update_config(compacted(segment_bytes=10_000))
    for number in range(20):
        put(log, (b"x" * 500 + b"%d" % (number % 10), b"%d" % number))
    finish(log)
    clean_log(files, log)
    assert [offset for offset, _, _ in all_records(log)] == list(range(10, 20))


def test_damage_is_told_and_changes_nothing(files: SimFileSystem, log: Log) -> None:
    for number in range(10):
        put(log, (b"key", b"%d" % number))
    finish(log)
    segment = log.segments.all[0]
    segment.file.write_at(b"\xff", 70)
    before = segment.file.read_at(segment.size, 0)
    result = clean_log(files, log)
    assert result.errno == 0
    assert "corrupt" in result.message
    assert segment.file.read_at(segment.size, 0) == before


def test_small_segments_become_one_and_large_ones_do_not(files: SimFileSystem, log: Log) -> None:
    for number in range(60):
        put(log, (b"%d" % number, bytes(20)))
    finish(log)
    count = log.segment_count
    clean_log(files, log)
    assert log.segment_count == count  # nothing went, so each is as large as a segment may be
    for number in range(60):
        put(log, (b"%d" % number, bytes(20)))
    finish(log)
    clean_log(files, log)
    assert len(all_records(log)) == 60
    put(log, (b"one more", b""))
    finish(log)
    clean_log(files, log)
    assert log.segment_count < count + 3


def test_who_is_reading_an_old_segment_can_go_on(files: SimFileSystem, log: Log) -> None:
    for number in range(10):
        put(log, (b"key", b"%d" % number))
    finish(log)
    found = log.read(0, 1000, limit=10)
    before = found.file.read_at(found.count, found.position)
    clean_log(files, log)
    assert found.file.read_at(found.count, found.position) == before
    for path in log.take_deletions(NOW_MS + 60_000):
        files.remove(path)
    assert found.file.read_at(found.count, found.position) == before
    assert [name for name in files.list_dir(log.directory) if name.endswith(".deleted")] == []


# -- Any history, against a model


@dataclass
class Model:
    """What was appended, in the words of the test: offset, key, value, and whether it counts."""

    records: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)

    def newest(self) -> dict[bytes, tuple[int, bytes | None]]:
        return {key: (offset, value) for offset, key, value in self.records}


def history(random: Random, log: Log, batches: int, model: Model, sequences: dict[int, int]) -> None:
    """Batches of plain records, of transactions that overlap, and their ends."""
    ongoing: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
    for _ in range(batches):
        producer = random.choice((None, 1, 2, 3))
        if producer in ongoing and random.random() < 0.4:
            aborted = random.random() < 0.5
            end_transaction(log, ControlType.ABORT if aborted else ControlType.COMMIT, producer)
            sequences[producer] = 0
            records = ongoing.pop(producer)
            if not aborted:
                model.records += records
            continue
        pairs = [
            (
                b"key-%d" % random.randrange(8),
                None if random.random() < 0.2 else random.randbytes(random.randrange(30)),
            )
            for _ in range(random.randint(1, 5))
        ]
        offset = log.log_end_offset
        records = [(offset + number, key, value) for number, (key, value) in enumerate(pairs)]
        codec = random.choice((Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD))
        if producer is None:
            put(log, *pairs, codec=codec)
            model.records += records
        else:
            sequence = (
                log.producers.producers[producer].next_sequence if producer in log.producers.producers else 0
            )
            put(
                log,
                *pairs,
                codec=codec,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            ongoing.setdefault(producer, []).extend(records)
    for producer in list(ongoing):
        end_transaction(log, ControlType.COMMIT, producer)
        model.records += ongoing.pop(producer)
    model.records.sort()


def committed(log: Log) -> list[tuple[int, bytes, bytes | None]]:
    """What a read_committed consumer would get, found the obvious way."""
    aborted = log.aborted_transactions(0, log.log_end_offset)
    seen = []
    for segment in log.segments.all:
        data = segment.file.read_at(segment.size, 0)
        for position, header in iterate_headers(data):
            if header.is_control:
                continue
            if header.is_transactional and any(
                entry.producer_id == header.producer_id
                and entry.first_offset <= header.base_offset <= entry.last_offset
                for entry in aborted
            ):
                continue
            batch = data[position : position + header.size]
            seen += [(record.offset, record.key, record.value) for record in read_records(batch)]
    return seen


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    rounds=st.integers(1, 4),
    dedupe_entries=st.sampled_from((3, 8, 1000)),
    io_buffer=st.sampled_from((1, 100, 1 << 16)),
)
def test_any_history_keeps_the_newest_of_each_key(seed, rounds, dedupe_entries, io_buffer) -> None:
    random = Random(seed)
    files = SimFileSystem()
    files.make_dirs(LOG_DIR)
    log = open_log(files, compacted(segment_bytes=random.choice((400, 900, 5000))))
    model, sequences, now_ms = Model(), {}, NOW_MS
    for _ in range(rounds):
        history(random, log, random.randint(1, 25), model, sequences)
        finish(log)
        for _ in range(random.randint(1, 3)):
            now_ms += random.choice((0, 1000, DAY_MS + 1))
            result = clean_log(
                files,
                log,
                now_ms=now_ms,
                dedupe_bytes=160 * dedupe_entries,
                dedupe_load_factor=1.0,
                io_buffer_bytes=io_buffer,
            )
            check(log, model, is_all_clean=result is None or result.next_dirty_offset == log.log_end_offset)
            again = open_log(files, log.config)
            assert all_records(again) == all_records(log)
            assert again.log_end_offset == log.log_end_offset
            for producer_id, entry in log.producers.producers.items():
                replayed = again.producers.producers[producer_id]
                assert (replayed.epoch, replayed.last_sequence) == (entry.epoch, entry.last_sequence)
    check_reads(log)


def check(log: Log, model: Model, *, is_all_clean: bool) -> None:
    seen = committed(log)
    assert set(seen) <= set(model.records)
    assert [offset for offset, _, _ in seen] == sorted({offset for offset, _, _ in seen})
    newest_seen = {key: (offset, value) for offset, key, value in seen}
    for key, (offset, value) in model.newest().items():
        if value is not None:
            assert newest_seen[key] == (offset, value)
        else:
            # A tombstone may be gone, and then nothing older may show.
            assert newest_seen.get(key, (offset, None)) == (offset, None)
    if is_all_clean:
        assert len(seen) == len(newest_seen)
    for segment in log.segments.all:
        check_indexes(segment)


def check_reads(log: Log) -> None:
    """From wherever a reader begins, it gets what comes next, up to where it may read."""
    headers = [header for segment in log.segments.all for header in headers_of(segment)]
    for offset in range(log.log_end_offset):
        for limit in {log.log_end_offset, min(offset + 3, log.log_end_offset)}:
            found = log.read(offset, 1 << 20, limit=limit)
            data = found.file.read_at(found.count, found.position)
            got = [header for _, header in iterate_headers(data)]
            wanted = [
                header for header in headers if header.last_offset >= offset and header.last_offset < limit
            ]
            assert got == wanted[: len(got)]
            assert bool(got) == bool(wanted)
    everything = [record for segment in log.segments.all for record in records_of(segment)]
    for timestamp in (0, NOW_MS, NOW_MS + 2, NOW_MS + 4):
        first = next((record for record in everything if record.timestamp >= timestamp), None)
        answer = log.offset_for_timestamp(timestamp)
        assert (answer.offset if answer else None) == (first.offset if first else None)


def headers_of(segment) -> list:
    return [header for _, header in iterate_headers(segment.file.read_at(segment.size, 0))]


def records_of(segment) -> list[Record]:
    data = segment.file.read_at(segment.size, 0)
    return [
        record
        for position, header in iterate_headers(data)
        for record in read_records(data[position : position + header.size])
    ]


def check_indexes(segment) -> None:
    data = segment.file.read_at(segment.size, 0)
    headers = dict(iterate_headers(data))
    for number in range(segment.offset_index.entries):
        entry = segment.offset_index.entry(number)
        assert headers[entry.position].last_offset == entry.offset
    for offset in range(segment.base_offset, min(segment.next_base_offset, segment.base_offset + 200)):
        expected = next(
            (position for position, header in headers.items() if header.last_offset >= offset), None
        )
        location = segment.locate(offset)
        assert (location.position if location else None) == expected
    timestamps = [header.max_timestamp for header in headers.values()]
    assert segment.max_timestamp == max(timestamps, default=-1)
