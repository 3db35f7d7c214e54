"""Transactions in every state that lasts, made on any cluster by a client of another project.

`hang` leaves a transaction behind that no coordinator knows: records of a transactional producer, sent past
the client. A broker takes them only with `transaction.partition.verification.enable=false`, as before 3.6.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.beside import Peer
from tests.support.clients import TIMEOUT_S

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
_BY_NAME_VERSION = 11


def create_topics(bootstrap: str, **partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, count, 1) for name, count in partitions.items()]
    for made in admin.create_topics(topics).values():
        made.result(TIMEOUT_S)


def producer(bootstrap: str, transactional_id: str) -> Producer:
    """One that has its producer id."""
    found = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
        }
    )
    deadline = monotonic() + TIMEOUT_S
    while True:
        try:
            found.init_transactions(TIMEOUT_S)
            return found
        except KafkaException as error:  # the topic of transactions is being made
            if not error.args[0].retriable() or monotonic() > deadline:
                raise


def begin(running: Producer, places: Iterable[tuple[str, int]], count: int = 3) -> None:
    """A transaction with `count` records in each of the partitions, all of which have arrived."""
    running.begin_transaction()
    for topic, partition in places:
        for number in range(count):
            running.produce(topic, b"%d" % number, partition=partition)
    assert running.flush(TIMEOUT_S) == 0


def send_offsets(running: Producer, group: str, topic: str, offset: int) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": group})
    running.send_offsets_to_transaction(
        [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), TIMEOUT_S
    )
    consumer.close()


def hang(bootstrap: str, topic: str, partition: int, *, producer_id: int, timestamp: int) -> None:
    """Two records of a transaction that no coordinator knows."""
    batch = build_batch(
        [Record(0, timestamp, None, b"a"), Record(1, timestamp, None, b"b")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    peer = Peer(bootstrap, [])
    request = ProduceRequest(
        transactional_id=f"of-{producer_id}",
        acks=-1,
        timeout_ms=TIMEOUT_S * 1000,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
            )
        ],
    )
    answer = peer.ask(request, _BY_NAME_VERSION)
    peer.close()
    assert not isinstance(answer, str)
    (told,) = answer.responses[0].partition_responses  # type: ignore[attr-defined]
    assert told.error_code == 0, told
