"""Any damage to any file of a data directory: the node starts and works, or one directory is offline, or the
start is refused with a line that says why. Never another exception, a hang, or memory without bound."""

from __future__ import annotations

import asyncio
import logging
import resource
from functools import cache
from random import Random

import pytest

from moldau.client.admin import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Admin,
    AlterConfig,
    ConfigOperation,
    NewTopic,
    ResourceType,
)
from moldau.client.cluster import Cluster, TopicPartition
from moldau.client.fetch import Fetcher
from moldau.records.compression import Codec
from moldau.server.node import StartError
from moldau.sim.disk import Directory, SimDisk
from moldau.wire.errors import ErrorCode, KafkaError
from tests.sim_node.seeds import seeds
from tests.sim_node.world import World
from tests.support.producing import Message, Writer, produce

DISKS = "/disk-1,/disk-2"
OPTIONS = {
    "log.index.interval.bytes": "0",
    "log.index.size.max.bytes": "4000",
    "metadata.log.max.snapshot.interval.ms": "20000",
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "log.flush.start.offset.checkpoint.interval.ms": "5000",
}
PLACES = [TopicPartition("events", index) for index in range(3)]
RUNS_PER_SEED = 20
MEMORY_KB_MAX = 300_000
Files = dict[str, bytes]


def files_below(directory: Directory, path: str = "") -> Files:
    found: Files = {}
    for name, node in sorted(directory.entries.items()):
        if isinstance(node, Directory):
            found |= files_below(node, f"{path}/{name}")
        else:
            found[f"{path}/{name}"] = node.content.read(0, node.content.size)
    return found


@cache
def data_directory(*, is_clean: bool) -> Files:
    """What a node left that has done a bit of everything."""

    async def main() -> None:
        await world.start()
        await world.create_topic("events", 3, segment_ms="5000")
        await world.create_topic("deleted", 2)
        async with world.cluster() as cluster:
            admin = Admin(cluster)
            for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4):
                writer = Writer(world.client, cluster, compression_type=codec.name.lower())
                for number in range(6):
                    for place in PLACES:
                        messages = [
                            Message(b"value %d" % (number + step), b"key", partition=place.partition)
                            for step in range(3)
                        ]
                        await writer.produce("events", messages)
                    await asyncio.sleep(2)
            change = AlterConfig(name="retention.ms", operation=ConfigOperation.SET, value="123456789")
            await admin.alter_configs(ResourceType.TOPIC, "events", [change])
            await admin.delete_topic("deleted")
            await asyncio.sleep(30)
            await admin.create_topic(NewTopic(name="late", partitions=2))
        if is_clean:
            await world.stop()
        else:
            world.kill()

    with World(7, OPTIONS, log_dirs=DISKS) as world:
        world.run(main())
        return files_below(world.disk.root)


def restore(disk: SimDisk, files: Files, world: World) -> None:
    for path, data in files.items():
        world.files.make_dirs(path.rpartition("/")[0])
        file = world.files.open(path, create=True)
        file.write_at(data, 0)
        file.close()


def damaged(random: Random, data: bytes) -> bytes:
    broken = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 3, 20))):
        place = random.randrange(len(broken) + 1)
        match random.randrange(8):
            case 0 if broken:
                broken[place % len(broken)] ^= 1 << random.randrange(8)
            case 1 if broken:
                broken[place % len(broken)] = random.choice((0, 0x7F, 0x80, 0xFF, 0x0A))
            case 2:
                del broken[place:]
            case 3:
                del broken[place : place + random.randrange(40)]
            case 4:
                broken[place:place] = random.randbytes(random.randrange(1, 40))
            case 5:
                broken += bytes(random.choice((1, 8, 12, 61, 5000)))
            case 6:
                value = random.choice((-1, 0, 1, 2**31 - 1, -(2**31), random.randrange(2**31)))
                broken[place : place + 4] = value.to_bytes(4, "big", signed=True)
            case _:
                broken[place : place + 8] = random.choice((-1, 2**63 - 1, 2**40)).to_bytes(
                    8, "big", signed=True
                )
    return bytes(broken)


def damage_something(random: Random, files: Files) -> tuple[str, Files]:
    """By kinds, so that the many segments do not hide the few checkpoints."""
    kinds: dict[str, list[str]] = {}
    for path in files:
        name = path.rpartition("/")[2]
        where = "metadata" if "__cluster_metadata" in path else "log"
        stem, dot, suffix = name.rpartition(".")
        kinds.setdefault(f"{where} {suffix if dot and stem else name}", []).append(path)
    path = random.choice(kinds[random.choice(sorted(kinds))])
    files = dict(files)
    match random.randrange(12):
        case 0:
            del files[path]
        case 1:
            files[path] = b""
        case 2:
            files[path] = random.randbytes(random.randrange(3000))
        case 3:
            # Bytes of another file, as a confused tool or file system leaves them.
            files[path] = files[random.choice(sorted(files))]
        case _:
            files[path] = damaged(random, files[path])
    return path, files


async def use(world: World, cluster: Cluster) -> None:
    """Ask for everything. Errors are allowed, but not those that tell of a bug."""
    admin = Admin(cluster)
    view = await admin.describe_topics()
    for place in PLACES:
        for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, 1_700_000_010_000):
            await tolerate(admin.list_offsets({place: timestamp}))
        fetcher = Fetcher(world.client, cluster, wait_ms_max=100)
        fetcher.assign({place: 0})
        for _ in range(10):
            fetched = await tolerate(fetcher.poll(0.05))
            if fetched is None:
                break
        await fetcher.close()
        await tolerate(
            produce(world.client, cluster, place.topic, [Message(b"x", partition=place.partition)])
        )
    for name in view.topics:
        await tolerate(admin.describe_configs(ResourceType.TOPIC, name))
    await tolerate(admin.create_topic(NewTopic(name="fresh", partitions=2)))
    await tolerate(produce(world.client, cluster, "fresh", [Message(b"x", partition=1)]))


async def tolerate(work: object) -> object:
    try:
        return await work  # type: ignore[misc]
    except KafkaError as error:
        assert error.code is not ErrorCode.UNKNOWN_SERVER_ERROR, error
        return None


@pytest.mark.parametrize("seed", seeds(4))
def test_damaged_files(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    for number in range(RUNS_PER_SEED):
        random = Random(f"{seed} {number}")
        path, files = damage_something(random, data_directory(is_clean=random.random() < 0.5))
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with World(seed, OPTIONS, log_dirs=DISKS) as world:
            try:
                restore(world.disk, files, world)
                world.run(live(world), within_s=3600)
            except BaseException as error:
                error.add_note(f"seed {seed}, run {number}: {path}")
                raise
        # What a handler did not expect is logged with its stack.
        surprises = [record.getMessage() for record in caplog.records if record.exc_info]
        assert not surprises, f"seed {seed}, run {number}: {path}: {surprises}"
        caplog.clear()
        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
        assert grown_kb < MEMORY_KB_MAX, f"{path} made the node take {grown_kb} KB"


async def live(world: World) -> None:
    try:
        node = await world.start()
    except StartError as refusal:
        assert str(refusal)
        assert "\n" not in str(refusal)
        return
    async with world.cluster(retry_timeout_s=0.3, request_timeout_s=5) as cluster:
        await use(world, cluster)
    if not node.failed.is_set():
        await world.stop()
        await world.restart()
        async with world.cluster(retry_timeout_s=0.3, request_timeout_s=5) as cluster:
            await Admin(cluster).describe_topics()
