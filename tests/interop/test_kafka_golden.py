"""Moldau on data directories that Apache Kafka 4.3 wrote: after a clean stop, and after it was killed.

Not marked: the archive is small, no Java is needed, and what it holds must never break unnoticed.
`tools/make_golden.py` makes it.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from time import monotonic

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from moldau.wire.errors import ErrorCode
from moldau.wire.messages.describe_transactions import DescribeTransactionsRequest
from tests.support.beside import Peer
from tests.support.clients import CLIENTS, TIMEOUT_S, Confluent, Record
from tests.support.node import KEEP, MoldauNode
from tests.support.transactors import TRANSACTORS
from tools.make_golden import ARCHIVE, TOPICS, as_json, describe

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_records_topics_and_options_are_those_that_kafka_told(tmp_path: Path, ending: str):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    expected = json.loads((tmp_path / f"expected-{ending}.json").read_text())
    with MoldauNode(tmp_path / ending, KEEP) as node:
        check(node.bootstrap, expected)
        more = [Record(b"key", b"by Moldau")]
        end = expected["records"]["plain-1/read_uncommitted"][-1][0] + 1
        assert Confluent().write(node.bootstrap, "plain", more, partition=1, idempotent=True) == [end]
        for isolation in ("read_uncommitted", "read_committed"):
            expected["records"][f"plain-1/{isolation}"].append(as_json(end, more[0]))
        node.restart()
        check(node.bootstrap, expected)
    assert node.errors.read_text() == ""


@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_a_transactional_producer_goes_on(tmp_path: Path, ending: str):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    with MoldauNode(tmp_path / ending, KEEP) as node:
        peer = Peer(node.bootstrap, ())
        describe_it = DescribeTransactionsRequest(transactional_ids=["golden"])
        deadline = monotonic() + TIMEOUT_S
        while (found := peer.ask(describe_it, 0).transaction_states[0]).error_code:
            assert found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and monotonic() < deadline
        assert (found.transaction_state, found.topics) == ("CompleteAbort", [])
        before = Confluent().read(node.bootstrap, "txn", isolation="read_committed")
        producer = Confluent().producer(node.bootstrap, transactional_id="golden")
        producer.init_transactions(TIMEOUT_S)
        for value in (b"left out", b"by Moldau"):
            producer.begin_transaction()
            producer.produce("txn", value)
            producer.flush(TIMEOUT_S)
            if value == b"by Moldau":
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
        after = Confluent().read(node.bootstrap, "txn", isolation="read_committed")
        assert after[:-1] == before
        assert after[-1][1].value == b"by Moldau"
        again = peer.ask(describe_it, 0).transaction_states[0]
        assert (again.transaction_state, again.producer_id) == ("CompleteCommit", found.producer_id)
        assert again.producer_epoch > found.producer_epoch
        peer.close()


def check(bootstrap: str, expected) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    cluster = admin.list_topics(timeout=TIMEOUT_S)
    assert cluster.cluster_id == expected["cluster_id"]
    assert {
        name: len(topic.partitions) for name, topic in cluster.topics.items() if not name.startswith("__")
    } == expected["topics"]
    assert describe(bootstrap) == expected["configs"]
    for name, records in expected["records"].items():
        where, isolation = name.split("/")
        topic, partition = where.rsplit("-", 1)
        found = Confluent().read(bootstrap, topic, partition=int(partition), isolation=isolation)
        assert [as_json(*entry) for entry in found] == records, name


@pytest.mark.interop
@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_reads_transactions_and_compacted_topics(tmp_path: Path, client: str):
    """And who has the transactional id that Kafka knew goes on."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    expected = json.loads((tmp_path / "expected-killed.json").read_text())["records"]
    with MoldauNode(tmp_path / "killed", KEEP) as node:

        def check_all() -> None:
            for where in ("txn-0", "compacted-0"):
                for isolation in ("read_uncommitted", "read_committed"):
                    topic, partition = where.rsplit("-", 1)
                    found = CLIENTS[client].read(
                        node.bootstrap, topic, partition=int(partition), isolation=isolation
                    )
                    assert [as_json(*entry) for entry in found] == expected[f"{where}/{isolation}"]

        check_all()
        end = expected["txn-0/read_uncommitted"][-1][0] + 1
        producer = TRANSACTORS[client](node.bootstrap, "golden")
        for commits in (True, False):
            producer.begin()
            producer.send(("txn", 0), b"committed by Moldau" if commits else b"aborted by Moldau")
            (producer.commit if commits else producer.abort)()
        producer.close()
        # A producer that takes the id gets it when every marker of its predecessor is written.
        TRANSACTORS[client](node.bootstrap, "golden").close()
        found = CLIENTS[client].read(node.bootstrap, "txn", isolation="read_committed")
        assert [(offset, record.value) for offset, record in found if offset >= end] == [
            (end, b"committed by Moldau")
        ]


def test_options_are_all_there_is_of_a_topic(tmp_path: Path):
    """Everything that is not a topic's own comes from Moldau's defaults, and none of it reads as set."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    with MoldauNode(tmp_path / "clean", KEEP) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for name, (_, config) in TOPICS.items():
            (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
            own = {
                option: entry.value
                for option, entry in described.result(TIMEOUT_S).items()
                if entry.source == 1  # DYNAMIC_TOPIC_CONFIG
            }
            assert own == config
