"""What a transaction coordinator answers, and what it does to partitions when transactions end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.coordinator.decision import Waiter
from moldau.coordinator.placement import partition_of
from moldau.log.errors import LogDirError
from moldau.records.batch import iterate_headers
from moldau.records.control import read_end_txn_marker
from moldau.records.record import read_records
from moldau.wire.errors import ErrorCode as E
from moldau.wire.errors import KafkaError
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.wire.messages.api_versions import ApiVersionsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.wire.messages.describe_transactions import DescribeTransactionsRequest
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.list_transactions import ListTransactionsRequest
from tests.server.sim_node import ONE_REPLICA, SimNode

ID = "payments"
OPTIONS = {
    **ONE_REPLICA,
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "3",
}


def started(**properties: str) -> SimNode:
    node = SimNode(**OPTIONS, **properties)
    find_coordinator(node)
    node.create_topic("t", 3)
    return node


@pytest.fixture
def node() -> Iterator[SimNode]:
    with started() as node:
        yield node


def find_coordinator(node: SimNode) -> None:
    for _ in range(10):
        if not node.call(FindCoordinatorRequest(key=ID, key_type=1), 3).error_code:
            return
        node.run(asyncio.sleep(1))
    raise AssertionError("there is no coordinator")


def ask(node: SimNode, request: Any, version: int) -> Any:
    answer = node.call(request, version)
    if isinstance(answer, Waiter):
        node.run(asyncio.sleep(1))
        return answer.result()
    return answer


def init(node: SimNode, version: int = 5, **fields: Any) -> Any:
    """Producer id and epoch, or an error code."""
    request = InitProducerIdRequest(**{"transactional_id": ID, "transaction_timeout_ms": 60_000, **fields})
    response = ask(node, request, version)
    if response.error_code:
        assert (response.producer_id, response.producer_epoch) == (-1, -1)
        return E(response.error_code)
    return response.producer_id, response.producer_epoch


def add(node: SimNode, producer: tuple[int, int], *partitions: tuple[str, int], version: int = 3) -> Any:
    """The codes of partitions; one if all are alike."""
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=topics,
    )
    results = ask(node, request, version).results_by_topic_v3_and_below
    codes = [each.partition_error_code for topic in results for each in topic.results_by_partition]
    return codes[0] if len({*codes}) == 1 else codes


def add_as_broker(
    node: SimNode, producer: tuple[int, int], *partitions: tuple[str, int], verify: bool, version: int = 5
) -> list[int]:
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=ID,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=verify,
                topics=[AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions],
            )
        ]
    )
    response = ask(node, request, version)
    (result,) = response.results_by_transaction
    assert (response.error_code, result.transactional_id) == (0, ID)
    return [
        each.partition_error_code for topic in result.topic_results for each in topic.results_by_partition
    ]


def end(node: SimNode, producer: tuple[int, int], *, commit: bool = True, version: int = 5) -> Any:
    request = EndTxnRequest(
        transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], committed=commit
    )
    response = ask(node, request, version)
    if response.error_code:
        return E(response.error_code)
    return (response.producer_id, response.producer_epoch) if version >= 5 else None


def describe(node: SimNode, transactional_id: str = ID) -> Any:
    response = ask(node, DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
    (state,) = response.transaction_states
    return state


def markers(node: SimNode, topic: str, index: int = 0) -> list[tuple[int, int, str, int]]:
    """Producer id and epoch, what it says, and the coordinator's epoch."""
    log = node.partition(topic, index).log
    assert log is not None
    found = log.read(0, 1 << 20, limit=log.log_end_offset)
    data = memoryview(found.file.read_at(found.count, found.position))
    result = []
    for position, header in iterate_headers(data):
        if header.is_control:
            (record,) = read_records(data[position : position + header.size])
            marker = read_end_txn_marker(record)
            result.append(
                (header.producer_id, header.producer_epoch, marker.type.name, marker.coordinator_epoch)
            )
    return result


# ------------------------------------------------------------ a transaction


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_with_a_lasting_epoch(node: SimNode, commit: bool) -> None:
    producer = init(node)
    assert add(node, producer, ("t", 0), ("t", 2)) == 0
    state = describe(node)
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert [(each.topic, each.partitions) for each in state.topics] == [("t", [0, 2])]
    assert end(node, producer, commit=commit, version=4) is None
    marker = (*producer, "COMMIT" if commit else "ABORT", 0)
    assert [markers(node, "t", index) for index in range(3)] == [[marker], [], [marker]]
    state = describe(node)
    assert state.transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert (state.topics, state.producer_id, state.producer_epoch) == ([], *producer)
    assert end(node, producer, commit=commit, version=4) is None
    assert len(markers(node, "t")) == 1


def test_a_transaction_with_an_epoch_of_its_own(node: SimNode) -> None:
    producer = init(node)
    assert add_as_broker(node, producer, ("t", 1), verify=False) == [0]
    following = end(node, producer)
    assert following == (producer[0], producer[1] + 1)
    assert markers(node, "t", 1) == [(*following, "COMMIT", 0)]
    assert end(node, producer) == following
    assert end(node, following, commit=False) == (producer[0], producer[1] + 2)
    assert describe(node).transaction_state == "CompleteAbort"
    assert init(node) == (producer[0], producer[1] + 3)


def test_offsets_take_part_in_a_transaction(node: SimNode) -> None:
    producer = init(node)
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], group_id="g"
    )
    assert ask(node, request, 4).error_code == 0
    (topic,) = describe(node).topics
    assert (topic.topic, len(topic.partitions)) == ("__consumer_offsets", 1)
    # Nobody has asked for the group's coordinator: the topic is not there, and takes no marker.
    assert end(node, producer, version=4) is None
    assert describe(node).transaction_state == "CompleteCommit"


def test_a_group_with_a_coordinator_gets_its_marker(node: SimNode) -> None:
    node.commit("g", {("t", 0): 1})
    producer = init(node)
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], group_id="g"
    )
    assert ask(node, request, 3).error_code == 0
    (topic,) = describe(node).topics
    assert end(node, producer, version=4) is None
    assert markers(node, topic.topic, topic.partitions[0]) == [(*producer, "COMMIT", 0)]


@pytest.mark.parametrize(
    ("version", "fenced"),
    [(0, E.INVALID_PRODUCER_EPOCH), (1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)],
)
def test_old_clients_do_not_know_that_they_are_fenced(node: SimNode, version: int, fenced: E) -> None:
    producer = init(node)
    init(node)
    assert add(node, producer, ("t", 0), version=version) == fenced
    assert end(node, producer, version=version) == fenced
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], group_id="g"
    )
    assert ask(node, request, version).error_code == fenced


def test_an_old_client_begins_again_when_it_is_fenced(node: SimNode) -> None:
    producer_id, epoch = init(node)
    init(node)
    asked = {"producer_id": producer_id, "producer_epoch": epoch}
    assert init(node, 3, **asked) == E.INVALID_PRODUCER_EPOCH
    assert init(node, 4, **asked) == E.PRODUCER_FENCED


def test_a_partition_that_is_not_there_fails_all(node: SimNode) -> None:
    producer = init(node)
    assert add(node, producer, ("t", 0), ("t", 3), ("unknown", 0)) == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert describe(node).transaction_state == "Empty"


def test_partitions_are_verified_for_other_brokers(node: SimNode) -> None:
    producer = init(node)
    assert add_as_broker(node, producer, ("t", 0), verify=True) == [E.TRANSACTION_ABORTABLE]
    add(node, producer, ("t", 0))
    for version in (4, 5):
        assert add_as_broker(node, producer, ("t", 0), ("t", 1), verify=True, version=version) == [
            0,
            E.TRANSACTION_ABORTABLE,
        ]
    assert add_as_broker(node, (9, 9), ("t", 0), verify=True) == [E.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"transactional_id": ""}, E.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, E.INVALID_REQUEST),
        ({"producer_epoch": 5}, E.INVALID_REQUEST),
    ],
)
def test_what_no_producer_should_ask(node: SimNode, fields: dict[str, Any], expected: E) -> None:
    assert init(node, **fields) == expected


def test_an_empty_id_is_no_transactional_id(node: SimNode) -> None:
    assert describe(node, "").error_code == E.INVALID_REQUEST
    request = EndTxnRequest(transactional_id="", producer_id=1, producer_epoch=1, committed=True)
    assert ask(node, request, 5).error_code == E.INVALID_REQUEST
    with pytest.raises(KafkaError):
        node.services.transactions.add_partitions("", 1, 1, [], verify_only=True, transaction_version=0)


def test_without_its_topic_there_is_no_coordinator() -> None:
    with SimNode(**OPTIONS) as node:
        assert init(node) == E.NOT_COORDINATOR
        assert describe(node).error_code == E.NOT_COORDINATOR
        assert node.call(ListTransactionsRequest(), 2).transaction_states == []


# ------------------------------------------------------------ time and restarts


def test_a_transaction_that_takes_too_long_is_aborted(node: SimNode) -> None:
    producer = init(node, transaction_timeout_ms=5_000)
    add(node, producer, ("t", 0))
    node.run(asyncio.sleep(21))
    assert describe(node).transaction_state == "CompleteAbort"
    assert markers(node, "t") == [(producer[0], producer[1] + 1, "ABORT", 0)]
    assert add(node, producer, ("t", 0)) == E.PRODUCER_FENCED


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    with started(transactional_id_expiration_ms="10000") as node:
        producer = init(node)
        node.run(asyncio.sleep(3_700))
        assert describe(node).error_code == E.TRANSACTIONAL_ID_NOT_FOUND
        assert end(node, producer) == E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_decided_is_completed_after_a_restart(node: SimNode, commit: bool) -> None:
    producer = init(node)
    add(node, producer, ("t", 0), ("t", 1))
    write, node.services.txn_markers.write_marker = node.services.txn_markers.write_marker, refuse
    try:
        following = end(node, producer, commit=commit)
        assert following == (producer[0], producer[1] + 1)
        assert end(node, producer, commit=commit) == E.CONCURRENT_TRANSACTIONS
        assert init(node) == E.CONCURRENT_TRANSACTIONS
        state = describe(node)
        assert state.transaction_state == ("PrepareCommit" if commit else "PrepareAbort")
        assert [each.partitions for each in state.topics] == [[0, 1]]
    finally:
        node.services.txn_markers.write_marker = write
    node.restart()
    node.run(asyncio.sleep(1))
    state = describe(node)
    assert state.transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    marker = (*following, "COMMIT" if commit else "ABORT", 2)
    assert (markers(node, "t"), markers(node, "t", 1)) == ([marker], [marker])
    assert end(node, producer, commit=commit) == following


def refuse(*_: Any, **__: Any) -> E:
    return E.NOT_ENOUGH_REPLICAS


def test_markers_are_tried_again_where_they_failed(node: SimNode) -> None:
    producer = init(node)
    add(node, producer, ("t", 0), ("t", 1), ("t", 2))
    write = node.services.txn_markers.write_marker

    def fail_once(topic: str, index: int, **fields: Any) -> E:
        if index == 1 and not failed:
            failed.append(index)
            return E.NOT_LEADER_OR_FOLLOWER
        return write(topic, index, **fields)

    failed: list[int] = []
    node.services.txn_markers.write_marker = fail_once
    end(node, producer)
    (topic,) = describe(node).topics
    assert topic.partitions == [1]
    assert node.services.transactions.markers.unreached_count == 1
    node.run(asyncio.sleep(1))
    assert [len(markers(node, "t", index)) for index in range(3)] == [1, 1, 1]
    assert describe(node).transaction_state == "CompleteCommit"
    assert node.services.transactions.markers.unreached_count == 0


def test_a_deleted_partition_needs_no_marker(node: SimNode) -> None:
    node.create_topic("gone", 1)
    producer = init(node)
    add(node, producer, ("t", 0), ("gone", 0))
    node.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=1000), 6)
    assert end(node, producer) == (producer[0], producer[1] + 1)
    assert describe(node).transaction_state == "CompleteCommit"
    assert len(markers(node, "t")) == 1


def test_a_completion_that_cannot_be_written_is_tried_again(node: SimNode) -> None:
    producer = init(node)
    add(node, producer, ("t", 0))
    sender = node.services.transactions.markers
    complete = sender._complete

    def fail_once(index: int, markers: Any) -> Waiter[bool]:
        sender._complete = complete
        raise KafkaError(E.COORDINATOR_NOT_AVAILABLE)

    sender._complete = fail_once
    end(node, producer)
    assert (sender.uncompleted_count, describe(node).transaction_state) == (1, "PrepareCommit")
    node.run(asyncio.sleep(1))
    assert (sender.uncompleted_count, describe(node).transaction_state) == (0, "CompleteCommit")
    assert len(markers(node, "t")) == 1


def test_whoever_loses_the_coordinator_stops_sending_its_markers(node: SimNode) -> None:
    producer = init(node)
    add(node, producer, ("t", 0))
    node.services.txn_markers.write_marker = refuse
    end(node, producer)
    index = partition_of(ID, 3)
    partition, sender = node.partition("__transaction_state", index), node.services.transactions.markers
    node.services.transactions.on_role(partition)
    assert list(sender.left_of(index, ID)) == [("t", 0)]  # it is the same leader still
    assert partition.log is not None
    directory = partition.log.directory.rpartition("/")[0]
    node.services.on_log_dir_failure(LogDirError(directory, OSError(5, "Input/output error")))
    node.run(asyncio.sleep(1))
    assert sender.left_of(index, ID) is None


def test_many_markers_do_not_hold_up_others(node: SimNode) -> None:
    """More than a turn's worth: the answer is there before the markers."""
    producer = init(node)
    add(node, producer, ("t", 0), ("t", 1), ("t", 2))
    clock = node.runtime.clock
    monotonic = clock.monotonic
    passed = 0.0

    def slow() -> float:
        nonlocal passed
        passed += 0.004
        return monotonic() + passed

    request = EndTxnRequest(
        transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], committed=True
    )

    async def scenario() -> list[int]:
        assert node.services.transactions.end(request, 2).is_done
        return [len(markers(node, "t", index)) for index in range(3)]

    clock.monotonic = slow
    try:
        assert 1 <= sum(node.run(scenario())) < 3
        node.run(asyncio.sleep(1))
    finally:
        clock.monotonic = monotonic
    assert [len(markers(node, "t", index)) for index in range(3)] == [1, 1, 1]


# ------------------------------------------------------------ looking


def test_transactions_are_listed(node: SimNode) -> None:
    init(node)
    producer = init(node, transactional_id="other")
    node.run(asyncio.sleep(2))
    mine = init(node)
    add(node, mine, ("t", 0))
    node.run(asyncio.sleep(2))

    def listed(version: int = 2, **fields: Any) -> list[str]:
        response = node.call(ListTransactionsRequest(**fields), version)
        assert response.error_code == 0
        return sorted(each.transactional_id for each in response.transaction_states)

    assert listed() == ["other", ID]
    assert listed(state_filters=["Ongoing"]) == [ID]
    assert listed(state_filters=["Empty"]) == ["other"]
    assert listed(producer_id_filters=[producer[0]]) == ["other"]
    assert listed(duration_filter=1_000, state_filters=["Ongoing"], version=1) == [ID]
    assert listed(duration_filter=10_000, state_filters=["Ongoing"]) == []
    assert listed(transactional_id_pattern="pay.*") == [ID]
    assert listed(transactional_id_pattern="pay") == []
    assert listed(transactional_id_pattern="") == ["other", ID]
    bad = node.call(ListTransactionsRequest(transactional_id_pattern="(ab"), 2)
    assert bad.error_code == E.INVALID_REGULAR_EXPRESSION
    unknown = node.call(ListTransactionsRequest(state_filters=["Ongoing", "Running"]), 2)
    assert unknown.unknown_state_filters == ["Running"]
    assert [each.transactional_id for each in unknown.transaction_states] == [ID]
    assert listed(state_filters=["Running"]) == []


def test_an_unknown_id_is_told_as_such(node: SimNode) -> None:
    assert describe(node, "nobody").error_code == E.TRANSACTIONAL_ID_NOT_FOUND


# ------------------------------------------------------------ two-phase commit


def versions_of_init(node: SimNode) -> tuple[int, int]:
    response = node.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
    (found,) = [each for each in response.api_keys if each.api_key == 22]
    return found.min_version, found.max_version


def test_two_phase_commit_is_off_as_in_kafka(node: SimNode) -> None:
    assert versions_of_init(node) == (0, 5)
    assert init(node, 6, enable2_pc=True) == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert init(node, 6, keep_prepared_txn=True) == E.UNSUPPORTED_VERSION


def test_a_prepared_transaction_waits_for_whoever_comes_back() -> None:
    with started(transaction_two_phase_commit_enable="true") as node:
        assert versions_of_init(node) == (0, 6)
        producer = init(node, 6, enable2_pc=True, transaction_timeout_ms=-1)
        add(node, producer, ("t", 0))
        node.run(asyncio.sleep(24 * 3600))
        node.restart()
        node.run(asyncio.sleep(1))
        request = InitProducerIdRequest(
            transactional_id=ID, transaction_timeout_ms=1, enable2_pc=True, keep_prepared_txn=True
        )
        kept = ask(node, request, 6)
        assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == producer
        assert (kept.producer_id, kept.producer_epoch) == (producer[0], producer[1] + 1)
        assert end(node, producer) == E.PRODUCER_FENCED
        taken = kept.producer_id, kept.producer_epoch
        assert end(node, taken) == (producer[0], producer[1] + 2)
        assert markers(node, "t") == [(producer[0], producer[1] + 1, "COMMIT", 2)]
