"""A transactional producer on a node whose power goes at any operation of its disk.

Every message is synced, so that what was acknowledged is durable. What has to hold after the restart, and
after the producer has begun anew: each transaction is there whole or not at all, in both partitions and in
the offsets of the group; it is there if its commit was acknowledged, and not if it was aborted; and nothing
is left that nobody has decided about.
"""

from __future__ import annotations

import asyncio

import pytest

from moldau.client.connection import Connection
from moldau.records.batch import iterate_headers
from moldau.records.builder import build_batch
from moldau.records.record import Record, read_records
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from moldau.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.sim_node.seeds import seeds
from tests.sim_node.world import CrashedWhileStarting, World

ID, GROUP, TOPIC = "tx", "group", "t"
OPTIONS = {
    "log.flush.interval.messages": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.index.size.max.bytes": "4096",
}
TRANSACTIONS = 3
IS_COMMITTED = (True, False, True)
STRIDE = 6
"""A seed takes every sixth operation."""


class Refused(Exception):
    pass


class TxnProducer:
    """Of transaction version 2: it tells no coordinator about partitions and offsets."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._id = self._epoch = -1
        self._sequences = {0: 0, 1: 0}

    async def begin_anew(self) -> None:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
        response = await self._connection.request(request, InitProducerIdResponse, version=5)
        check(response.error_code)
        self._id, self._epoch = response.producer_id, response.producer_epoch

    async def produce(self, index: int, value: bytes) -> None:
        batch = build_batch(
            [Record(0, 1_700_000_000_000, b"key", value)],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[index],
            is_transactional=True,
        )
        self._sequences[index] += 1
        partition = PartitionProduceData(index=index, records=batch)
        request = ProduceRequest(
            transactional_id=ID,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[partition])],
        )
        response = await self._connection.request(request, ProduceResponse, version=12)
        check(response.responses[0].partition_responses[0].error_code)

    async def commit_offset(self, offset: int) -> None:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id=GROUP,
            producer_id=self._id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        response = await self._connection.request(request, TxnOffsetCommitResponse, version=5)
        check(response.topics[0].partitions[0].error_code)

    async def end(self, *, is_committed: bool) -> None:
        request = EndTxnRequest(
            transactional_id=ID, producer_id=self._id, producer_epoch=self._epoch, committed=is_committed
        )
        response = await self._connection.request(request, EndTxnResponse, version=5)
        check(response.error_code)
        self._id, self._epoch = response.producer_id, response.producer_epoch
        self._sequences = {0: 0, 1: 0}


def check(code: int) -> None:
    if code:
        raise Refused(ErrorCode(code))


async def transact(producer: TxnProducer) -> tuple[int, int]:
    """How many transactions were to be ended, and how many of these ends were acknowledged."""
    asked = done = 0
    try:
        for number in range(TRANSACTIONS):
            for index in (0, 1):
                await producer.produce(index, b"%d" % number)
            await producer.commit_offset(100 + number)
            asked += 1
            await producer.end(is_committed=IS_COMMITTED[number])
            done += 1
    except KafkaError:
        pass  # the connection is gone
    return asked, done


async def coordinators(connection: Connection) -> None:
    for key, key_type in ((GROUP, 0), (ID, 1)):
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        while (await connection.request(request, FindCoordinatorResponse, version=3)).error_code:
            await asyncio.sleep(0.1)


async def begun(connection: Connection) -> TxnProducer:
    producer = TxnProducer(connection)
    for _ in range(100):
        try:
            await producer.begin_anew()
            return producer
        except Refused:
            await asyncio.sleep(0.1)  # it is loading, or still writes markers
    raise AssertionError("the producer does not get an id")


async def committed_values(connection: Connection, index: int) -> list[int]:
    partition = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=1,
        topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
    )
    (topic,) = (await connection.request(request, FetchResponse, version=12)).responses
    (found,) = topic.partitions
    assert found.last_stable_offset == found.high_watermark, "something is not decided"
    waiting = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or ())
    data = memoryview(found.records or b"")
    skipped: set[int] = set()
    values = []
    for position, header in iterate_headers(data):
        while waiting and waiting[0][0] <= header.base_offset:
            skipped.add(waiting.pop(0)[1])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif header.producer_id not in skipped:
            values += [int(each.value or b"") for each in read_records(data[position:])][
                : header.record_count
            ]
    return values


async def committed_offset(connection: Connection) -> int:
    topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
    request = OffsetFetchRequest(groups=[group], require_stable=True)
    for _ in range(100):
        response = await connection.request(request, OffsetFetchResponse, version=8)
        if not response.groups[0].error_code:
            (found,) = response.groups[0].topics[0].partitions
            assert not found.error_code, ErrorCode(found.error_code)
            return found.committed_offset
        await asyncio.sleep(0.1)
    raise AssertionError("the group is not loaded")


async def run(world: World, cut: int) -> bool:
    """Whether the power went before the end of the story."""
    await world.start()
    await world.create_topic(TOPIC, 2)
    connection = await world.connect()
    await coordinators(connection)
    producer = await begun(connection)
    await asyncio.sleep(1)
    faults = world.disk.faults
    faults.power_cut_at(faults.count + cut)
    asked, acknowledged = await transact(producer)
    await asyncio.sleep(1)  # for the markers
    connection.close()
    was_cut = not world.runtime.is_alive
    faults.stop_failing()
    if was_cut:
        while True:
            try:
                await world.restart()
                break
            except CrashedWhileStarting:
                continue
    connection = await world.connect()
    await begun(connection)
    await asyncio.sleep(1)
    found = [await committed_values(connection, index) for index in (0, 1)]
    assert found[0] == found[1]
    sure = [number for number in range(acknowledged) if IS_COMMITTED[number]]
    maybe = [number for number in range(asked) if IS_COMMITTED[number]]
    assert found[0] in (sure, maybe)
    assert await committed_offset(connection) == (100 + found[0][-1] if found[0] else -1)
    connection.close()
    await world.stop()
    return was_cut


@pytest.mark.parametrize("seed", seeds(STRIDE))
def test_transactions_are_whole_wherever_the_power_goes(seed: int) -> None:
    cut = 1 + seed % STRIDE
    while True:
        with World(seed, OPTIONS) as world:
            try:
                if not world.run(run(world, cut), within_s=600):
                    break
            except Exception as error:
                error.add_note(f"with the power cut at operation {cut}")
                raise
        cut += STRIDE
    assert cut > 5 * STRIDE
