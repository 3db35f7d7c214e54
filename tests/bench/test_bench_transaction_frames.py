"""Hand-packed frames of transactions against the declared messages."""

import pytest

from bench import transaction_frames
from bench.transaction_frames import Producer
from moldau.records.batch import check_crc, parse_header
from moldau.records.record import read_records
from moldau.wire.messages import end_txn, find_coordinator, init_producer_id, produce, txn_offset_commit
from tests.bench.test_bench_group_frames import answer, read

ID, TOPIC, GROUP, PRODUCER = "an-id", "a-topic", "a-group", Producer(1 << 40, 32_000)


def test_find_coordinator():
    request = read(transaction_frames.find_coordinator(ID), find_coordinator.FindCoordinatorRequest)
    assert (request.key, request.key_type) == (ID, 1)
    payload = answer(find_coordinator.FindCoordinatorResponse(error_code=15), 3)
    assert transaction_frames.first_error(payload) == 15


def test_init_producer_id():
    request = read(transaction_frames.init_producer_id(ID), init_producer_id.InitProducerIdRequest)
    assert request == init_producer_id.InitProducerIdRequest(
        transactional_id=ID, transaction_timeout_ms=60_000
    )
    response = init_producer_id.InitProducerIdResponse(producer_id=PRODUCER.id, producer_epoch=PRODUCER.epoch)
    payload = answer(response, transaction_frames.INIT_PRODUCER_ID_VERSION)
    assert transaction_frames.first_error(payload) == 0
    assert transaction_frames.producer_of(payload) == PRODUCER


@pytest.mark.parametrize("committed", [True, False])
def test_end(committed: bool):
    request = read(transaction_frames.end(ID, PRODUCER, committed), end_txn.EndTxnRequest)
    assert request == end_txn.EndTxnRequest(
        transactional_id=ID, producer_id=PRODUCER.id, producer_epoch=PRODUCER.epoch, committed=committed
    )
    response = end_txn.EndTxnResponse(error_code=51, producer_id=PRODUCER.id, producer_epoch=PRODUCER.epoch)
    payload = answer(response, transaction_frames.END_TXN_VERSION)
    assert transaction_frames.first_error(payload) == 51
    assert transaction_frames.producer_of(payload) == PRODUCER


def test_produce():
    batch = transaction_frames.transactional_batch([b"a", b"b"], 5)
    transaction_frames.stamp(batch, PRODUCER)
    request = read(transaction_frames.produce(ID, TOPIC, [batch] * 5), produce.ProduceRequest)
    assert (request.transactional_id, request.acks) == (ID, -1)
    (topic,) = request.topic_data
    assert (topic.name, [data.index for data in topic.partition_data]) == (TOPIC, [0, 1, 2, 3, 4])
    for data in topic.partition_data:
        records = bytes(data.records or b"")
        header = parse_header(records)
        check_crc(records, header)
        assert header.is_transactional and not header.is_control
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*PRODUCER, 0)
        assert [record.value for record in read_records(records)] == [b"a", b"b"]


@pytest.mark.parametrize("codes", [(0, 0, 0), (0, 51, 0), (6, 51, 0), (0, 0, -1)])
def test_produce_error(codes: tuple[int, ...]):
    partitions = [
        produce.PartitionProduceResponse(index=index, error_code=code, error_message=None)
        for index, code in enumerate(codes)
    ]
    response = produce.ProduceResponse(
        responses=[produce.TopicProduceResponse(name=TOPIC, partition_responses=partitions)]
    )
    payload = answer(response, transaction_frames.PRODUCE_VERSION)
    found = transaction_frames.produce_error(payload, TOPIC, len(codes))
    assert found == next((code for code in codes if code), 0)


@pytest.mark.parametrize("code", [0, 51])
def test_offset_commit(code: int):
    frame = transaction_frames.offset_commit(ID, PRODUCER, GROUP, TOPIC, 3, 42)
    request = read(frame, txn_offset_commit.TxnOffsetCommitRequest)
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=3, committed_offset=42, committed_metadata=""
    )
    assert request == txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id=GROUP,
        producer_id=PRODUCER.id,
        producer_epoch=PRODUCER.epoch,
        topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    answered = txn_offset_commit.TxnOffsetCommitResponsePartition(partition_index=3, error_code=code)
    topic = txn_offset_commit.TxnOffsetCommitResponseTopic(name=TOPIC, partitions=[answered])
    payload = answer(
        txn_offset_commit.TxnOffsetCommitResponse(topics=[topic]),
        transaction_frames.TXN_OFFSET_COMMIT_VERSION,
    )
    assert transaction_frames.offset_commit_error(payload, TOPIC) == code
