"""Frames of transactions, packed by hand as those of `bench.frames` are, and by the same rules.

They are those of transaction.version 2, as Kafka's clients send them since 4.0: what is written to belongs to
the transaction without being added to it first, and each end gives the producer its next epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from bench.frames import PRODUCE, batch, compact, frame, uvarint
from bench.group_frames import FIND_COORDINATOR, FIND_COORDINATOR_VERSION

INIT_PRODUCER_ID, END_TXN, TXN_OFFSET_COMMIT = 22, 26, 28
PRODUCE_VERSION, INIT_PRODUCER_ID_VERSION, END_TXN_VERSION, TXN_OFFSET_COMMIT_VERSION = 12, 4, 5, 5
CONCURRENT_TRANSACTIONS = 51

# Behind correlation id, tags and throttle time.
_FIRST_AT = 4 + 1 + 4
_TRANSACTIONAL = 0x10
_ATTRIBUTES_AT, _PRODUCER_AT, _CRC_AT, _CRC_FROM = 21, 43, 17, 21
_PARTITION_ANSWER_BYTES = 4 + 2 + 8 + 8 + 8 + 1 + 1 + 1


class Producer(NamedTuple):
    id: int
    epoch: int


def find_coordinator(transactional_id: str) -> bytes:
    return frame(FIND_COORDINATOR, FIND_COORDINATOR_VERSION, compact(transactional_id.encode()) + b"\1\0")


def init_producer_id(transactional_id: str) -> bytes:
    body = compact(transactional_id.encode()) + struct.pack(">iqh", 60_000, -1, -1) + b"\0"
    return frame(INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, body)


def end(transactional_id: str, producer: Producer, committed: bool = True) -> bytes:
    body = compact(transactional_id.encode()) + struct.pack(">qh?", *producer, committed) + b"\0"
    return frame(END_TXN, END_TXN_VERSION, body)


def offset_commit(
    transactional_id: str, producer: Producer, group: str, topic: str, partition: int, offset: int
) -> bytes:
    """As of a consumer that assigns itself its partitions."""
    body = compact(transactional_id.encode()) + compact(group.encode())
    body += struct.pack(">qhi", *producer, -1) + compact(b"") + b"\0"
    body += b"\2" + compact(topic.encode()) + b"\2" + struct.pack(">iqi", partition, offset, -1) + b"\1\0"
    return frame(TXN_OFFSET_COMMIT, TXN_OFFSET_COMMIT_VERSION, body + b"\0\0")


def transactional_batch(values: Sequence[bytes], timestamp_ms: int) -> bytearray:
    """The first of its producer's epoch in a partition; whose it is, is stamped on it later."""
    made = bytearray(batch(values, timestamp_ms))
    made[_ATTRIBUTES_AT + 1] |= _TRANSACTIONAL
    return made


def stamp(batch: bytearray, producer: Producer) -> None:
    struct.pack_into(">qhi", batch, _PRODUCER_AT, *producer, 0)
    struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[_CRC_FROM:]))


def produce(transactional_id: str, topic: str, batches: Sequence[bytes | bytearray]) -> bytes:
    """A batch to each of the first partitions."""
    body = compact(transactional_id.encode()) + struct.pack(">hi", -1, 30_000)
    body += b"\2" + compact(topic.encode()) + uvarint(len(batches) + 1)
    for partition, each in enumerate(batches):
        body += struct.pack(">i", partition) + compact(bytes(each)) + b"\0"
    return frame(PRODUCE, PRODUCE_VERSION, body + b"\0\0")


def produce_error(payload: bytes | bytearray, topic: str, partitions: int) -> int:
    """The first error of an answer about so many partitions."""
    at = 4 + 1 + 1 + len(compact(topic.encode())) + 1 + 4
    for _ in range(partitions):
        error = int.from_bytes(payload[at : at + 2], "big", signed=True)
        if error:
            return error
        at += _PARTITION_ANSWER_BYTES
    return 0


def first_error(payload: bytes | bytearray) -> int:
    """Of FindCoordinator, InitProducerId and EndTxn."""
    return int.from_bytes(payload[_FIRST_AT : _FIRST_AT + 2], "big", signed=True)


def producer_of(payload: bytes | bytearray) -> Producer:
    """Whom InitProducerId or EndTxn, which went well, has made of the producer."""
    return Producer._make(struct.unpack_from(">qh", payload, _FIRST_AT + 2))


def offset_commit_error(payload: bytes | bytearray, topic: str) -> int:
    at = _FIRST_AT + 1 + len(compact(topic.encode())) + 1 + 4
    return int.from_bytes(payload[at : at + 2], "big", signed=True)
