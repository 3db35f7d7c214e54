"""The chores of a node: none of them fails for another log's sake, and none outlives its log."""

from __future__ import annotations

import errno

import pytest

from moldau.records.builder import build_batch
from moldau.records.record import Record
from tests.server.sim_node import DIRECTORIES, SimNode


def test_a_full_disk_for_one_log_does_not_keep_others_from_making_room() -> None:
    with SimNode(log_retention_check_interval_ms="1000", log_initial_task_delay_ms="1000") as node:
        node.create_topic("t", 4, retention_ms="1", file_delete_delay_ms="0")
        for index in range(4):
            node.produce("t", [1, 2, 3], index)
        full = node.partition("t", 1).log
        node.runtime.files.faults.fail_next(
            errno.ENOSPC, operation="create", path=f"{full.directory}/*.log", times=1_000_000
        )
        node.simulation.advance(10)
        logs = [node.partition("t", index).log for index in range(4)]
        assert [log.log_start_offset for log in logs] == [3, 0, 3, 3]
        node.runtime.files.faults.stop_failing()
        node.simulation.advance(2)
        assert full.log_start_offset == 3
        node.simulation.advance(2)
        for log in logs:
            assert [name for name in node.runtime.files.list_dir(log.directory) if ".deleted" in name] == []


def test_a_topic_that_is_deleted_while_it_is_flushed_costs_no_directory(
    node: SimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.create_topic("t", 2, flush_ms="1")
    for index in range(2):
        node.produce("t", [1], index)
    directories, now_ms = node.services.log_directories, node.runtime.clock.now_ms()
    run_blocking, flushed = node.runtime.run_blocking, []

    def delete_before(function, *args):
        if function.__name__ == "run":
            flushed.append(function)
            for index in range(2):
                directories.delete("t", index, now_ms)
        return run_blocking(function, *args)

    monkeypatch.setattr(node.runtime, "run_blocking", delete_before)
    node.simulation.advance(10)
    assert len(flushed) == 1
    assert len(directories.online) == 2
    assert not node.node.failed.is_set()


def test_a_directory_that_fails_while_the_node_stops_goes_alone(node: SimNode) -> None:
    node.create_topic("t", 2)
    paths = [node.partition("t", index).log.log_dir for index in range(2)]
    assert sorted(paths) == sorted(DIRECTORIES)
    for index in range(2):
        node.produce("t", [1], index)
    lost = paths.index(DIRECTORIES[1])
    files = node.runtime.files
    files.faults.fail_next(errno.EIO, operation="sync", path=f"{DIRECTORIES[1]}/t-{lost}/*.log")
    node.stop()
    files.faults.stop_failing()
    assert [files.exists(f"{path}/.kafka_cleanshutdown") for path in DIRECTORIES] == [True, False]


def test_what_the_end_of_a_node_syncs_is_synced_off_the_loop(
    node: SimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.create_topic("t", 20)
    for index in range(20):
        node.produce("t", [1], index)
    trace = node.runtime.files.faults.record()
    run_blocking, off_the_loop = node.runtime.run_blocking, []

    def watched(function, *args):
        def run():
            begin = len(trace)
            function(*args)
            off_the_loop.extend(trace[begin:])

        return run_blocking(run)

    monkeypatch.setattr(node.runtime, "run_blocking", watched)
    node.stop()
    synced = [operation for operation in trace if operation.name == "sync" and "/t-" in operation.path]
    assert len(synced) >= 20
    assert all(operation in off_the_loop for operation in synced)


def test_a_flush_that_has_to_wait_does_not_hold_up_the_others() -> None:
    with SimNode(log_dirs=DIRECTORIES[0]) as node:
        node.create_topic("t", 4, flush_ms="1")
        for index in range(4):
            node.produce("t", [1], index)
        logs = [node.partition("t", index).log for index in range(4)]
        node.runtime.files.faults.fail_next(
            errno.ENOSPC, operation="write", path=f"{logs[1].directory}/leader-epoch*", times=1_000_000
        )
        node.simulation.advance(5)
        assert [log.recovery_point for log in logs] == [1, 0, 1, 1]
        node.runtime.files.faults.stop_failing()
        node.simulation.advance(5)
        assert logs[1].recovery_point == 1


def test_a_recovery_does_not_bring_expired_producers_back(node: SimNode) -> None:
    node.create_topic("t", retention_ms="-1")
    now_ms = node.runtime.clock.now_ms()
    for producer_id, age_ms in ((1, 0), (2, 2 * 86_400_000)):
        built = build_batch(
            [Record(0, now_ms - age_ms, b"key", b"")],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
        node.partition("t").append(memoryview(bytearray(built)), -1, now_ms)
    node.partition("t").log.flush(now_ms)
    assert set(node.partition("t").log.producers.producers) == {1, 2}
    node.crash()
    node.simulation.advance(0.01)
    assert set(node.partition("t").log.producers.producers) == {1}
