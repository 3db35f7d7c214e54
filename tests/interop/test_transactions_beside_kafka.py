"""Stories of transactional producers, told to Apache Kafka 4.3 and to Moldau alike: every answer is the
same, and so are the records of them in `__transaction_state` and the markers in the partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.list_transactions import ListTransactionsRequest
from tests.support.transaction_stories import Nodes, Story, two_nodes

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(150),
    pytest.mark.xdist_group("beside kafka"),
]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[Nodes]:
    with two_nodes(tmp_path_factory.mktemp("two")) as running:
        yield running


def ask_everything(story: Story, name: str) -> None:
    """What changes nothing, or is refused, for who is and who is not the producer."""
    story.show()
    for version in range(4):
        story.add("nobody", 0, version=version)
        story.add(f"{name}-1", 0, version=version)
        story.add(name, 0, 7, version=version)
        story.add(name, 0, version=version, topic="nowhere")
    for version in (4, 5):
        for each in (name, f"{name}-1", f"{name}--1", "nobody"):
            story.add_as_broker(each, 0, 1, verify=True, version=version)
        story.add_as_broker("nobody", 0, version=version)
        story.add_as_broker(f"{name}-1", 0, version=version)
    for version in range(5):
        story.add_offsets("nobody", version=version)
        story.add_offsets(f"{name}--1", version=version)
    for version in range(6):
        for commit in (True, False):
            story.end("nobody", commit=commit, version=version)
            story.end(f"{name}--1", commit=commit, version=version)
            story.end(f"{name}-2", commit=commit, version=version)
    for version in range(3, 6):
        story.init("mallory", expected="nobody", version=version)


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_transactions_with_a_lasting_epoch(two: Nodes, transaction_version: int, commit: bool) -> None:
    with two.begin(transaction_version) as story:
        story.init()
        ask_everything(story, "alice")
        story.add("alice", 0)
        ask_everything(story, "alice")
        story.add("alice", 0, 2)
        story.add_offsets("alice")
        story.show()
        story.end("alice", commit=commit, version=4)
        story.show()
        for version in range(5):
            story.end("alice", commit=commit, version=version)
            story.end("alice", commit=not commit, version=version)
        ask_everything(story, "alice")
        story.add("alice", 1)
        story.end("alice", commit=not commit, version=0)
        story.init("bob", expected="alice")
        story.init("bob", expected="alice")
        story.show()
        for version in range(5):
            story.end("bob", commit=commit, version=version)
        story.init("carol")
        story.init("bob", expected="bob", version=3)
        story.init("bob", expected="bob")


@pytest.mark.parametrize("transaction_version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_transactions_with_epochs_of_their_own(two: Nodes, transaction_version: int, commit: bool) -> None:
    with two.begin(transaction_version) as story:
        story.init()
        story.end("alice", commit=True)
        story.end("alice", commit=False, by="bob")  # nothing was written, perhaps
        story.show()
        ask_everything(story, "bob")
        story.add_as_broker("bob", 0, 1)
        ask_everything(story, "bob")
        story.show()
        story.end("bob", commit=commit, by="carol")
        story.show()
        for each in ("bob", "carol"):
            story.end(each, commit=True)
        story.end("bob", commit=commit)
        story.end("bob", commit=not commit)
        ask_everything(story, "carol")
        story.add_as_broker("carol", 2)
        story.end("carol", commit=not commit, by="dave")
        story.end("carol", commit=not commit)
        story.end("dave", commit=False, by="erin")
        story.end("dave", commit=False)
        story.init("frank", expected="erin")
        story.init("frank", expected="erin")
        story.add_as_broker("frank", 1)
        story.end("frank", version=4)
        story.show()


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_producer_takes_over_from_another(two: Nodes, transaction_version: int) -> None:
    with two.begin(transaction_version) as story:
        story.init()
        story.add("alice", 0, 1)
        story.init("bob")
        story.show()
        story.add("alice", 2)
        story.end("alice", version=4)
        story.init("alice", expected="alice")
        story.init("bob")
        story.show()
        story.add("bob", 1)
        story.init("carol", expected="bob")
        story.init("carol", expected="bob")
        story.end("bob", version=4)
        story.end("bob")
        story.show()


@pytest.mark.parametrize("transaction_version", [0, 2])
def test_a_transaction_runs_out_of_time(two: Nodes, transaction_version: int) -> None:
    with two.begin(transaction_version) as story:
        story.init(transaction_timeout_ms=100)
        story.add("alice", 0)
        story.wait_for("CompleteAbort")
        if transaction_version:
            ask_everything(story, "alice")
            story.end("alice", commit=False)
        story.end("alice", commit=True, version=4)
        story.init("bob", expected="alice")
        story.init("bob")


def test_records_of_version_0_have_no_place_for_epochs_of_their_own(two: Nodes) -> None:
    """Kafka answers so as well, and from then on that the transaction is busy: nothing can come after it."""
    with two.begin(0) as story:
        story.init()
        story.end("alice", commit=False)


def test_a_two_phase_transaction_has_no_timeout(two: Nodes) -> None:
    with two.begin() as story:
        story.init(version=6, enable2_pc=True, transaction_timeout_ms=-5)
        story.show()
        story.add_as_broker("alice", 0)
        story.show()
        story.end("alice", by="bob")
        story.init("carol", version=6)
        story.init("carol", version=6, expected="carol", enable2_pc=True)


def test_what_no_producer_should_ask(two: Nodes) -> None:
    with two.begin() as story:
        for version in range(6):
            for timeout_ms in (0, -1, 900_001):
                story.init(version=version, transaction_timeout_ms=timeout_ms)
            request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1)
            story.ask(request, version)
        for version in range(3, 6):
            for producer_id, epoch in ((5, -1), (-1, 5)):
                request = InitProducerIdRequest(
                    transactional_id=story.transactional_id,
                    transaction_timeout_ms=1,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                )
                story.ask(request, version)
        story.init("bob", expected="nobody")
        story.show()


def test_transactions_are_listed(two: Nodes) -> None:
    with two.begin() as story:
        story.init()
        story.add("alice", 0)
        mine = story.transactional_id
        for version in range(3):
            for states in ([], ["Ongoing"], ["Empty", "PrepareEpochFence"], ["Dead", "Sleeping"]):
                for duration_ms in (-1, 0, 3_600_000) if version else (-1,):
                    for pattern in (
                        (mine, f"{mine[:-1]}.", mine[:-1], "(", "[^\\pL]+") if version > 1 else (None,)
                    ):
                        request = ListTransactionsRequest(
                            state_filters=states,
                            duration_filter=duration_ms,
                            transactional_id_pattern=pattern,
                        )
                        story.ask(request, version)
        story.end("alice")
