"""Any bytes on a connection: the node answers, refuses or closes it, and serves the next client as if nothing
had been. No handler meets what it did not expect, and memory stays bounded.

Requests are made of all APIs and versions, with values that mean something to this node (its topics, ids,
options, batches) beside those that mean nothing, and then damaged or not.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import struct
from random import Random
from typing import Any

import pytest

from moldau.client.admin import Admin, NewTopic
from moldau.client.cluster import TopicPartition
from moldau.client.fetch import Fetcher
from moldau.records.batch import stamp_crc
from moldau.records.builder import build_batch
from moldau.records.compression import Codec
from moldau.records.record import Record
from moldau.runtime.interfaces import Stream
from moldau.server.api import APIS
from moldau.wire.api import ApiKey, request_type
from moldau.wire.codec import encode
from moldau.wire.headers import write_request_header
from moldau.wire.ids import ZERO_UUID
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest
from moldau.wire.messages.update_features import UpdateFeaturesRequest
from moldau.wire.schema import RECORDS, Field, Primitive, Struct
from tests.sim_node.seeds import seeds
from tests.sim_node.world import HOST, PORT, World
from tests.support.producing import Message as Sent
from tests.support.producing import produce

FRAMES_PER_SEED = 150
MEMORY_KB_MAX = 300_000
WORDS = (
    *("events", "other", "nobody", "1", "0", "", "default", "DEBUG", "root", "PLAINTEXT"),
    *(
        "compacted",
        "compacted",
        "retention.ms",
        "cleanup.policy",
        "compact",
        "-1",
        "min.insync.replicas",
        "metadata.version",
    ),
    *("__consumer_offsets", "__cluster_metadata", "../../etc", "ř" * 100, "x" * 300, "/data", "/elsewhere"),
)


class Chance:
    """Requests that know a bit about the node."""

    def __init__(self, random: Random, topic_ids: list[bytes]) -> None:
        self.random = random
        self.topic_ids = topic_ids

    def frame(self) -> bytes:
        random = self.random
        if random.random() < 0.05:
            size = random.randrange(200)
            return struct.pack(">i", random.choice((size, size, -1, 2**31 - 1, 0))) + random.randbytes(size)
        # Those that nobody serves as well, now and then.
        key = random.choice([api.key for api in APIS] if random.random() < 0.95 else list(ApiKey))
        if random.random() < 0.25:
            key = random.choice((ApiKey.PRODUCE, ApiKey.FETCH))
        kind = request_type(key)
        versions = range(kind.VERSIONS.first, kind.VERSIONS.last + 1)
        version = random.choice(versions)
        body = bytearray(4)
        body += write_request_header(key, version, random.randrange(2**31), "fuzz")
        header_size = len(body)
        encode(self.message(kind, version), version, body)
        if random.random() < 0.5 and kind not in (UnregisterBrokerRequest, UpdateFeaturesRequest):
            self.damage(body, header_size)
        size = len(body) - 4 if random.random() < 0.98 else random.randrange(len(body) + 20)
        struct.pack_into(">i", body, 0, size)
        return bytes(body)

    def damage(self, body: bytearray, start: int) -> None:
        random = self.random
        for _ in range(random.choice((1, 1, 2, 5))):
            place = random.randint(4 if random.random() < 0.1 else min(start, len(body)), len(body))
            match random.randrange(4):
                case 0:
                    del body[place : place + random.randrange(10)]
                case 1:
                    body[place:place] = random.randbytes(random.randrange(10))
                case 2:
                    body[place : place + 4] = struct.pack(">i", random.choice((-1, 2**31 - 1, 0, -(2**31))))
                case _ if place < len(body):
                    body[place] = random.choice((0, 1, 0x7F, 0x80, 0xFF))

    def message(self, kind: type[Struct], version: int) -> Any:
        values = {
            field.name: self.value(kind, field, version)
            for field in kind.__fields__
            if version in field.versions and self.random.random() < 0.95
        }
        # A node that is told to leave its cluster, or to be another version, would do so.
        if kind is UnregisterBrokerRequest:
            values["broker_id"] = self.random.choice((0, 2, -1, 2**31 - 1))
        if kind is UpdateFeaturesRequest:
            values |= {"validate_only": True} if version >= 1 else {"feature_updates": []}
        return kind(**values)

    def value(self, owner: type[Struct], field: Field, version: int) -> Any:
        random = self.random
        if version in field.nullable and random.random() < 0.15:
            return None
        if field.is_array:
            return [self.one(owner, field, version) for _ in range(random.choice((0, 1, 1, 2, 3)))]
        return self.one(owner, field, version)

    def one(self, owner: type[Struct], field: Field, version: int) -> Any:
        random = self.random
        if not isinstance(field.type, Primitive):
            return self.message(field.type, version)
        if field.type is RECORDS:
            return self.records()
        match field.type.name:
            case "bool":
                return random.random() < 0.5
            case "string":
                return random.choice(WORDS)
            case "uuid":
                return random.choice([ZERO_UUID, random.randbytes(16), *self.topic_ids])
            case "float64":
                return random.random()
            case "bytes":
                return random.randbytes(random.randrange(50))
            case name:
                bits = int(name.lstrip("uint"))
                low, high = (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
                odd = random.choice((low, high, random.randint(low, high)))
                return (
                    odd if random.random() < 0.1 else max(low, random.choice((-1, 0, 0, 1, 1, 2, 3, 10, 100)))
                )

    def records(self) -> bytes:
        random = self.random
        records = [
            Record(0, 1_700_000_000_000, b"k" if random.random() < 0.8 else None, random.randbytes(10))
            for _ in range(random.randint(1, 4))
        ]
        batch = bytearray(
            build_batch(
                records,
                producer_id=random.choice((-1, -1, 0, 1000)),
                producer_epoch=random.choice((-1, 0)),
                base_sequence=random.choice((-1, 0, 5)),
                is_transactional=random.random() < 0.05,
                codec=random.choice((Codec.NONE, *Codec)),
            )
        )
        if random.random() < 0.4:
            batch[random.randrange(len(batch))] ^= random.randrange(1, 256)
            if random.random() < 0.7:
                stamp_crc(batch, len(batch))
        return bytes(batch)


async def send(world: World, frames: list[bytes]) -> int:
    """How many bytes came back before the node closed, or had no more to say."""
    stream: Stream = await world.client.network.connect(HOST, PORT)
    received = 0
    is_over = asyncio.Event()
    buffer = bytearray(65536)

    def on_readable() -> None:
        nonlocal received
        try:
            while count := stream.recv_into(buffer):
                received += count
            is_over.set()
        except BlockingIOError:
            pass
        except OSError:
            is_over.set()

    stream.watch_readable(on_readable)
    try:
        for frame in frames:
            left = memoryview(frame)
            while left and not is_over.is_set():
                try:
                    # In pieces, as networks do.
                    left = left[stream.send([left[: world.client.random.randrange(1, 5000)]]) :]
                except BlockingIOError:
                    await asyncio.sleep(0.01)
    except OSError:
        pass
    try:
        async with asyncio.timeout(world.client.random.choice((0.01, 0.5, 3))):
            await is_over.wait()
    except TimeoutError:
        pass
    stream.close()
    return received


async def serve_a_good_client(world: World, number: int) -> None:
    async with world.cluster(retry_timeout_s=1) as cluster:
        topic = f"good-{number}"
        configs = {"max.message.bytes": "100000", "min.insync.replicas": "1", "cleanup.policy": "delete"}
        await Admin(cluster).create_topic(
            NewTopic(name=topic, partitions=1, replication_factor=1, configs=configs)
        )
        await cluster.refresh([topic])
        await produce(world.client, cluster, topic, [Sent(b"%d" % number, partition=0)])
        fetcher = Fetcher(world.client, cluster)
        fetcher.assign({TopicPartition(topic, 0): 0})
        fetched = await fetcher.poll(5)
        assert fetched is not None
        assert [record.value for record in fetched.records] == [b"%d" % number]
        await fetcher.close()


@pytest.mark.parametrize("seed", seeds(4))
def test_any_frames(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = await world.start()
        await world.create_topic("events", 3)
        await world.create_topic("other")
        await world.create_topic("compacted", 3, cleanup_policy="compact")
        async with world.cluster() as cluster:
            await produce(world.client, cluster, "events", [Sent(b"x", b"key")] * 50)
            view = await Admin(cluster).describe_topics()
        chance = Chance(random, [bytes(topic.topic_id) for topic in view.topics.values()])
        received = 0
        for number in range(FRAMES_PER_SEED):
            frames = [chance.frame() for _ in range(random.choice((1, 1, 1, 4)))]
            received += await send(world, frames)
            surprises = [record.getMessage() for record in caplog.records if record.exc_info]
            assert not surprises, f"frames {[frame.hex() for frame in frames]}: {surprises}"
            if number % 25 == 24:
                await serve_a_good_client(world, number)
        assert received > 1000
        await asyncio.sleep(100)
        await serve_a_good_client(world, FRAMES_PER_SEED)
        assert not node.failed.is_set()
        assert not node.services.log_directories.offline
        await world.stop()
        await world.restart()
        await serve_a_good_client(world, FRAMES_PER_SEED + 1)

    random = Random(seed)
    caplog.set_level(logging.ERROR)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with World(seed, {"log.index.size.max.bytes": "4000"}) as world:
        world.run(main())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < MEMORY_KB_MAX
