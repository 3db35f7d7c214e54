from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from moldau.client.admin import LATEST_TIMESTAMP, Admin, NewTopic
from moldau.client.cluster import Cluster, TopicPartition
from moldau.client.fetch import Fetcher
from moldau.config.broker import BrokerConfig
from moldau.controller.decision import Decision
from moldau.log.errors import LogDirError
from moldau.metadata.framing import MetadataRecord
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import FeatureLevelRecord
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.server.node import Node, StartError
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from moldau.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.sim_node.world import DATA, World, until

ONE, TWO, THREE = "/disk-1", "/disk-2", "/disk-3"
DISKS = f"{ONE},{TWO},{THREE}"


async def produce_once(
    world: World, cluster: Cluster, place: TopicPartition, *values: bytes, acks: int = -1
) -> int:
    """The base offset. One request: an error is not hidden by trying again."""
    records = [Record(0, world.client.clock.now_ms(), None, value) for value in values]
    data = PartitionProduceData(index=place.partition, records=build_batch(records))
    connection = await cluster.connection_to(await cluster.leader(place))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(topic_id=(await cluster.topic(place.topic)).topic_id, partition_data=[data])
        ],
    )
    response = await connection.request(request, ProduceResponse)
    ((answer,),) = [topic.partition_responses for topic in response.responses]
    if answer.error_code:
        cluster.forget(place.topic)
        raise KafkaError(ErrorCode(answer.error_code), answer.error_message)
    return answer.base_offset


async def read(world: World, cluster: Cluster, place: TopicPartition) -> list[bytes]:
    ends = await Admin(cluster).list_offsets({place: LATEST_TIMESTAMP})
    fetcher = Fetcher(world.client, cluster)
    fetcher.assign({place: 0})
    values: list[bytes] = []
    while len(values) < (ends[place].offset or 0):
        fetched = await fetcher.poll(1)
        values += [record.value or b"" for record in (fetched.records if fetched else ())]
    await fetcher.close()
    return values


async def describe_log_dirs(cluster: Cluster) -> dict[str, tuple[int, set[str]]]:
    """By path: the error code, and the partitions that are there."""
    response = await cluster.ask_any(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    return {
        result.log_dir: (
            result.error_code,
            {f"{t.name}-{p.partition_index}" for t in result.topics for p in t.partitions},
        )
        for result in response.results
    }


async def leaderless(cluster: Cluster, topic: str) -> set[str]:
    """The partitions that have no leader; those are offline too, and no others."""
    view = await Admin(cluster).describe_topics([topic])
    without = {f"{topic}-{partition.index}" for partition in view.topics[topic].partitions
               if partition.leader is None}  # fmt: skip
    offline = {f"{topic}-{partition.index}" for partition in view.topics[topic].partitions
               if partition.offline == (1,)}  # fmt: skip
    assert without == offline
    return without


# -- A full disk


@pytest.mark.parametrize("acks", [1, -1])
def test_a_full_disk_is_an_error_to_producers_until_there_is_room(acks: int) -> None:
    async def main() -> None:
        node = await world.start()
        await world.create_topic("events", 2, flush_messages="1" if acks == -1 else "1000")
        acked: dict[TopicPartition, list[bytes]] = {TopicPartition("events", i): [] for i in range(2)}
        refused = 0
        async with world.cluster(retry_timeout_s=0.05) as cluster:
            await cluster.refresh(["events"])
            for number in range(300):
                place = TopicPartition("events", number % 2)
                value = b"%d " % number + bytes(5000)
                if number == 200:
                    assert refused > 50
                    world.disk.capacity = 4 << 20
                try:
                    await produce_once(world, cluster, place, value, acks=acks)
                    acked[place].append(value)
                    assert refused == 0 or number >= 200
                except KafkaError as error:
                    refused += 1
                    assert number < 200
                    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
                    assert "no space in log directory /data" in str(error), error
            for place, values in acked.items():
                assert await read(world, cluster, place) == values
        assert not node.failed.is_set()
        await world.stop()
        await world.restart()
        for place, values in acked.items():
            assert [record.value for record in world.stored(place)] == values

    with World(disk_capacity=512 << 10, options={"log.index.size.max.bytes": "20000"}) as world:
        world.run(main())


def test_a_disk_that_is_full_for_hours_takes_nothing_offline() -> None:
    """Every chore of the node goes round several times with no room to write a byte."""

    async def main() -> None:
        node = await world.start()
        await world.create_topic("events", segment_ms="60000", retention_ms="3600000")
        async with world.cluster(retry_timeout_s=0.05) as cluster:
            place = TopicPartition("events", 0)
            await produce_once(world, cluster, place, b"before")
            world.disk.capacity = 0
            for _ in range(20):
                await asyncio.sleep(300)
                with pytest.raises(KafkaError):
                    await produce_once(world, cluster, place, bytes(5000))
            world.disk.capacity = None
            assert not node.failed.is_set()
            assert not node.services.log_directories.offline
            await produce_once(world, cluster, place, b"after")
            log = node.services.partition(*place).log
            assert log is not None
            await until(lambda: log.log_start_offset == 2, within_s=2 * 3600)

    with World() as world:
        world.run(main())


def test_a_full_disk_fails_what_changes_the_cluster_and_the_node_goes_on_or_ends_clearly() -> None:
    async def main() -> None:
        await world.start()
        await world.create_topic("before")
        async with world.cluster(retry_timeout_s=1, request_timeout_s=5) as cluster:
            world.disk.capacity = 0
            # The first may still fit into the last page of the log.
            with pytest.raises(KafkaError):
                for number in range(200):
                    await Admin(cluster).create_topic(NewTopic(name=f"t{number}", partitions=5))
            world.disk.capacity = None
            await asyncio.sleep(5)
        if world.exit_code is not None:
            await world.restart()
        async with world.cluster() as cluster:
            await Admin(cluster).create_topic(NewTopic(name="after"))
            view = await Admin(cluster).describe_topics()
            assert {"before", "after"} <= view.topics.keys()

    with World() as world:
        world.run(main())


# -- A broken disk among several


def test_one_broken_disk_takes_only_its_partitions_offline() -> None:
    async def main() -> None:
        node = await world.start()
        await world.create_topic("events", 6)
        places = [TopicPartition("events", index) for index in range(6)]
        async with world.cluster(retry_timeout_s=0.05) as cluster:
            await cluster.refresh(["events"])
            for place in places:
                await produce_once(world, cluster, place, b"before")
            there = {path: names for path, (_, names) in (await describe_log_dirs(cluster)).items()}
            assert all(len(names) == 2 for names in there.values())
            world.disk.faults.fail_next(path=f"{TWO}/*", times=10**9)
            for place in places:
                if str(place) in there[TWO]:
                    with pytest.raises(KafkaError) as refused:
                        await produce_once(world, cluster, place, b"lost")
                    assert refused.value.code in (
                        ErrorCode.KAFKA_STORAGE_ERROR,
                        ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        ErrorCode.LEADER_NOT_AVAILABLE,
                    )
                else:
                    await produce_once(world, cluster, place, b"after")
            told = await describe_log_dirs(cluster)
            assert told[TWO] == (ErrorCode.KAFKA_STORAGE_ERROR, set())
            assert told[ONE] == (0, there[ONE])
            await asyncio.sleep(1)
            assert await leaderless(cluster, "events") == there[TWO]
            # New topics go to the disks that are left.
            await Admin(cluster).create_topic(NewTopic(name="new", partitions=4))
            await cluster.refresh(["new"])
            await produce_once(world, cluster, TopicPartition("new", 3), b"x")
            told = await describe_log_dirs(cluster)
            assert {f"new-{i}" for i in range(4)} <= told[ONE][1] | told[THREE][1]
        assert not node.failed.is_set()
        # The disk is still broken at the next start, and works again at the one after that.
        await world.stop()
        await world.restart()
        async with world.cluster(retry_timeout_s=0.05) as cluster:
            assert (await describe_log_dirs(cluster))[TWO][0] == ErrorCode.KAFKA_STORAGE_ERROR
            assert await leaderless(cluster, "events") == there[TWO]
            for place in places:
                if str(place) not in there[TWO]:
                    assert await read(world, cluster, place) == [b"before", b"after"]
        await world.stop()
        world.disk.faults.stop_failing()
        await world.restart()
        async with world.cluster(retry_timeout_s=2) as cluster:
            assert (await describe_log_dirs(cluster))[TWO] == (0, there[TWO])
            for place in places:
                kept = [b"before"] if str(place) in there[TWO] else [b"before", b"after"]
                assert await read(world, cluster, place) == kept
                await produce_once(world, cluster, place, b"again")

    with World(log_dirs=DISKS, options={"metadata.log.dir": ONE}) as world:
        world.run(main())


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("elr", ["1", "0"])
def test_a_disk_that_breaks_as_its_logs_are_opened_takes_its_leaders_along(is_clean: bool, elr: str) -> None:
    """The broker has registered with that directory by then."""

    async def main() -> None:
        node = await world.start()
        if elr == "0":
            await node.services.controller.submit(without_elr)
        await world.create_topic("events", 6)
        places = [TopicPartition("events", index) for index in range(6)]
        async with world.cluster(retry_timeout_s=0.05) as cluster:
            await cluster.refresh(["events"])
            for place in places:
                await produce_once(world, cluster, place, b"before")
            there = {path: names for path, (_, names) in (await describe_log_dirs(cluster)).items()}
        await asyncio.sleep(1)  # until the controller knows which directories were chosen
        if is_clean:
            await world.stop()
        else:
            world.kill()
        world.disk.faults.fail_next(operation="list", path=TWO)
        node = await world.restart()
        assert not node.failed.is_set()
        async with world.cluster(retry_timeout_s=0.05) as cluster:
            assert (await describe_log_dirs(cluster))[TWO] == (ErrorCode.KAFKA_STORAGE_ERROR, set())
            assert await leaderless(cluster, "events") == there[TWO]
            assert sum(map(len, there.values())) == 6
            assert {p for path in (ONE, THREE) for p in there[path]} == {
                str(place) for place in places if node.services.partition(*place).log is not None
            }
        await world.stop()
        await world.restart()
        async with world.cluster() as cluster:
            assert await leaderless(cluster, "events") == set()
            for place in places:
                assert await read(world, cluster, place) == [b"before"]

    with World(log_dirs=DISKS, options={"metadata.log.dir": ONE}) as world:
        world.run(main())


def without_elr(image: ClusterImage) -> Decision[None]:
    """As in a cluster of before there were eligible leader replicas."""
    record = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)
    return Decision(records=[MetadataRecord(record, 0)], reply=None)


def test_a_new_log_that_its_disk_refuses_has_no_leader_until_the_disk_works() -> None:
    async def main() -> None:
        await world.start()
        world.disk.faults.fail_next(operation="make_dir", path=f"{TWO}/*", times=10**9)
        await world.create_topic("events", 3)
        await asyncio.sleep(1)
        async with world.cluster(retry_timeout_s=0.05) as cluster:
            assert len(await leaderless(cluster, "events")) == 1
        world.disk.faults.stop_failing()
        await world.stop()
        await world.restart()
        async with world.cluster() as cluster:
            assert await leaderless(cluster, "events") == set()
            for index in range(3):
                await produce_once(world, cluster, TopicPartition("events", index), b"x")

    with World(log_dirs=DISKS, options={"metadata.log.dir": ONE}) as world:
        world.run(main())


def test_an_empty_disk_in_the_place_of_a_broken_one_is_filled_anew() -> None:
    async def main() -> None:
        node = await world.start()
        await world.create_topic("events", 3)
        await asyncio.sleep(1)
        lost = node.services.log_directories.by_path(TWO)
        assert lost is not None
        ((topic, index),) = lost.logs
        await world.stop()
        world.files.remove_tree(TWO)
        await world.restart()
        await asyncio.sleep(1)
        async with world.cluster() as cluster:
            assert await leaderless(cluster, "events") == set()
            await produce_once(world, cluster, TopicPartition(topic, index), b"x")
            assert await read(world, cluster, TopicPartition(topic, index)) == [b"x"]

    with World(log_dirs=DISKS, options={"metadata.log.dir": ONE}) as world:
        world.run(main())


def test_a_long_poll_on_a_disk_that_breaks_does_not_wait_for_its_time() -> None:
    async def main() -> None:
        node = await world.start()
        await world.create_topic("events", 3)
        lost = node.services.log_directories.by_path(TWO)
        assert lost is not None
        ((topic, index),) = lost.logs
        async with world.cluster(retry_timeout_s=0.05) as cluster:
            fetcher = Fetcher(world.client, cluster, wait_ms_max=60_000)
            fetcher.assign({TopicPartition(topic, index): 0})
            begun = world.client.clock.monotonic()
            waiting = asyncio.create_task(fetcher.poll(100))
            await asyncio.sleep(1)
            node._on_log_dir_failure(LogDirError(TWO, OSError(errno.EIO, "broken")))
            with pytest.raises(KafkaError):
                await waiting
            assert world.client.clock.monotonic() - begun < 60
            await fetcher.close()

    with World(log_dirs=DISKS) as world:
        world.run(main())


@pytest.mark.parametrize("operation", ["write", "sync", "sync_dir", "flush"])
def test_a_failed_sync_is_final_for_its_directory(operation: str) -> None:
    """Nobody knows what a failed sync left on the disk: it is not tried again on this directory."""

    async def main() -> None:
        node = await world.start()
        await world.create_topic("events", 3, flush_messages="1")
        lost = node.services.log_directories.by_path(TWO)
        assert lost is not None
        ((topic, index),) = lost.logs
        async with world.cluster(retry_timeout_s=0.05) as cluster:
            for _ in range(2):
                await produce_once(
                    world, cluster, TopicPartition(topic, index), b"there are entries in the index"
                )
            world.disk.faults.fail_next(operation=operation, path=f"{TWO}*")
            with pytest.raises(KafkaError) as refused:
                await produce_once(world, cluster, TopicPartition(topic, index), b"x")
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert (await describe_log_dirs(cluster))[TWO][0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert TWO in node.services.log_directories.offline
        assert not node.failed.is_set()
        await world.stop()
        assert ".kafka_cleanshutdown" not in world.names(TWO)
        assert ".kafka_cleanshutdown" in world.names(ONE)

    with World(log_dirs=DISKS, options={"metadata.log.dir": ONE, "log.index.interval.bytes": "0"}) as world:
        world.run(main())


# -- The disk that the node cannot do without


def test_the_metadata_log_may_lie_apart_from_the_logs(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = await world.start()
        await world.create_topic("events", 3)
        async with world.cluster() as cluster:
            await produce_once(world, cluster, TopicPartition("events", 0), b"x")
            assert (await describe_log_dirs(cluster)).keys() == {ONE, TWO}
        assert "__cluster_metadata-0" in world.names(THREE)
        assert not [name for path in (ONE, TWO) for name in world.names(path) if "metadata-0" in name]
        with pytest.raises(StartError, match=r"/disk-3/\.lock is locked"):
            await Node.start(
                world.runtime, BrokerConfig.parse({**world.config().texts, "log.dirs": "/other"})
            )
        await world.stop()
        assert ".kafka_cleanshutdown" not in world.names(THREE)
        node = await world.restart()
        async with world.cluster(retry_timeout_s=0.05, request_timeout_s=5) as cluster:
            assert await read(world, cluster, TopicPartition("events", 0)) == [b"x"]
            world.disk.faults.fail_next(operation="sync", path=f"{THREE}/*")
            with pytest.raises(KafkaError):
                await Admin(cluster).create_topic(NewTopic(name="refused"))
        await until(lambda: world.exit_code is not None, within_s=20)
        assert world.exit_code == 1 and node.failed.is_set()
        assert any(record.levelno == logging.CRITICAL for record in caplog.records)
        for path in (ONE, TWO):
            assert ".kafka_cleanshutdown" in world.names(path)
        await world.restart()

    with World(log_dirs=f"{ONE},{TWO}", options={"metadata.log.dir": THREE}) as world:
        world.run(main())


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_broken_metadata_disk_ends_the_node(operation: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        await world.start()
        await world.create_topic("before", 3)
        async with world.cluster(retry_timeout_s=0.05, request_timeout_s=5) as cluster:
            world.disk.faults.fail_next(operation=operation, path=f"{ONE}/__cluster_metadata-0/*")
            with pytest.raises(KafkaError):
                await Admin(cluster).create_topic(NewTopic(name="refused"))
        await until(lambda: world.exit_code is not None, within_s=20)
        assert world.exit_code == 1
        assert any(
            record.levelno == logging.CRITICAL and "__cluster_metadata-0" in record.getMessage()
            for record in caplog.records
        )
        await world.restart()
        async with world.cluster() as cluster:
            view = await Admin(cluster).describe_topics()
            assert view.topics.keys() in ({"before"}, {"before", "refused"})

    with World(log_dirs=DISKS, options={"metadata.log.dir": ONE}) as world:
        world.run(main())


def test_a_node_without_a_disk_left_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        await world.start()
        await world.create_topic("events")
        async with world.cluster(retry_timeout_s=0.05) as cluster:
            await cluster.refresh(["events"])
            world.disk.faults.fail_next(path=f"{DATA}/*", times=10**9)
            with pytest.raises(KafkaError):
                await produce_once(world, cluster, TopicPartition("events", 0), b"x")
        await until(lambda: world.exit_code is not None, within_s=20)
        assert world.exit_code == 1
        assert any(record.levelno == logging.CRITICAL for record in caplog.records)

    with World() as world:
        world.run(main())


@pytest.mark.parametrize(("error", "step"), [(errno.EIO, 2), (errno.ENOSPC, 3)])
def test_an_error_at_any_operation_of_a_start_is_a_start_error_or_an_offline_directory(
    error: int, step: int
) -> None:
    async def main() -> None:
        await world.start()
        await world.create_topic("events", 3, segment_ms="10")
        async with world.cluster() as cluster:
            for index in range(3):
                for _ in range(3):
                    await produce_once(world, cluster, TopicPartition("events", index), b"x")
                    await asyncio.sleep(0.1)
        world.kill()
        faults = world.disk.faults
        refused = 0
        for nth in range(1, 400, step):
            at = faults.count + nth
            faults.fail_at(at, error)
            try:
                node = await world.restart()
            except StartError as failure:
                assert "\n" not in str(failure)
                refused += 1
            else:
                if faults.count < at:
                    break
                faults.stop_failing()
                if not node.failed.is_set():
                    async with world.cluster() as cluster:
                        await describe_log_dirs(cluster)
            faults.stop_failing()
            world.kill()
        assert nth > 20
        assert refused > 5
        faults.stop_failing()
        world.kill()
        await world.restart()
        async with world.cluster() as cluster:
            for index in range(3):
                assert await read(world, cluster, TopicPartition("events", index)) == [b"x"] * 3

    with World(log_dirs=DISKS) as world:
        world.run(main())
