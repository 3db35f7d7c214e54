from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import chain

import pytest

from moldau.client.admin import Admin, AlterConfig, ConfigOperation, ResourceType
from moldau.client.cluster import Cluster, TopicPartition
from moldau.client.connection import Connection
from moldau.client.fetch import Fetcher
from moldau.metadata.delta import apply_records
from moldau.metadata.image import ClusterImage
from moldau.raft.batches import read_batches
from moldau.records.batch import iterate_headers
from moldau.server.node import StartError
from moldau.sim.faults import Operation
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.sim_node.world import DATA, HOST, World, until
from tests.support.producing import Message, Writer
from tests.support.producing import produce as write

PLACE = TopicPartition("events", 0)


async def produce(world: World, topic: str, *values: bytes, partition: int = 0) -> None:
    async with world.cluster() as cluster:
        messages = [Message(value, partition=partition) for value in values]
        await write(world.client, cluster, topic, messages)


async def fetch(connection: Connection, offset: int, *, wait_ms: int, topic: str = "events") -> FetchResponse:
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
        ],
    )
    # By name: the last version that does not want the topic's id.
    return await connection.request(request, FetchResponse, version=12)


def values_in(response: FetchResponse) -> int:
    data = response.responses[0].partitions[0]
    assert data.error_code == 0
    return sum(header.record_count for _, header in iterate_headers(memoryview(data.records or b"")))


def test_a_long_poll_ends_with_the_record_it_waited_for() -> None:
    async def main() -> None:
        await world.start()
        await world.create_topic("events")
        connection = await world.connect()
        begun = world.client.clock.monotonic()
        waiting = asyncio.create_task(fetch(connection, 0, wait_ms=20_000))
        await asyncio.sleep(7)
        assert not waiting.done()
        await produce(world, "events", b"at last")
        assert values_in(await waiting) == 1
        assert 7 <= world.client.clock.monotonic() - begun < 8

    with World() as world:
        world.run(main())


def test_a_long_poll_that_finds_nothing_ends_when_it_said() -> None:
    async def main() -> None:
        await world.start()
        await world.create_topic("events")
        connection = await world.connect()
        begun = world.client.clock.monotonic()
        response = await fetch(connection, 0, wait_ms=20_000)
        assert values_in(response) == 0
        assert 20 <= world.client.clock.monotonic() - begun < 20.1

    with World() as world:
        world.run(main())


def test_a_long_poll_on_a_deleted_topic_does_not_wait_for_its_time() -> None:
    async def main() -> None:
        await world.start()
        await world.create_topic("events")
        connection = await world.connect()
        begun = world.client.clock.monotonic()
        waiting = asyncio.create_task(fetch(connection, 0, wait_ms=20_000))
        await asyncio.sleep(1)
        async with world.cluster() as cluster:
            await Admin(cluster).delete_topic("events")
        response = await waiting
        assert world.client.clock.monotonic() - begun < 2
        code = response.responses[0].partitions[0].error_code
        assert code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    with World() as world:
        world.run(main())


def test_an_idle_connection_is_reaped_and_one_that_polls_is_not() -> None:
    async def main() -> None:
        node = await world.start()
        await world.create_topic("events")
        idle, polling, patient = [await world.connect() for _ in range(3)]
        too_long = asyncio.create_task(fetch(patient, 0, wait_ms=25_000))
        for _ in range(3):
            assert values_in(await fetch(polling, 0, wait_ms=5_000)) == 0
        assert (idle.is_closed, polling.is_closed, patient.is_closed) == (True, False, True)
        for refused in (idle.request(MetadataRequest(topics=None), MetadataResponse), too_long):
            with pytest.raises(KafkaError) as failure:
                await refused
            assert failure.value.code is ErrorCode.NETWORK_EXCEPTION
        assert node.services.fetch_purgatory.delayed == {}

    with World(options={"connections.max.idle.ms": "10000"}) as world:
        world.run(main())


def test_old_segments_go_in_their_time_and_their_files_after_the_delay() -> None:
    """Rolled by segment.ms, taken by retention.ms, renamed, and removed file.delete.delay.ms later."""

    async def main() -> None:
        node = await world.start()
        await world.create_topic(
            "events", segment_ms="60000", retention_ms="600000", file_delete_delay_ms="60000"
        )
        await produce(world, "events", b"old")
        await asyncio.sleep(90)
        await produce(world, "events", b"new")
        path = f"{DATA}/{PLACE}"
        logs = [name for name in world.names(path) if name.endswith(".log")]
        assert logs == ["00000000000000000000.log", "00000000000000000001.log"]
        log = node.services.partition(*PLACE).log
        assert log is not None
        await until(lambda: log.log_start_offset == 1, within_s=1000)
        assert "00000000000000000000.log.deleted" in world.names(path)
        assert values_in(await fetch(await world.connect(), 1, wait_ms=0)) == 1
        await until(
            lambda: not any("00000000000000000000" in name for name in world.names(path)), within_s=70
        )
        # When the last segment is too old as well, the log is empty and goes on where it was.
        await until(lambda: log.log_start_offset == 2, within_s=1000)
        await produce(world, "events", b"newest")
        assert log.log_end_offset == 3
        assert [record.value for record in world.stored(PLACE)] == [b"newest"]

    with World(options={"log.retention.check.interval.ms": "10000"}) as world:
        world.run(main())


def test_what_is_left_of_a_deleted_topic_goes_after_the_delay() -> None:
    async def main() -> None:
        await world.start()
        await world.create_topic("events", file_delete_delay_ms="60000")
        await produce(world, "events", b"first life")
        async with world.cluster() as cluster:
            await Admin(cluster).delete_topic("events")
        assert [name for name in world.names(DATA) if name.endswith("-delete")]
        await world.create_topic("events")
        await produce(world, "events", b"second life")
        await asyncio.sleep(70)
        assert [name for name in world.names(DATA) if name.startswith("events")] == ["events-0"]
        assert [record.value for record in world.stored(PLACE)] == [b"second life"]

    with World() as world:
        world.run(main())


def test_a_deletion_that_a_restart_interrupts_is_finished_by_the_next_start() -> None:
    async def main() -> None:
        await world.start()
        await world.create_topic("events", file_delete_delay_ms="60000")
        async with world.cluster() as cluster:
            await Admin(cluster).delete_topic("events")
        await world.stop()
        await world.restart()
        await until(lambda: not any("events" in name for name in world.names(DATA)), within_s=120)

    with World() as world:
        world.run(main())


def test_a_clean_stop_answers_who_waits_and_says_that_it_was_clean() -> None:
    async def main() -> None:
        await world.start()
        await world.create_topic("events")
        await produce(world, "events", b"1", b"2")
        connection = await world.connect()
        waiting = asyncio.create_task(fetch(connection, 2, wait_ms=60_000))
        await asyncio.sleep(1)
        begun = world.client.clock.monotonic()
        await world.stop()
        assert values_in(await waiting) == 0
        assert world.client.clock.monotonic() - begun < 1
        assert ".kafka_cleanshutdown" in world.names(DATA)
        left = image_on_disk(world)
        assert (left.brokers[1].fenced, left.brokers[1].in_controlled_shutdown) == (True, True)
        partition = left.topics["events"].partitions[0]
        assert (partition.leader, partition.isr, partition.elr) == (-1, (), (1,))
        operations = world.disk.faults.record()
        node = await world.restart()
        assert ".kafka_cleanshutdown" not in world.names(DATA)
        # The controller believes that nothing was lost: it was told the epoch of the clean stop.
        partition = node.services.image().topics["events"].partitions[0]
        assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), 0)
        written = {
            f"{each.name} {each.path}" for each in operations if each.path.startswith(f"{DATA}/events")
        }
        assert not any(each.startswith(("write", "truncate")) for each in written), written
        assert values_in(await fetch(await world.connect(), 0, wait_ms=0)) == 2

    with World() as world:
        world.run(main())


def test_a_stop_waits_for_who_is_still_taking_a_response() -> None:
    async def main() -> None:
        await world.start()
        await world.create_topic("events")
        await produce(world, "events", bytes(300_000))
        connection = await world.connect()
        wires = world.simulation.network.wires
        wires.partition(HOST, "client", one_way=True)
        fetching = asyncio.create_task(fetch(connection, 0, wait_ms=0))
        await asyncio.sleep(1)
        stopping = asyncio.create_task(world.stop())
        await asyncio.sleep(2)
        assert not stopping.done()
        wires.heal()
        assert values_in(await fetching) == 1
        await stopping

    with World() as world:
        world.run(main())


def image_on_disk(world: World) -> ClusterImage:
    data = world.files.read_bytes(f"{DATA}/__cluster_metadata-0/{0:020d}.log")
    records = [batch.messages for batch in read_batches(data) if not batch.is_control]
    return apply_records(ClusterImage(), chain.from_iterable(records))[0]


def test_a_second_node_on_the_same_directory_is_refused() -> None:
    async def main() -> None:
        await world.start()
        with pytest.raises(StartError, match=r"/data.* is locked: another node is running"):
            await world.start()

    with World() as world:
        world.run(main())


def test_a_failed_start_leaves_nothing_behind_that_a_second_one_minds() -> None:
    async def main() -> None:
        listener = world.runtime.network.listen(HOST, 9092, lambda stream: stream.close())
        with pytest.raises(StartError, match="cannot listen on node:9092"):
            await world.start()
        listener.close()
        await world.start()
        await world.create_topic("events")

    with World() as world:
        world.run(main())


def test_changed_options_take_effect_at_once_and_survive() -> None:
    async def main() -> None:
        await world.start()
        await world.create_topic("events")
        await produce(world, "events", bytes(5000))
        async with world.cluster() as cluster:
            await Admin(cluster).alter_configs(
                ResourceType.TOPIC,
                "events",
                [AlterConfig(name="max.message.bytes", operation=ConfigOperation.SET, value="1000")],
            )
        for _ in range(2):
            with pytest.raises(KafkaError) as refused:
                await produce(world, "events", bytes(5000))
            assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
            world.kill()
            await world.restart()

    with World() as world:
        world.run(main())


def test_the_image_is_what_a_replay_of_the_log_gives() -> None:
    async def main() -> None:
        node = await world.start()
        for number in range(4):
            await world.create_topic(f"topic-{number}", number + 1, retention_ms=f"{number + 1}000")
        async with world.cluster() as cluster:
            admin = Admin(cluster)
            await admin.delete_topic("topic-1")
            await alter_broker(cluster, "log.retention.ms", "777000")
            await admin.alter_configs(
                ResourceType.TOPIC,
                "topic-2",
                [AlterConfig(name="retention.ms", operation=ConfigOperation.DELETE)],
            )
            # With idempotence, hence a block of producer ids.
            await write(world.client, cluster, "topic-3", [Message(b"x", partition=0)])
        image, replayed = node.services.image(), image_on_disk(world)
        assert image.topics.keys() == {"topic-0", "topic-2", "topic-3"}
        assert image.producer_ids.next_producer_id == 1000
        at = {"offset": image.offset, "epoch": image.epoch, "timestamp_ms": image.timestamp_ms}
        assert replace(replayed, **at) == image

    with World() as world:
        world.run(main())


@pytest.mark.parametrize(
    "options",
    [
        {"metadata.log.max.record.bytes.between.snapshots": "2000"},
        {"metadata.log.max.snapshot.interval.ms": "60000"},
    ],
)
def test_the_metadata_log_is_cut_at_snapshots_and_nothing_is_forgotten(options: dict[str, str]) -> None:
    async def main() -> None:
        node = await world.start()
        names = {f"topic-{number}" for number in range(20)}
        for name in sorted(names):
            await world.create_topic(name, 3)
            await asyncio.sleep(10)
        taken = [name for name in world.names(f"{DATA}/__cluster_metadata-0") if "checkpoint" in name]
        assert len([name for name in taken if name.endswith(".checkpoint")]) >= 3
        assert not any(name.endswith(".part") for name in taken)
        assert node.quorum.start_offset > 0
        world.power_cut()
        node = await world.restart()
        assert node.services.image().topics.keys() == names

    with World(options={**options, "metadata.max.retention.bytes": "10000000"}) as world:
        world.run(main())


def test_options_of_the_broker_take_effect_while_it_runs() -> None:
    async def main() -> None:
        node = await world.start()
        await world.create_topic("events")
        async with world.cluster() as cluster:
            await alter_broker(cluster, "max.connections", "1000")
            ((_, acceptor),) = node._acceptors
            await alter_broker(cluster, "max.connections", str(len(acceptor.connections)))
            connecting = asyncio.create_task(world.connect())
            await asyncio.sleep(1)
            assert not connecting.done()
            await alter_broker(cluster, "max.connections", "1000")
            await connecting
            await alter_broker(cluster, "num.io.threads", "12")
            assert world.runtime.pool_threads == 12
            log = node.services.partition(*PLACE).log
            assert log is not None
            await alter_broker(cluster, "log.retention.ms", "777000")
            assert log.config.retention_ms == 777_000

    with World() as world:
        world.run(main())


async def alter_broker(cluster: Cluster, name: str, value: str) -> None:
    change = AlterConfig(name=name, operation=ConfigOperation.SET, value=value)
    await Admin(cluster).alter_configs(ResourceType.BROKER, "", [change])


def _history(seed: int) -> list[object]:
    """What happens at the disk and to the clients, and when, in some hours of a node's life."""

    async def main() -> None:
        await world.start()
        await world.create_topic("events", 3, segment_ms="3600000", retention_ms="7200000")
        readers = [asyncio.create_task(read(number)) for number in range(4)]
        async with world.cluster() as cluster:
            writer = Writer(world.client, cluster)
            for number in range(15):
                await writer.produce("events", [Message(b"%d" % number, key=b"%d" % (number % 7))])
                await asyncio.sleep(world.client.random.uniform(0, 600))
        world.kill()
        await world.restart()
        await asyncio.sleep(10)
        await world.stop()
        for reader in readers:
            reader.cancel()

    async def read(number: int) -> None:
        async with world.cluster() as cluster:
            fetcher = Fetcher(world.client, cluster, wait_ms_max=30_000)
            fetcher.assign({TopicPartition("events", index): 0 for index in range(3)})
            while True:
                if (fetched := await fetcher.poll(60)) is not None:
                    happened.append((number, world.simulation.loop.time(), fetched))

    happened: list[object] = []
    with World(seed) as world:
        operations = world.disk.faults.record()
        world.run(main())
        return [*operations, *happened]


def test_the_same_seed_gives_the_same_history() -> None:
    once, again, other = _history(5), _history(5), _history(6)
    assert once == again
    assert once != other


def test_records_that_left_the_page_cache_are_read_where_nobody_else_waits_for_them() -> None:
    async def main() -> None:
        await world.start()
        await world.create_topic("events")
        batches = 100  # more than those of which the log knows without looking
        for number in range(batches):
            await produce(world, "events", b"%d " % number + bytes(2000))
        reader = await world.connect()
        trace = world.disk.faults.record()
        assert values_in(await fetch(reader, 0, wait_ms=0)) == batches
        assert not loads(trace)

        world.disk.is_cold = True
        assert values_in(await fetch(reader, 0, wait_ms=0)) == batches
        assert [operation.path for operation in loads(trace)] == [f"{DATA}/events-0/{0:020}.log"]

        trace.clear()
        assert values_in(await fetch(reader, batches - 1, wait_ms=0)) == 1
        assert not loads(trace), "what was just written is in the page cache"

        # A failing read is the sender's to tell of, and here the second attempt succeeds.
        world.disk.faults.fail_next(operation="load")
        assert values_in(await fetch(reader, 0, wait_ms=0)) == batches
        world.disk.is_cold = False
        reader.close()
        await world.stop()

    def loads(trace: list[Operation]) -> list[Operation]:
        return [operation for operation in trace if operation.name == "load"]

    with World() as world:
        world.run(main())


def test_a_client_that_leaves_while_its_records_are_read_disturbs_nobody() -> None:
    async def main() -> None:
        node = await world.start()
        await world.create_topic("events")
        for number in range(50):
            await produce(world, "events", b"%d " % number + bytes(2000))
        world.disk.is_cold = True
        leaving, staying = await world.connect(), await world.connect()
        left = asyncio.create_task(fetch(leaving, 0, wait_ms=0))
        await asyncio.sleep(0)
        leaving.close()
        assert values_in(await fetch(staying, 0, wait_ms=0)) == 50
        await asyncio.gather(left, return_exceptions=True)
        assert not node.failed.is_set()
        staying.close()
        await world.stop()

    with World() as world:
        world.run(main())
