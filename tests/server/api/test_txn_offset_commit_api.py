"""TxnOffsetCommit: offsets that count when their transaction is committed, and are pending until then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.coordinator.placement import partition_of
from moldau.wire.errors import ErrorCode as E
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.server.api.txn_clients import PRODUCER_ID, FakeTransactions, marker, write_markers
from tests.server.sim_node import ONE_REPLICA, SimNode

OFFSETS = "__consumer_offsets"
PLACE = partition_of("g", 4)


@pytest.fixture
def node() -> Iterator[SimNode]:
    """A group `g` has committed offset 3 of the first partition."""
    with SimNode(**ONE_REPLICA) as node:
        node.create_topic("t", 2)
        node.commit("g", {("t", 0): 3})
        yield node


@pytest.fixture
def coordinator(node: SimNode) -> FakeTransactions:
    return FakeTransactions(node)


def request(
    offsets: dict[tuple[str, int], int],
    *,
    group_id: str = "g",
    metadata: str = "",
    epoch: int = 0,
    **fields: Any,
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="id",
        group_id=group_id,
        producer_id=PRODUCER_ID,
        producer_epoch=epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
            for (topic, index), offset in offsets.items()
        ],
        **fields,
    )


def commit(node: SimNode, offsets: dict[tuple[str, int], int], version: int = 5, **fields: Any) -> list[int]:
    """The codes."""
    response = node.call(request(offsets, **fields), version)
    return [each.error_code for topic in response.topics for each in topic.partitions]


def end(node: SimNode, *, is_committed: bool, epoch: int = 0) -> None:
    place = PRODUCER_ID, OFFSETS, PLACE
    ending = marker({OFFSETS: [PLACE]}, is_committed=is_committed, epoch=epoch)
    assert write_markers(node, ending) == {place: E.NONE}


def fetched(node: SimNode, *, require_stable: bool = False) -> list[tuple[int, int]]:
    """Offset and code of both partitions."""
    group = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
    )
    response = node.call(OffsetFetchRequest(groups=[group], require_stable=require_stable), 8)
    return [(each.committed_offset, each.error_code) for each in response.groups[0].topics[0].partitions]


def crash(node: SimNode) -> None:
    """Behind what was synced; the groups are loaded again."""
    node.partition(OFFSETS, PLACE).leader_log().flush(node.runtime.clock.now_ms())
    node.crash()
    node.run(asyncio.sleep(1))


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("is_committed", [True, False])
def test_offsets_count_from_the_marker_on(
    node: SimNode, coordinator: FakeTransactions, version: int, is_committed: bool
) -> None:
    assert commit(node, {("t", 0): 7, ("t", 1): 8}, version) == [E.NONE, E.NONE]
    assert fetched(node) == [(3, 0), (-1, 0)]
    assert fetched(node, require_stable=True) == [(-1, E.UNSTABLE_OFFSET_COMMIT)] * 2
    end(node, is_committed=is_committed)
    decided = [(7, 0), (8, 0)] if is_committed else [(3, 0), (-1, 0)]
    assert fetched(node, require_stable=True) == decided
    crash(node)
    assert fetched(node, require_stable=True) == decided
    asked = {
        "producer": ("id", PRODUCER_ID, 0),
        "partitions": [(OFFSETS, PLACE)],
        "verify_only": version < 5,
        "version": 2 if version == 5 else 1,
    }
    assert coordinator.asked == [asked]


def test_an_open_transaction_survives_a_crash(node: SimNode, coordinator: FakeTransactions) -> None:
    commit(node, {("t", 1): 8})
    crash(node)
    assert fetched(node, require_stable=True) == [(3, 0), (-1, E.UNSTABLE_OFFSET_COMMIT)]
    end(node, is_committed=True)
    assert fetched(node, require_stable=True) == [(3, 0), (8, 0)]


def test_a_later_commit_is_not_undone(node: SimNode, coordinator: FakeTransactions) -> None:
    commit(node, {("t", 0): 7})
    node.commit("g", {("t", 0): 9})
    end(node, is_committed=True)
    assert fetched(node) == [(9, 0), (-1, 0)]


def test_the_coordinator_is_asked_once_for_each_transaction(
    node: SimNode, coordinator: FakeTransactions
) -> None:
    commit(node, {("t", 0): 7})
    commit(node, {("t", 0): 8})
    assert len(coordinator.asked) == 1
    end(node, is_committed=True)
    commit(node, {("t", 0): 9})
    assert len(coordinator.asked) == 2
    assert fetched(node) == [(8, 0), (-1, 0)]


@pytest.mark.parametrize(
    ("code", "told_1", "told_3", "told_4"),
    [
        (E.INVALID_TXN_STATE, *[E.INVALID_TXN_STATE] * 3),
        (E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE),
        (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, *[E.COORDINATOR_LOAD_IN_PROGRESS] * 2),
        (E.NOT_COORDINATOR, *[E.NOT_COORDINATOR] * 3),
        (E.PRODUCER_FENCED, *[E.INVALID_PRODUCER_EPOCH] * 3),
        (E.CONCURRENT_TRANSACTIONS, *[E.CONCURRENT_TRANSACTIONS] * 3),
    ],
)
def test_what_the_coordinator_says_is_told_as_the_client_knows_it(
    node: SimNode, code: E, told_1: E, told_3: E, told_4: E
) -> None:
    FakeTransactions(node, code)
    for version, told in ((1, told_1), (3, told_3), (4, told_4)):
        assert commit(node, {("t", 0): 7}, version) == [told]
    assert fetched(node, require_stable=True) == [(3, 0), (-1, 0)]


def test_what_cannot_be_committed_is_told_partition_by_partition(
    node: SimNode, coordinator: FakeTransactions
) -> None:
    offsets = {("other", 0): 1, ("t", 9): 1, ("t", 1): 1}
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert sorted(commit(node, offsets)) == [E.NONE, unknown, unknown]
    assert commit(node, {("t", 0): 1}, metadata="x" * 5000) == [E.OFFSET_METADATA_TOO_LARGE]
    assert commit(node, {("t", 0): 1}, group_id="") == [E.INVALID_GROUP_ID]
    end(node, is_committed=True)
    assert fetched(node) == [(3, 0), (1, 0)]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, E.NONE),
        ({"generation_id": 5}, E.UNKNOWN_MEMBER_ID),
        ({"member_id": "m", "generation_id": 5}, E.UNKNOWN_MEMBER_ID),
        ({"group_id": "unknown", "generation_id": 5}, E.ILLEGAL_GENERATION),
        ({"group_id": "unknown"}, E.NONE),
    ],
)
def test_members_have_to_be_members(
    node: SimNode, coordinator: FakeTransactions, fields: dict[str, Any], code: E
) -> None:
    assert commit(node, {("t", 0): 7}, **fields) == [code]


def test_an_older_producer_is_fenced(node: SimNode, coordinator: FakeTransactions) -> None:
    commit(node, {("t", 0): 7}, epoch=4)
    assert commit(node, {("t", 0): 8}, epoch=3) == [E.INVALID_PRODUCER_EPOCH]
    end(node, is_committed=True, epoch=4)
    assert fetched(node)[0] == (7, 0)


def test_an_answer_that_comes_behind_the_marker_lets_nothing_in(node: SimNode) -> None:
    late = FakeTransactions(node, at_once=False)

    async def later() -> None:
        await asyncio.sleep(0.1)
        node.services.txn_markers.write_marker(
            OFFSETS,
            PLACE,
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            coordinator_epoch=0,
            is_committed=False,
            transaction_version=1,
        )
        late.answer()

    node.runtime.spawn(later(), "end")
    answer = node.call(request({("t", 0): 7}), 4)
    node.run(asyncio.sleep(1))
    told = answer.result() if hasattr(answer, "result") else answer
    assert [each.error_code for topic in told.topics for each in topic.partitions] == [E.INVALID_TXN_STATE]
    assert fetched(node, require_stable=True)[0] == (3, 0)


def test_a_marker_waits_for_the_groups_to_be_loaded(node: SimNode) -> None:
    place = PRODUCER_ID, OFFSETS, PLACE
    node.services.groups.close()
    assert write_markers(node, marker({OFFSETS: [PLACE]})) == {place: E.NOT_LEADER_OR_FOLLOWER}


def test_offsets_of_an_open_transaction_keep_a_group_alive() -> None:
    options = {**ONE_REPLICA, "offsets_retention_minutes": "1", "offsets_retention_check_interval_ms": "1000"}
    with SimNode(**options) as node:
        node.create_topic("t", 2)
        node.commit("g", {("t", 0): 3})
        FakeTransactions(node)
        commit(node, {("t", 0): 7})
        node.run(asyncio.sleep(200))
        assert fetched(node) == [(3, 0), (-1, 0)]
        end(node, is_committed=False)
        node.run(asyncio.sleep(10))
        assert fetched(node) == [(-1, 0), (-1, 0)]
        (result,) = node.call(DeleteGroupsRequest(groups_names=["g"]), 2).results
        assert result.error_code == E.GROUP_ID_NOT_FOUND


def test_a_group_that_is_deleted_takes_its_pending_offsets_along(
    node: SimNode, coordinator: FakeTransactions
) -> None:
    commit(node, {("t", 0): 7, ("t", 1): 8})
    (result,) = node.call(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert result.error_code == E.NONE
    end(node, is_committed=True)
    assert fetched(node) == [(-1, 0), (-1, 0)]
