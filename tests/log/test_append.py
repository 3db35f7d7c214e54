"""What a leader accepts, what it refuses with which code, and what a failing disk leaves behind."""

from __future__ import annotations

import errno
from random import Random

import pytest
from log_samples import LOG_DIR, NOW_MS, append, batch, config, headers_from, open_log, records_from

from moldau.log.errors import DiskFullError, LogDirError, NotInTransaction
from moldau.log.log import AppendOrigin, AppendResult
from moldau.records.batch import TimestampType, iterate_headers, parse_header, stamp_crc
from moldau.records.builder import build_batch
from moldau.records.compression import Codec
from moldau.records.control import ControlType, EndTxnMarker, build_end_txn_batch
from moldau.records.record import Record
from moldau.wire.errors import ErrorCode, KafkaError


def refused(log, records, code):
    end = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        append(log, records)
    assert caught.value.code is code
    assert log.log_end_offset == end


def test_offsets_and_epochs_are_stamped(files):
    log = open_log(files)
    assert append(log, batch(3), leader_epoch=4) == AppendResult(0, 2, -1, 0)
    assert append(log, batch(2), leader_epoch=6) == AppendResult(3, 4, -1, 0)
    headers = list(headers_from(log))
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 4), (3, 6)]
    assert log.leader_epochs.entries() == [(4, 0), (6, 3)]
    assert log.end_offset_for_epoch(5) == (4, 3)


def test_several_batches_are_refused(files):
    refused(open_log(files), memoryview(bytearray(bytes(batch()) * 2)), ErrorCode.INVALID_RECORD)


def test_a_torn_tail_is_left_out(files):
    log = open_log(files)
    append(log, memoryview(bytearray(bytes(batch()) + bytes(batch())[:-1])))
    assert log.log_end_offset == 1
    assert log.size_bytes == len(batch())


@pytest.mark.parametrize("size", [0, 5, 16, 60, 80])
def test_less_than_a_batch_is_refused(files, size):
    refused(open_log(files), memoryview(bytearray(batch(size=100)[:size])), ErrorCode.INVALID_RECORD)


def test_a_wrong_checksum_is_corruption(files):
    records = batch()
    records[-1] ^= 1
    refused(open_log(files), records, ErrorCode.CORRUPT_MESSAGE)


@pytest.mark.parametrize(("magic", "code"), [(1, ErrorCode.INVALID_RECORD), (3, ErrorCode.CORRUPT_MESSAGE)])
def test_other_formats_are_refused(files, magic, code):
    records = batch()
    records[16] = magic
    refused(open_log(files), records, code)


def test_a_base_offset_of_the_producer_is_refused(files):
    refused(open_log(files), batch(base_offset=1), ErrorCode.INVALID_RECORD)


def with_header(position, data):
    records = batch(2)
    records[position : position + len(data)] = data
    stamp_crc(records, len(records))
    return records


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (with_header(57, (3).to_bytes(4)), ErrorCode.INVALID_RECORD),
        (with_header(57, bytes(4)), ErrorCode.INVALID_RECORD),
        (with_header(21, b"\x00\x20"), ErrorCode.INVALID_RECORD),
        (with_header(21, b"\x00\x05"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (with_header(43, (7).to_bytes(8)), ErrorCode.INVALID_RECORD),
    ],
    ids=["count", "no records", "control", "codec", "producer without sequence"],
)
def test_a_header_that_lies_is_refused(files, records, code):
    refused(open_log(files), records, code)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_few_bytes_do_not_take_millions_of_offsets(files, codec):
    log = open_log(files)
    records = batch(2, codec=codec)
    count = 1 << 30
    records[23:27] = (count - 1).to_bytes(4)
    records[57:61] = count.to_bytes(4)
    stamp_crc(records, len(records))
    refused(log, records, ErrorCode.INVALID_RECORD)


def test_a_log_append_time_that_a_producer_set_is_taken_for_a_create_time(files):
    log = open_log(files)
    append(log, with_header(21, b"\x00\x08"))
    (header,) = headers_from(log)
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.max_timestamp == NOW_MS + 1
    refused(
        open_log(files, config(message_timestamp_type="LogAppendTime"), log_dir="/other"),
        with_header(21, b"\x00\x08"),
        ErrorCode.INVALID_TIMESTAMP,
    )


def test_compressed_data_that_is_none_is_not_to_be_sent_again(files):
    records = with_header(21, b"\x00\x01")
    refused(open_log(files, config(cleanup_policy=("compact",))), records, ErrorCode.UNKNOWN_SERVER_ERROR)


def test_sizes_are_bounded(files):
    refused(open_log(files, config(max_message_bytes=100)), batch(size=200), ErrorCode.MESSAGE_TOO_LARGE)
    refused(open_log(files, config(segment_bytes=100)), batch(size=200), ErrorCode.RECORD_LIST_TOO_LARGE)


def test_timestamps_are_bounded(files):
    settings = config(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    log = open_log(files, settings)
    refused(log, batch(timestamp=NOW_MS - 1001), ErrorCode.INVALID_TIMESTAMP)
    refused(log, batch(timestamp=NOW_MS + 501), ErrorCode.INVALID_TIMESTAMP)
    append(log, batch(timestamp=NOW_MS - 1000))
    append(log, batch(timestamp=NOW_MS + 500))
    append(log, batch(timestamp=-1))


def test_a_compacted_topic_wants_keys(files):
    log = open_log(files, config(cleanup_policy=("compact",)))
    refused(log, batch(key=None), ErrorCode.INVALID_RECORD)
    append(log)
    log.update_config(config())
    append(log, batch(key=None))


def test_log_append_time(files):
    log = open_log(files, config(message_timestamp_type="LogAppendTime"))
    assert append(log, batch(2, timestamp=5)).log_append_time_ms == NOW_MS
    (header,) = headers_from(log)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in records_from(log)] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_batches_are_recompressed(files, codec):
    log = open_log(files, config(compression_type="zstd"))
    append(log, batch(50, codec=codec))
    append(log, batch(50, codec=Codec.ZSTD))
    assert {header.codec for header in headers_from(log)} == {Codec.ZSTD}
    assert [record.offset for record in records_from(log)] == list(range(100))


def test_a_repeated_batch_is_not_written_again(files):
    log = open_log(files)
    for sequence in range(3):
        append(log, batch(producer_id=1, producer_epoch=0, sequence=sequence))
    repeated = append(log, batch(producer_id=1, producer_epoch=0, sequence=1))
    assert (repeated.base_offset, repeated.last_offset, repeated.log_append_time_ms) == (1, 1, NOW_MS)
    assert log.log_end_offset == 3
    refused(log, batch(producer_id=1, producer_epoch=0, sequence=5), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_segments_roll_by_size(files):
    log = open_log(files, config(segment_bytes=3 * len(batch())))
    for _ in range(7):
        append(log)
    assert log.segment_count == 3
    assert [header.base_offset for header in headers_from(log)] == list(range(7))
    names = files.list_dir(f"{LOG_DIR}/topic-0")
    assert [name for name in names if name.endswith(".snapshot")] == [f"{at:020d}.snapshot" for at in (3, 6)]
    assert files.file_size(f"{LOG_DIR}/topic-0/{0:020d}.index") == 0


def test_segments_roll_by_time_of_the_records(files):
    log = open_log(files, config(segment_ms=1000))
    for elapsed in (0, 1000, 1001, 1500, 2002):
        append(log, batch(timestamp=NOW_MS + elapsed))
    assert [segment.base_offset for segment in log._segments.all] == [0, 2, 4]


def test_segments_without_timestamps_roll_by_the_clock(files):
    log = open_log(files, config(segment_ms=1000))
    for elapsed in (0, 1000, 1001, 1500):
        log.append_as_leader(batch(timestamp=-1), 0, NOW_MS + elapsed)
    assert log.segment_count == 2


def test_jitter_takes_something_off_the_age(files):
    log = open_log(files, config(segment_ms=1000, segment_jitter_ms=900))
    for elapsed in range(0, 10_000, 50):
        append(log, batch(timestamp=NOW_MS + elapsed))
    assert log.segment_count > 10


def test_segments_roll_when_an_index_is_full(files):
    log = open_log(files, config(segment_index_bytes=24, index_interval_bytes=0))
    for _ in range(10):
        append(log)
    assert log.segment_count > 2
    assert [header.base_offset for header in headers_from(log)] == list(range(10))


def test_segments_roll_before_relative_offsets_overflow(files):
    log = open_log(files)
    log.append_as_follower(batch(base_offset=0, leader_epoch=0), NOW_MS)
    log.append_as_follower(batch(base_offset=2**31 - 1, leader_epoch=0), NOW_MS)
    assert log.segment_count == 1
    log.append_as_follower(batch(base_offset=2**31, leader_epoch=0), NOW_MS)
    assert log.segment_count == 2
    assert log.log_end_offset == 2**31 + 1


def test_a_preallocated_segment_is_trimmed_when_closed(files):
    log = open_log(files, config(preallocate=True, segment_bytes=5000))
    append(log)
    path = f"{LOG_DIR}/topic-0/{0:020d}.log"
    assert files.file_size(path) == 5000
    log.close()
    assert files.file_size(path) == len(batch())


def test_a_follower_takes_what_the_leader_sent(files):
    leader, follower = open_log(files), open_log(files, log_dir="/other")
    for number in range(20):
        append(
            leader, batch(3, producer_id=1, producer_epoch=0, sequence=number * 3), leader_epoch=number // 8
        )
    found = leader.read(0, 1 << 20, limit=60)
    data = memoryview(bytearray(found.file.read_at(found.count, 0)))
    assert follower.append_as_follower(data[: found.count // 2], NOW_MS) is not None
    rest = follower.log_end_offset
    at = leader.read(rest, 1 << 20, limit=60)
    follower.append_as_follower(memoryview(bytearray(at.file.read_at(at.count, at.position))), NOW_MS)
    assert list(headers_from(follower)) == list(headers_from(leader))
    assert follower.leader_epochs.entries() == leader.leader_epochs.entries()
    assert follower.producers.producers[1].next_sequence == 60


def test_a_follower_refuses_what_it_has_and_what_is_damaged(files):
    log = open_log(files)
    log.append_as_follower(batch(base_offset=5, leader_epoch=0), NOW_MS)
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(batch(base_offset=5, leader_epoch=0), NOW_MS)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    damaged = batch(base_offset=6, leader_epoch=0)
    damaged[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(damaged, NOW_MS)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 6
    assert log.append_as_follower(batch(base_offset=6)[:-1], NOW_MS) is None


def marker(kind, **options):
    built = build_end_txn_batch(
        EndTxnMarker(kind, options.pop("coordinator_epoch", 0)), producer_epoch=0, timestamp=NOW_MS, **options
    )
    return memoryview(bytearray(built))


def transactional(sequence, pid=1):
    return batch(producer_id=pid, producer_epoch=0, sequence=sequence, is_transactional=True)


def test_transactions_and_the_last_stable_offset(files):
    log = open_log(files)
    append(log)
    append(log, transactional(0))
    append(log, transactional(0, pid=2))
    log.advance_high_watermark(3)
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    log.append_as_leader(marker(ControlType.ABORT, producer_id=1), 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.append_as_leader(
        marker(ControlType.COMMIT, producer_id=2), 0, NOW_MS, origin=AppendOrigin.COORDINATOR
    )
    assert log.last_stable_offset == 1
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 2
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 5
    assert log.aborted_transactions(0, 5) == [(1, 1, 3, 2)]
    assert log.aborted_transactions(4, 5) == []


@pytest.mark.parametrize("producer_id", [-1, 1])
def test_a_transaction_that_nobody_vouches_for_is_not_opened(files, producer_id):
    log = open_log(files)
    with pytest.raises(NotInTransaction) as caught:
        log.append_as_leader(transactional(0, pid=producer_id), 0, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    append(log)
    log.advance_high_watermark(1)
    assert (log.log_end_offset, log.last_stable_offset) == (1, 1)


def test_a_coordinators_batch_is_written_as_it_is(files):
    """None of what a topic asks of its clients concerns it."""
    settings = config(cleanup_policy=("compact",), message_timestamp_type="LogAppendTime")
    log = open_log(files, settings)
    for leader_epoch in (3, 4):
        records = batch(2, key=None)
        expected = bytes(records)[17:]
        result = log.append_as_leader(records, leader_epoch, NOW_MS, origin=AppendOrigin.COORDINATOR)
        assert result == AppendResult(log.log_end_offset - 2, log.log_end_offset - 1, -1, 0)
        assert bytes(records)[17:] == expected
    assert [(header.base_offset, header.leader_epoch) for header in headers_from(log)] == [(0, 3), (2, 4)]


def test_a_coordinators_batch_is_refused_when_it_is_too_large_or_damaged(files):
    log = open_log(files, config(max_message_bytes=100))
    damaged = batch()
    damaged[-1] ^= 1
    for records, code in (
        (batch(size=200), ErrorCode.MESSAGE_TOO_LARGE),
        (damaged, ErrorCode.CORRUPT_MESSAGE),
        (batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
    ):
        with pytest.raises(KafkaError) as caught:
            log.append_as_leader(records, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
        assert caught.value.code is code
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


def test_an_old_coordinator_is_fenced(files):
    log = open_log(files)
    new = marker(ControlType.COMMIT, producer_id=1, coordinator_epoch=5)
    log.append_as_leader(new, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
    old = marker(ControlType.COMMIT, producer_id=1, coordinator_epoch=4)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(old, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_the_quorum_leader_brings_its_own_offsets(files):
    log = open_log(files)
    origin = AppendOrigin.RAFT_LEADER
    both = bytes(batch(2, leader_epoch=3)) + bytes(batch(base_offset=2, leader_epoch=3))
    assert log.append_as_leader(memoryview(bytearray(both)), 3, NOW_MS, origin=origin).last_offset == 2
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch(base_offset=9, leader_epoch=3), 3, NOW_MS, origin=origin)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_leaves_nothing_and_the_next_goes_on(files, number):
    log = open_log(files)
    append(log, batch(producer_id=1, producer_epoch=0, sequence=0))
    size = log.size_bytes
    files.faults.fail_next(number, operation="write")
    with pytest.raises(DiskFullError if number == errno.ENOSPC else LogDirError) as caught:
        append(log, batch(producer_id=1, producer_epoch=0, sequence=1))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert caught.value.directory == LOG_DIR
    assert (log.log_end_offset, log.size_bytes) == (1, size)
    assert files.file_size(f"{LOG_DIR}/topic-0/{0:020d}.log") == size
    assert append(log, batch(producer_id=1, producer_epoch=0, sequence=1)).base_offset == 1


def test_a_disk_that_fills_up_and_is_emptied(files):
    """Small batches and an index entry for each, so that every kind of write meets the full disk."""
    log = open_log(files, config(index_interval_bytes=0, segment_bytes=1000))
    rng = Random(5)
    accepted = 0
    for _ in range(300):
        if rng.random() < 0.4:
            files.faults.fail_next(errno.ENOSPC, operation=rng.choice(["write", "create"]))
        try:
            append(log, batch(size=rng.randrange(50)))
            accepted += 1
        except DiskFullError:
            pass
        files.faults.stop_failing()
    assert 0 < accepted < 300
    assert log.log_end_offset == accepted
    assert [header.base_offset for header in headers_from(log)] == list(range(accepted))
    log.flush(NOW_MS)
    log.close()
    again = open_log(files, had_clean_shutdown=True)
    assert [header.base_offset for header in headers_from(again)] == list(range(accepted))


def test_running_out_of_descriptors_does_not_condemn_the_directory(files):
    append(open_log(files))
    log = open_log(files)
    files.faults.fail_next(errno.EMFILE, operation="open")
    with pytest.raises(KafkaError) as caught:
        append(log)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not isinstance(caught.value, LogDirError)
    assert append(log).base_offset == 1


def test_more_batches_at_once_than_an_index_has_room_for(files):
    log = open_log(files, config(segment_index_bytes=24, index_interval_bytes=0))
    many = b"".join(bytes(batch(base_offset=number, leader_epoch=0)) for number in range(10))
    log.append_as_follower(memoryview(bytearray(many)), NOW_MS)
    append(log)
    assert log.segment_count == 2
    assert files.file_size(f"{LOG_DIR}/topic-0/{0:020d}.index") <= 24
    assert [header.base_offset for header in headers_from(log)] == list(range(11))


def test_flush_messages_is_honoured(files):
    log = open_log(files, config(flush_messages=3))
    for expected in (0, 0, 3, 3, 3, 6):
        append(log)
        assert log.recovery_point == expected


def test_flush_is_due_by_time_and_for_rolled_segments(files):
    log = open_log(files, config(flush_ms=1000))
    assert log.flush_due(NOW_MS + 5000) is None
    append(log)
    assert log.flush_due(NOW_MS + 999) is None
    assert log.flush_due(NOW_MS + 1000) == 1
    log.roll(NOW_MS)
    append(log)
    assert log.flush_due(NOW_MS) == 1
    work = log.prepare_flush(1)
    assert work is not None
    append(log)
    work.run()
    log.complete_flush(work, NOW_MS)
    assert log.recovery_point == 1
    assert log.flush_due(NOW_MS) is None


def test_a_failed_sync_is_final(files):
    log = open_log(files)
    append(log)
    files.faults.fail_next(errno.ENOSPC, operation="sync")
    with pytest.raises(LogDirError):
        log.flush(NOW_MS)
    assert log.recovery_point == 0


def test_the_batch_is_written_as_it_came(files):
    records = batch(5, codec=Codec.LZ4)
    body = bytes(records[16:])
    log = open_log(files)
    append(log, records)
    found = log.read(0, 1 << 20, limit=5)
    data = found.file.read_at(found.count, found.position)
    assert data[16:] == body
    assert [position for position, _ in iterate_headers(data)] == [0]
    assert parse_header(data).next_offset == 5


def test_header_of_an_empty_key_topic_is_checked_by_records(files):
    """A client that claims a harmless maximum does not get a bad record past a bound on old timestamps."""
    built = build_batch([Record(0, NOW_MS, b"k", b""), Record(0, NOW_MS - 10_000, b"k", b"")])
    log = open_log(files, config(message_timestamp_before_max_ms=1000))
    refused(log, memoryview(bytearray(built)), ErrorCode.INVALID_TIMESTAMP)


def test_a_first_batch_that_reaches_below_the_start_survives_a_crash(files):
    """As a follower gets it whose leader deleted records up to the middle of a batch."""
    log = open_log(files)
    log.truncate_fully_and_start_at(55, NOW_MS)
    result = log.append_as_follower(batch(10, base_offset=50, leader_epoch=3), NOW_MS)
    assert result is not None
    assert (result.base_offset, result.last_offset) == (50, 59)
    assert (log.log_start_offset, log.log_end_offset, log.first_segment_base_offset) == (55, 60, 50)
    assert [header.base_offset for header in headers_from(log, 55)] == [50]
    log.append_as_follower(batch(base_offset=60, leader_epoch=3), NOW_MS)
    again = open_log(files, log_start_offset=55)
    assert (again.log_start_offset, again.log_end_offset) == (55, 61)
    assert [header.base_offset for header in headers_from(again, 55)] == [50, 60]


def test_a_batch_that_reaches_below_the_end_of_deleted_ones_takes_their_place(files):
    log = open_log(files)
    append(log, batch(10))
    log.advance_high_watermark(10)
    log.delete_records_before(10)
    log.append_as_follower(batch(4, base_offset=8, leader_epoch=3), NOW_MS)
    again = open_log(files, log_start_offset=10)
    assert (again.log_start_offset, again.log_end_offset) == (10, 12)
    assert [header.base_offset for header in headers_from(again, 10)] == [8]


@pytest.mark.parametrize("operation", ["open", "write", "map"])
@pytest.mark.parametrize("index", ["index", "timeindex"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.ENOSPC])
def test_an_index_that_cannot_grow_keeps_no_batch_out(files, index, operation, number):
    log = open_log(files, config(index_interval_bytes=0))
    append(log)
    files.faults.fail_next(number, operation=operation, path=f"*.{index}", times=2)
    for timestamp in range(NOW_MS, NOW_MS + 5):
        append(log, batch(timestamp=timestamp))
    files.faults.stop_failing()
    append(log, batch(timestamp=NOW_MS + 5))
    assert [header.base_offset for header in headers_from(log)] == list(range(7))
    indexed = log._segments.active
    assert indexed.offset_index.last_entry().offset == indexed.time_index.last_entry().offset == 6


def test_a_flush_outlives_the_deletion_of_the_log(files):
    """The first one after a start writes the leader epochs: to a directory that has another name by then."""
    log = open_log(files)
    append(log)
    work = log.prepare_flush()
    assert work is not None
    assert work.checkpoint is not None
    log.abandon()
    log.rename("topic-0.0-delete")
    work.run()
    work = log.prepare_flush()
    assert work is not None
    files.remove_tree(log.directory)
    work.run()


def test_what_came_after_a_truncation_is_not_flushed_by_what_was_collected_before(files):
    log = open_log(files)
    for _ in range(4):
        append(log)
    work = log.prepare_flush()
    assert work is not None
    work.run()
    log.truncate_to(2, NOW_MS)
    append(log, batch(5), leader_epoch=1)
    log.complete_flush(work, NOW_MS)
    assert log.recovery_point == 0
    log.flush(NOW_MS)
    assert log.recovery_point == 7


def test_no_descriptor_for_a_flush_does_not_condemn_the_directory(files):
    log = open_log(files)
    append(log)
    files.faults.fail_next(errno.EMFILE, operation="open", path="*.index")
    with pytest.raises(KafkaError) as caught:
        log.flush(NOW_MS)
    assert not isinstance(caught.value, LogDirError)
    assert log.recovery_point == 0
    log.flush(NOW_MS)
    assert log.recovery_point == 1
