"""The cleaner of a node: what it chooses, and what becomes of a cleaning when its log, its helper or its disk
go."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from random import Random

import pytest

from moldau.log.checkpoints import CLEANER_OFFSET_CHECKPOINT, read_offsets
from moldau.log.log import Log
from moldau.records.batch import iterate_headers
from moldau.records.builder import build_batch
from moldau.records.record import Record, read_records
from moldau.server import log_cleaner
from moldau.wire.messages.delete_topics import DeleteTopicsRequest
from moldau.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.server.sim_node import DIRECTORIES, ONE_REPLICA, SimNode

COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": str(1 << 20),
    "min_cleanable_dirty_ratio": "0.01",
    "file_delete_delay_ms": "0",
}


@pytest.fixture
def node() -> Iterator[SimNode]:
    with SimNode(log_cleaner_backoff_ms="1000") as node:
        yield node


@pytest.fixture
def slow_node() -> Iterator[SimNode]:
    """On which to clean what `fill` writes takes seconds."""
    with SimNode(log_cleaner_backoff_ms="1000", log_cleaner_io_max_bytes_per_second="20000") as node:
        yield node


def fill(node: SimNode, topic: str, *, keys: int = 3, count: int = 300, partition: int = 0) -> Log:
    """Batches of one record each, in segments of their own every hundred."""
    log = node.partition(topic, partition).log
    now_ms = node.runtime.clock.now_ms()
    for number in range(count):
        record = Record(0, now_ms, b"key-%d" % (number % keys), b"value-%d" % number)
        log.append_as_leader(memoryview(bytearray(build_batch([record]))), 0, now_ms)
        if number % 100 == 99:
            log.segments.roll(log.log_end_offset, now_ms)
    log.advance_high_watermark(log.log_end_offset)
    return log


def offsets(log: Log) -> list[int]:
    found: list[int] = []
    for segment in log.segments.all:
        data = segment.file.read_at(segment.size, 0)
        for position, header in iterate_headers(data):
            found += [record.offset for record in read_records(data[position : position + header.size])]
    return found


def until(node: SimNode, condition: Callable[[], object], *, steps: int = 3000) -> None:
    for _ in range(steps):
        if condition():
            return
        node.simulation.advance(0.01)
    raise AssertionError("it did not happen")


def until_helped(node: SimNode, steps_done: int = 1) -> None:
    """A helper is at work, and far from done on a slow node."""
    until(node, lambda: node.runtime.helpers and node.runtime.helpers[-1].steps_done >= steps_done)


def delete_topic(node: SimNode, topic: str) -> None:
    node.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)


def cleaned_names(node: SimNode, directory: str) -> list[str]:
    return [name for name in node.runtime.files.list_dir(directory) if "cleaned" in name or "swap" in name]


def test_a_log_is_cleaned_and_the_checkpoint_says_so(node: SimNode) -> None:
    node.create_topic("t", **COMPACTED)
    log = fill(node, "t")
    until(node, lambda: log.cleaned_offset == 300)
    assert offsets(log) == [297, 298, 299]
    node.simulation.advance(5)
    path = f"{log.log_dir}/{CLEANER_OFFSET_CHECKPOINT}"
    assert read_offsets(node.runtime.files, path) == {("t", 0): 300}
    assert node.runtime.helpers == []  # an idle node has none
    assert cleaned_names(node, log.directory) == []
    node.restart()
    assert node.partition("t").log.cleaned_offset == 300


def test_only_compacted_logs_that_are_dirty_enough_are_cleaned(node: SimNode) -> None:
    node.create_topic("kept", segment_bytes=str(1 << 20))
    node.create_topic("clean", **{**COMPACTED, "min_cleanable_dirty_ratio": "1.0"})
    node.create_topic("young", **COMPACTED, min_compaction_lag_ms="3600000")
    logs = [fill(node, topic) for topic in ("kept", "clean", "young")]
    node.simulation.advance(60)
    assert [len(offsets(log)) for log in logs] == [300, 300, 300]
    node.simulation.advance(3600)
    assert [len(offsets(log)) for log in logs] == [300, 300, 3]


def test_a_record_that_is_too_old_not_to_be_compacted_is(node: SimNode) -> None:
    node.create_topic("t", **{**COMPACTED, "min_cleanable_dirty_ratio": "1.0"}, max_compaction_lag_ms="60000")
    log = fill(node, "t")
    node.simulation.advance(50)
    assert len(offsets(log)) == 300
    node.simulation.advance(15)
    assert len(offsets(log)) == 3


def test_the_filthiest_comes_first(slow_node: SimNode) -> None:
    node = slow_node
    node.create_topic("less", **COMPACTED)
    less = fill(node, "less")
    until(node, lambda: less.cleaned_offset == 300)
    more_keys = fill(node, "less", keys=300, count=300)
    until(node, lambda: more_keys.cleaned_offset == 600)
    node.create_topic("more", **COMPACTED)
    fill(node, "less", count=100)
    more = fill(node, "more")
    until(node, lambda: more.cleaned_offset == 300)
    assert less.cleaned_offset == 600


def test_with_the_cleaner_off_nothing_is_cleaned() -> None:
    with SimNode(log_cleaner_enable="false") as node:
        node.create_topic("t", **COMPACTED)
        log = fill(node, "t")
        node.simulation.advance(600)
        assert len(offsets(log)) == 300


def test_a_topic_that_is_deleted_meanwhile_is_let_go_of(slow_node: SimNode) -> None:
    node = slow_node
    node.create_topic("t", **COMPACTED)
    fill(node, "t")
    until_helped(node)
    delete_topic(node, "t")
    node.create_topic("t", **COMPACTED)
    log = fill(node, "t", keys=1, count=50)
    node.simulation.advance(30)
    assert cleaned_names(node, log.directory) == []
    assert offsets(log) == list(range(50))
    assert node.node._cleaner.uncleanable(node.services.log_directories.online[0]) == (0, 0)


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_a_log_that_is_truncated_meanwhile_is_cleaned_as_it_is_then(slow_node: SimNode, steps: int) -> None:
    node = slow_node
    node.create_topic("t", **COMPACTED)
    log = fill(node, "t")
    until_helped(node, steps)
    log.truncate_to(150, node.runtime.clock.now_ms())
    assert log.cleaned_offset <= 150
    end = log.log_end_offset
    newest = {number % 3: number for number in range(end)}
    log.advance_high_watermark(end)
    node.simulation.advance(30)
    assert set(newest.values()) <= set(offsets(log))
    assert max(offsets(log)) == end - 1
    assert cleaned_names(node, log.directory) == []


def test_a_topic_that_is_no_longer_compacted_keeps_what_it_has(slow_node: SimNode) -> None:
    node = slow_node
    node.create_topic("t", **COMPACTED)
    log = fill(node, "t")
    until_helped(node)
    log.update_config(log.config.replace(cleanup_policy=("delete",)))
    node.simulation.advance(30)
    assert len(offsets(log)) == 300
    assert cleaned_names(node, log.directory) == []


def test_a_helper_that_dies_is_replaced(slow_node: SimNode) -> None:
    node = slow_node
    node.create_topic("t", **COMPACTED)
    log = fill(node, "t")
    until_helped(node)
    node.runtime.helpers[-1].kill()
    until(node, lambda: log.cleaned_offset == 300)


def test_a_log_that_kills_every_helper_is_set_aside_and_the_others_go_on(slow_node: SimNode) -> None:
    node = slow_node
    node.create_topic("bad", **COMPACTED)
    bad = fill(node, "bad")
    until_helped(node)
    node.runtime.helpers[-1].kill()
    node.simulation.advance(0.01)
    until_helped(node)
    node.runtime.helpers[-1].hang()
    node.simulation.advance(70)
    directory = node.services.log_directories.by_path(bad.log_dir)
    partitions, dirty_bytes = node.node._cleaner.uncleanable(directory)
    assert (partitions, dirty_bytes) == (1, bad.size_bytes)
    assert cleaned_names(node, bad.directory) == []
    node.create_topic("good", **COMPACTED)
    good = fill(node, "good")
    until(node, lambda: good.cleaned_offset == 300)
    assert len(offsets(bad)) == 300


def test_a_damaged_log_is_set_aside_until_the_next_start(node: SimNode) -> None:
    node.create_topic("t", **COMPACTED)
    log = fill(node, "t")
    log.segments.all[1].file.write_at(b"\xff", 70)
    node.simulation.advance(30)
    directory = node.services.log_directories.by_path(log.log_dir)
    assert node.node._cleaner.uncleanable(directory)[0] == 1
    assert cleaned_names(node, log.directory) == []
    delete_topic(node, "t")
    assert node.node._cleaner.uncleanable(directory) == (0, 0)


def test_a_full_disk_makes_a_log_wait(node: SimNode) -> None:
    node.create_topic("t", **COMPACTED)
    log = fill(node, "t")
    node.runtime.files.faults.fail_next(errno.ENOSPC, operation="write", path="*.cleaned")
    node.simulation.advance(30)
    assert log.cleaned_offset == -1
    assert cleaned_names(node, log.directory) == []
    assert not node.node.failed.is_set()
    node.simulation.advance(log_cleaner.RETRY_MS / 1000)
    assert log.cleaned_offset == 300


def test_a_disk_that_fails_costs_its_directory_alone(node: SimNode) -> None:
    node.create_topic("t", 2, **COMPACTED)
    logs = [fill(node, "t", partition=index) for index in range(2)]
    lost = next(index for index, log in enumerate(logs) if log.log_dir == DIRECTORIES[1])
    node.runtime.files.faults.fail_next(errno.EIO, operation="sync", path=f"{logs[lost].directory}/*.cleaned")
    until(node, lambda: logs[1 - lost].cleaned_offset == 300)
    node.simulation.advance(5)
    assert [directory.path for directory in node.services.log_directories.online] == [DIRECTORIES[0]]


def test_a_slow_rate_is_kept_without_the_helper_being_given_up() -> None:
    with SimNode(log_cleaner_backoff_ms="1000", log_cleaner_io_max_bytes_per_second="300") as node:
        node.create_topic("t", **COMPACTED)
        log = fill(node, "t")
        begun_at = node.runtime.clock.monotonic()
        io_bytes = 2 * log.size_bytes
        until(node, lambda: log.cleaned_offset == 300, steps=100_000)
        assert node.runtime.clock.monotonic() - begun_at >= io_bytes / 300


def test_more_threads_clean_side_by_side() -> None:
    with SimNode(
        log_cleaner_backoff_ms="1000", log_cleaner_threads="3", log_cleaner_io_max_bytes_per_second="60000"
    ) as node:
        node.create_topic("t", 5, **COMPACTED)
        logs = [fill(node, "t", partition=index) for index in range(5)]
        until(node, lambda: len(node.runtime.helpers) == 3)
        until(node, lambda: all(log.cleaned_offset == 300 for log in logs))
        node.simulation.advance(2)
        assert node.runtime.helpers == []


def test_a_log_that_moves_takes_the_checkpoint_along_and_is_not_cleaned_meanwhile(node: SimNode) -> None:
    node.create_topic("t", **COMPACTED)
    log = fill(node, "t")
    until(node, lambda: log.cleaned_offset == 300)
    source, target = sorted(node.services.log_directories.online, key=lambda each: each.path != log.log_dir)
    now_ms = node.runtime.clock.now_ms()
    target.create("t", 0, log.topic_id, log.config, now_ms, is_future=True)
    fill(node, "t", count=200)
    node.services.replica_mover.resume()
    until(node, lambda: node.partition("t").log is not log)
    moved = node.partition("t").log
    assert moved.cleaned_offset == 300
    assert set(offsets(moved)) == {297, 298, 299, *range(300, 500)}
    moved.segments.roll(moved.log_end_offset, now_ms)
    until(node, lambda: moved.cleaned_offset == 500)
    files = node.runtime.files
    assert ("t", 0) not in read_offsets(files, f"{source.path}/{CLEANER_OFFSET_CHECKPOINT}")
    until(
        node,
        lambda: read_offsets(files, f"{target.path}/{CLEANER_OFFSET_CHECKPOINT}").get(("t", 0)) == 500,
    )


def test_offsets_of_groups_are_compacted() -> None:
    with SimNode(
        log_cleaner_backoff_ms="1000",
        log_cleaner_min_cleanable_ratio="0.01",
        offsets_topic_segment_bytes=str(1 << 20),
        **{**ONE_REPLICA, "offsets_topic_num_partitions": "1"},
    ) as node:
        node.create_topic("t")
        for offset in range(200):
            node.commit("group", {("t", 0): offset})
        log = node.partition("__consumer_offsets").log
        before = len(offsets(log))
        log.segments.roll(log.log_end_offset, node.runtime.clock.now_ms())
        until(node, lambda: log.cleaned_offset == log.log_end_offset)
        assert len(offsets(log)) < before / 10
        node.restart()
        node.simulation.advance(1)
        group = OffsetFetchRequestGroup(group_id="group", topics=None)
        response = node.call(OffsetFetchRequest(groups=[group]), 9)
        assert response.groups[0].topics[0].partitions[0].committed_offset == 199


def test_what_is_below_the_log_start_goes_from_compacted_logs_too(node: SimNode) -> None:
    node.create_topic("t", **{**COMPACTED, "min_cleanable_dirty_ratio": "1.0"})
    log = fill(node, "t")
    log.delete_records_before(250)
    node.simulation.advance(5)
    assert log.first_segment_base_offset == 200


def test_old_segments_go_with_both_policies(node: SimNode) -> None:
    both = {**COMPACTED, "cleanup_policy": "compact,delete"}
    node.create_topic("t", **both, retention_ms="60000")
    log = fill(node, "t", keys=300)
    node.simulation.advance(30)
    assert len(offsets(log)) == 300
    node.simulation.advance(60)
    assert log.log_start_offset == 300


@pytest.mark.parametrize("seed", range(6))
def test_a_power_cut_while_a_node_cleans_changes_nothing_of_what_was_durable(seed: int) -> None:
    random = Random(seed)
    with SimNode(seed, log_cleaner_backoff_ms="300", log_cleaner_io_max_bytes_per_second="100000") as node:
        node.create_topic("t", **COMPACTED, flush_messages="1")
        for _ in range(5):
            log = fill(node, "t", keys=random.randint(1, 20), count=random.choice((100, 200, 230)))
            newest = newest_values(log)
            node.simulation.advance(random.uniform(0, 2))
            node.crash()
            log = node.partition("t").log
            assert newest_values(log) == newest
            assert cleaned_names(node, log.directory) == []
        until(node, lambda: log.cleaned_offset == log.active_segment_base_offset)
        assert newest_values(log) == newest


def newest_values(log: Log) -> dict[bytes | None, tuple[int, bytes | None]]:
    found = {}
    for segment in log.segments.all:
        data = segment.file.read_at(segment.size, 0)
        for position, header in iterate_headers(data):
            for record in read_records(data[position : position + header.size]):
                found[record.key] = record.offset, record.value
    return found
