"""Replicas move between log directories while they serve, and a crash loses nothing but time."""

from __future__ import annotations

import asyncio

import pytest

from moldau.records.batch import iterate_headers
from moldau.sim.files import SimFileSystem
from moldau.wire.errors import ErrorCode as E
from moldau.wire.messages import alter_replica_log_dirs as alter
from moldau.wire.messages import describe_log_dirs as describe
from tests.server.sim_node import DIRECTORIES, SimNode


def move(node: SimNode, path: str, topic: str = "t", index: int = 0) -> int:
    wanted = alter.AlterReplicaLogDirTopic(name=topic, partitions=[index])
    request = alter.AlterReplicaLogDirsRequest(dirs=[alter.AlterReplicaLogDir(path=path, topics=[wanted])])
    (result,) = node.call(request, 2).results[0].partitions
    return result.error_code


def places(node: SimNode, topic: str = "t") -> list[tuple[str, int, int, bool]]:
    """Directory, partition, lag, whether it is a future log."""
    response = node.call(describe.DescribeLogDirsRequest(topics=None), 5)
    return [
        (result.log_dir, partition.partition_index, partition.offset_lag, partition.is_future_key)
        for result in response.results
        for of_topic in result.topics
        if of_topic.name == topic
        for partition in of_topic.partitions
    ]


def other(path: str) -> str:
    return next(each for each in DIRECTORIES if each != path)


def home(node: SimNode) -> str:
    log = node.partition("t").log
    assert log is not None
    return log.log_dir


def read_all(node: SimNode, offset: int = 0) -> list[tuple[int, int]]:
    """(first, last) offset of every batch."""
    log = node.partition("t").log
    assert log is not None
    batches: list[tuple[int, int]] = []
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20, limit=log.log_end_offset)
        data = found.file.read_at(found.count, found.position)
        batches += [(header.base_offset, header.last_offset) for _, header in iterate_headers(data)]
        offset = batches[-1][1] + 1
    return batches


@pytest.fixture
def filled(node: SimNode) -> SimNode:
    node.create_topic("t", segment_bytes="1048576")
    for _ in range(60):
        node.produce("t", [1, 2, 3], size=10_000)
    return node


def test_moves_everything_and_says_where_it_is(filled: SimNode) -> None:
    source, before = home(filled), read_all(filled)
    target = other(source)
    assert move(filled, target) == E.NONE
    assert sorted(places(filled)) == sorted([(source, 0, 0, False), (target, 0, 180, True)])
    filled.simulation.advance(5)
    assert places(filled) == [(target, 0, 0, False)]
    assert read_all(filled) == before
    assert filled.partition("t").log.high_watermark == 180  # type: ignore[union-attr]
    directory = filled.services.log_directories.by_path(target)
    assert filled.services.image().partition("t", 0).directory_of(1) == directory.directory_id


def test_serves_while_it_moves(filled: SimNode) -> None:
    target = other(home(filled))

    async def produce_until_moved() -> int:
        count = 0
        while home(filled) != target:
            filled.produce("t", [4, 5])
            count += 1
            await asyncio.sleep(0.0003)
        return count

    assert move(filled, target) == E.NONE
    count = filled.run(produce_until_moved())
    assert count > 10
    assert filled.produce("t", [6]) == 180 + 2 * count
    assert [first for first, _ in read_all(filled)][-1] == 180 + 2 * count


def test_goes_on_after_a_restart(filled: SimNode) -> None:
    source, before = home(filled), read_all(filled)
    move(filled, other(source))
    filled.simulation.advance(0.002)
    filled.restart()
    assert read_all(filled) == before
    filled.simulation.advance(5)
    assert places(filled) == [(other(source), 0, 0, False)]
    assert read_all(filled) == before


@pytest.mark.parametrize("seed", range(8))
def test_a_crash_on_the_way_loses_nothing(seed: int) -> None:
    with SimNode(seed) as node:
        node.create_topic("t", segment_bytes="1048576")
        for _ in range(40):
            node.produce("t", [1, 2, 3], size=10_000)
        before, source = read_all(node), home(node)
        node.partition("t").log.flush(0)  # type: ignore[union-attr]
        move(node, other(source))
        node.simulation.advance(node.simulation.random.uniform(0, 0.02))
        node.crash()
        assert read_all(node) == before
        node.simulation.advance(5)
        assert len(places(node)) == 1
        assert read_all(node) == before


def test_a_power_cut_at_any_operation_of_a_move_leaves_one_whole_log() -> None:
    """Also between the two renames that put the new log in the place of the old one."""
    cut, was_twice = 0, False
    while True:
        cut += 1
        with SimNode(cut) as node:
            node.create_topic("t", flush_messages="1")
            for _ in range(3):
                node.produce("t", [1, 2, 3], size=1000)
            before, source = read_all(node), home(node)
            faults = node.simulation.disk("localhost").faults
            move(node, other(source))
            faults.power_cut_at(faults.count + cut)
            node.simulation.advance(2)
            if node.runtime.is_alive:
                assert home(node) == other(source)
                break
            files = SimFileSystem(node.simulation.disk("localhost"))
            was_twice |= all(files.exists(f"{path}/t-0") for path in DIRECTORIES)
            node.start(node.simulation.restart("localhost"))
            assert read_all(node) == before, f"after a power cut at operation {cut}"
            node.simulation.advance(5)
            assert len(places(node)) == 1
            assert read_all(node) == before
            node.produce("t", [7])
    assert was_twice


def test_moving_back_calls_it_off(filled: SimNode) -> None:
    source = home(filled)
    move(filled, other(source))
    assert move(filled, source) == E.NONE
    assert places(filled) == [(source, 0, 0, False)]
    filled.simulation.advance(5)
    assert places(filled) == [(source, 0, 0, False)]


def test_deleted_records_do_not_move(filled: SimNode) -> None:
    source = home(filled)
    filled.partition("t").log.delete_records_before(100)  # type: ignore[union-attr]
    before = read_all(filled, 100)
    move(filled, other(source))
    filled.simulation.advance(5)
    log = filled.partition("t").log
    assert log is not None
    assert (log.log_dir, log.log_start_offset, log.log_end_offset) == (other(source), 100, 180)
    assert read_all(filled, 100) == before


def test_a_topic_deleted_on_the_way_leaves_nothing_behind(filled: SimNode) -> None:
    from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    move(filled, other(home(filled)))
    filled.simulation.advance(0.002)
    filled.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    filled.simulation.advance(5)
    assert places(filled) == []
    assert not filled.node.failed.is_set()
    assert len(filled.services.log_directories.online) == 2


def test_the_rate_is_a_limit() -> None:
    with SimNode() as node:
        node.create_topic("t")
        for _ in range(100):
            node.produce("t", [1], size=10_000)
        node.services.config = node.services.config.with_dynamic(
            {"replica.alter.log.dirs.io.max.bytes.per.second": "100000"}, {}
        )
        target = other(home(node))
        move(node, target)
        node.simulation.advance(8)
        assert home(node) != target
        node.simulation.advance(8)
        assert home(node) == target


@pytest.mark.parametrize(
    ("path", "topic", "index", "code"),
    [
        ("/nope", "t", 0, E.LOG_DIR_NOT_FOUND),
        (DIRECTORIES[0] + "/", "t", 0, E.LOG_DIR_NOT_FOUND),
        (DIRECTORIES[0], "nope", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
        (DIRECTORIES[0], "t", 9, E.UNKNOWN_TOPIC_OR_PARTITION),
        (DIRECTORIES[0], "x" * 249, 0, E.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_cannot_be_moved(node: SimNode, path: str, topic: str, index: int, code: E) -> None:
    node.create_topic("t")
    node.create_topic("x" * 249)
    assert move(node, path, topic, index) == code


def test_an_offline_directory_is_told_and_takes_no_replicas(filled: SimNode) -> None:
    from moldau.log.errors import LogDirError

    lost = DIRECTORIES[1]
    filled.node._on_log_dir_failure(LogDirError(lost, OSError(5, "broken")))
    response = filled.call(describe.DescribeLogDirsRequest(topics=None), 5)
    codes = {result.log_dir: result.error_code for result in response.results}
    assert codes == {DIRECTORIES[0]: E.NONE, lost: E.KAFKA_STORAGE_ERROR}
    assert move(filled, lost) == E.KAFKA_STORAGE_ERROR


def test_describes_only_what_was_asked_for(node: SimNode) -> None:
    node.create_topic("t", 2)
    node.create_topic("u")
    asked = [describe.DescribableLogDirTopic(topic="t", partitions=[1, 7])]
    response = node.call(describe.DescribeLogDirsRequest(topics=asked), 5)
    assert [result.log_dir for result in response.results] == list(DIRECTORIES)
    assert [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for result in response.results
        for topic in result.topics
    ] == [("t", [1])]
    assert all(result.total_bytes >= result.usable_bytes > 0 for result in response.results)
    nothing = node.call(describe.DescribeLogDirsRequest(topics=[]), 5)
    assert [result.topics for result in nothing.results] == [[], []]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_of_a_batch_moves_and_survives_a_crash(seed: int) -> None:
    """Its first records were deleted: the copy begins in the middle of it."""
    with SimNode(seed) as node:
        node.create_topic("t", segment_bytes="1048576")
        for _ in range(40):
            node.produce("t", [1, 2, 3], size=10_000)
        log = node.partition("t").log
        assert log is not None
        log.delete_records_before(100)
        log.flush(0)
        before, source = read_all(node, 100), home(node)
        assert before[0] == (99, 101)
        move(node, other(source))
        node.simulation.advance(5)
        assert home(node) == other(source)
        node.crash()
        log = node.partition("t").log
        assert log is not None
        assert (log.log_dir, log.log_start_offset, log.log_end_offset) == (other(source), 100, 120)
        assert read_all(node, 100) == before
