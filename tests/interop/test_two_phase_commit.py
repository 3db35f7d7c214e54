"""Two-phase commit (KIP-939) from end to end: what a producer has prepared waits through a crash of the
broker for the decision of an outside coordinator, which its successor carries out.
"""

from __future__ import annotations

import confluent_kafka
import pytest

import moldau
from moldau import testing
from moldau.client.producing.operations import PreparedTransaction
from tests.support.clients import TIMEOUT_S

pytestmark = [pytest.mark.interop, pytest.mark.timeout(90)]

OPTIONS = {"transaction.two.phase.commit.enable": "true"}
TOPIC = "decided-elsewhere"
ANOTHER = PreparedTransaction(4711, 0)


def producer_of(node: testing.Node) -> moldau.Producer:
    options = {"transactional.id": "two-phase", "transaction.two.phase.commit.enable": True}
    return moldau.Producer({"bootstrap.servers": node.bootstrap, **options})


def committed(node: testing.Node) -> list[bytes | None]:
    """All that there is to read below the last stable offset."""
    options = {"isolation.level": "read_committed", "group.id": "none", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": node.bootstrap, **options})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    values = []
    try:
        while (message := consumer.poll(TIMEOUT_S)) is not None:
            failure = message.error()
            if failure is None:
                values.append(message.value())
                continue
            assert failure.code() == confluent_kafka.KafkaError._PARTITION_EOF, failure
            return values
    finally:
        consumer.close()
    raise AssertionError("the end of the partition was not reached")


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_was_prepared_is_decided_after_a_crash(is_commit: bool) -> None:
    with testing.node(options=OPTIONS) as node:
        node.create_topic(TOPIC)
        predecessor = producer_of(node)
        predecessor.start()
        try:
            predecessor.init_transactions()
            predecessor.begin_transaction()
            predecessor.send(TOPIC, b"prepared", partition=0)
            prepared = predecessor.prepare_transaction()
            assert committed(node) == []
            node.kill()
            node.restart()
            with producer_of(node) as successor:
                successor.init_transactions(keep_prepared=True)
                assert committed(node) == []
                successor.complete_transaction(prepared if is_commit else ANOTHER)
                assert committed(node) == ([b"prepared"] if is_commit else [])
                with successor.transaction():
                    successor.send(TOPIC, b"next", partition=0)
            assert committed(node)[-1] == b"next"
        finally:
            predecessor.close()
