from __future__ import annotations

from random import Random
from typing import Any, TypeVar

import pytest

from moldau.server.api import APIS, Api
from moldau.testing.answers import failed, mark_failed
from moldau.wire import codec
from moldau.wire.api import ApiKey, camel_name, request_type, response_type
from moldau.wire.errors import ErrorCode
from moldau.wire.messages import (
    delete_topics,
    describe_groups,
    fetch,
    find_coordinator,
    join_group,
    leave_group,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from moldau.wire.schema import Message, Primitive, Struct
from tests.wire.message_samples import sample

S = TypeVar("S", bound=Struct)

ERROR = ErrorCode.NOT_LEADER_OR_FOLLOWER
# Their entries are arranged otherwise than the request's, and older versions have no error for the whole.
WITHOUT_ROOM = {(ApiKey.ALTER_REPLICA_LOG_DIRS, 1), (ApiKey.ALTER_REPLICA_LOG_DIRS, 2)} | {
    (ApiKey.DESCRIBE_LOG_DIRS, version) for version in (1, 2)
}


def codes(value: Any) -> set[int]:
    if isinstance(value, list):
        return set().union(*map(codes, value))
    if not hasattr(value, "__fields__"):
        return set()
    told = {field.name for field in value.__fields__} & {"error_code", "partition_error_code"}
    inside = [getattr(value, field.name) for field in value.__fields__ if field.name not in told]
    return codes(inside).union(getattr(value, name) for name in told)


def one_of_each(kind: type[S], version: int) -> S:
    """With one entry in every array."""
    made = kind()
    for field in kind.__fields__:
        if version not in field.versions or not field.is_array:
            continue
        item = field.type.zero if isinstance(field.type, Primitive) else one_of_each(field.type, version)
        setattr(made, field.name, [item])
    return made


def answer(request: Message, version: int, **options: bool) -> Any:
    kind = response_type(ApiKey(type(request).API_KEY))
    response = failed(request, kind, version, ERROR, **options)
    assert response is not None
    return codec.decode_whole(kind, version, codec.encode(response, version))


@pytest.mark.parametrize("api", APIS, ids=lambda api: camel_name(api.key))
def test_every_api_and_version_can_tell_of_an_error(api: Api) -> None:
    for version in range(api.first, api.last + 1):
        response = failed(one_of_each(request_type(api.key), version), response_type(api.key), version, ERROR)
        if (api.key, version) in WITHOUT_ROOM:
            assert response is None
            continue
        assert response is not None, f"v{version}"
        there = codes(codec.decode_whole(type(response), version, codec.encode(response, version)))
        assert ERROR in there and there <= {0, ERROR}, f"v{version}"


@pytest.mark.parametrize("api", APIS, ids=lambda api: camel_name(api.key))
def test_whatever_was_asked_the_answer_can_be_written(api: Api) -> None:
    for version in range(api.first, api.last + 1):
        for seed in range(10):
            request = sample(request_type(api.key), version, Random(seed))
            response = failed(request, response_type(api.key), version, ERROR)
            assert response is not None or (api.key, version) in WITHOUT_ROOM
            if response is not None:
                codec.encode(response, version)


def test_each_partition_of_a_produce_and_nothing_that_tells_of_success() -> None:
    parts = [produce.PartitionProduceData(index=index, records=b"") for index in (0, 2)]
    request = produce.ProduceRequest(
        acks=-1, topic_data=[produce.TopicProduceData(name="orders", partition_data=parts)]
    )
    (topic,) = answer(request, 9).responses
    assert topic.name == "orders"
    assert [(part.index, part.error_code, part.base_offset) for part in topic.partition_responses] == [
        (0, ERROR, -1),
        (2, ERROR, -1),
    ]


def test_each_partition_of_a_fetch_or_the_whole() -> None:
    topic = fetch.FetchTopic(topic="orders", partitions=[fetch.FetchPartition(partition=1)])
    request = fetch.FetchRequest(topics=[topic], session_id=9)
    response = answer(request, 12)
    (part,) = response.responses[0].partitions
    assert (response.error_code, part.partition_index, part.error_code, part.high_watermark) == (
        0,
        1,
        ERROR,
        -1,
    )
    whole = answer(request, 12, whole=True)
    assert (whole.error_code, whole.responses, whole.session_id) == (ERROR, [], -1)


def test_names_without_more_become_entries() -> None:
    assert [
        (each.name, each.error_code)
        for each in answer(delete_topics.DeleteTopicsRequest(topic_names=["a", "b"]), 5).responses
    ] == [("a", ERROR), ("b", ERROR)]
    assert [
        (each.group_id, each.error_code)
        for each in answer(describe_groups.DescribeGroupsRequest(groups=["g"]), 5).groups
    ] == [("g", ERROR)]
    (found,) = answer(find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
    assert (found.key, found.node_id, found.port, found.error_code) == ("g", -1, -1, ERROR)


def test_groups_are_told_as_clients_expect_it() -> None:
    joined = answer(join_group.JoinGroupRequest(group_id="g", member_id="m"), 9)
    assert (joined.error_code, joined.member_id) == (ERROR, "m")
    left = answer(
        leave_group.LeaveGroupRequest(group_id="g", members=[leave_group.MemberIdentity(member_id="m")]), 5
    )
    assert (left.error_code, left.members) == (ERROR, [])
    topics = [offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    assert answer(offset_fetch.OffsetFetchRequest(group_id="g", topics=topics), 5).error_code == ERROR
    groups = [offset_fetch.OffsetFetchRequestGroup(group_id="g")]
    (group,) = answer(offset_fetch.OffsetFetchRequest(groups=groups), 8).groups
    assert (group.group_id, group.error_code) == ("g", ERROR)


def test_an_entry_is_about_what_was_asked() -> None:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=3, committed_offset=70)
    topic = offset_commit.OffsetCommitRequestTopic(name="t", partitions=[partition])
    (told,) = answer(offset_commit.OffsetCommitRequest(group_id="g", topics=[topic]), 8).topics
    assert [(part.partition_index, part.error_code) for part in told.partitions] == [(3, ERROR)]


def test_a_good_answer_turned_bad_keeps_what_is_around() -> None:
    partition = metadata.MetadataResponsePartition(partition_index=0, leader_id=1)
    response = metadata.MetadataResponse(
        brokers=[metadata.MetadataResponseBroker(node_id=1, host="localhost", port=9092)],
        topics=[metadata.MetadataResponseTopic(name="t", partitions=[partition])],
    )
    assert mark_failed(response, 12, ERROR)
    assert (response.topics[0].error_code, response.topics[0].partitions) == (ERROR, [])
    assert len(response.brokers) == 1
    empty = metadata.MetadataResponse()
    assert not mark_failed(empty, 12, ERROR)
    assert mark_failed(empty, 13, ERROR) and empty.error_code == ERROR
