"""The groups of a broker in memory: what a coordinator would answer about them, without what makes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from moldau.wire.api import ApiKey
from moldau.wire.codec import encode
from moldau.wire.errors import ErrorCode
from moldau.wire.messages import (
    alter_share_group_offsets,
    consumer_group_describe,
    delete_groups,
    delete_share_group_offsets,
    describe_groups,
    describe_share_group_offsets,
    find_coordinator,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    share_group_describe,
)
from moldau.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)
from moldau.wire.schema import Message
from tests.client.fake_broker import FakeBroker

Places = dict[str, list[int]]


@dataclass
class FakeMember:
    member_id: str
    client_id: str
    assignment: Places
    instance_id: str | None = None
    host: str = "/10.0.0.1"


@dataclass
class FakeGroup:
    type: str = "classic"
    state: str = "Empty"
    protocol_type: str = "consumer"
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    members: list[FakeMember] = field(default_factory=list)
    subscribed: set[str] = field(default_factory=set)


class FakeGroups:
    """Takes over the group APIs of `broker`. `clients` is what it tells of who fetches; None, as of Kafka, is
    nothing. `passing` are codes to be answered first, as by a coordinator that is not there yet."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.groups: dict[str, FakeGroup] = {}
        self.clients: list[list_groups.FetchingClient] | None = None
        self.passing: list[ErrorCode] = []
        for key in (
            ApiKey.FIND_COORDINATOR,
            ApiKey.LIST_GROUPS,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            ApiKey.SHARE_GROUP_DESCRIBE,
            ApiKey.OFFSET_FETCH,
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_DELETE,
            ApiKey.DELETE_GROUPS,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ):
            broker.serve(key, getattr(self, f"_{key.name.lower()}"))

    def add(self, name: str, **what: Any) -> FakeGroup:
        group = self.groups[name] = FakeGroup(**what)
        return group

    def is_old(self) -> None:
        """From here on the broker speaks what Kafka 2.4 did."""
        self.broker.versions_max |= {
            ApiKey.FIND_COORDINATOR: 3,
            ApiKey.LIST_GROUPS: 3,
            ApiKey.DESCRIBE_GROUPS: 5,
            ApiKey.CONSUMER_GROUP_DESCRIBE: -1,
            ApiKey.SHARE_GROUP_DESCRIBE: -1,
            ApiKey.OFFSET_FETCH: 6,
        }

    def _find_coordinator(self, request: find_coordinator.FindCoordinatorRequest) -> Message:
        code = self.passing.pop() if self.passing else ErrorCode.NONE
        where: dict[str, Any] = {"node_id": 1, "host": self.broker.host, "port": self.broker.port}
        return find_coordinator.FindCoordinatorResponse(
            coordinators=[
                find_coordinator.Coordinator(key=key, error_code=code, error_message=None, **where)
                for key in request.coordinator_keys
            ],
            **({} if request.coordinator_keys else {"error_code": code, "error_message": None, **where}),
        )

    def _list_groups(self, request: list_groups.ListGroupsRequest) -> Message:
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        return list_groups.ListGroupsResponse(
            fetching_clients=self.clients if request.with_positions else None,
            groups=[
                list_groups.ListedGroup(
                    group_id=name,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.type,
                )
                for name, group in self.groups.items()
                if (not states or group.state.lower() in states) and (not types or group.type in types)
            ],
        )

    def _of_type(self, name: str, kind: str) -> FakeGroup | None:
        group = self.groups.get(name)
        return group if group is not None and group.type == kind else None

    def _describe_groups(self, request: describe_groups.DescribeGroupsRequest) -> Message:
        return describe_groups.DescribeGroupsResponse(
            groups=[self._described_classic(name) for name in request.groups]
        )

    def _described_classic(self, name: str) -> describe_groups.DescribedGroup:
        group = self._of_type(name, "classic")
        is_told = self.broker.versions_max.get(ApiKey.DESCRIBE_GROUPS, 6) >= 6
        if group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.NONE
            return describe_groups.DescribedGroup(group_id=name, group_state="Dead", error_code=code)
        return describe_groups.DescribedGroup(
            group_id=name,
            group_state=group.state,
            protocol_type=group.protocol_type,
            protocol_data="range" if group.members else "",
            members=[
                describe_groups.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id if is_told else None,
                    client_id=member.client_id,
                    client_host=member.host,
                    member_assignment=_assignment(member.assignment),
                )
                for member in group.members
            ],
        )

    def _consumer_group_describe(
        self, request: consumer_group_describe.ConsumerGroupDescribeRequest
    ) -> Message:
        module = consumer_group_describe
        described = []
        for name in request.group_ids:
            group = self._of_type(name, "consumer")
            if group is None:
                code = ErrorCode.GROUP_ID_NOT_FOUND
                described.append(module.DescribedGroup(group_id=name, error_code=code))
                continue
            assignments = [
                module.Assignment(
                    topic_partitions=[
                        module.TopicPartitions(topic_name=topic, partitions=indexes)
                        for topic, indexes in member.assignment.items()
                    ]
                )
                for member in group.members
            ]
            members = [
                module.Member(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    member_epoch=4,
                    client_id=member.client_id,
                    client_host=member.host,
                    assignment=assignment,
                    target_assignment=assignment,
                    member_type=1,
                )
                for member, assignment in zip(group.members, assignments, strict=True)
            ]
            described.append(
                module.DescribedGroup(
                    group_id=name,
                    group_state=group.state,
                    group_epoch=5,
                    assignment_epoch=4,
                    assignor_name="uniform",
                    members=members,
                )
            )
        return module.ConsumerGroupDescribeResponse(groups=described)

    def _share_group_describe(self, request: share_group_describe.ShareGroupDescribeRequest) -> Message:
        module = share_group_describe
        described = []
        for name in request.group_ids:
            group = self._of_type(name, "share")
            if group is None:
                code = ErrorCode.GROUP_ID_NOT_FOUND
                described.append(module.DescribedGroup(group_id=name, error_code=code))
            else:
                described.append(
                    module.DescribedGroup(group_id=name, group_state=group.state, assignor_name="simple")
                )
        return module.ShareGroupDescribeResponse(groups=described)

    def _topics(self, name: str) -> dict[str, dict[int, int]]:
        topics: dict[str, dict[int, int]] = {}
        group = self.groups.get(name)
        for (topic, index), offset in sorted(group.committed.items()) if group else ():
            topics.setdefault(topic, {})[index] = offset
        return topics

    def _offset_fetch(self, request: offset_fetch.OffsetFetchRequest) -> Message:
        if not request.groups:
            return offset_fetch.OffsetFetchResponse(
                topics=[
                    offset_fetch.OffsetFetchResponseTopic(
                        name=topic,
                        partitions=[
                            offset_fetch.OffsetFetchResponsePartition(
                                partition_index=index, committed_offset=offset, metadata=""
                            )
                            for index, offset in partitions.items()
                        ],
                    )
                    for topic, partitions in self._topics(request.group_id).items()
                ]
            )
        return offset_fetch.OffsetFetchResponse(
            groups=[
                offset_fetch.OffsetFetchResponseGroup(
                    group_id=asked.group_id,
                    topics=[
                        offset_fetch.OffsetFetchResponseTopics(
                            name=topic,
                            partitions=[
                                offset_fetch.OffsetFetchResponsePartitions(
                                    partition_index=index, committed_offset=offset, metadata=""
                                )
                                for index, offset in partitions.items()
                            ],
                        )
                        for topic, partitions in self._topics(asked.group_id).items()
                    ],
                )
                for asked in request.groups
            ]
        )

    def _offset_commit(self, request: offset_commit.OffsetCommitRequest) -> Message:
        group = self.groups.get(request.group_id) or self.add(request.group_id, protocol_type="")
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                code = ErrorCode.NON_EMPTY_GROUP if group.members else ErrorCode.NONE
                if not code:
                    group.committed[topic.name, asked.partition_index] = asked.committed_offset
                partitions.append(
                    offset_commit.OffsetCommitResponsePartition(
                        partition_index=asked.partition_index, error_code=code
                    )
                )
            topics.append(offset_commit.OffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        return offset_commit.OffsetCommitResponse(topics=topics)

    def _offset_delete(self, request: offset_delete.OffsetDeleteRequest) -> Message:
        group = self.groups[request.group_id]
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                index = asked.partition_index
                code = ErrorCode.NONE
                if topic.name in group.subscribed:
                    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                else:
                    group.committed.pop((topic.name, index), None)
                partitions.append(
                    offset_delete.OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                )
            topics.append(offset_delete.OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        return offset_delete.OffsetDeleteResponse(topics=topics)

    def _delete_groups(self, request: delete_groups.DeleteGroupsRequest) -> Message:
        results = []
        for name in request.groups_names:
            code = ErrorCode.NONE
            if name not in self.groups:
                code = ErrorCode.GROUP_ID_NOT_FOUND
            elif self.groups[name].members:
                code = ErrorCode.NON_EMPTY_GROUP
            else:
                del self.groups[name]
            results.append(delete_groups.DeletableGroupResult(group_id=name, error_code=code))
        return delete_groups.DeleteGroupsResponse(results=results)

    def _describe_share_group_offsets(
        self, request: describe_share_group_offsets.DescribeShareGroupOffsetsRequest
    ) -> Message:
        module = describe_share_group_offsets
        return module.DescribeShareGroupOffsetsResponse(
            groups=[
                module.DescribeShareGroupOffsetsResponseGroup(
                    group_id=asked.group_id,
                    topics=[
                        module.DescribeShareGroupOffsetsResponseTopic(
                            topic_name=topic,
                            partitions=[
                                module.DescribeShareGroupOffsetsResponsePartition(
                                    partition_index=index, start_offset=offset, leader_epoch=0, lag=1
                                )
                                for index, offset in partitions.items()
                            ],
                        )
                        for topic, partitions in self._topics(asked.group_id).items()
                    ],
                )
                for asked in request.groups
            ]
        )

    def _alter_share_group_offsets(
        self, request: alter_share_group_offsets.AlterShareGroupOffsetsRequest
    ) -> Message:
        module = alter_share_group_offsets
        responses = []
        for topic in request.topics:
            for asked in topic.partitions:
                place = (topic.topic_name, asked.partition_index)
                self.groups[request.group_id].committed[place] = asked.start_offset
            responses.append(
                module.AlterShareGroupOffsetsResponseTopic(
                    topic_name=topic.topic_name,
                    partitions=[
                        module.AlterShareGroupOffsetsResponsePartition(partition_index=asked.partition_index)
                        for asked in topic.partitions
                    ],
                )
            )
        return module.AlterShareGroupOffsetsResponse(responses=responses)

    def _delete_share_group_offsets(
        self, request: delete_share_group_offsets.DeleteShareGroupOffsetsRequest
    ) -> Message:
        committed = self.groups[request.group_id].committed
        gone = {topic.topic_name for topic in request.topics}
        for place in [place for place in committed if place[0] in gone]:
            del committed[place]
        return delete_share_group_offsets.DeleteShareGroupOffsetsResponse(
            responses=[
                delete_share_group_offsets.DeleteShareGroupOffsetsResponseTopic(topic_name=topic)
                for topic in sorted(gone)
            ]
        )


def _assignment(places: Places) -> bytes:
    """As the leader of a group writes it: the version in front."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in places.items()
        ]
    )
    return bytes(encode(assignment, 1, bytearray(b"\x00\x01")))
