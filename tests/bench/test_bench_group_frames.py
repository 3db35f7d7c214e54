"""Hand-packed frames of groups against the declared messages; where groups are looked for after a restart."""

import pytest

from bench import frames, group_frames
from bench.loads import load_groups
from moldau.coordinator.placement import partition_of
from moldau.wire.codec import Struct, decode_whole, encode
from moldau.wire.headers import read_request_header
from moldau.wire.messages import (
    consumer_group_heartbeat,
    consumer_protocol,
    find_coordinator,
    heartbeat,
    join_group,
    offset_commit,
    offset_fetch,
    sync_group,
)

GROUP, TOPIC, MEMBER, TOPIC_ID = "a-group", "a-topic", b"a-member", bytes(range(16))


def read(frame: bytes, message: type[Struct]):
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = read_request_header(frame[4:], {message.API_KEY: 0})
    assert (header.api_key, header.client_id) == (message.API_KEY, frames.CLIENT_ID)
    return decode_whole(message, header.api_version, frame[4 + header.body_position :])


def answer(message: Struct, version: int) -> bytes:
    """A payload as a socket gives it: correlation id, no tags, body."""
    return bytes(4) + b"\0" + bytes(encode(message, version))


def test_find_coordinator():
    request = read(group_frames.find_coordinator(GROUP), find_coordinator.FindCoordinatorRequest)
    assert (request.key, request.key_type) == (GROUP, 0)


@pytest.mark.parametrize("partitions", [[7], range(200)])
def test_offset_commit(partitions: list[int]):
    frame = group_frames.offset_commit(GROUP, TOPIC, partitions, 42)
    request = read(frame, offset_commit.OffsetCommitRequest)
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == (GROUP, -1, "")
    (topic,) = request.topics
    assert topic.name == TOPIC
    assert topic.partitions == [
        offset_commit.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=42, committed_leader_epoch=-1, committed_metadata=""
        )
        for index in partitions
    ]


@pytest.mark.parametrize("code", [0, 14, -1])
def test_commit_error(code: int):
    partition = offset_commit.OffsetCommitResponsePartition(partition_index=3, error_code=code)
    topic = offset_commit.OffsetCommitResponseTopic(name=TOPIC, partitions=[partition])
    payload = answer(offset_commit.OffsetCommitResponse(topics=[topic]), group_frames.OFFSET_COMMIT_VERSION)
    at = group_frames.commit_error_at(TOPIC)
    assert payload[at : at + 2] == code.to_bytes(2, "big", signed=True)


def test_offset_fetch():
    names = [f"group-{number}" for number in range(200)]
    request = read(group_frames.offset_fetch(names), offset_fetch.OffsetFetchRequest)
    assert request.groups == [
        offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names
    ]
    assert not request.require_stable


def test_fetched_offsets():
    def told(index: int, offset: int):
        return offset_fetch.OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=offset, committed_leader_epoch=1, metadata="some"
        )

    topics = [
        offset_fetch.OffsetFetchResponseTopics(name=name, partitions=[told(0, -1), told(1, 0), told(2, 9)])
        for name in (TOPIC, "another")
    ]
    message = offset_fetch.OffsetFetchResponse(
        groups=[
            offset_fetch.OffsetFetchResponseGroup(group_id=GROUP, topics=topics),
            offset_fetch.OffsetFetchResponseGroup(group_id="loading", topics=[], error_code=14),
        ]
    )
    assert group_frames.fetched_offsets(answer(message, group_frames.OFFSET_FETCH_VERSION)) == {
        b"a-group": group_frames.FetchedGroup(error_code=0, offsets=4),
        b"loading": group_frames.FetchedGroup(error_code=14, offsets=0),
    }


def test_join_group():
    request = read(group_frames.join_group(GROUP, MEMBER, [TOPIC], 2000), join_group.JoinGroupRequest)
    assert (request.group_id, request.member_id, request.group_instance_id) == (GROUP, "a-member", None)
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (2000, 2000)
    assert (request.protocol_type, request.protocols[0].name) == ("consumer", "range")
    metadata = request.protocols[0].metadata
    assert metadata[:2] == b"\0\0"
    subscription = decode_whole(consumer_protocol.ConsumerProtocolSubscription, 0, metadata[2:])
    assert (subscription.topics, subscription.user_data) == ([TOPIC], None)


def test_joined():
    members = [join_group.JoinGroupResponseMember(member_id=name, metadata=b"m" * 200) for name in "ab"]
    message = join_group.JoinGroupResponse(
        error_code=79,
        generation_id=5,
        protocol_type="consumer",
        protocol_name="range",
        leader="a",
        member_id="b",
        members=members,
    )
    assert group_frames.joined(answer(message, group_frames.JOIN_GROUP_VERSION)) == group_frames.Joined(
        error_code=79, generation=5, leader=b"a", member_id=b"b", members=[b"a", b"b"]
    )


def test_sync_group():
    told = group_frames.assignment(TOPIC, [1, 5])
    frame = group_frames.sync_group(GROUP, 5, MEMBER, {MEMBER: told})
    request = read(frame, sync_group.SyncGroupRequest)
    assert (request.group_id, request.generation_id, request.member_id) == (GROUP, 5, "a-member")
    assert (request.protocol_type, request.protocol_name) == ("consumer", "range")
    assert request.assignments == [
        sync_group.SyncGroupRequestAssignment(member_id="a-member", assignment=told)
    ]
    assert told[:2] == b"\0\0"
    assigned = decode_whole(consumer_protocol.ConsumerProtocolAssignment, 0, told[2:])
    assert assigned.assigned_partitions == [
        consumer_protocol.ConsumerProtocolAssignmentTopicPartition(topic=TOPIC, partitions=[1, 5])
    ]


def test_synced():
    message = sync_group.SyncGroupResponse(
        protocol_type="consumer", protocol_name="range", assignment=group_frames.assignment(TOPIC, [3, 1])
    )
    assert group_frames.synced(answer(message, group_frames.SYNC_GROUP_VERSION)) == [3, 1]


def test_heartbeat():
    request = read(group_frames.heartbeat(GROUP, 5, MEMBER), heartbeat.HeartbeatRequest)
    assert request == heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=5, member_id="a-member")
    payload = answer(heartbeat.HeartbeatResponse(error_code=27), group_frames.HEARTBEAT_VERSION)
    assert group_frames.first_error(payload) == group_frames.REBALANCE_IN_PROGRESS


def test_consumer_group_heartbeat():
    beat = read(
        group_frames.consumer_group_heartbeat(GROUP, MEMBER, 3),
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest,
    )
    assert beat == consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="a-member", member_epoch=3
    )
    full = read(
        group_frames.consumer_group_heartbeat(
            GROUP, MEMBER, 0, topics=[TOPIC], owned={TOPIC_ID: [1, 2]}, rebalance_timeout_ms=9
        ),
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest,
    )
    owned = consumer_group_heartbeat.RequestTopicPartitions(topic_id=TOPIC_ID, partitions=[1, 2])
    assert (full.subscribed_topic_names, full.topic_partitions) == ([TOPIC], [owned])
    assert full.rebalance_timeout_ms == 9


@pytest.mark.parametrize("assigned", [None, {}, {TOPIC_ID: [4, 2]}])
def test_beaten(assigned: dict[bytes, list[int]] | None):
    message = consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
        member_id="a-member", member_epoch=4, heartbeat_interval_ms=100
    )
    if assigned is not None:
        message.assignment = consumer_group_heartbeat.Assignment(
            topic_partitions=[
                consumer_group_heartbeat.ResponseTopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in assigned.items()
            ]
        )
    payload = answer(message, group_frames.CONSUMER_GROUP_HEARTBEAT_VERSION)
    assert group_frames.first_error(payload) == 0
    told = group_frames.beaten(payload)
    assert told == group_frames.Beaten(epoch=4, interval_ms=100, assigned=assigned)


def test_one_group_of_each_partition_is_asked_for():
    groups = [f"group-{number}" for number in range(1000)]
    sample = load_groups.one_of_each_partition(groups)
    assert sorted(partition_of(group, 50) for group in sample) == list(range(50))


def test_groups_are_loaded_when_all_of_them_tell_all_their_offsets():
    def told(error_code: int, offsets: int) -> dict[bytes, group_frames.FetchedGroup]:
        whole = group_frames.FetchedGroup(error_code=0, offsets=10)
        return {b"a": whole, b"b": group_frames.FetchedGroup(error_code=error_code, offsets=offsets)}

    assert load_groups.is_loaded(told(0, 10), 2)
    assert not load_groups.is_loaded(told(14, 0), 2)
    with pytest.raises(ValueError, match="15 offsets"):
        load_groups.is_loaded(told(0, 5), 2)
    with pytest.raises(frames.BrokerAnswered, match="30"):
        load_groups.is_loaded(told(30, 0), 2)
