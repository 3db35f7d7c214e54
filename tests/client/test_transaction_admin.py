"""Transactions of a cluster of two brokers: coordinators know of ids, leaders of what is open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.cluster import Cluster, TopicPartition, parse_addresses
from moldau.client.hanging import OpenTransaction, find_hanging, hanging
from moldau.client.transaction_admin import ActiveProducer, TransactionAdmin, TransactionDescription
from moldau.sim.runtime import SimRuntime
from moldau.sim.simulation import Simulation
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages import find_coordinator, metadata
from moldau.wire.schema import Message
from tests.client.fake_broker import FakeBroker
from tests.client.fake_transactions import FakeProducer, FakeTransaction, FakeTransactions

Scenario = Callable[["Two", TransactionAdmin], Awaitable[None]]
NOW_MS = 1_000_000
PLACES = [TopicPartition("orders", index) for index in range(3)]


class Two:
    """Node 1 coordinates `done`, node 2 `busy`. Node 1 leads orders-0 and orders-2, node 2 orders-1."""

    def __init__(self, simulation: Simulation) -> None:
        self.brokers = [FakeBroker(simulation.host(host), host=host) for host in ("one", "two")]
        self.one, self.two = (
            FakeTransactions(broker, node_id=number) for number, broker in enumerate(self.brokers, 1)
        )
        self.one.transactions["done"] = FakeTransaction(10, state="CompleteCommit")
        self.two.transactions["busy"] = FakeTransaction(
            11, state="Ongoing", started_ms=5, partitions={"orders": [1, 0]}
        )
        for broker in self.brokers:
            broker.add_topic("orders", 3)
            broker.overrides[ApiKey.METADATA] = self.metadata
            broker.overrides[ApiKey.FIND_COORDINATOR] = self.coordinators

    def metadata(self, request: metadata.MetadataRequest) -> Message:
        topics = [self.brokers[0]._topic_metadata(topic.name or "") for topic in request.topics or ()]
        for topic in topics:
            for partition in topic.partitions:
                partition.leader_id = 2 if partition.partition_index == 1 else 1
        return metadata.MetadataResponse(
            brokers=[
                metadata.MetadataResponseBroker(node_id=number, host=broker.host, port=broker.port)
                for number, broker in enumerate(self.brokers, 1)
            ],
            controller_id=1,
            topics=topics,
        )

    def coordinators(self, request: find_coordinator.FindCoordinatorRequest) -> Message:
        return find_coordinator.FindCoordinatorResponse(
            coordinators=[
                (self.two if key == "busy" else self.one).coordinator(key) for key in request.coordinator_keys
            ]
        )


def simulate(scenario: Scenario) -> None:
    with Simulation(seed=1) as simulation:
        two = Two(simulation)

        async def main() -> None:
            runtime: SimRuntime = simulation.host("client")
            async with Cluster(runtime, parse_addresses("one:9092")) as cluster:
                await scenario(two, TransactionAdmin(cluster))

        simulation.run(main())


def test_those_of_all_coordinators_are_listed() -> None:
    async def scenario(two: Two, transactions: TransactionAdmin) -> None:
        two.two.passing = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        found = await transactions.list_transactions()
        assert [(each.transactional_id, each.coordinator, each.state) for each in found] == [
            ("busy", 2, "Ongoing"),
            ("done", 1, "CompleteCommit"),
        ]
        # Who has answered is not asked again.
        assert [len(broker.asked(ApiKey.LIST_TRANSACTIONS)) for broker in two.brokers] == [1, 2]

    simulate(scenario)


def test_an_id_is_described_by_its_coordinator() -> None:
    async def scenario(two: Two, transactions: TransactionAdmin) -> None:
        two.two.passing = [ErrorCode.NOT_COORDINATOR]
        (found,) = (await transactions.describe(["busy"])).values()
        assert found == TransactionDescription(
            transactional_id="busy",
            coordinator=2,
            state="Ongoing",
            producer_id=11,
            producer_epoch=0,
            timeout_ms=60_000,
            start_time_ms=5,
            partitions=(PLACES[0], PLACES[1]),
        )
        (lost,) = (await transactions.describe(["lost"])).values()
        assert isinstance(lost, KafkaError) and lost.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    simulate(scenario)


def test_producers_are_told_by_leaders_and_partitions_fail_alone() -> None:
    async def scenario(two: Two, transactions: TransactionAdmin) -> None:
        two.one.producers["orders", 0] = [FakeProducer(12, 7), FakeProducer(10, 8, transaction_start=3)]
        two.one.passing = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        two.two.passing = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        nowhere = TopicPartition("nowhere", 0)
        found = await transactions.describe_producers([*PLACES, nowhere])
        assert list(found) == [*PLACES, nowhere]
        assert found[PLACES[0]] == [
            ActiveProducer(
                producer_id=producer_id,
                producer_epoch=0,
                last_sequence=5,
                last_timestamp=timestamp,
                coordinator_epoch=None,
                transaction_start=start,
            )
            for producer_id, timestamp, start in ((10, 8, 3), (12, 7, None))
        ]
        assert found[PLACES[2]] == []
        codes = {place: each.code for place, each in found.items() if isinstance(each, KafkaError)}
        assert codes == {
            PLACES[1]: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            nowhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    simulate(scenario)


def test_a_replica_that_is_not_there_is_told_at_once() -> None:
    async def scenario(two: Two, transactions: TransactionAdmin) -> None:
        two.two.passing = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        (found,) = (await transactions.describe_producers([PLACES[0]], node_id=2)).values()
        assert isinstance(found, KafkaError) and found.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert two.brokers[0].asked(ApiKey.DESCRIBE_PRODUCERS) == []

    simulate(scenario)


def test_a_question_about_many_partitions_is_asked_in_parts() -> None:
    async def scenario(two: Two, transactions: TransactionAdmin) -> None:
        two.brokers[0].topics["orders"].logs.extend(bytearray() for _ in range(1098))
        places = [TopicPartition("orders", index) for index in range(1101)]
        assert len(await transactions.describe_producers(places)) == 1101
        sizes = [
            sum(len(topic.partition_indexes) for topic in asked.topics)
            for asked in two.brokers[0].asked(ApiKey.DESCRIBE_PRODUCERS)
        ]
        assert sizes == [500, 500, 100]

    simulate(scenario)


def test_a_transaction_is_terminated_by_taking_its_id_over() -> None:
    async def scenario(two: Two, transactions: TransactionAdmin) -> None:
        two.two.passing = [ErrorCode.CONCURRENT_TRANSACTIONS]
        await transactions.force_terminate("busy")
        (first, again) = two.brokers[1].asked(ApiKey.INIT_PRODUCER_ID)
        assert (first.transactional_id, first.producer_id, first.producer_epoch) == ("busy", -1, -1)
        assert not first.enable2_pc and not first.keep_prepared_txn
        assert again == first and two.two.transactions["busy"].state == "Empty"
        two.two.passing = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await transactions.force_terminate("busy")

    simulate(scenario)


def test_a_marker_is_written_by_the_leader() -> None:
    async def scenario(two: Two, transactions: TransactionAdmin) -> None:
        two.two.producers["orders", 1] = [FakeProducer(99, 0, transaction_start=4)]
        two.two.passing = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await transactions.abort(PLACES[1], producer_id=99, producer_epoch=3, coordinator_epoch=6)
        (marker,) = two.brokers[1].asked(ApiKey.WRITE_TXN_MARKERS)[-1].markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (99, 3, 6)
        assert not marker.transaction_result
        # The epoch need not have grown, as it has to when a coordinator of version 2 ends a transaction.
        assert marker.transaction_version == 0
        two.two.passing = [ErrorCode.INVALID_PRODUCER_EPOCH]
        with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
            await transactions.abort(PLACES[1], producer_id=99, producer_epoch=0, coordinator_epoch=6)

    simulate(scenario)


# ---------------------------------------------------------------- hanging


def test_what_nobody_will_end_is_found() -> None:
    async def scenario(two: Two, transactions: TransactionAdmin) -> None:
        old, new = NOW_MS - 1001, NOW_MS - 1000
        two.one.producers = {
            ("orders", 0): [FakeProducer(11, old, 5), FakeProducer(70, old, 9), FakeProducer(71, new, 9)],
            ("orders", 2): [FakeProducer(10, old, 2), FakeProducer(11, old, 1), FakeProducer(72, old)],
        }
        found, failures = await find_hanging(transactions, PLACES, now_ms=NOW_MS, timeout_ms=1000)
        # 11 is busy with orders-0 but not with orders-2, 10 has ended what it had, and nobody knows 70.
        assert [(each.place.partition, each.producer.producer_id, each.start_offset) for each in found] == [
            (0, 70, 9),
            (2, 10, 2),
            (2, 11, 1),
        ]
        assert failures == {}

    simulate(scenario)


def test_what_ends_meanwhile_does_not_hang() -> None:
    async def scenario(two: Two, transactions: TransactionAdmin) -> None:
        producer = FakeProducer(10, 0, transaction_start=2)
        two.one.producers["orders", 0] = [producer]
        answer = two.brokers[0].overrides[ApiKey.LIST_TRANSACTIONS]

        def end_first(request: Message) -> object:
            producer.transaction_start = -1
            return answer(request)

        two.brokers[0].overrides[ApiKey.LIST_TRANSACTIONS] = end_first  # type: ignore[assignment]
        assert await find_hanging(transactions, PLACES, now_ms=NOW_MS, timeout_ms=0) == ([], {})

    simulate(scenario)


@given(
    st.dictionaries(st.integers(0, 5), st.one_of(st.none(), st.frozensets(st.sampled_from(PLACES)))),
    st.lists(st.tuples(st.sampled_from(PLACES), st.integers(0, 5)), unique=True),
)
def test_only_a_coordinator_that_knows_the_partition_will_end_it(
    known: dict[int, frozenset[TopicPartition] | None], opened: list[tuple[TopicPartition, int]]
) -> None:
    described = {
        producer_id: None
        if places is None
        else TransactionDescription(
            transactional_id=str(producer_id),
            coordinator=1,
            state="Ongoing",
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=1,
            start_time_ms=0,
            partitions=tuple(places),
        )
        for producer_id, places in known.items()
    }
    suspects = [
        OpenTransaction(
            place=place,
            producer=ActiveProducer(
                producer_id=producer_id,
                producer_epoch=0,
                last_sequence=0,
                last_timestamp=0,
                coordinator_epoch=None,
                transaction_start=0,
            ),
        )
        for place, producer_id in opened
    ]
    found = {(each.place, each.producer.producer_id) for each in hanging(suspects, described)}
    assert found == {(place, number) for place, number in opened if place not in (known.get(number) or ())}
