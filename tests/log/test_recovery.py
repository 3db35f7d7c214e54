"""What is left after a cut, a crash, or damage: a prefix, and all of what was synced."""

from __future__ import annotations

import errno
import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_samples import LOG_DIR, NOW_MS, append, batch, config, headers_from, open_log, records_from

from moldau.log.log import AppendOrigin
from moldau.log.open_files import OpenFiles
from moldau.log.segments import Segments
from moldau.records.control import ControlType, EndTxnMarker, build_end_txn_batch
from moldau.runtime.files import RealFileSystem
from moldau.sim.cuts import every_power_cut
from moldau.sim.faults import PowerCut
from moldau.sim.files import SimFileSystem
from moldau.wire.errors import KafkaError

DIRECTORY = f"{LOG_DIR}/topic-0"
SETTINGS = config(segment_bytes=400, index_interval_bytes=150)


def path(offset, suffix):
    return f"{DIRECTORY}/{offset:020d}{suffix}"


def snapshot_of(files):
    """The bytes of every file."""
    return {name: files.read_bytes(f"{DIRECTORY}/{name}") for name in files.list_dir(DIRECTORY)}


def restored(content):
    files = SimFileSystem()
    files.make_dirs(DIRECTORY)
    for name, data in content.items():
        file = files.open(f"{DIRECTORY}/{name}", create=True)
        if data:
            file.write_at(data, 0)
    return files


def filled(files, count=12):
    log = open_log(files, SETTINGS)
    for number in range(count):
        append(log, batch(2, producer_id=number % 3, producer_epoch=0, sequence=number // 3 * 2), number // 5)
    return log


def test_a_log_cut_at_every_byte_recovers_to_a_prefix():
    files = SimFileSystem()
    log = open_log(files, config(index_interval_bytes=150))
    for number in range(6):
        append(log, batch(2, producer_id=1, producer_epoch=0, sequence=number * 2), number // 2)
    headers = list(headers_from(log))
    content = snapshot_of(files)
    name = f"{0:020d}.log"
    data = content[name]
    ends = [0]
    for header in headers:
        ends.append(ends[-1] + header.size)
    for cut in range(len(data) + 1):
        again = open_log(restored({**content, name: data[:cut]}))
        whole = sum(1 for end in ends[1:] if end <= cut)
        assert list(headers_from(again)) == headers[:whole]
        assert (again.size_bytes, again.log_end_offset) == (ends[whole], whole * 2)
        assert (
            append(again, batch(2, producer_id=1, producer_epoch=0, sequence=whole * 2)).base_offset
            == whole * 2
        )


@given(st.data())
def test_a_flipped_bit_ends_the_log_before_its_batch(data):
    files = SimFileSystem()
    headers = list(headers_from(filled(files)))
    content = snapshot_of(files)
    name = data.draw(st.sampled_from(sorted(name for name in content if name.endswith(".log"))))
    flipped = bytearray(content[name])
    bit = data.draw(st.integers(0, len(flipped) * 8 - 1))
    flipped[bit // 8] ^= 1 << bit % 8
    again = open_log(restored({**content, name: bytes(flipped)}), SETTINGS)
    got = list(headers_from(again))
    # The checksum does not cover the base offset and the leader epoch: there a flip can only be implausible.
    written = {(header.crc, header.base_sequence, header.producer_id) for header in headers}
    assert {(header.crc, header.base_sequence, header.producer_id) for header in got} <= written
    assert all(a.last_offset < b.base_offset for a, b in itertools.pairwise(got))
    assert again.log_end_offset >= (got[-1].next_offset if got else 0)


SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@given(st.dictionaries(st.sampled_from(SUFFIXES), st.binary(max_size=300)), st.integers(0, 25))
def test_any_bytes_in_any_file_open(rubbish, recovery_point):
    files = SimFileSystem()
    filled(files)
    content = snapshot_of(files)
    last = max(name for name in content if name.endswith(".log"))[:20]
    for suffix, data in rubbish.items():
        content[f"{last}{suffix}"] = data
    for is_clean in (False, True):
        if is_clean and any(suffix != ".log" for suffix in rubbish):
            continue
        log = open_log(
            restored(content), SETTINGS, had_clean_shutdown=is_clean, recovery_point=recovery_point
        )
        append(log)
        assert list(headers_from(log))[-1].base_offset == log.log_end_offset - 1


def test_indexes_are_rebuilt_as_they_were(files):
    log = filled(files)
    log.close()
    before = snapshot_of(files)
    for name in before:
        if name.endswith(("index", ".snapshot")):
            files.remove(f"{DIRECTORY}/{name}")
    open_log(files, SETTINGS).close()
    after = snapshot_of(files)
    assert {name: after[name] for name in before if name.endswith("index")} == {
        name: before[name] for name in before if name.endswith("index")
    }


def test_one_missing_index_does_not_touch_the_rest(files):
    log = filled(files)
    log.flush(NOW_MS)
    log.close()
    second = log._segments.bases[1]
    index = files.read_bytes(path(second, ".index"))
    files.remove(path(second, ".index"))
    files.remove(path(second, ".timeindex"))
    again = open_log(files, SETTINGS, had_clean_shutdown=True)
    assert files.read_bytes(path(second, ".index")) == index
    assert again.log_end_offset == 24
    assert {pid: entry.next_sequence for pid, entry in again.producers.producers.items()} == {
        0: 8,
        1: 8,
        2: 8,
    }


def test_what_is_below_the_recovery_point_is_not_read(files):
    log = filled(files)
    log.flush(NOW_MS)
    trace = files.faults.record()
    again = open_log(files, SETTINGS, recovery_point=log.recovery_point)
    assert again.log_end_offset == 24
    read = {
        operation.path for operation in trace if operation.name == "read" and operation.path.endswith(".log")
    }
    assert read == {path(log.active_segment_base_offset, ".log")}


def test_what_was_synced_of_a_segment_is_not_read_either(files):
    settings = config(index_interval_bytes=500)
    log = open_log(files, settings)
    for number in range(200):
        append(log, batch(producer_id=1, producer_epoch=0, sequence=number))
    log.close()
    log = open_log(files, settings, had_clean_shutdown=True)
    append(log, batch(producer_id=1, producer_epoch=0, sequence=200))
    trace = files.faults.record()
    again = open_log(files, settings, recovery_point=200)
    assert (again.log_end_offset, again.recovery_point) == (201, 200)
    assert again.producers.producers[1].next_sequence == 201
    reads = [operation.detail for operation in trace if operation.name == "read" and ".log" in operation.path]
    read_bytes = sum(int(detail.split()[0]) for detail in reads)
    assert read_bytes < 500 + 3 * len(batch()), reads


def check_indexes(log):
    """Every entry of every segment against the batches that are there."""
    for segment in log._segments.all:
        batches = {
            header.last_offset: (position, header.max_timestamp)
            for header, position in Segments._headers(segment, segment.base_offset)
        }
        assert segment.max_timestamp == max((timestamp for _, timestamp in batches.values()), default=-1)
        offsets, times = segment.offset_index, segment.time_index
        for number in range(offsets.entries):
            entry = offsets.entry(number)
            assert batches[entry.offset][0] == entry.position
        for number in range(times.entries):
            found = times.entry(number)
            assert found.timestamp == max(
                timestamp for last_offset, (_, timestamp) in batches.items() if last_offset <= found.offset
            )


appends = st.lists(
    st.tuples(
        st.integers(-1, 3),  # producer
        st.integers(0, 50),  # later by so much
        st.sampled_from(("data", "data", "data", "commit", "abort", "flush", "close")),
    ),
    min_size=1,
    max_size=40,
)


@given(appends, st.integers(0, 60), st.binary(max_size=40), st.sampled_from((400, 5000)))
def test_to_go_on_from_the_recovery_point_is_to_read_it_all(steps, recovered_before, rubbish, segment_bytes):
    """Whatever was flushed when, and whatever is behind the entries of an index."""
    settings = config(segment_bytes=segment_bytes, index_interval_bytes=120)
    files = SimFileSystem()
    log = open_log(files, settings)
    sequences, is_open = dict.fromkeys(range(4), 0), dict.fromkeys(range(4), False)
    recovery_points = [0]
    timestamp = NOW_MS
    for producer, elapsed, kind in steps:
        timestamp += elapsed - 20
        if kind == "flush":
            log.flush(NOW_MS)
            recovery_points.append(log.recovery_point)
        elif kind == "close":
            log.close()
            log = open_log(files, settings, had_clean_shutdown=True)
            recovery_points.append(log.recovery_point)
        elif producer < 0:
            append(log, batch(2, timestamp=timestamp))
        elif kind == "data":
            sent = batch(
                2, timestamp=timestamp, producer_id=producer, producer_epoch=0, sequence=sequences[producer],
                is_transactional=producer > 1,
            )  # fmt: skip
            sequences[producer] += 2
            is_open[producer] = producer > 1
            append(log, sent)
        elif is_open[producer]:
            kind = ControlType.ABORT if kind == "abort" else ControlType.COMMIT
            end = build_end_txn_batch(
                EndTxnMarker(kind, 0), producer_id=producer, producer_epoch=0, timestamp=timestamp
            )
            log.append_as_leader(memoryview(bytearray(end)), 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
            is_open[producer] = False
    recovery_point = recovery_points[recovered_before % len(recovery_points)]
    content = snapshot_of(files)
    if rubbish:
        for name in content:
            if name.endswith("index") and not name.endswith("txnindex"):
                index = log._segments.active
                used = index.offset_index if name.endswith(".index") else index.time_index
                if used.path.endswith(name):
                    content[name] = content[name][: used.used_bytes] + rubbish
    states = []
    for point in (recovery_point, 0):
        files = restored(content)
        again = open_log(files, settings, recovery_point=point)
        again.advance_high_watermark(again.log_end_offset)
        again.take_producer_snapshot()
        states.append(
            (
                list(headers_from(again)),
                again.log_end_offset,
                again.last_stable_offset,
                again.offset_of_max_timestamp(),
                again.aborted_transactions(0, again.log_end_offset),
                [segment.max_timestamp_offset for segment in again._segments.all],
                files.read_bytes(path(again.log_end_offset, ".snapshot")) if again.log_end_offset else b"",
            )
        )
        check_indexes(again)
    assert states[0] == states[1]


def test_damage_below_the_recovery_point_ends_the_log_there(files):
    """Although the snapshot of the producers is from further on."""
    settings = config(index_interval_bytes=500)
    log = open_log(files, settings)
    for number in range(200):
        append(log, batch(producer_id=1, producer_epoch=0, sequence=number))
    log.close()
    file = files.open(path(0, ".log"))
    file.truncate(file.size() - 1)
    again = open_log(files, settings, recovery_point=200)
    assert (again.log_end_offset, again.recovery_point) == (199, 199)
    assert again.producers.producers[1].next_sequence == 199
    assert again._snapshots.offsets == []


def test_after_a_clean_shutdown_only_the_end_is_read(files):
    log = open_log(files, config(index_interval_bytes=500))
    for _ in range(200):
        append(log)
    log.flush(NOW_MS)
    log.close()
    trace = files.faults.record()
    again = open_log(files, had_clean_shutdown=True)
    assert (again.log_end_offset, again.recovery_point) == (200, 200)
    assert sum(1 for operation in trace if operation.name == "read" and operation.path.endswith(".log")) == 1
    assert not any(operation.name in ("write", "truncate", "rename", "remove") for operation in trace)


def test_a_torn_end_is_noticed_even_after_a_clean_shutdown(files):
    log = filled(files)
    log.close()
    last = path(log.active_segment_base_offset, ".log")
    file = files.open(last)
    file.truncate(file.size() - 3)
    again = open_log(files, SETTINGS, had_clean_shutdown=True)
    assert again.log_end_offset == 22
    assert [record.offset for record in records_from(again)] == list(range(22))


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_an_index_that_was_rebuilt_survives_a_power_cut(files, seed, is_clean):
    log = filled(files)
    log.close()
    files.sync_dir("/")
    second = log._segments.bases[1]
    for suffix in (".index", ".timeindex"):
        files.remove(path(second, suffix))
    files.sync_dir(DIRECTORY)
    before = [segment.max_timestamp_offset for segment in log._segments.all]
    open_log(files, SETTINGS, recovery_point=24, had_clean_shutdown=is_clean)
    files.crash(Random(seed))
    again = open_log(files, SETTINGS, recovery_point=24)
    assert [segment.max_timestamp_offset for segment in again._segments.all] == before
    check_indexes(again)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 4096])
def test_an_index_that_is_none_is_noticed_even_after_a_clean_shutdown(tmp_path, size):
    files = RealFileSystem()
    log = open_log(files, SETTINGS, log_dir=str(tmp_path))
    for _ in range(12):
        append(log)
    log.close()
    (tmp_path / f"topic-0/{log.active_segment_base_offset:020d}.index").write_bytes(bytes(size))
    again = open_log(files, SETTINGS, had_clean_shutdown=True, log_dir=str(tmp_path))
    assert [record.offset for record in records_from(again)] == list(range(12))
    append(again)
    index = again._segments.active.offset_index
    assert all(index.entry(number).position > 0 for number in range(index.entries))


def test_segments_after_a_damaged_one_go(files):
    log = filled(files)
    bases = list(log._segments.bases)
    assert len(bases) >= 3
    file = files.open(path(bases[1], ".log"))
    file.write_at(b"\xff", 70)
    again = open_log(files, SETTINGS)
    assert again._segments.bases == bases[:2]
    assert again.log_end_offset == bases[1]
    assert again.leader_epochs.latest <= 1


def transact(log, sequence):
    """A transaction of one batch; every second one is aborted."""
    append(log, batch(producer_id=5, producer_epoch=0, sequence=sequence, is_transactional=True))
    kind = ControlType.ABORT if sequence % 2 else ControlType.COMMIT
    end = build_end_txn_batch(EndTxnMarker(kind, 0), producer_id=5, producer_epoch=0, timestamp=NOW_MS)
    log.append_as_leader(memoryview(bytearray(end)), 0, NOW_MS, origin=AppendOrigin.COORDINATOR)


@pytest.mark.parametrize("size", [68, 50, 34, 10])
def test_what_a_power_cut_left_of_the_transaction_index_is_not_believed(files, size):
    """What was not synced of it comes back empty, and an empty entry would hide what was committed."""
    settings = config(index_interval_bytes=100)
    log = open_log(files, settings)
    for sequence in range(8):
        transact(log, sequence)
    log.flush(NOW_MS)
    point = log.recovery_point
    for sequence in range(8, 12):
        transact(log, sequence)
    whole = files.read_bytes(path(0, ".txnindex"))
    assert len(whole) == 6 * 34
    file = files.open(path(0, ".txnindex"))
    file.truncate(4 * 34)
    file.write_at(bytes(size), 4 * 34)
    open_log(files, settings, recovery_point=point)
    assert files.read_bytes(path(0, ".txnindex")) == whole


def test_aborted_transactions_are_indexed_anew(files):
    log = open_log(files)
    for sequence in range(4):
        transact(log, sequence)
    index = files.read_bytes(path(0, ".txnindex"))
    assert len(index) == 2 * 34
    files.remove(path(0, ".txnindex"))
    again = open_log(files)
    assert files.read_bytes(path(0, ".txnindex")) == index
    again.advance_high_watermark(8)
    assert again.last_stable_offset == 8


def test_an_open_transaction_is_open_after_a_restart(files):
    log = open_log(files)
    append(log)
    append(log, batch(producer_id=5, producer_epoch=0, sequence=0, is_transactional=True))
    log.flush(NOW_MS)
    log.close()
    again = open_log(files, had_clean_shutdown=True)
    again.advance_high_watermark(2)
    assert again.last_stable_offset == 1


def test_leftovers_are_removed_and_swaps_completed(files):
    log = open_log(files, config(segment_bytes=200))
    for _ in range(6):
        append(log)
    log.close()
    content = snapshot_of(files)
    merged = content[f"{0:020d}.log"] + content[f"{2:020d}.log"]
    content |= {
        f"{0:020d}.log.swap": merged,
        f"{0:020d}.index.swap": b"",
        f"{0:020d}.timeindex.swap": b"",
        f"{99:020d}.log.cleaned": b"x",
        f"{98:020d}.log.deleted": b"x",
    }
    files = restored(content)
    again = open_log(files, config(segment_bytes=200), had_clean_shutdown=True)
    assert again._segments.bases == [0, 4]
    assert [header.base_offset for header in headers_from(again)] == list(range(6))
    assert not any(name.endswith((".swap", ".cleaned", ".deleted")) for name in files.list_dir(DIRECTORY))


def test_a_swap_of_an_unfinished_group_is_dropped(files):
    log = filled(files)
    log.close()
    content = snapshot_of(files) | {f"{5:020d}.log.swap": b"x", f"{4:020d}.log.cleaned": b"x"}
    assert open_log(restored(content), SETTINGS).log_end_offset == 24


def scenario(files, acknowledged):
    """Appends, rolls, flushes and a truncation. What was synced is noted once it is."""
    log = open_log(files, SETTINGS)
    for number in range(16):
        append(log, batch(2, producer_id=1, producer_epoch=0, sequence=number * 2), number // 6)
        if number % 4 == 3:
            log.flush(NOW_MS)
            acknowledged["recovery_point"] = log.recovery_point
            acknowledged["headers"] = list(headers_from(log))
    log.close()


def test_a_power_cut_at_every_operation_keeps_what_was_synced():
    files = SimFileSystem()
    files.make_dirs(LOG_DIR)
    files.sync_dir("/")
    before = files.faults.count
    scenario(files, {})
    operations = files.faults.count - before
    for number in range(1, operations + 1):
        for seed in range(3):
            files = SimFileSystem()
            files.make_dirs(LOG_DIR)
            files.sync_dir("/")
            acknowledged: dict = {"recovery_point": 0, "headers": []}
            files.faults.power_cut_at(files.faults.count + number)
            with pytest.raises(PowerCut):
                scenario(files, acknowledged)
            files.crash(Random(seed))
            log = open_log(files, SETTINGS, recovery_point=acknowledged["recovery_point"])
            got = list(headers_from(log))
            context = f"operation {number}, seed {seed}"
            assert got[: len(acknowledged["headers"])] == acknowledged["headers"], context
            assert [header.base_offset for header in got] == list(range(0, len(got) * 2, 2)), context
            next_sequence = log.producers.producers[1].next_sequence if got else 0
            assert next_sequence == len(got) * 2, context
            assert log.leader_epochs.latest == (got[-1].leader_epoch if got else -1), context
            append(log, batch(2, producer_id=1, producer_epoch=0, sequence=next_sequence))


def test_few_open_files_serve_many_segments(tmp_path):
    files, open_files = RealFileSystem(), OpenFiles(limit=3)
    log = open_log(files, SETTINGS, open_files=open_files, log_dir=str(tmp_path))
    for number in range(60):
        append(log, batch(2, size=number))
        assert len(open_files) <= 3
    assert [record.offset for record in records_from(log)] == list(range(120))
    assert len(open_files) <= 3
    log.flush(NOW_MS)
    log.close()
    assert len(open_files) == 0
    again = open_log(files, SETTINGS, log_dir=str(tmp_path), had_clean_shutdown=True)
    assert [record.offset for record in records_from(again)] == list(range(120))


def test_a_segment_that_is_missing_ends_the_log():
    """The name of a file, or its size, may be lost in a power cut while that of a later one is not."""
    files = SimFileSystem()
    filled(files)
    bases = sorted(int(name[:20]) for name in files.list_dir(DIRECTORY) if name.endswith(".log"))
    assert len(bases) > 3
    files.remove(path(bases[1], ".log"))
    log = open_log(files, SETTINGS)
    assert log.log_end_offset == bases[1]
    assert [header.next_offset for header in headers_from(log)][-1] == bases[1]
    assert append(log).base_offset == bases[1]


def test_a_segment_that_is_missing_in_a_compacted_log_is_no_damage():
    files = SimFileSystem()
    before = filled(files)
    bases = sorted(int(name[:20]) for name in files.list_dir(DIRECTORY) if name.endswith(".log"))
    files.remove(path(bases[1], ".log"))
    log = open_log(files, config(segment_bytes=400, index_interval_bytes=150, cleanup_policy=("compact",)))
    assert log.log_end_offset == before.log_end_offset


def test_a_recovery_that_is_cut_short_leaves_no_hole():
    """Damage in an early segment takes those after it along, whatever a power cut leaves of their removal."""
    for cut_at in itertools.count(1):
        files = SimFileSystem()
        filled(files).flush(NOW_MS)
        files.sync_dir("/")
        first = files.open(path(0, ".log"))
        first.write_at(b"damage", first.size() - 6)
        first.sync()
        faults = files.faults
        faults.power_cut_at(faults.count + cut_at)
        try:
            open_log(files, SETTINGS)
        except PowerCut:
            pass
        else:
            break
        files.crash(Random(cut_at))
        log = open_log(files, SETTINGS)
        offsets = [record.offset for record in records_from(log)]
        assert offsets == list(range(len(offsets)))
    assert cut_at > 10


@pytest.mark.parametrize("lost", ["", ".index", ".timeindex"])
def test_recoveries_that_are_cut_short_leave_indexes_that_can_be_trusted(lost):
    """Of a segment that was synced in part: the next recovery does not read all of it."""
    settings = config(segment_bytes=5000, index_interval_bytes=150)

    def prepare(files):
        log = open_log(files, settings)
        files.sync_dir("/")
        files.sync_dir(LOG_DIR)
        for number in range(30):
            append(
                log,
                batch(timestamp=NOW_MS - number * 7 % 20, producer_id=1, producer_epoch=0, sequence=number),
            )
            if number == 19:
                log.flush(NOW_MS)
        if lost:
            files.remove(path(0, lost))
            files.sync_dir(DIRECTORY)

    def check(files):
        for _ in range(2):
            log = open_log(files, settings, recovery_point=20)
            offsets = [header.base_offset for header in headers_from(log)]
            assert offsets == list(range(max(20, log.log_end_offset)))
            assert log.producers.producers[1].next_sequence == len(offsets)
            check_indexes(log)
            files.crash(Random(len(offsets)))

    every_power_cut(
        lambda files: open_log(files, settings, recovery_point=20), check, prepare=prepare, seeds=range(10)
    )


def test_what_is_acknowledged_a_second_time_is_durable():
    """It was written before a crash that left no time to sync it, and the producer asks again."""
    settings = config(flush_messages=1)
    files = SimFileSystem()
    sent = batch(2, producer_id=1, producer_epoch=0, sequence=0)
    append(open_log(files, config()), memoryview(bytearray(sent)))
    log = open_log(files, settings)
    assert log.recovery_point == 0
    assert append(log, sent).base_offset == 0
    assert log.recovery_point == 2
    files.sync_dir("/")
    files.crash(Random(0))
    assert open_log(files, settings).log_end_offset == 2


@pytest.mark.parametrize(
    ("operation", "suffix"), [("open", ".index"), ("truncate", ".timeindex"), ("create", ".index")]
)
def test_a_segment_that_could_not_be_begun_cuts_nothing_off(files, operation, suffix):
    """The old one goes on, after a change of its configuration for instance."""
    log = open_log(files, config(segment_bytes=200, index_interval_bytes=50))
    for _ in range(2):
        append(log)
    log._segments.active.release_files()
    files.faults.fail_next(errno.EMFILE, operation=operation, path=f"*{suffix}")
    with pytest.raises(KafkaError):
        append(log)
    files.faults.stop_failing()
    log.update_config(config(segment_bytes=400, index_interval_bytes=50))
    append(log)
    assert log.segment_count == 1
    append(log)
    for is_clean in (False, True):
        again = open_log(files, config(), had_clean_shutdown=is_clean)
        assert [header.base_offset for header in headers_from(again)] == [0, 1, 2, 3]
        log.close()
