"""Records and offsets, asked of Apache Kafka 4.3 and of Moldau alike: every code and every field is the same,
in every version, for what is in order and for what is not.

What is sent is sent to both in the same order, so offsets tell as well what either of them took. What Moldau
knowingly does otherwise (docs/compatibility.md) is not asked; the texts of errors are its own.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest

from bench.kafka import KafkaServer
from moldau.records.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CRC,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAGIC,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    stamp_crc,
)
from moldau.records.builder import assemble_batch, build_batch
from moldau.records.compression import Codec, compress
from moldau.records.record import Record, encode_record
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.schema import Message
from tests.support.beside import Pair, Peer
from tests.support.node import KEEP, MoldauNode

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(150),
    pytest.mark.xdist_group("beside kafka"),
]

HOUR_MS = 3_600_000
NOW_MS = int(time.time() * 1000)
PAST_MS = NOW_MS - 60_000
TEXTS = "error_message batch_index_error_message"
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "small": {"max.message.bytes": "300"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "compact": {"cleanup.policy": "compact"},
    "both": {"cleanup.policy": "compact,delete"},
    "bounded": {
        "message.timestamp.before.max.ms": str(HOUR_MS),
        "message.timestamp.after.max.ms": str(HOUR_MS),
    },
    "in-sync": {"min.insync.replicas": "2"},
    "zstd": {"compression.type": "zstd"},
    "gzip": {"compression.type": "gzip"},
    "uncompressed": {"compression.type": "uncompressed"},
}
PARTITIONS = 8
IDS: dict[Peer, dict[str, Uuid]] = {}

Made = Callable[[Peer, int], Message]
"""A request for a node, in a version: topics have names in the old ones, and ids of the node's own since."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[Pair]:
    root = tmp_path_factory.mktemp("data-beside")
    kafka = KafkaServer(root / "kafka", properties=KEEP)
    moldau = MoldauNode(root / "moldau", KEEP)
    kafka.launch()
    try:
        with moldau:
            kafka.wait_ready()
            with Pair(Peer(kafka.bootstrap, []), Peer(moldau.bootstrap, [])) as pair:
                created = [
                    CreatableTopic(
                        name=name,
                        num_partitions=PARTITIONS,
                        replication_factor=1,
                        configs=[
                            CreatableTopicConfig(name=key, value=value) for key, value in configs.items()
                        ],
                    )
                    for name, configs in TOPICS.items()
                ]
                for peer in pair:
                    peer.ask(CreateTopicsRequest(topics=created), 7)
                    IDS[peer] = {name: peer.topic_id(name) for name in TOPICS}
                for name in TOPICS:
                    assert pair.settled(offsets(name, [-1], range(PARTITIONS)), 7) == []
                yield pair
    finally:
        kafka.kill()


def differences(pair: Pair, request: Message | Made, version: int, ignoring: str = TEXTS) -> list[str]:
    asked = request if isinstance(request, Message) else partial(_made_for, request, version)
    return pair.differences(asked, [version], ignoring)


def _made_for(made: Made, version: int, peer: Peer) -> Message:
    return made(peer, version)


def check(pair: Pair, request: Message | Made, versions: Iterable[int], ignoring: str = TEXTS) -> None:
    assert [found for version in versions for found in differences(pair, request, version, ignoring)] == []


# ---------------------------------------------------------------- requests


def id_of(peer: Peer, topic: str) -> Uuid:
    return IDS[peer].get(topic, Uuid(b"nowhere to be id"))


def produce(
    topic: str, *records: tuple[int, bytes], acks: int = 1, transactional_id: str | None = None
) -> Made:
    def made(peer: Peer, version: int) -> ProduceRequest:
        partitions = [PartitionProduceData(index=index, records=batch) for index, batch in records]
        id = id_of(peer, topic) if version >= 13 else ZERO_UUID
        asked = TopicProduceData(name=topic, topic_id=id, partition_data=partitions)
        return ProduceRequest(
            acks=acks, timeout_ms=5000, topic_data=[asked], transactional_id=transactional_id
        )

    return made


def fetch(
    *places: tuple[str, int, int], epoch: int = -1, last_epoch: int = -1, size: int = 1 << 20, **fields
):
    def made(peer: Peer, version: int) -> FetchRequest:
        topics = [
            FetchTopic(
                topic=topic,
                topic_id=id_of(peer, topic) if version >= 13 else ZERO_UUID,
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        current_leader_epoch=epoch if version >= 9 else -1,
                        last_fetched_epoch=last_epoch if version >= 12 else -1,
                        partition_max_bytes=size,
                    )
                ],
            )
            for topic, index, offset in places
        ]
        values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics}
        return FetchRequest(**{**values, **fields})

    return made


def offsets(
    topic: str, timestamps: Iterable[int], partitions: Iterable[int] = (0,), **fields: Any
) -> ListOffsetsRequest:
    epoch = fields.pop("epoch", -1)
    asked = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
        for index in partitions
        for timestamp in timestamps
    ]
    return ListOffsetsRequest(
        **{"replica_id": -1, "topics": [ListOffsetsTopic(name=topic, partitions=asked)], **fields}
    )


def records(
    count: int = 3, *, key: bytes | None = b"key", size: int = 5, time_ms: int = PAST_MS, step: int = 1
) -> list[Record]:
    return [Record(0, time_ms + step * number, key, bytes(size)) for number in range(count)]


def altered(batch: bytes, *changes: tuple[int, str, int], checksum: int | None = None) -> bytes:
    """With other values at some places, each with its layout; the checksum is put right unless given."""
    changed = bytearray(batch)
    for place, layout, value in changes:
        struct.pack_into(layout, changed, place, value)
    stamp_crc(changed, len(changed))
    if checksum is not None:
        struct.pack_into(">I", changed, CRC, checksum)
    return bytes(changed)


def around(payload: bytes, count: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch that claims `count` records."""
    return assemble_batch(
        payload,
        base_offset=0,
        leader_epoch=-1,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=PAST_MS,
        max_timestamp=PAST_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


GOOD = build_batch(records())
ONE = build_batch(records(1))
RECORD = encode_record(0, 0, b"key", b"value")
NEXT_RECORD = encode_record(1, 0, b"key", b"value")
CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)

HEADERS = {
    "good": GOOD,
    "empty": b"",
    **{f"cut at {end}": GOOD[:end] for end in (1, 11, 12, 16, 17, 60, len(GOOD) - 1)},
    **{f"followed by {end} bytes": GOOD + ONE[:end] for end in (5, 17, len(ONE) - 1, len(ONE))},
    "followed by zeros": GOOD + bytes(20),
    **{
        f"followed by magic {magic}": GOOD + altered(ONE, (MAGIC, ">b", magic))[:30]
        for magic in (-1, 0, 1, 3)
    },
    **{f"magic {magic}": altered(GOOD, (MAGIC, ">b", magic)) for magic in (-1, 0, 1, 3)},
    "magic 1, too short": altered(GOOD, (MAGIC, ">b", 1), (LENGTH, ">i", 10)),
    **{f"length {length}": altered(GOOD, (LENGTH, ">i", length)) for length in (-1, 0, 13, 14, 30, 48, 49)},
    "base offset": altered(GOOD, (BASE_OFFSET, ">q", 5)),
    "base offset and checksum": altered(GOOD, (BASE_OFFSET, ">q", 5), checksum=1),
    "checksum": altered(GOOD, checksum=1),
    "leader epoch": altered(GOOD, (LEADER_EPOCH, ">i", 77)),
    **{f"count {count}": altered(GOOD, (RECORD_COUNT, ">i", count)) for count in (-1, 0, 2, 4)},
    **{f"delta {delta}": altered(GOOD, (LAST_OFFSET_DELTA, ">i", delta)) for delta in (-5, -1, 0, 2**31 - 1)},
    "no records": around(b"", 0),
    **{
        f"attributes {bits:#x}": altered(GOOD, (ATTRIBUTES, ">H", bits))
        for bits in (5, 7, 8, 0x20, 0x40, 0x80)
    },
    "type and no time": altered(GOOD, (ATTRIBUTES, ">H", 8), (MAX_TIMESTAMP, ">q", -1)),
    "type and the future": altered(GOOD, (ATTRIBUTES, ">H", 8), (MAX_TIMESTAMP, ">q", NOW_MS + 10 * HOUR_MS)),
    "no times": build_batch(records(time_ms=-1, step=0)),
    "long ago": build_batch(records(time_ms=NOW_MS - 10 * HOUR_MS)),
    "future": build_batch(records(time_ms=NOW_MS + 10 * HOUR_MS)),
    "partly future": build_batch(records(1) + records(1, time_ms=NOW_MS + 10 * HOUR_MS)),
    "backwards": build_batch(records(step=-1)),
    "keyless": build_batch(records(key=None)),
    "partly keyless": build_batch(records(2) + records(2, key=None)),
    "empty keys": build_batch(records(key=b"")),
    "keyless and future": build_batch(records(1, key=None) + records(1, time_ms=NOW_MS + 10 * HOUR_MS)),
    "large": build_batch(records(1, size=400)),
    "large and checksum": altered(build_batch(records(1, size=400)), checksum=1),
    "producer without sequence": altered(GOOD, (PRODUCER_ID, ">q", 5), (PRODUCER_EPOCH, ">h", 0)),
    "sequence without producer": altered(GOOD, (BASE_SEQUENCE, ">i", 5)),
    **{f"in {codec.name}": build_batch(records(20), codec=codec) for codec in CODECS},
}

BROKEN = {
    "header alone": around(b"", 1),
    "fewer": altered(GOOD, (RECORD_COUNT, ">i", 4), (LAST_OFFSET_DELTA, ">i", 3)),
    "more": altered(GOOD, (RECORD_COUNT, ">i", 2), (LAST_OFFSET_DELTA, ">i", 1)),
    "trailing byte": around(RECORD + b"\0", 1),
    "length 0": around(b"\0", 1),
    "length -1": around(b"\1", 1),
    "too long": around(b"\x7e" + RECORD[1:], 1),
    "too short": around(bytes([RECORD[0] - 2]) + RECORD[1:], 1),
    "headers -1": around(RECORD[:-1] + b"\1", 1),
    "headers 63": around(RECORD[:-1] + b"\x7e", 1),
}
for _codec in CODECS:
    _packed = compress(_codec, RECORD)
    _name = _codec.name
    BROKEN |= {
        f"{_name} of rubbish": around(b"\x55" * 40, 1, _codec),
        f"{_name} of nothing": around(compress(_codec, b""), 1, _codec),
        f"{_name} cut": around(compress(_codec, RECORD * 100)[:-6], 100, _codec),
        f"{_name} with a record too many": around(compress(_codec, RECORD + NEXT_RECORD), 1, _codec),
        f"{_name} with a record too few": around(_packed, 2, _codec),
        f"{_name} around rubbish": around(compress(_codec, b"\xff" * 30), 1, _codec),
        f"{_name} and more": around(_packed + b"\x11" * 40, 1, _codec),
        f"{_name} and a byte": around(_packed + b"\x11", 1, _codec),
    }
BROKEN |= {
    f"{codec.name} twice": around(compress(codec, RECORD) + compress(codec, NEXT_RECORD), 2, codec)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.ZSTD)
}


# ---------------------------------------------------------------- produce


@pytest.mark.parametrize(
    "topic", ["plain", "small", "append-time", "compact", "bounded", "gzip", "uncompressed"]
)
def test_batches_with_odd_headers(pair: Pair, topic: str) -> None:
    for name, batch in HEADERS.items():
        ignoring = TEXTS + (" log_append_time_ms" if topic == "append-time" else "")
        assert not differences(pair, produce(topic, (0, batch)), 13, ignoring), name
    check(pair, offsets(topic, [-1], [0]), [7])


@pytest.mark.parametrize("topic", ["compact", "bounded"])
def test_batches_with_broken_records(pair: Pair, topic: str) -> None:
    for name, batch in BROKEN.items():
        assert not differences(pair, produce(topic, (1, batch)), 13), name
    check(pair, offsets(topic, [-1], [1]), [7])


def test_whole_requests(pair: Pair) -> None:
    versions = range(3, 14)
    corrupt, keyless = HEADERS["checksum"], HEADERS["partly keyless"]
    for request in (
        produce("plain", (1, GOOD)),
        produce("plain", (1, GOOD), acks=-1),
        produce("plain", (1, GOOD), (2, corrupt), (77, GOOD), (3, b"")),
        produce("plain", (1, GOOD), (2, corrupt), (77, GOOD), (3, GOOD + GOOD), acks=2),
        produce("plain", (-1, GOOD)),
        produce("nobody", (0, GOOD)),
        produce("compact", (2, keyless)),
        produce("plain", (1, HEADERS["in ZSTD"])),
        produce("in-sync", (0, GOOD), acks=-1),
        produce("plain", (1, GOOD), transactional_id="id"),
        produce("plain", (1, altered(GOOD, (ATTRIBUTES, ">H", 0x10)))),
    ):
        check(pair, request, versions)


def test_idempotent_producers(pair: Pair) -> None:
    last = 2**31 - 1
    for producer_id, epoch, sequence, count in (
        *((10, 0, sequence, 1) for sequence in (0, 0, 5, *range(1, 8), *range(8))),
        *((10, 0, *rest) for rest in ((6, 2), (7, 2), (5, 5), (8, 4), (9, 2))),
        *(
            (10, *rest)
            for rest in ((-1, 0, 1), (1, 3, 1), (1, 0, 1), (0, 12, 1), (0, 8, 4), (1, 0, 1), (9, 0, 1))
        ),
        *((11, 0, sequence, 1) for sequence in (7, 8, 0)),
        *((12, 0, *rest) for rest in ((last - 1, 2), (0, 2), (last - 1, 2))),
        *((13, 0, *rest) for rest in ((last - 1, 4), (2, 1), (last - 1, 4), (last, 1))),
        *((14, *rest) for rest in ((-1, 0, 1), (-1, 0, 1), (-1, 9, 1), (0, 4, 1))),
    ):
        batch = build_batch(
            records(count), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        check(pair, produce("plain", (4, batch)), [13])


def test_producer_ids(pair: Pair) -> None:
    for fields in (
        {"transaction_timeout_ms": 60_000},
        {"transaction_timeout_ms": 0},
        {"transaction_timeout_ms": 60_000, "transactional_id": ""},
    ):
        check(pair, InitProducerIdRequest(**fields), range(6), "producer_id")
    for fields in ({"producer_id": 5, "producer_epoch": 3}, {"producer_id": 5}, {"producer_epoch": 5}):
        check(
            pair, InitProducerIdRequest(transaction_timeout_ms=60_000, **fields), range(3, 6), "producer_id"
        )


# ---------------------------------------------------------------- fetch and offsets


@pytest.fixture(scope="module")
def filled(pair: Pair) -> Pair:
    """Twenty records in partition 5 of `plain`, of every codec and of times that rise and fall; ten in 6."""
    for codec, time_ms, step, count in (
        (Codec.NONE, 0, 10, 5),
        (Codec.GZIP, 100, 10, 5),
        (Codec.LZ4, 50, 0, 3),
        (Codec.ZSTD, 500, -20, 4),
        (Codec.SNAPPY, 400, 1, 2),
        (Codec.NONE, 300, 0, 1),
    ):
        batch = build_batch(records(count, time_ms=PAST_MS + time_ms, step=step), codec=codec)
        check(pair, produce("plain", (5, batch)), [13])
    for _ in range(5):
        check(pair, produce("plain", (6, build_batch(records(2, step=0)))), [13])
    return pair


def test_fetches(filled: Pair) -> None:
    place = "plain", 5, 0
    requests = [fetch(("plain", 5, offset)) for offset in (0, 3, 5, 19, 20, 21, -1, 2**63 - 1)]
    requests += [fetch(place, isolation_level=level) for level in (1, 2, -1)]
    requests += [fetch(place, size=size) for size in (-1, 0, 10)]
    requests += [fetch(place, max_bytes=size) for size in (-1, 0, 150)]
    requests += [fetch(("plain", 5, 20), max_wait_ms=20_000, min_bytes=size) for size in (0, -1)]
    requests += [
        fetch(place, max_wait_ms=20_000, min_bytes=100_000, max_bytes=120),
        fetch(("nobody", 0, 0)),
        fetch(("plain", 77, 0)),
        fetch(place, ("nobody", 0, 0), ("compact", 77, 0)),
        fetch(place, ("bounded", 7, 50), ("compact", 7, 0), max_bytes=150),
        fetch(),
    ]
    requests += [fetch(place, epoch=epoch) for epoch in (0, 1, 50)]
    requests += [
        fetch(("plain", 5, offset), last_epoch=epoch) for epoch in (0, 1, 5) for offset in (0, 3, 20, 25, -1)
    ]
    for request in requests:
        check(filled, request, range(4, 19))


def test_topics_in_zstd_take_a_version_that_knows_it(pair: Pair) -> None:
    check(pair, produce("zstd", (7, GOOD)), [13])
    check(pair, fetch(("zstd", 7, 0)), range(4, 19), "records")


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_sessions(filled: Pair, version: int) -> None:
    sessions = dict.fromkeys(filled, 0)

    def step(epoch: int, *places: tuple[str, int, int], forget: Iterable[int] = (), **fields: Any) -> None:
        answers = []
        for peer in filled:
            forgotten = [
                ForgottenTopic(
                    topic="plain",
                    topic_id=id_of(peer, "plain") if version >= 13 else ZERO_UUID,
                    partitions=list(forget),
                )
            ]
            made = fetch(
                *places,
                session_id=sessions[peer],
                session_epoch=epoch,
                forgotten_topics_data=forgotten if forget else [],
                **fields,
            )
            response = peer.ask(made(peer, version), version)
            sessions[peer] = response.session_id or sessions[peer]
            response.session_id = bool(response.session_id)
            answers.append(peer.plain(response))
        assert answers[0] == answers[1], (epoch, places)

    one, other = ("plain", 5, 0), ("plain", 6, 0)
    step(0, one, other)
    step(1)
    step(2, ("plain", 5, 20))
    step(3, ("plain", 6, 10))
    step(4)
    step(5, max_wait_ms=50)
    step(6, ("plain", 7, 0))
    step(7, ("compact", 77, 0))
    step(8)
    step(9, ("nobody", 0, 0))
    step(10)
    step(11, ("plain", 7, 5))
    step(12, ("plain", 7, 0))
    step(13)
    step(3)
    step(14, one, other, max_bytes=100)
    step(15, max_bytes=100)
    step(16, forget=[6, 7])
    step(-1, one)
    step(1)
    step(0)
    step(1, one)
    step(-5)


def test_offsets(filled: Pair) -> None:
    times = [0, *(PAST_MS + time for time in (0, 1, 41, 95, 140, 141, 399, 401, 480, 500, 501)), 2**63 - 1]
    for version in range(1, 12):
        for timestamp in (*range(-1, -8, -1), *times):
            for partition in (5, 6, 7):
                for level in (0, 1) if version >= 2 else (0,):
                    request = offsets("plain", [timestamp], [partition], isolation_level=level)
                    check(filled, request, [version])
        for timestamp in (-1, -3, -9):
            check(filled, offsets("nobody", [timestamp]), [version])
            check(filled, offsets("plain", [timestamp], [77]), [version])
        for replica in (-2, -3, 0, 5):
            check(filled, offsets("plain", [-1], [5], replica_id=replica), [version])
        check(filled, offsets("plain", [-1, -2], [5, 6]), [version])
    for epoch in (0, 1, -2, 9):
        for timestamp in (-1, -2, -4, -5, -6, PAST_MS):
            check(filled, offsets("plain", [timestamp], [5], epoch=epoch), [11])
    check(filled, offsets("plain", [-1], [5], isolation_level=2), range(2, 12))


def test_ends_of_epochs(filled: Pair) -> None:
    for topic, index in (("plain", 5), ("plain", 7), ("plain", 77), ("nobody", 0)):
        for current in (-2, -1, 0, 1):
            for epoch in (-2, -1, 0, 1, 99):
                asked = OffsetForLeaderPartition(
                    partition=index, current_leader_epoch=current, leader_epoch=epoch
                )
                topics = [OffsetForLeaderTopic(topic=topic, partitions=[asked])]
                check(filled, OffsetForLeaderEpochRequest(topics=topics), range(2, 5))


def test_records_are_deleted(pair: Pair) -> None:
    def delete(*places: tuple[str, int, int]) -> DeleteRecordsRequest:
        topics = [
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)]
            )
            for topic, index, offset in places
        ]
        return DeleteRecordsRequest(timeout_ms=5000, topics=topics)

    for producer_id in range(4):
        batch = build_batch(records(), producer_id=40 + producer_id, producer_epoch=0, base_sequence=0)
        check(pair, produce("both", (3, batch)), [13])
    for offset in (2, 1, 0, 100, -2, 4):
        check(pair, delete(("both", 3, offset)), range(3))
        for asked in range(6):
            check(pair, fetch(("both", 3, asked)), [13])
            check(pair, fetch(("both", 3, asked), last_epoch=5), [13])
        for timestamp in (-1, -2, -3, -4, 0, PAST_MS, PAST_MS + 1, PAST_MS + 2):
            check(pair, offsets("both", [timestamp], [3]), [8])
    for producer_id, sequence in ((40, 5), (42, 5), (41, 0)):
        batch = build_batch(records(), producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        check(pair, produce("both", (3, batch)), [13])
    check(pair, delete(("nobody", 0, 0), ("plain", 77, 0), ("compact", 0, 0), ("both", 3, -1)), range(3))
    check(pair, offsets("both", [-2], [3]), [8])
    check(pair, produce("both", (3, HEADERS["base offset"]), (4, HEADERS["checksum"])), [13])
