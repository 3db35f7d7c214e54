"""Produce: what an Apache Kafka 4.3 node answered to requests that are not as they should be."""

from __future__ import annotations

import tracemalloc

import pytest

from moldau.records.batch import HEADER_BYTES, LENGTH, LOG_OVERHEAD, stamp_crc
from moldau.records.builder import build_batch
from moldau.records.compression import DECOMPRESSED_BYTES_MAX, Codec
from moldau.records.record import Record
from moldau.wire.errors import ErrorCode as E
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.server.sim_node import SimNode

ATTRIBUTES, BASE_OFFSET = 22, 7  # the low bytes of both


def batch(
    codec: Codec = Codec.NONE, keys: tuple[bytes | None, ...] = (b"key",), **producer: int
) -> bytearray:
    return bytearray(build_batch([Record(0, 1, key, b"value") for key in keys], codec=codec, **producer))


def altered(place: int, value: int, **producer: int) -> bytes:
    changed = batch(**producer)
    changed[place] = value
    stamp_crc(changed, len(changed))
    return bytes(changed)


GOOD = bytes(batch())
TRANSACTIONAL = altered(ATTRIBUTES, 0x10, producer_id=5, producer_epoch=0, base_sequence=0)


def produce(
    node: SimNode,
    records: bytes | None,
    version: int = 13,
    *,
    topic: str = "t",
    partition: int = 0,
    acks: int = 1,
    transactional_id: str | None = None,
) -> tuple[int, int, int]:
    """Error code, base offset and log start offset."""
    known = node.services.replicas.get(topic, 0)
    asked = TopicProduceData(
        name=topic if version < 13 else "",
        topic_id=ZERO_UUID if version < 13 else Uuid(known.topic_id if known else b"?" * 16),
        partition_data=[PartitionProduceData(index=partition, records=records)],
    )
    request = ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[asked], transactional_id=transactional_id
    )
    ((result,),) = (each.partition_responses for each in node.send(request, version).responses)
    return result.error_code, result.base_offset, result.log_start_offset


@pytest.fixture
def topic(node: SimNode) -> SimNode:
    """Whose log starts at 2."""
    node.create_topic("t")
    node.produce("t", [1, 2, 3])
    node.services.replicas.get("t", 0).log.delete_records_before(2)
    return node


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_is_served(topic: SimNode, version: int) -> None:
    start = 2 if version >= 5 else -1
    assert produce(topic, GOOD, version) == (E.NONE, 3, start)
    assert produce(topic, GOOD, version, acks=-1) == (E.NONE, 4, start)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, E.INVALID_RECORD),
        (b"", E.INVALID_RECORD),
        (GOOD[:-1], E.INVALID_RECORD),
        (GOOD + GOOD, E.INVALID_RECORD),
        (GOOD + bytes(20), E.CORRUPT_MESSAGE),
        (altered(16, 1), E.INVALID_RECORD),
        (altered(16, 3), E.CORRUPT_MESSAGE),
        (GOOD[:-1] + b"x", E.CORRUPT_MESSAGE),
    ],
    ids=["null", "empty", "torn", "two", "zeros behind", "magic 1", "magic 3", "checksum"],
)
def test_what_is_not_one_batch_never_gets_to_the_log(topic: SimNode, records: bytes, code: E) -> None:
    assert produce(topic, records) == (code, -1, -1)
    assert topic.partition("t").failed_produce_requests == 0


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (altered(BASE_OFFSET, 1), E.INVALID_RECORD),
        (altered(ATTRIBUTES, 0x20), E.INVALID_RECORD),
        (altered(ATTRIBUTES, 0x05), E.UNKNOWN_SERVER_ERROR),
    ],
    ids=["base offset", "control", "codec"],
)
def test_what_the_log_refuses_is_answered_with_its_start(topic: SimNode, records: bytes, code: E) -> None:
    assert produce(topic, records) == (code, -1, 2)
    assert topic.partition("t").failed_produce_requests == 1


@pytest.mark.parametrize("acks", [2, -2])
def test_acks_that_are_none_come_after_what_else_is_wrong(topic: SimNode, acks: int) -> None:
    assert produce(topic, GOOD, acks=acks) == (E.INVALID_REQUIRED_ACKS, -1, -1)
    assert produce(topic, GOOD + GOOD, acks=acks) == (E.INVALID_RECORD, -1, -1)
    assert produce(topic, GOOD, acks=acks, partition=9) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert produce(topic, GOOD, acks=acks, topic="other") == (E.UNKNOWN_TOPIC_ID, -1, -1)


@pytest.mark.parametrize(("version", "code"), [(3, 76), (6, 76), (7, 0), (13, 0)])
def test_zstd_takes_a_version_that_knows_it(topic: SimNode, version: int, code: int) -> None:
    assert produce(topic, bytes(batch(Codec.ZSTD)), version)[0] == code


def test_transactional_batches_open_no_transaction(topic: SimNode) -> None:
    no_producer = altered(ATTRIBUTES, 0x10)
    for records in (TRANSACTIONAL, no_producer):
        assert produce(topic, records) == (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1)
    assert produce(topic, TRANSACTIONAL, transactional_id="id")[0] == E.NOT_ENOUGH_REPLICAS
    assert produce(topic, GOOD, transactional_id="id") == (E.NONE, 3, 2)
    log = topic.partition("t").log
    assert log is not None
    assert log.last_stable_offset == log.high_watermark == 4


def test_acks_of_all_are_no_more_than_there_are_replicas(node: SimNode) -> None:
    node.create_topic("t", min_insync_replicas="2")
    assert produce(node, GOOD, acks=-1) == (E.NONE, 0, 0)
    partition = node.partition("t")
    partition.become_leader(1, partition.leader_epoch, 1, 2)
    assert produce(node, GOOD, acks=-1)[0] == E.NOT_ENOUGH_REPLICAS
    assert produce(node, GOOD, acks=1) == (E.NONE, 1, 0)


def test_keyless_records_are_named(node: SimNode) -> None:
    node.create_topic("t", cleanup_policy="compact")
    partition = node.partition("t")
    asked = PartitionProduceData(index=0, records=bytes(batch(keys=(b"a", None, b"b", None))))
    topic_data = TopicProduceData(topic_id=Uuid(partition.topic_id), partition_data=[asked])
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic_data])
    (result,) = node.send(request, 13).responses[0].partition_responses
    assert result.error_code == E.INVALID_RECORD
    assert [error.batch_index for error in result.record_errors] == [1, 3]
    assert result.log_start_offset == 0


ZSTD_RUN = ((128 << 10) << 3 | 1 << 1).to_bytes(3, "little") + b"z"  # of 128 KB, in four bytes
ZSTD_END = (1 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"z"


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.ZSTD, bytes.fromhex("28b52ffd0058") + ZSTD_RUN * 8192 + ZSTD_END),
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\xfe\x01\x00" * 1000),
    ],
)
def test_what_would_take_a_gigabyte_takes_no_more_than_the_bound(
    node: SimNode, codec: Codec, packed: bytes
) -> None:
    node.create_topic("t", cleanup_policy="compact")
    bomb = altered(ATTRIBUTES, codec)[:HEADER_BYTES] + packed
    bomb = altered_length(bomb)
    tracemalloc.start()
    assert produce(node, bomb)[0] == E.MESSAGE_TOO_LARGE
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < DECOMPRESSED_BYTES_MAX * 1.1


def altered_length(records: bytes) -> bytes:
    changed = bytearray(records)
    changed[LENGTH : LENGTH + 4] = (len(changed) - LOG_OVERHEAD).to_bytes(4, "big")
    stamp_crc(changed, len(changed))
    return bytes(changed)


def test_a_failure_without_acks_is_the_end_of_the_connection(topic: SimNode) -> None:
    asked = TopicProduceData(name="other", partition_data=[PartitionProduceData(index=0, records=GOOD)])
    assert topic.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[asked]), 7) is None
