"""Hand-packed frames against the declared messages, and their batches against another reader."""

import pytest
from kafka.record import MemoryRecords

from bench import frames
from moldau.wire.codec import Struct, decode_whole, encode
from moldau.wire.headers import read_request_header
from moldau.wire.messages import create_topics, delete_topics, fetch, metadata, produce

TOPIC = "a-topic"
FLEXIBLE_FROM = dict.fromkeys(
    (frames.PRODUCE, frames.FETCH, frames.METADATA, frames.CREATE_TOPICS, frames.DELETE_TOPICS), 0
)


def read(frame: bytes, message: type[Struct]):
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = read_request_header(frame[4:], FLEXIBLE_FROM)
    assert header.client_id == frames.CLIENT_ID
    return header.api_key, decode_whole(message, header.api_version, frame[4 + header.body_position :])


def answer(message: Struct, version: int) -> bytes:
    """A payload as a socket gives it: correlation id, no tags, body."""
    return bytes(4) + b"\0" + bytes(encode(message, version))


@pytest.mark.parametrize("size", [0, 70, 20_000])
def test_batches_hold_their_values(size: int):
    values = [b"x" * size, b"", b"y"]
    records = MemoryRecords(frames.batch(values, 1_700_000_000_000))
    batch = records.next_batch()
    assert batch.validate_crc()
    assert [(record.offset, record.timestamp, record.key, record.value) for record in batch] == [
        (offset, 1_700_000_000_000, None, value) for offset, value in enumerate(values)
    ]
    assert not records.has_next()


@pytest.mark.parametrize("count", [1, 200])
def test_produce(count: int):
    batch = frames.batch([b"x" * 100] * count, 0)
    key, request = read(frames.produce(TOPIC, batch, acks=-1, partition=3), produce.ProduceRequest)
    assert (key, request.acks, request.transactional_id) == (0, -1, None)
    ((topic,), (partition,)) = request.topic_data, request.topic_data[0].partition_data
    assert (topic.name, partition.index, bytes(partition.records)) == (TOPIC, 3, batch)


@pytest.mark.parametrize("code", [0, 3, -1])
def test_produce_error(code: int):
    partition = produce.PartitionProduceResponse(index=3, error_code=code, base_offset=7)
    topic = produce.TopicProduceResponse(name=TOPIC, partition_responses=[partition])
    payload = answer(produce.ProduceResponse(responses=[topic]), frames.PRODUCE_VERSION)
    assert frames.produce_error(payload, TOPIC) == code


def test_fetch():
    frame = frames.fetch(TOPIC, 42, max_wait_ms=10, min_bytes=2, max_bytes=3, partition=4)
    key, request = read(frame, fetch.FetchRequest)
    assert (key, request.max_wait_ms, request.min_bytes, request.max_bytes) == (1, 10, 2, 3)
    assert (request.session_id, request.session_epoch) == (0, -1)
    ((topic,), (partition,)) = request.topics, request.topics[0].partitions
    assert (topic.topic, partition.partition, partition.fetch_offset) == (TOPIC, 4, 42)
    assert partition.partition_max_bytes == 3


@pytest.mark.parametrize("aborted", [None, [], [fetch.AbortedTransaction(producer_id=1, first_offset=2)] * 3])
def test_fetched(aborted: list[fetch.AbortedTransaction] | None):
    stored = frames.batch([b"a", b"b"], 0) + frames.batch([b"c" * 300], 0)
    partition = fetch.PartitionData(
        partition_index=0, high_watermark=9, aborted_transactions=aborted, records=stored + b"cut"
    )
    topic = fetch.FetchableTopicResponse(topic=TOPIC, partitions=[partition])
    payload = answer(fetch.FetchResponse(responses=[topic]), frames.FETCH_VERSION)
    got = frames.fetched(payload, TOPIC)
    assert (got.error_code, got.high_watermark, bytes(got.records)) == (0, 9, stored + b"cut")
    assert b"".join(bytes(batch) for _, _, batch in frames.batches(got.records)) == stored
    assert [last for _, last, _ in frames.batches(got.records)] == [1, 0]


@pytest.mark.parametrize("code", [1, 6])
def test_fetch_error(code: int):
    partition = fetch.PartitionData(partition_index=0, error_code=code, high_watermark=-1)
    topic = fetch.FetchableTopicResponse(topic=TOPIC, partitions=[partition])
    payload = answer(fetch.FetchResponse(responses=[topic]), frames.FETCH_VERSION)
    assert frames.fetched(payload, TOPIC).error_code == code
    assert payload[(at := frames.fetch_error_at(TOPIC)) : at + 2] == code.to_bytes(2, "big")
    assert frames.fetched(answer(fetch.FetchResponse(error_code=code), 12), TOPIC).error_code == code


def test_metadata_request():
    key, request = read(frames.metadata(TOPIC, create=True), metadata.MetadataRequest)
    assert (key, [topic.name for topic in request.topics]) == (3, [TOPIC])
    assert request.allow_auto_topic_creation
    _, request = read(frames.metadata(None), metadata.MetadataRequest)
    assert (request.topics, request.allow_auto_topic_creation) == ([], False)


def test_described():
    broker = metadata.MetadataResponseBroker(node_id=5, host="a.host", port=9092, rack="r")
    partition = metadata.MetadataResponsePartition(
        partition_index=0, leader_id=5, replica_nodes=[5], isr_nodes=[5]
    )
    topic = metadata.MetadataResponseTopic(name=TOPIC, partitions=[partition])

    def said(**fields: object) -> frames.Described:
        message = metadata.MetadataResponse(cluster_id="c", controller_id=5, **fields)
        return frames.described(answer(message, frames.METADATA_VERSION))

    assert said(brokers=[broker] * 2, topics=[topic]) == frames.Described(brokers=2, error_code=0, leader=5)
    assert said(brokers=[], topics=[]) == frames.Described(brokers=0, error_code=0, leader=-1)
    unknown = metadata.MetadataResponseTopic(name=TOPIC, error_code=3)
    assert said(brokers=[broker], topics=[unknown]).error_code == 3


def test_delete_topic():
    key, request = read(frames.delete_topic(TOPIC), delete_topics.DeleteTopicsRequest)
    assert (key, request.topic_names) == (20, [TOPIC])
    result = delete_topics.DeletableTopicResult(name=TOPIC, error_code=29, error_message="no")
    payload = answer(delete_topics.DeleteTopicsResponse(responses=[result]), frames.DELETE_TOPICS_VERSION)
    assert frames.delete_topic_error(payload, TOPIC) == 29


def test_create_topic():
    key, request = read(frames.create_topic(TOPIC, 200), create_topics.CreateTopicsRequest)
    assert (key, request.timeout_ms, request.validate_only) == (19, 30_000, False)
    assert request.topics == [
        create_topics.CreatableTopic(name=TOPIC, num_partitions=200, replication_factor=1)
    ]
    result = create_topics.CreatableTopicResult(name=TOPIC, topic_id=bytes(16), error_code=36)
    payload = answer(create_topics.CreateTopicsResponse(topics=[result]), frames.CREATE_TOPICS_VERSION)
    assert frames.create_topic_error(payload, TOPIC) == 36
