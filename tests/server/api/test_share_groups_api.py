"""Share groups on a simulated node, as their members and those who look after them see it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.coordinator.decision import Waiter
from moldau.records.builder import build_batch
from moldau.records.control import ControlType, EndTxnMarker, build_end_txn_batch
from moldau.records.record import Record
from moldau.share.partition import ACCEPT, GAP, REJECT, RELEASE, RENEW
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    delete_topics,
    describe_share_group_offsets,
    initialize_share_group_state,
    read_share_group_state,
    share_group_describe,
    write_share_group_state,
)
from moldau.wire.messages import share_fetch as fetches
from tests.server.api.share_clients import (
    GROUP,
    OPTIONS,
    ShareClient,
    acquired,
    errors,
    offsets,
    prepared,
    set_options,
)
from tests.server.api.txn_clients import append
from tests.server.sim_node import SimNode


@pytest.fixture
def node() -> Iterator[SimNode]:
    with SimNode(**OPTIONS) as node:
        yield node


def refusal(work: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        work()
    return caught.value.code


def produce(node: SimNode, count: int, *, batches: int = 1, topic: str = "t", index: int = 0) -> None:
    for _ in range(batches):
        node.produce(topic, [1000] * count, index)


def described(node: SimNode, *indexes: int) -> dict[int, tuple[int, int]]:
    """By partition: start offset and lag."""
    topics = [describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(topic_name="t")]
    topics[0].partitions = list(indexes)
    asked = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
        group_id=GROUP, topics=topics if indexes else None
    )
    request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[asked])
    (group,) = node.call(request, 1).groups
    assert group.error_code == 0
    partitions = [each for topic in group.topics for each in topic.partitions]
    return {each.partition_index: (each.start_offset, each.lag) for each in partitions}


# ------------------------------------------------------------ members


def test_a_member_is_assigned_its_partitions_once_they_have_a_state(node: SimNode) -> None:
    client = prepared(node, partitions=2)
    response = client.heartbeat(["t"])
    (topic,) = response.assignment.topic_partitions
    assert topic.partitions == [0, 1]
    request = share_group_describe.ShareGroupDescribeRequest(group_ids=[GROUP, "other"])
    groups = node.call(request, 1).groups
    assert [(group.group_state, group.error_code) for group in groups] == [
        ("Stable", 0),
        ("", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert [member.client_host for member in groups[0].members] == ["/localhost"]


def test_ids_of_members_are_of_a_certain_length(node: SimNode) -> None:
    prepared(node)
    for member_id in ("", "x" * 37):
        client = ShareClient(node, member_id)
        assert refusal(lambda client=client: client.heartbeat(["t"], 0)) is ErrorCode.INVALID_REQUEST
        assert refusal(lambda client=client: client.fetch("t", 0)) is ErrorCode.INVALID_REQUEST


# ------------------------------------------------------------ records


def test_records_are_fetched_acknowledged_and_done_with(node: SimNode) -> None:
    client = prepared(node)
    produce(node, 5)
    response = client.fetch("t", 0)
    assert (acquired(response), offsets(response)) == ({0: [(0, 4, 1)]}, [0, 1, 2, 3, 4])
    assert response.acquisition_lock_timeout_ms == 30_000
    assert errors(client.acknowledge("t", 0, (0, 4, ACCEPT))) == {0: 0}
    assert described(node, 0) == {0: (0, 0)}
    produce(node, 1)
    response = client.fetch("t", 0)
    assert acquired(response) == {0: [(5, 5, 1)]}
    client.acknowledge("t", 0, (5, 5, ACCEPT))
    assert described(node) == {0: (5, 0)}


def test_two_members_get_different_records(node: SimNode) -> None:
    first = prepared(node)
    second = ShareClient(node, "second")
    produce(node, 3, batches=2)
    assert offsets(first.fetch("t", 0, records_max=3)) == [0, 1, 2]
    assert offsets(second.fetch("t", 0)) == [3, 4, 5]
    # What is rejected is done with, what is released is for whoever comes next.
    first.acknowledge("t", 0, (0, 0, REJECT), (1, 2, RELEASE))
    assert acquired(second.fetch("t", 0)) == {0: [(1, 2, 2)]}


def test_exact_limits_are_kept(node: SimNode) -> None:
    client = prepared(node)
    produce(node, 10)
    assert acquired(client.fetch("t", 0, records_max=4, share_acquire_mode=1)) == {0: [(0, 3, 1)]}
    assert acquired(client.fetch("t", 0, records_max=4, share_acquire_mode=1)) == {0: [(4, 7, 1)]}
    assert acquired(client.fetch("t", 0, records_max=4, version=1)) == {0: [(8, 9, 1)]}


def test_acknowledgements_may_come_with_a_fetch(node: SimNode) -> None:
    client = prepared(node)
    produce(node, 2, batches=2)
    client.fetch("t", 0, records_max=2)
    response = client.fetch("t", 0, acknowledge=[(0, 1, ACCEPT)])
    assert (acquired(response), errors(response)) == ({0: [(2, 3, 1)]}, {0: 0})
    response = client.fetch("t", 0, acknowledge=[(0, 0, 9), (3, 3, ACCEPT)])
    assert errors(response) == {0: ErrorCode.INVALID_REQUEST}
    response = client.fetch("t", 0, acknowledge=[(9, 9, ACCEPT)])
    assert errors(response) == {0: ErrorCode.INVALID_REQUEST}


def test_a_fetch_waits_for_records(node: SimNode) -> None:
    client = prepared(node)
    client.fetch("t", 0)
    waiter: Waiter[Any] = client.start(client.fetch_request("t", 0, max_wait_ms=5000), 2)
    node.simulation.advance(1)
    assert not waiter.is_done
    produce(node, 3)
    node.simulation.advance(0.01)
    assert acquired(waiter.result()) == {0: [(0, 2, 1)]}
    client.session_epoch += 1
    waiter = client.start(client.fetch_request("t", 0, max_wait_ms=5000), 2)
    node.simulation.advance(4.9)
    assert not waiter.is_done
    node.simulation.advance(0.2)
    assert waiter.result().responses == []


def test_a_fetch_waits_for_records_that_others_give_back(node: SimNode) -> None:
    client, other = prepared(node), ShareClient(node, "other")
    produce(node, 3)
    other.fetch("t", 0)
    waiter: Waiter[Any] = client.start(client.fetch_request("t", 0, max_wait_ms=50_000), 2)
    node.simulation.advance(1)
    assert not waiter.is_done
    other.acknowledge("t", 0, (0, 2, RELEASE))
    node.simulation.advance(0.01)
    assert acquired(waiter.result()) == {0: [(0, 2, 2)]}


def test_a_lock_that_ends_gives_records_to_who_waits(node: SimNode) -> None:
    client, other = prepared(node, share_record_lock_duration_ms="15000"), ShareClient(node, "other")
    produce(node, 3)
    other.fetch("t", 0)
    waiter: Waiter[Any] = client.start(client.fetch_request("t", 0, max_wait_ms=50_000), 2)
    node.simulation.advance(14.9)
    assert not waiter.is_done
    node.simulation.advance(0.2)
    assert acquired(waiter.result()) == {0: [(0, 2, 2)]}
    assert errors(other.acknowledge("t", 0, (0, 2, ACCEPT))) == {0: ErrorCode.INVALID_RECORD_STATE}


def test_a_lock_that_is_renewed_does_not_end(node: SimNode) -> None:
    client = prepared(node, share_record_lock_duration_ms="15000")
    produce(node, 3)
    client.fetch("t", 0)
    for _ in range(3):
        node.simulation.advance(10)
        response = client.fetch(
            "t", 0, acknowledge=[(0, 2, RENEW)], is_renew_ack=True, min_bytes=0, max_bytes=0, records_max=0
        )
        assert errors(response) == {0: 0}
    assert errors(client.acknowledge("t", 0, (0, 2, RENEW))) == {0: ErrorCode.INVALID_REQUEST}
    assert errors(client.acknowledge("t", 0, (0, 2, RENEW), is_renew_ack=True)) == {0: 0}
    assert errors(client.acknowledge("t", 0, (0, 2, ACCEPT))) == {0: 0}


def test_renewal_does_not_go_with_fetching(node: SimNode) -> None:
    client = prepared(node)
    assert refusal(lambda: client.fetch("t", 0, is_renew_ack=True)) is ErrorCode.INVALID_REQUEST


def test_after_a_restart_the_group_goes_on_where_it_was(node: SimNode) -> None:
    client = prepared(node)
    produce(node, 4, batches=2)
    client.fetch("t", 0, records_max=4)
    client.acknowledge("t", 0, (0, 1, ACCEPT), (3, 3, ACCEPT))
    node.restart()
    node.simulation.advance(1)
    client = ShareClient(node, "member")
    # What was out with members counts as delivered, if it was stopped in order.
    assert acquired(client.fetch("t", 0, max_wait_ms=5000)) == {0: [(2, 2, 1), (4, 7, 1)]}


def test_a_new_group_starts_where_it_is_told_to(node: SimNode) -> None:
    client = prepared(node)
    produce(node, 3)
    set_options(node, share_auto_offset_reset="latest")
    client.fetch("t", 0)
    assert offsets(client.fetch("t", 0)) == []
    produce(node, 2)
    assert offsets(client.fetch("t", 0)) == [3, 4]


def test_a_new_group_may_start_some_time_back(node: SimNode) -> None:
    client = prepared(node)
    now_ms = node.runtime.clock.now_ms()
    for back_ms in (7_200_000, 1_800_000, 60_000):
        node.produce("t", [now_ms - back_ms])
    set_options(node, share_auto_offset_reset="by_duration:PT1H")
    assert offsets(client.fetch("t", 0)) == [1, 2]


def test_deleted_records_are_passed(node: SimNode) -> None:
    client = prepared(node)
    produce(node, 2, batches=3)
    client.fetch("t", 0, records_max=1)
    client.acknowledge("t", 0, (0, 1, ACCEPT))
    of_log = node.partition("t").log
    assert of_log is not None
    of_log.delete_records_before(4)
    assert acquired(client.fetch("t", 0)) == {}
    assert acquired(client.fetch("t", 0)) == {0: [(4, 5, 1)]}


def test_a_topic_that_is_deleted_is_known_no_more(node: SimNode) -> None:
    client = prepared(node)
    produce(node, 2)
    client.fetch("t", 0)
    topic_id = client.topic_id("t")
    waiter: Waiter[Any] = client.start(client.fetch_request("t", 0, max_wait_ms=50_000), 2)
    node.call(delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    node.simulation.advance(1)
    assert errors(waiter.result()) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    request = fetches.ShareFetchRequest(
        group_id=GROUP,
        member_id="member",
        share_session_epoch=2,
        max_bytes=100,
        max_records=1,
        topics=[fetches.FetchTopic(topic_id=topic_id, partitions=[fetches.FetchPartition()])],
    )
    assert errors(client.call(request, 2)) == {0: ErrorCode.UNKNOWN_TOPIC_ID}


def test_records_of_transactions_are_for_groups_that_want_them_only_when_they_are_committed(
    node: SimNode,
) -> None:
    client = prepared(node, share_isolation_level="read_committed")
    append_transaction(node, 7, 2, ControlType.ABORT)
    append_transaction(node, 8, 2, ControlType.COMMIT)
    append_transaction(node, 9, 2, None)
    produce(node, 1)
    assert acquired(client.fetch("t", 0)) == {0: [(2, 5, 1)]}
    # Of the markers clients say that there is no record, and what was aborted holds nobody up.
    assert errors(client.acknowledge("t", 0, (2, 2, GAP), (3, 4, ACCEPT), (5, 5, GAP))) == {0: 0}
    node.partition("t").append_marker(memoryview(bytearray(marker(9, ControlType.COMMIT))), 1000, 0)
    assert acquired(client.fetch("t", 0)) == {0: [(6, 9, 1)]}
    assert described(node, 0) == {0: (2, 4)}


def append_transaction(node: SimNode, producer_id: int, count: int, end: ControlType | None) -> None:
    records = [Record(0, 1000, None, b"value") for _ in range(count)]
    batch = build_batch(
        records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    append(node, "t", batch)
    if end is not None:
        node.partition("t").append_marker(memoryview(bytearray(marker(producer_id, end))), 1000, 0)


def marker(producer_id: int, end: ControlType) -> bytes:
    return build_end_txn_batch(
        EndTxnMarker(end, 0), producer_id=producer_id, producer_epoch=0, timestamp=1000
    )


# ------------------------------------------------------------ sessions


def test_sessions_are_counted_through(node: SimNode) -> None:
    client = prepared(node)
    assert refusal(lambda: client.fetch("t", 0, epoch=1)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert refusal(lambda: client.fetch("t", 0, epoch=-1)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    client.fetch("t", 0)
    assert refusal(lambda: client.fetch("t", 0, epoch=2)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    work = client.acknowledge
    assert refusal(lambda: work("t", 0, epoch=0)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    client.acknowledge("t", 0)
    client.fetch("t", 0)
    with_acknowledgements = client.fetch_request("t", 0, acknowledge=[(0, 0, ACCEPT)], epoch=0)
    assert refusal(lambda: client.call(with_acknowledgements, 2)) is ErrorCode.INVALID_REQUEST


def test_a_session_remembers_its_partitions(node: SimNode) -> None:
    client = prepared(node, partitions=2)
    client.fetch("t", 0, 1)
    produce(node, 1, index=0)
    produce(node, 1, index=1)
    forgotten = [fetches.ForgottenTopic(topic_id=client.topic_id("t"), partitions=[0])]
    assert acquired(client.fetch("t", forgotten_topics_data=forgotten)) == {1: [(0, 0, 1)]}
    produce(node, 1, index=1)
    assert acquired(client.fetch("t")) == {1: [(1, 1, 1)]}
    assert client.fetch("t").responses == []


def test_a_session_that_is_closed_gives_back_what_it_had(node: SimNode) -> None:
    client, other = prepared(node), ShareClient(node, "other")
    produce(node, 4)
    client.fetch("t", 0)
    client.fetch("t", 0, acknowledge=[(0, 1, ACCEPT)], epoch=-1)
    assert acquired(other.fetch("t", 0)) == {0: [(2, 3, 2)]}
    assert refusal(lambda: client.fetch("t", 0, epoch=1)) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_session_ends_with_its_connection(node: SimNode) -> None:
    client, other = prepared(node), ShareClient(node, "other")
    produce(node, 4)
    client.fetch("t", 0)
    other.fetch("t", 0)
    client.connection.close()
    assert acquired(other.fetch("t", 0)) == {0: [(0, 3, 2)]}
    other.connection.close()
    assert len(node.services.share_partitions) == len(node.services.share_partitions.sessions) == 0


def test_a_client_that_goes_while_it_waits_gets_nothing(node: SimNode) -> None:
    client, other = prepared(node), ShareClient(node, "other")
    other.fetch("t", 0)
    client.fetch("t", 0)
    waiter: Waiter[Any] = client.start(client.fetch_request("t", 0, max_wait_ms=50_000), 2)
    client.connection.close()
    produce(node, 1)
    node.simulation.advance(1)
    assert not waiter.is_done
    assert acquired(other.fetch("t", 0)) == {0: [(0, 0, 1)]}


def test_there_is_room_for_so_many_sessions() -> None:
    with SimNode(**OPTIONS, group_share_max_share_sessions="1") as node:
        first, second = prepared(node), ShareClient(node, "second")
        first.fetch("t", 0)
        waiter: Waiter[Any] = second.start(second.fetch_request("t", 0, max_wait_ms=500), 2)
        assert not waiter.is_done
        node.simulation.advance(0.6)
        assert waiter.failure is not None
        assert waiter.failure.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
        first.fetch("t", 0, epoch=-1)
        second.fetch("t", 0)


# ------------------------------------------------------------ offsets


def test_offsets_are_altered_and_deleted_while_nobody_is_there(node: SimNode) -> None:
    client = prepared(node)
    produce(node, 5)
    alter = alter_share_group_offsets.AlterShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[
            alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
                topic_name="t",
                partitions=[
                    alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(
                        partition_index=0, start_offset=3
                    )
                ],
            )
        ],
    )
    assert refusal(lambda: client.call(alter, 0)) is ErrorCode.NON_EMPTY_GROUP
    client.heartbeat(epoch=-1)
    (topic,) = client.call(alter, 0).responses
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, 0)]
    assert described(node, 0) == {0: (3, 2)}
    client.heartbeat(["t"], 0)
    client.heartbeat()
    assert acquired(client.fetch("t", 0)) == {0: [(3, 4, 1)]}
    client.heartbeat(epoch=-1)
    delete = delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name="t")],
    )
    assert [each.error_code for each in client.call(delete, 0).responses] == [0]
    assert described(node) == {}
    assert described(node, 0) == {0: (-1, -1)}


def test_who_holds_on_to_records_of_a_state_that_was_begun_anew_finds_out(node: SimNode) -> None:
    client = prepared(node)
    produce(node, 5)
    client.fetch("t", 0)
    client.heartbeat(epoch=-1)
    topic = alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(topic_name="t")
    topic.partitions.append(
        alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=4)
    )
    client.call(alter_share_group_offsets.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic]), 0)
    response = client.acknowledge("t", 0, (0, 4, ACCEPT))
    assert errors(response) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    leader = response.responses[0].partitions[0].current_leader
    assert (leader.leader_id, [end.port for end in response.node_endpoints]) == (1, [9092])
    assert acquired(client.fetch("t", 0)) == {0: [(4, 4, 1)]}


def test_a_group_is_deleted_with_its_states(node: SimNode) -> None:
    client = prepared(node)
    produce(node, 1)
    client.fetch("t", 0)
    client.acknowledge("t", 0, (0, 0, ACCEPT))
    request = delete_groups.DeleteGroupsRequest(groups_names=[GROUP])
    assert node.call(request, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    client.heartbeat(epoch=-1)
    assert node.call(request, 2).results[0].error_code == 0
    assert described(node, 0) == {0: (-1, -1)}
    assert node.call(request, 2).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


# ------------------------------------------------------------ the share coordinator


def test_states_are_read_and_written_from_elsewhere(node: SimNode) -> None:
    client = prepared(node)
    topic_id = client.topic_id("t")
    initialize = initialize_share_group_state.InitializeShareGroupStateRequest(
        group_id="g",
        topics=[
            initialize_share_group_state.InitializeStateData(
                topic_id=topic_id,
                partitions=[
                    initialize_share_group_state.PartitionData(partition=index, state_epoch=1, start_offset=2)
                    for index in (0, 5)
                ],
            )
        ],
    )
    (result,) = node.call(initialize, 0).results
    assert [(each.partition, each.error_code) for each in result.partitions] == [
        (0, 0),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    write = write_share_group_state.WriteShareGroupStateRequest(
        group_id="g",
        topics=[
            write_share_group_state.WriteStateData(
                topic_id=topic_id,
                partitions=[
                    write_share_group_state.PartitionData(
                        partition=0,
                        state_epoch=1,
                        start_offset=2,
                        state_batches=[
                            write_share_group_state.StateBatch(
                                first_offset=2, last_offset=3, delivery_state=2, delivery_count=1
                            )
                        ],
                    )
                ],
            )
        ],
    )
    (result,) = node.call(write, 1).results
    assert [each.error_code for each in result.partitions] == [0]
    node.restart()
    node.simulation.advance(1)
    read = read_share_group_state.ReadShareGroupStateRequest(
        group_id="g",
        topics=[
            read_share_group_state.ReadStateData(
                topic_id=topic_id, partitions=[read_share_group_state.PartitionData(partition=0)]
            )
        ],
    )
    (result,) = node.call(read, 0).results
    (state,) = result.partitions
    assert (state.error_code, state.start_offset, state.state_epoch) == (0, 2, 1)
    assert [(each.first_offset, each.last_offset) for each in state.state_batches] == [(2, 3)]


def test_the_log_of_states_begins_where_it_is_needed() -> None:
    options = {
        "share_coordinator_snapshot_update_records_per_snapshot": "2",
        "share_coordinator_state_topic_num_partitions": "1",
    }
    with SimNode(**{**OPTIONS, **options}) as node:
        client = prepared(node)
        for offset in range(10):
            produce(node, 1)
            client.fetch("t", 0)
            client.acknowledge("t", 0, (offset, offset, ACCEPT))
        node.simulation.advance(301)
        of_log = node.partition("__share_group_state").log
        assert of_log is not None and of_log.log_start_offset > 6
        node.restart()
        node.run(asyncio.sleep(1))
        assert described(node, 0)[0][1] == 0
