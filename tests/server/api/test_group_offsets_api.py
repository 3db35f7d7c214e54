"""Finding a coordinator, and the offsets and groups that it keeps, on a simulated node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.log.log import Log
from moldau.wire.errors import ErrorCode
from moldau.wire.ids import Uuid
from moldau.wire.messages import (
    delete_groups,
    delete_topics,
    find_coordinator,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from tests.server.sim_node import SimNode

OPTIONS = {
    "offsets_topic_num_partitions": "3",
    "offsets_topic_replication_factor": "1",
    "transaction_state_log_num_partitions": "2",
    "transaction_state_log_replication_factor": "1",
}


@pytest.fixture
def node() -> Iterator[SimNode]:
    with SimNode(**OPTIONS) as node:
        yield node


@pytest.fixture
def groups(node: SimNode) -> SimNode:
    """With a topic, and its coordinators in place."""
    node.create_topic("t", partitions=2)
    find(node, "g")
    node.simulation.advance(1)
    return node


def find(node: SimNode, *keys: str, key_type: int = 0, version: int = 6) -> list[Any]:
    request = find_coordinator.FindCoordinatorRequest(key_type=key_type)
    if version >= 4:
        request.coordinator_keys = list(keys)
        return list(node.call(request, version).coordinators)
    (request.key,) = keys
    return [node.call(request, version)]


def commit(
    node: SimNode,
    offsets: dict[int, int],
    *,
    group: str = "g",
    topic: str = "t",
    version: int = 9,
    **more: Any,
) -> Any:
    named = {"topic_id": node.services.image().topics[topic].topic_id} if version >= 10 else {"name": topic}
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                **named,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
        ],
        **more,
    )
    return node.call(request, version)


def codes(response: Any) -> dict[int, int]:
    return {each.partition_index: each.error_code for topic in response.topics for each in topic.partitions}


def fetched(node: SimNode, *indexes: int, group: str = "g", topic: str = "t") -> dict[int, int]:
    request = offset_fetch.OffsetFetchRequest(
        groups=[
            offset_fetch.OffsetFetchRequestGroup(
                group_id=group,
                topics=[offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=list(indexes))],
            )
        ]
    )
    (answer,) = node.call(request, 9).groups
    assert answer.error_code == 0
    return {each.partition_index: each.committed_offset for each in answer.topics[0].partitions}


# ---------------------------------------------------------------- finding


def test_who_asks_first_brings_the_topic_into_being(node: SimNode) -> None:
    assert [each.error_code for each in find(node, "g")] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    node.simulation.advance(1)
    (found,) = find(node, "g")
    assert (found.error_code, found.key, found.node_id, found.host, found.port) == (
        0,
        "g",
        1,
        "localhost",
        9092,
    )
    assert len(node.services.image().topics["__consumer_offsets"].partitions) == 3


def test_several_coordinators_are_found_at_once_and_one_in_older_versions(groups: SimNode) -> None:
    assert [(each.key, each.error_code) for each in find(groups, "g", "h", version=4)] == [("g", 0), ("h", 0)]
    (found,) = find(groups, "g", version=3)
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "localhost", 9092)


@pytest.mark.parametrize(
    ("key_type", "key", "version", "code"),
    [
        (3, "x", 6, ErrorCode.INVALID_REQUEST),
        (2, "g:dG9waWMgaWQgLi4uLi4uLg:0", 5, ErrorCode.INVALID_REQUEST),
        (2, "no key", 6, ErrorCode.INVALID_REQUEST),
        (2, "g:dG9waWMgaWQgLi4uLi4uLg:x", 6, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_coordinator_of_another_kind_is_told_by_a_code(
    groups: SimNode, key_type: int, key: str, version: int, code: ErrorCode
) -> None:
    (found,) = find(groups, key, key_type=key_type, version=version)
    assert (found.error_code, found.node_id) == (code, -1)


def test_the_coordinator_of_a_transaction_is_where_its_topic_says(groups: SimNode) -> None:
    assert find(groups, "tx", key_type=1)[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    groups.simulation.advance(1)
    (found,) = find(groups, "tx", key_type=1)
    assert (found.error_code, found.node_id, found.port) == (0, 1, 9092)


# ---------------------------------------------------------------- offsets


def test_what_was_committed_is_there_after_a_restart(groups: SimNode) -> None:
    assert codes(commit(groups, {0: 5, 1: 6})) == {0: 0, 1: 0}
    assert fetched(groups, 0, 1) == {0: 5, 1: 6}
    groups.restart()
    groups.simulation.advance(1)
    assert fetched(groups, 0, 1) == {0: 5, 1: 6}


def test_a_commit_before_there_is_a_topic_for_it_is_told_to_look_for_a_coordinator(node: SimNode) -> None:
    node.create_topic("t")
    assert codes(commit(node, {0: 5})) == {0: ErrorCode.NOT_COORDINATOR}


def test_partitions_that_are_not_there_are_told_by_partition(groups: SimNode) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(commit(groups, {0: 5, 7: 1})) == {0: 0, 7: unknown}
    for version, code in ((9, unknown), (10, ErrorCode.UNKNOWN_TOPIC_ID)):
        topic = offset_commit.OffsetCommitRequestTopic(
            name="nope",
            topic_id=Uuid(b"n" * 16),
            partitions=[offset_commit.OffsetCommitRequestPartition(partition_index=3)],
        )
        request = offset_commit.OffsetCommitRequest(group_id="g", topics=[topic])
        assert codes(groups.call(request, version)) == {3: code}


@pytest.mark.parametrize("version", [8, 9, 10])
@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, 0),
        ({"metadata": "mine"}, 0),
        ({"metadata": "x" * 100}, 0),
        ({"group_id": "other"}, 0),
        ({"group_instance_id": "i", "generation_id_or_member_epoch": 3}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id_or_member_epoch": 3, "member_id": "m"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": "other", "generation_id_or_member_epoch": 3}, "no such group"),
    ],
)
def test_commits_are_answered_by_hand_as_any_other(
    groups: SimNode, version: int, more: dict[str, Any], code: object
) -> None:
    if code == "no such group":
        code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    commit(groups, {0: 1})  # now the group is there
    for offset, ask in ((5, groups.send), (6, groups.call)):
        request = one_offset(groups, version, offset, **more)
        assert codes(ask(request, version)) == {1: code}
        expected = -1 if code else offset
        assert fetched(groups, 1, group=request.group_id) == {1: expected}


def one_offset(
    node: SimNode, version: int, offset: int, *, index: int = 1, metadata: str | None = None, **more: Any
) -> offset_commit.OffsetCommitRequest:
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_metadata=metadata
    )
    named = {"topic_id": node.services.image().topics["t"].topic_id} if version >= 10 else {"name": "t"}
    topic = offset_commit.OffsetCommitRequestTopic(**named, partitions=[partition])
    return offset_commit.OffsetCommitRequest(**{"group_id": "g", "topics": [topic], **more})


def test_many_offsets_are_committed_by_hand(groups: SimNode) -> None:
    groups.create_topic("u")
    request = one_offset(groups, 9, 5, index=0)
    request.topics[0].partitions += one_offset(groups, 9, 6).topics[0].partitions
    other = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    request.topics.append(offset_commit.OffsetCommitRequestTopic(name="u", partitions=[other]))
    told = [
        (topic.name, [(each.partition_index, each.error_code) for each in topic.partitions])
        for topic in groups.send(request, 9).topics
    ]
    assert told == [("t", [(0, 0), (1, 0)]), ("u", [(0, 0)])]
    assert fetched(groups, 0, 1) == {0: 5, 1: 6}
    assert fetched(groups, 0, topic="u") == {0: 7}


@pytest.mark.parametrize(
    "more", [{"topics": []}, {"metadata": "x" * 200}, {"index": 7}, {"group_id": "g" * 200}]
)
def test_what_is_unusual_is_left_to_the_general_way(groups: SimNode, more: dict[str, Any]) -> None:
    assert groups.send(one_offset(groups, 9, 5, **more), 9) is None
    assert fetched(groups, 1) == {1: -1}


def test_a_commit_without_a_coordinator_is_refused_by_hand_too(node: SimNode) -> None:
    node.create_topic("t", partitions=2)
    assert codes(node.send(one_offset(node, 9, 5), 9)) == {1: ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize("way", ["send", "call"])
def test_metadata_that_is_too_long_is_refused(way: str) -> None:
    with SimNode(**OPTIONS, offset_metadata_max_bytes="3") as node:
        node.create_topic("t", partitions=2)
        find(node, "g")
        node.simulation.advance(1)
        answer = getattr(node, way)(one_offset(node, 9, 5, metadata="four"), 9)
        assert codes(answer) == {1: ErrorCode.OFFSET_METADATA_TOO_LARGE}


def test_an_offset_is_answered_when_it_is_committed(groups: SimNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it takes for that with one replica: that the high watermark is held back."""
    group_coordinator = groups.services.groups
    partition = groups.partition("__consumer_offsets", group_coordinator.partition_of("g"))
    monkeypatch.setattr(Log, "advance_high_watermark", lambda self, offset: False)
    request = one_offset(groups, 9, 5)
    assert groups.send(request, 9) is None

    def replicate() -> None:
        partition.log.high_watermark = partition.log.log_end_offset
        group_coordinator._coordinator.on_high_watermark(partition)

    groups.runtime.call_later(1, replicate)
    assert codes(groups.send(request, 9, wait_s=2)) == {1: 0}


def test_topics_are_committed_and_fetched_by_id(groups: SimNode) -> None:
    response = commit(groups, {0: 5}, version=10)
    topic_id = groups.services.image().topics["t"].topic_id
    assert (response.topics[0].topic_id, codes(response)) == (topic_id, {0: 0})
    request = offset_fetch.OffsetFetchRequest(
        groups=[
            offset_fetch.OffsetFetchRequestGroup(
                group_id="g",
                topics=[
                    offset_fetch.OffsetFetchRequestTopics(topic_id=id, partition_indexes=[0])
                    for id in (topic_id, Uuid(b"n" * 16))
                ],
            )
        ]
    )
    (answer,) = groups.call(request, 10).groups
    told = [
        (each.topic_id, each.partitions[0].committed_offset, each.partitions[0].error_code)
        for each in answer.topics
    ]
    assert told == [(topic_id, 5, 0), (Uuid(b"n" * 16), -1, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_an_error_of_the_group_is_that_of_each_partition(groups: SimNode) -> None:
    response = commit(groups, {0: 5, 1: 6}, generation_id_or_member_epoch=3, member_id="m")
    assert codes(response) == dict.fromkeys((0, 1), ErrorCode.GROUP_ID_NOT_FOUND)


def test_a_group_without_a_name_may_commit(groups: SimNode) -> None:
    assert codes(commit(groups, {0: 5}, group="")) == {0: 0}
    assert fetched(groups, 0, group="") == {0: 5}


def test_all_offsets_of_a_group_are_told_to_older_clients(groups: SimNode) -> None:
    commit(groups, {0: 5})
    answer = groups.call(offset_fetch.OffsetFetchRequest(group_id="g", topics=None), 7)
    assert (answer.error_code, answer.topics[0].name) == (0, "t")
    assert [(each.partition_index, each.committed_offset) for each in answer.topics[0].partitions] == [(0, 5)]


def test_an_error_is_told_by_partition_where_the_response_has_no_other_place(node: SimNode) -> None:
    topic = offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    request = offset_fetch.OffsetFetchRequest(group_id="g", topics=[topic])
    answer = node.call(request, 1)
    assert [each.error_code for each in answer.topics[0].partitions] == [ErrorCode.NOT_COORDINATOR]
    assert node.call(request, 2).error_code == ErrorCode.NOT_COORDINATOR


def test_offsets_are_deleted_by_partition(groups: SimNode) -> None:
    commit(groups, {0: 5, 1: 6})
    request = offset_delete.OffsetDeleteRequest(
        group_id="g",
        topics=[
            offset_delete.OffsetDeleteRequestTopic(
                name="t",
                partitions=[
                    offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)
                ],
            )
        ],
    )
    assert codes(groups.call(request, 0)) == {0: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert fetched(groups, 0, 1) == {0: -1, 1: 6}


def test_offsets_go_with_their_topic(groups: SimNode) -> None:
    commit(groups, {0: 5})
    groups.call(delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    groups.create_topic("t", partitions=2)
    assert fetched(groups, 0) == {0: -1}


# ---------------------------------------------------------------- groups


def listed(node: SimNode, **filters: list[str]) -> list[tuple[str, str, str]]:
    response = node.call(list_groups.ListGroupsRequest(**filters), 5)
    assert response.error_code == 0
    return sorted((each.group_id, each.group_state, each.group_type) for each in response.groups)


def test_groups_are_listed_by_state_and_type(groups: SimNode) -> None:
    commit(groups, {0: 5}, group="g")
    commit(groups, {0: 5}, group="h")
    everything = [("g", "Empty", "classic"), ("h", "Empty", "classic")]
    assert listed(groups) == everything
    assert listed(groups, states_filter=["empty"], types_filter=["CLASSIC"]) == everything
    assert listed(groups, states_filter=["Stable"]) == []
    assert listed(groups, types_filter=["consumer", "nonsense"]) == []


def test_a_deleted_group_is_gone_with_its_offsets(groups: SimNode) -> None:
    commit(groups, {0: 5})
    request = delete_groups.DeleteGroupsRequest(groups_names=["g", "nope", "", "g"])
    results = {each.group_id: each.error_code for each in groups.call(request, 2).results}
    assert results == {"g": 0, "nope": ErrorCode.GROUP_ID_NOT_FOUND, "": ErrorCode.GROUP_ID_NOT_FOUND}
    assert listed(groups) == []
    assert fetched(groups, 0) == {0: -1}


def test_the_coordinator_of_a_lost_directory_says_so(groups: SimNode) -> None:
    commit(groups, {0: 5})
    index = groups.services.groups.partition_of("g")
    groups.simulation.disk("localhost").faults.fail_next(path=f"*/__consumer_offsets-{index}/*.log")
    assert codes(commit(groups, {0: 6})) == {0: ErrorCode.NOT_COORDINATOR}
    assert codes(commit(groups, {0: 7})) == {0: ErrorCode.NOT_COORDINATOR}  # nobody leads it any more
    assert groups.partition("__consumer_offsets", index).log is None
