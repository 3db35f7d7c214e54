"""Log directories: clean and unclean ends, deletion by rename, failures of one among several."""

from __future__ import annotations

import errno
from random import Random

import pytest
from log_samples import NOW_MS, append, batch, config, headers_from

from moldau.log.directory import LogDirectory
from moldau.log.errors import DiskFullError, LogDirError
from moldau.log.log_directories import LogDirectories
from moldau.log.meta_properties import MetaProperties
from moldau.log.names import Fate, parse_log_dir_name
from moldau.log.open_files import OpenFiles
from moldau.sim.cuts import every_power_cut
from moldau.sim.files import SimFileSystem
from moldau.wire.errors import ErrorCode, KafkaError

TOPIC_ID = bytes(range(16))
CONFIG = config(file_delete_delay_ms=1000)
FIRST, SECOND = "/d1", "/d2"


@pytest.fixture
def files():
    return SimFileSystem()


def opened(files, path=FIRST, seed=1):
    directory = LogDirectory.open(files, OpenFiles(), path, Random(seed))
    directory.load({}, CONFIG, NOW_MS)
    return directory


def create(directory, topic="topic", partition=0, topic_id=TOPIC_ID):
    return directory.create(topic, partition, topic_id, CONFIG, NOW_MS)


def test_a_clean_shutdown_is_said_as_kafka_says_it(files):
    directory = opened(files)
    log = create(directory)
    for _ in range(5):
        append(log)
    log.advance_high_watermark(4)
    log.delete_records_before(2)
    directory.close(broker_epoch=11)
    assert files.read_bytes(f"{FIRST}/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":11}'
    assert files.read_bytes(f"{FIRST}/recovery-point-offset-checkpoint") == b"0\n1\ntopic 0 5\n"
    assert files.read_bytes(f"{FIRST}/replication-offset-checkpoint") == b"0\n1\ntopic 0 4\n"
    assert files.read_bytes(f"{FIRST}/log-start-offset-checkpoint") == b"0\n1\ntopic 0 2\n"

    again = opened(files)
    assert (again.had_clean_shutdown, again.previous_broker_epoch) == (True, 11)
    assert not files.exists(f"{FIRST}/.kafka_cleanshutdown")
    log = again.logs["topic", 0]
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 4, 5)
    assert log.topic_id == TOPIC_ID


def test_the_epoch_of_the_last_clean_stop_is_known_before_the_logs_are_opened(files):
    """The broker registers with it: with another one its replicas count as having lost their tails."""
    opened(files).close(broker_epoch=11)
    directory = LogDirectory.open(files, OpenFiles(), FIRST, Random(1))
    assert directory.previous_broker_epoch == 11
    assert files.exists(f"{FIRST}/.kafka_cleanshutdown")


def test_without_the_marker_logs_are_recovered(files):
    directory = opened(files)
    append(create(directory), batch(3))
    directory.take_offline()
    file = files.open(f"{FIRST}/topic-0/{0:020d}.log")
    file.write_at(b"torn", file.size())
    again = opened(files)
    assert not again.had_clean_shutdown
    assert again.logs["topic", 0].log_end_offset == 3
    assert again.logs["topic", 0].recovery_point == 0


def test_a_second_owner_is_refused(files):
    opened(files)
    with pytest.raises(BlockingIOError):
        LogDirectory.open(files, OpenFiles(), FIRST, Random(1))


def test_properties_stay(files):
    directory = opened(files)
    assert directory.properties is None
    properties = MetaProperties(cluster_id="cluster", node_id=4, directory_id=TOPIC_ID)
    directory.write_properties(properties)
    directory.close(1)
    again = opened(files)
    assert (again.properties, again.directory_id) == (properties, TOPIC_ID)


def test_broken_properties_fail_the_directory_and_release_it(files):
    directory = opened(files)
    directory.close(1)
    files.write_atomically(f"{FIRST}/meta.properties", b"version=9")
    for _ in range(2):
        with pytest.raises(LogDirError, match="version"):
            LogDirectory.open(files, OpenFiles(), FIRST, Random(1))


def remove_deleted(directory, now_ms):
    due = directory.take_deletions(now_ms)
    for log in directory.all_logs():
        due += log.take_deletions(now_ms)
    directory.remove_all(due)


def fates(files, path=FIRST):
    parsed = [parse_log_dir_name(name) for name in files.list_dir(path)]
    return [(name.topic, name.fate) for name in parsed if name is not None]


def test_a_deleted_log_is_renamed_and_removed_later(files):
    directory = opened(files)
    append(create(directory))
    directory.delete("topic", 0, NOW_MS)
    assert fates(files) == [("topic", Fate.DELETE)]
    append(create(directory, topic_id=bytes(16)))
    remove_deleted(directory, NOW_MS + 999)
    assert len(fates(files)) == 2
    remove_deleted(directory, NOW_MS + 1000)
    assert fates(files) == [("topic", Fate.CURRENT)]


def test_deletions_go_on_after_a_restart(files):
    directory = opened(files)
    create(directory)
    directory.delete("topic", 0, NOW_MS)
    directory.take_offline()
    again = opened(files)
    assert again.logs == {}
    remove_deleted(again, NOW_MS + 1000)
    assert fates(files) == []


def test_a_stray_is_set_aside_and_stays_readable(files):
    directory = opened(files)
    append(create(directory))
    directory.mark_stray("topic", 0)
    directory.close(1)
    again = opened(files)
    assert again.logs == {}
    (stray,) = again.stray_logs
    assert [header.base_offset for header in headers_from(stray)] == [0]
    again.delete_stray(stray, NOW_MS)
    remove_deleted(again, NOW_MS + 1000)
    assert fates(files) == []


def test_the_metadata_log_and_other_directories_are_left_alone(files):
    for name in ("__cluster_metadata-0", "lost+found"):
        files.make_dirs(f"{FIRST}/{name}")
    assert opened(files).logs == {}
    assert files.list_dir(f"{FIRST}/__cluster_metadata-0") == []


def test_another_topic_of_the_same_name_is_told_apart(files):
    directories = LogDirectories.open(files, [FIRST], Random(1))
    directories.load({}, CONFIG, NOW_MS)
    log = directories.create("topic", 0, TOPIC_ID, CONFIG, NOW_MS)
    assert directories.create("topic", 0, TOPIC_ID, CONFIG, NOW_MS) is log
    with pytest.raises(KafkaError) as caught:
        directories.create("topic", 0, bytes(range(1, 17)), CONFIG, NOW_MS)
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_retention_flushes_and_checkpoints_reach_every_log(files):
    directory = opened(files)
    logs = [create(directory, partition=number) for number in range(3)]
    for log in logs:
        append(log, batch(timestamp=NOW_MS - 10 * CONFIG.retention_ms))
        log.advance_high_watermark(1)
        log.roll(NOW_MS)
    for log in logs:
        work = log.prepare_flush(log.flush_due(NOW_MS))
        work.run()
        log.complete_flush(work, NOW_MS)
    directory.checkpoint_recovery_points()
    assert files.read_bytes(f"{FIRST}/recovery-point-offset-checkpoint").count(b" 1\n") == 3
    assert [log.apply_retention(NOW_MS) for log in logs] == [len(batch())] * 3
    assert [log.log_start_offset for log in logs] == [1, 1, 1]
    remove_deleted(directory, NOW_MS + 1000)
    assert not any(".deleted" in name for name in files.list_dir(f"{FIRST}/topic-0"))


def several(files):
    directories = LogDirectories.open(files, [FIRST, SECOND], Random(1))
    directories.load({}, CONFIG, NOW_MS)
    return directories


def test_new_logs_go_where_there_are_fewest(files):
    directories = several(files)
    for number in range(5):
        directories.create("topic", number, TOPIC_ID, CONFIG, NOW_MS)
    assert [len(directory.logs) for directory in directories.online] == [3, 2]
    log = directories.create("topic", 9, TOPIC_ID, CONFIG, NOW_MS, path=FIRST)
    assert directories.find("topic", 9) is log
    assert log.log_dir == FIRST


def test_a_failed_directory_goes_alone(files):
    directories = several(files)
    logs = [directories.create("topic", number, TOPIC_ID, CONFIG, NOW_MS) for number in range(4)]
    for log in logs:
        append(log)
    files.faults.fail_next(errno.EIO, path=f"{FIRST}/*", times=1_000_000)
    with pytest.raises(LogDirError) as caught:
        append(directories.find("topic", 0))
    assert directories.take_offline(caught.value) == [("topic", 0), ("topic", 2)]
    assert directories.take_offline(caught.value) == []
    assert directories.find("topic", 0) is None
    append(directories.find("topic", 1))
    assert directories.create("new", 0, TOPIC_ID, CONFIG, NOW_MS).log_dir == SECOND
    assert list(directories.offline) == [FIRST]
    directories.close(1)
    assert files.exists(f"{SECOND}/.kafka_cleanshutdown")


def test_one_directory_is_broken_from_the_start(files):
    files.make_dirs(SECOND)
    files.write_atomically(f"{SECOND}/meta.properties", b"version=9")
    directories = several(files)
    assert [directory.path for directory in directories.online] == [FIRST]
    assert list(directories.offline) == [SECOND]
    files.write_atomically(f"{FIRST}/meta.properties", b"version=9")
    directories.close(1)
    with pytest.raises(LogDirError):
        several(files)


def test_a_log_moves_to_another_directory(files):
    directories = several(files)
    log = directories.create("topic", 0, TOPIC_ID, CONFIG, NOW_MS, path=FIRST)
    append(log, batch(3))
    future = directories.create_future(log, SECOND, NOW_MS)
    assert directories.find_future("topic", 0) is future
    found = log.read(0, 1 << 20, limit=3)
    future.append_as_follower(memoryview(bytearray(found.file.read_at(found.count, 0))), NOW_MS)
    moved = directories.replace_with_future("topic", 0, NOW_MS)
    assert moved is directories.find("topic", 0) is future
    assert (moved.log_dir, moved.log_end_offset) == (SECOND, 3)
    append(moved)
    assert fates(files, FIRST) == [("topic", Fate.DELETE)]
    directories.close(1)
    assert several(files).find("topic", 0).log_end_offset == 4


def test_a_log_in_two_directories_is_refused(files):
    directories = several(files)
    for directory in directories.online:
        create(directory)
    directories.close(1)
    with pytest.raises(LogDirError, match="topic-0"):
        several(files)


@pytest.mark.parametrize(("home", "longer", "served"), [(1, 1, 1), (1, 0, 0), (0, 0, 0), (1, None, 1)])
def test_of_the_two_logs_that_a_move_left_the_longer_one_is_served(files, home, longer, served):
    directories = several(files)
    for number, directory in enumerate(directories.online):
        directory.write_properties(
            MetaProperties(cluster_id="c", node_id=1, directory_id=bytes([number]) * 16)
        )
        log = create(directory)
        for _ in range(2 if number == longer else 1):
            append(log)
    directories.close(1)
    directories = LogDirectories.open(files, [FIRST, SECOND], Random(1))
    assert directories.load({}, CONFIG, NOW_MS, lambda topic, partition: bytes([home]) * 16) == []
    assert directories.find("topic", 0).log_dir == (FIRST, SECOND)[served]
    assert fates(files, (FIRST, SECOND)[served]) == [("topic", Fate.CURRENT)]
    assert fates(files, (FIRST, SECOND)[1 - served]) == [("topic", Fate.STRAY)]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_new_log_is_not_taken_for_a_deleted_one_of_its_name(files, restarts):
    """The checkpoints still tell of that one."""
    directory = opened(files)
    log = create(directory)
    for _ in range(10):
        append(log)
    log.advance_high_watermark(10)
    log.delete_records_before(8)
    log.flush(NOW_MS)
    directory.checkpoint_log_start_offsets()
    directory.checkpoint_recovery_points()
    directory.delete("topic", 0, NOW_MS)
    if restarts:
        directory.take_offline()
        directory = opened(files)
    append(create(directory, topic_id=bytes(range(1, 17))), batch(3))
    directory.take_offline()
    log = opened(files).logs["topic", 0]
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 3, 0)


def test_checkpoints_that_could_not_be_written_are_before_a_new_log(files):
    directory = opened(files)
    log = create(directory)
    append(log, batch(5))
    log.advance_high_watermark(5)
    log.delete_records_before(4)
    directory.checkpoint_log_start_offsets()
    directory.delete("topic", 0, NOW_MS)
    files.faults.fail_next(errno.ENOSPC, operation="write", path="*checkpoint*", times=2)
    for _ in range(2):
        with pytest.raises(DiskFullError):
            directory.checkpoint_log_start_offsets()
    append(create(directory, topic_id=bytes(16)))
    directory.take_offline()
    log = opened(files).logs["topic", 0]
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)


def test_a_power_cut_after_a_clean_shutdown_leaves_what_it_promised():
    """Once the marker is there the files are trusted, the length of the indexes above all."""
    settings = config(index_interval_bytes=100, flush_messages=1)

    def reopened(files):
        directory = LogDirectory.open(files, OpenFiles(), FIRST, Random(1))
        directory.load({}, settings, NOW_MS)
        return directory

    def prepare(files):
        directory = reopened(files)
        files.sync_dir("/")
        directory.create("topic", 0, TOPIC_ID, settings, NOW_MS)
        directory.take_offline()

    def scenario(files):
        directory = reopened(files)
        log = directory.logs["topic", 0]
        for number in range(10):
            append(log, batch(timestamp=NOW_MS + number, producer_id=1, producer_epoch=0, sequence=number))
        log.advance_high_watermark(10)
        directory.close(1)

    def check(files):
        directory = reopened(files)
        if not directory.had_clean_shutdown:
            return
        log = directory.logs["topic", 0]
        assert [header.base_offset for header in headers_from(log)] == list(range(10))
        assert log.producers.producers[1].next_sequence == 10
        assert log.offset_of_max_timestamp() == (NOW_MS + 9, 9, 0)
        assert log.apply_retention(NOW_MS + 1000) == 0
        assert [next(headers_from(log, offset)).base_offset for offset in range(10)] == list(range(10))

    every_power_cut(scenario, check, prepare=prepare, seeds=range(8))
