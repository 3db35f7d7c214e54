"""The quorum of one voter: epochs over restarts, commits, snapshots, and the power cut at every write."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from moldau.log.errors import DiskFullError, LogDirError
from moldau.metadata import records
from moldau.metadata.features import bootstrap_records
from moldau.metadata.framing import MetadataRecord
from moldau.metadata.image import ConfigResource, ResourceType
from moldau.metadata.snapshot import image_records
from moldau.raft.batches import read_batches
from moldau.raft.election_state import ElectionState, decode_election_state
from moldau.raft.format import METADATA_LOG, format_directories
from moldau.raft.metadata_log import MetadataLogConfig
from moldau.raft.quorum import Quorum, QuorumError
from moldau.raft.snapshots import SnapshotId, list_snapshots, read_snapshot, snapshot_name
from moldau.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from moldau.runtime.interfaces import Runtime
from moldau.sim.faults import PowerCut
from moldau.sim.simulation import Simulation, run
from moldau.wire.ids import Uuid
from moldau.wire.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord

GOLDEN = Path(__file__).parent / "golden"
DIRECTORY = "/data"
LOG_DIRECTORY = f"{DIRECTORY}/{METADATA_LOG}"
LOG_FILE = f"{LOG_DIRECTORY}/00000000000000000000.log"
ME = ReplicaKey(1)
STATIC = VoterSet([Voter(key=ME)])


def open_quorum(
    runtime: Runtime, config: MetadataLogConfig | None = None, voters: VoterSet = STATIC
) -> Quorum:
    return Quorum.open(runtime, DIRECTORY, me=ME, voters=voters, config=config or MetadataLogConfig())


def topic(number: int) -> list[MetadataRecord]:
    return [
        MetadataRecord(records.TopicRecord(name=f"t{number}", topic_id=Uuid(number.to_bytes(16, "big"))), 0)
    ]


async def commit(quorum: Quorum, written: list[MetadataRecord]) -> int:
    offset = quorum.append(written, 1000)
    await quorum.commit(offset)
    return offset


def test_each_start_is_an_epoch_that_begins_with_a_leader_change() -> None:
    async def main(runtime: Runtime) -> None:
        for epoch in (1, 2, 3):
            quorum = open_quorum(runtime)
            assert (quorum.epoch, quorum.leader_id, quorum.high_watermark) == (epoch, 1, quorum.end_offset)
            assert quorum.replay.image.offset == quorum.end_offset - 1
            await commit(quorum, topic(epoch))
            await quorum.close()
        state = decode_election_state(runtime.files.read_bytes(f"{LOG_DIRECTORY}/quorum-state"), "")
        assert state == ElectionState(epoch=3, leader_id=1)
        batches = list(read_batches(runtime.files.read_bytes(LOG_FILE)))
        assert [(batch.base_offset, batch.epoch, batch.is_control) for batch in batches] == [
            (0, 1, True), (1, 1, False), (2, 2, True), (3, 2, False), (4, 3, True), (5, 3, False)
        ]  # fmt: skip
        assert (
            runtime.files.read_bytes(f"{LOG_DIRECTORY}/leader-epoch-checkpoint") == b"0\n3\n1 0\n2 2\n3 4\n"
        )

    run(main)


def test_a_restart_brings_back_what_was_committed() -> None:
    async def main(runtime: Runtime) -> None:
        quorum = open_quorum(runtime)
        for number in range(20):
            await commit(quorum, topic(number))
        await quorum.close()
        quorum = open_quorum(runtime)
        assert set(quorum.replay.image.topics) == {f"t{number}" for number in range(20)}
        await quorum.close()

    run(main)


def test_appends_share_a_sync_and_are_committed_in_order() -> None:
    async def main(runtime: Runtime) -> None:
        quorum = open_quorum(runtime)
        trace = runtime.files.faults.record()  # type: ignore[attr-defined]
        offsets = [quorum.append(topic(number), 1000) for number in range(50)]
        assert quorum.high_watermark == offsets[0]
        await asyncio.gather(*(quorum.commit(offset) for offset in offsets))
        assert quorum.high_watermark == offsets[-1] + 1
        assert sum(1 for step in trace if step.name == "sync" and step.path == LOG_FILE) <= 2
        await quorum.close()

    run(main)


def test_nothing_is_committed_after_a_sync_that_failed() -> None:
    async def main(runtime: Runtime) -> None:
        quorum = open_quorum(runtime)
        offset = quorum.append(topic(1), 1000)
        runtime.files.faults.fail_next(error=errno.EIO, operation="sync", path=LOG_FILE)  # type: ignore[attr-defined]
        with pytest.raises(LogDirError):
            await quorum.commit(offset)
        with pytest.raises(QuorumError):
            await quorum.commit(offset)
        with pytest.raises(QuorumError):
            quorum.append(topic(2), 1000)
        assert quorum.high_watermark == offset

    run(main)


@pytest.mark.parametrize(
    ("error", "operation", "path"),
    [
        (errno.EMFILE, "sync_dir", LOG_DIRECTORY),
        (errno.ENOSPC, "create", f"{LOG_DIRECTORY}/leader-epoch-checkpoint.tmp"),
    ],
)
def test_a_commit_waits_for_the_room_or_the_descriptor_that_its_flush_takes(
    error: int, operation: str, path: str
) -> None:
    async def main(runtime: Runtime) -> None:
        quorum = open_quorum(runtime)
        quorum._log._log.leader_epochs.assign(quorum.epoch + 1, quorum.end_offset)
        offset = quorum.append(topic(1), 1000)
        runtime.files.faults.fail_next(error, operation=operation, path=path, times=3)  # type: ignore[attr-defined]
        committing = asyncio.ensure_future(quorum.commit(offset))
        await asyncio.sleep(1.5)
        assert not committing.done() and quorum.high_watermark == offset
        await committing
        assert quorum.high_watermark == offset + 1 and quorum.failure is None
        await quorum.close()

    run(main)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_committed_survives_a_power_cut_at_every_operation(seed: int) -> None:
    async def scenario(runtime: Runtime, committed: set[str]) -> None:
        quorum = open_quorum(runtime, MetadataLogConfig(bytes_between_snapshots=400))
        for number in range(8):
            await commit(quorum, topic(number))
            committed.add(f"t{number}")
            quorum.replay.apply(topic(number)[0].message)
            image, _ = quorum.replay.publish(quorum.end_offset - 1, quorum.epoch, 1000)
            if quorum.is_snapshot_due(1000):
                await quorum.take_snapshot(image)
        await quorum.close()

    def cut_at(operation: int) -> bool:
        """True if the scenario ended before the cut."""
        committed: set[str] = set()
        with Simulation(seed) as simulation:
            node = simulation.host("a")
            node.files.make_dirs(DIRECTORY)
            node.files.sync_dir("/")
            faults = simulation.disk("a").faults
            faults.power_cut_at(faults.count + operation)
            task = node.spawn(scenario(node, committed), "scenario")
            simulation.advance(60)
            is_done = task.done() and not task.cancelled() and task.exception() is None
            if not is_done:
                assert task.cancelled() or isinstance(task.exception(), PowerCut)
            if is_done:
                faults.power_cut_at(None)
                simulation.crash("a")
            again = simulation.restart("a")
            quorum = open_quorum(again)
            found = set(quorum.replay.image.topics)
            assert committed <= found <= committed | {f"t{len(committed)}"}, f"cut at {operation}"
        return is_done

    operation = 1
    while not cut_at(operation):
        operation += 3
    assert operation > 50


@pytest.mark.parametrize("seed", range(5))
def test_what_a_start_takes_for_committed_is_durable(seed: int) -> None:
    """A process that was killed may leave records that were written and not synced."""
    with Simulation(seed) as simulation:
        node = simulation.host("a")
        node.files.make_dirs(DIRECTORY)
        node.files.sync_dir("/")
        open_quorum(node).append(topic(1), 1000)
        simulation.kill("a")
        quorum = open_quorum(simulation.restart("a"))
        assert set(quorum.replay.image.topics) == {"t1"}
        assert quorum.high_watermark == quorum.end_offset
        simulation.crash("a")
        assert set(open_quorum(simulation.restart("a")).replay.image.topics) == {"t1"}


def test_a_snapshot_takes_the_place_of_the_log_before_it() -> None:
    async def main(runtime: Runtime) -> None:
        config = MetadataLogConfig(segment_bytes=1 << 20, bytes_between_snapshots=1, delete_delay_ms=0)
        quorum = open_quorum(runtime, config)
        for number in range(30):
            offset = await commit(quorum, topic(number))
            quorum.replay.apply(topic(number)[0].message)
        image, _ = quorum.replay.publish(offset, quorum.epoch, 1234)
        assert quorum.is_snapshot_due(1000)
        id = await quorum.take_snapshot(image)
        assert id == SnapshotId(31, 1)
        assert await quorum.take_snapshot(image) is None
        assert not quorum.is_snapshot_due(1000)
        assert quorum.start_offset == 31
        snapshot = read_snapshot(runtime.files, f"{LOG_DIRECTORY}/{snapshot_name(id)}")
        assert snapshot.messages == [record.message for record in image_records(image)]
        assert snapshot.timestamp_ms == 1234
        await commit(quorum, topic(99))
        await quorum.close()

        quorum = open_quorum(runtime, config)
        assert set(quorum.replay.image.topics) == {*image.topics, "t99"}
        await quorum.close()
        # The log is lost, the snapshot is not: Kafka goes on from the snapshot as well.
        for name in runtime.files.list_dir(LOG_DIRECTORY):
            if not name.endswith(".checkpoint"):
                runtime.files.remove(f"{LOG_DIRECTORY}/{name}")
        quorum = open_quorum(runtime, config)
        assert set(quorum.replay.image.topics) == set(image.topics)
        assert (quorum.end_offset, quorum.epoch) == (32, 2)
        await quorum.close()

    run(main)


def test_closing_waits_for_the_snapshot_that_is_being_taken() -> None:
    """The directory is unlocked afterwards, and another node may start on it."""

    async def main(runtime: Runtime) -> None:
        quorum = open_quorum(runtime)
        taking = asyncio.ensure_future(quorum.take_snapshot(quorum.replay.image))
        await asyncio.sleep(0)
        await quorum.close()
        assert taking.done()
        assert list_snapshots(runtime.files, LOG_DIRECTORY) == [await taking]
        trace = runtime.files.faults.record()  # type: ignore[attr-defined]
        await asyncio.sleep(1)
        assert trace == []

    run(main)


def test_a_disk_that_fills_up_within_one_append_is_not_outlived() -> None:
    """The first of the records are in the log, and the image knows nothing of them."""

    async def main(runtime: Runtime) -> None:
        quorum = open_quorum(runtime, MetadataLogConfig(segment_bytes=600_000))
        many = [record for number in range(25_000) for record in topic(number)]
        end_offset = quorum.end_offset
        for operation, is_final in (("write", False), ("create", True)):
            runtime.files.faults.fail_next(  # type: ignore[attr-defined]
                errno.ENOSPC, operation=operation, path=f"{LOG_DIRECTORY}/*.log"
            )
            with pytest.raises(DiskFullError):
                quorum.append(many, 1000)
            assert (quorum.end_offset > end_offset) == is_final
            assert (quorum.failure is not None) == is_final

    run(main)


def test_only_as_many_snapshots_stay_as_retention_allows() -> None:
    async def main(runtime: Runtime) -> None:
        quorum = open_quorum(runtime, MetadataLogConfig(retention_bytes=0))
        for number in range(4):
            offset = await commit(quorum, topic(number))
            quorum.replay.apply(topic(number)[0].message)
            image, _ = quorum.replay.publish(offset, quorum.epoch, 1000)
            await quorum.take_snapshot(image)
        assert list_snapshots(runtime.files, LOG_DIRECTORY) == [SnapshotId(5, 1)]
        await quorum.close()

    run(main)


def test_time_makes_a_snapshot_due_if_there_is_anything_new() -> None:
    async def main(runtime: Runtime) -> None:
        quorum = open_quorum(runtime)
        now_ms = runtime.clock.now_ms()
        assert not quorum.is_snapshot_due(now_ms + 3_599_999)
        assert quorum.is_snapshot_due(now_ms + 3_600_000)
        await quorum.take_snapshot(quorum.replay.image)
        assert not quorum.is_snapshot_due(now_ms + 1_000_000_000)
        await quorum.close()

    run(main)


def test_no_snapshot_is_taken_inside_a_transaction_or_of_what_is_not_committed() -> None:
    async def main(runtime: Runtime) -> None:
        quorum = open_quorum(runtime)
        offset = quorum.append(topic(1), 1000)
        image, _ = quorum.replay.publish(offset, 1, 1000)
        with pytest.raises(ValueError, match="not committed"):
            await quorum.take_snapshot(image)
        begin = MetadataRecord(records.BeginTransactionRecord(), 0)
        offset = await commit(quorum, [begin])
        quorum.replay.apply(begin.message)
        image, _ = quorum.replay.publish(offset, 1, 1000)
        assert await quorum.take_snapshot(image) is None
        await quorum.close()

    run(main)


def test_a_dynamic_quorum_brings_its_voters_into_the_log_once() -> None:
    async def main(runtime: Runtime) -> None:
        directory_id = format_directories(
            runtime.files, [DIRECTORY], metadata_directory=DIRECTORY, cluster_id="c", node_id=1,
            random=Random(1), now_ms=0, standalone=VoterEndpoint("CONTROLLER", "h", 1),
        )[DIRECTORY]  # fmt: skip
        for _ in range(2):
            quorum = Quorum.open(
                runtime,
                DIRECTORY,
                me=ReplicaKey(1, directory_id),
                voters=VoterSet(),
                config=MetadataLogConfig(),
            )
            assert quorum.kraft_version == 1
            assert quorum.voters[1].key == ReplicaKey(1, directory_id)
            await quorum.close()
        first, second = read_batches(runtime.files.read_bytes(LOG_FILE))
        assert [type(message) for message in first.messages] == [
            LeaderChangeMessage, KRaftVersionRecord, VotersRecord
        ]  # fmt: skip
        assert [type(message) for message in second.messages] == [LeaderChangeMessage]
        with pytest.raises(QuorumError, match="not among the voters"):
            Quorum.open(
                runtime,
                DIRECTORY,
                me=ReplicaKey(1, Uuid(b"x" * 16)),
                voters=VoterSet(),
                config=MetadataLogConfig(),
            )

    run(main)


def test_a_quorum_of_several_voters_is_refused() -> None:
    async def main(runtime: Runtime) -> None:
        several = VoterSet(Voter(key=ReplicaKey(id)) for id in (1, 2, 3))
        with pytest.raises(QuorumError, match="needs votes of 2, 3"):
            open_quorum(runtime, voters=several)

    run(main)


def test_the_metadata_log_of_kafka_is_replayed() -> None:
    async def main(runtime: Runtime) -> None:
        runtime.files.make_dirs(LOG_DIRECTORY)
        for name, target in (("metadata.log", LOG_FILE), ("quorum-state", f"{LOG_DIRECTORY}/quorum-state")):
            runtime.files.write_atomically(target, (GOLDEN / name).read_bytes())
        quorum = open_quorum(runtime)
        image = quorum.replay.image
        assert (quorum.epoch, quorum.end_offset) == (2, 151)
        assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {
            "plain": 2, "codecs": 1, "txn": 1, "compacted": 1,
            "__transaction_state": 2, "__consumer_offsets": 2,
        }  # fmt: skip
        plain = ConfigResource(ResourceType.TOPIC, "plain")
        assert image.configs[plain] == {
            "segment.bytes": "1048576", "retention.ms": "-1", "index.interval.bytes": "1024"
        }  # fmt: skip
        assert image.producer_ids.next_producer_id == 1000
        assert dict(image.features) == {
            record.message.name: record.message.feature_level  # type: ignore[attr-defined]
            for record in bootstrap_records()
        }
        broker = image.brokers[1]
        assert (broker.fenced, broker.in_controlled_shutdown, broker.epoch) == (True, True, 11)
        partition = image.topics["plain"].partitions[0]
        assert (partition.leader, partition.isr, partition.elr) == (-1, (), (1,))
        await quorum.close()

    run(main)


def test_a_cut_log_of_kafka_is_a_prefix_of_it() -> None:
    """Whatever the power left of Kafka's file, we lead from there."""
    data = (GOLDEN / "metadata.log").read_bytes()
    ends = {0: 0}
    position = 0
    for batch in read_batches(data):
        position += batch.size
        ends[position] = batch.last_offset + 1

    def opened(size: int) -> Callable[[Runtime], Awaitable[int]]:
        async def main(runtime: Runtime) -> int:
            runtime.files.make_dirs(LOG_DIRECTORY)
            runtime.files.write_atomically(LOG_FILE, data[:size])
            quorum = open_quorum(runtime)
            await quorum.close()
            return quorum.end_offset - 1

        return main

    for size in range(0, len(data), 97):
        whole = max(end for end in ends if end <= size)
        assert run(opened(size)) == ends[whole]  # type: ignore[arg-type]


def test_describe_tells_of_the_one_voter() -> None:
    async def main(runtime: Runtime) -> None:
        quorum = open_quorum(runtime)
        (described,) = quorum.describe().topics
        (partition,) = described.partitions
        assert described.topic_name == "__cluster_metadata"
        assert (partition.leader_id, partition.leader_epoch) == (1, 1)
        assert partition.high_watermark == partition.current_voters[0].log_end_offset == 1
        await quorum.close()

    run(main)
