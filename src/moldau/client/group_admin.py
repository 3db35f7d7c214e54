"""Questions and orders about groups: each goes to the group's coordinator, many groups in one request.

Answerable for the versions in which older clusters have to be asked, and for one outcome per group: what one
group refuses does not fail the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from moldau.client.admin import LATEST_TIMESTAMP, Admin
from moldau.client.cluster import Cluster, Node, TopicPartition
from moldau.client.connection import Connection
from moldau.client.coordinators import Coordinators, KeyType, Outcomes, ask_every_node
from moldau.client.group_description import (
    TYPES,
    CommittedOffset,
    FetchPosition,
    GroupDescription,
    GroupListing,
    ShareOffset,
    by_topic,
    of_classic,
    of_consumer,
    of_share,
)
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.messages import alter_share_group_offsets, offset_commit, offset_delete
from moldau.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from moldau.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from moldau.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from moldau.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from moldau.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from moldau.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from moldau.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

Failures = dict[TopicPartition, KafkaError]

_BATCHED_OFFSETS_FROM = 8
# From the next versions on topics go by their ids; committed offsets may be those of topics that are gone.
_OFFSETS_BY_NAME_MAX = 9
_TYPES_FROM = 5
_TYPES_BY_WIRE = {name.lower(): name for name in TYPES}
# Of partitions: the answer of somebody who is not, or not yet, the group's coordinator.
_ELSEWHERE = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)
# What a broker says of a group that is of another kind, or of a kind it does not have.
_OTHER_KIND = frozenset((ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION))


class GroupAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, KeyType.GROUP)

    # ------------------------------------------------------------ every broker

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """The groups of all brokers, sorted; only those in one of `states` and of `types`, if given."""
        request = ListGroupsRequest(states_filter=sorted(states), types_filter=sorted(types))
        found: dict[str, GroupListing] = {}

        async def ask(node_id: int, connection: Connection) -> None:
            response = await connection.request(request, ListGroupsResponse)
            _check(response.error_code, f"node {node_id}")
            for group in response.groups:
                found[group.group_id] = GroupListing(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    state=group.group_state,
                    type=_TYPES_BY_WIRE.get(group.group_type.lower(), group.group_type),
                )

        await ask_every_node(self._cluster, ask)
        return [listing for _, listing in sorted(found.items())]

    async def fetch_positions(self) -> list[FetchPosition] | None:
        """What brokers remember of who reads what, groups or not. Only Moldau's tell: None if none did."""
        found: list[FetchPosition] = []
        told = False

        async def ask(node_id: int, connection: Connection) -> None:
            nonlocal told
            if connection.version_of(ApiKey.LIST_GROUPS) < _TYPES_FROM:
                return
            response = await connection.request(ListGroupsRequest(with_positions=True), ListGroupsResponse)
            _check(response.error_code, f"node {node_id}")
            if response.fetching_clients is None:
                return
            told = True
            for client in response.fetching_clients:
                for topic in client.topics:
                    found.extend(
                        FetchPosition(
                            client_id=client.client_id,
                            host=client.host,
                            place=TopicPartition(topic.name, partition.index),
                            position=partition.position,
                            high_watermark=partition.high_watermark,
                            age_ms=partition.age_ms,
                        )
                        for partition in topic.partitions
                    )

        await ask_every_node(self._cluster, ask)
        if not told:
            return None
        return sorted(found, key=lambda each: (each.client_id, each.host, each.place))

    # ------------------------------------------------------------ groups

    async def describe(self, group_ids: Iterable[str]) -> Outcomes[GroupDescription]:
        """Groups of consumers and share groups; the others only as far as classic groups are told of."""
        return await self._coordinators.ask(group_ids, self._describe_at)

    async def _describe_at(self, node: Node, group_ids: list[str]) -> Outcomes[GroupDescription]:
        """Of which kind a group is its coordinator knows: each kind is asked for what is left."""
        connection = await self._cluster.connection_to(node.node_id)
        outcomes: Outcomes[GroupDescription] = {}
        left = group_ids
        if connection.supports(ApiKey.CONSUMER_GROUP_DESCRIBE):
            of_consumers = await connection.request(
                ConsumerGroupDescribeRequest(group_ids=left), ConsumerGroupDescribeResponse
            )
            for consumer in of_consumers.groups:
                failure = _failure(consumer.error_code, consumer.error_message, consumer.group_id)
                outcomes[consumer.group_id] = failure or of_consumer(consumer, node)
            left = _undescribed(group_ids, outcomes)
        if left and connection.supports(ApiKey.SHARE_GROUP_DESCRIBE):
            of_shares = await connection.request(
                ShareGroupDescribeRequest(group_ids=left), ShareGroupDescribeResponse
            )
            for share in of_shares.groups:
                failure = _failure(share.error_code, share.error_message, share.group_id)
                outcomes[share.group_id] = failure or of_share(share, node)
            left = _undescribed(group_ids, outcomes)
        if left:
            of_others = await connection.request(DescribeGroupsRequest(groups=left), DescribeGroupsResponse)
            for classic in of_others.groups:
                code = classic.error_code
                if (
                    classic.group_state == "Dead" and not code
                ):  # so it was told before there was a code for it
                    code = ErrorCode.GROUP_ID_NOT_FOUND
                failure = _failure(code, classic.error_message, classic.group_id)
                outcomes[classic.group_id] = failure or of_classic(classic, node)
        return outcomes

    async def delete(self, group_ids: Iterable[str]) -> Outcomes[None]:
        async def ask(node: Node, ids: list[str]) -> Outcomes[None]:
            response = await self._cluster.ask_node(
                node.node_id, DeleteGroupsRequest(groups_names=ids), DeleteGroupsResponse
            )
            return {
                each.group_id: _failure(each.error_code, None, each.group_id) for each in response.results
            }

        return await self._coordinators.ask(group_ids, ask)

    # ------------------------------------------------------------ committed offsets

    async def offsets(self, group_ids: Iterable[str]) -> Outcomes[dict[TopicPartition, CommittedOffset]]:
        """Everything that each group has committed. A group that is not there has committed nothing."""
        return await self._coordinators.ask(group_ids, self._offsets_at)

    async def _offsets_at(
        self, node: Node, group_ids: list[str]
    ) -> Outcomes[dict[TopicPartition, CommittedOffset]]:
        connection = await self._cluster.connection_to(node.node_id)
        version = connection.version_of(ApiKey.OFFSET_FETCH, _OFFSETS_BY_NAME_MAX)
        if version >= _BATCHED_OFFSETS_FROM:
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in group_ids]
            )
            response = await connection.request(request, OffsetFetchResponse, version=version)
            return {group.group_id: _committed(group, group.group_id) for group in response.groups}
        outcomes: Outcomes[dict[TopicPartition, CommittedOffset]] = {}
        for group_id in group_ids:
            alone = await connection.request(
                OffsetFetchRequest(group_id=group_id, topics=None), OffsetFetchResponse, version=version
            )
            outcomes[group_id] = _committed(alone, group_id)
        return outcomes

    async def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> Failures:
        """Commit for a group that has no members; which partitions that failed for. Raises if all did."""
        request = offset_commit.OffsetCommitRequest(
            group_id=group_id,
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        offset_commit.OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offsets[TopicPartition(topic, index)],
                            committed_metadata="",
                        )
                        for index in partitions
                    ],
                )
                for topic, partitions in by_topic(offsets).items()
            ],
        )

        async def ask(connection: Connection) -> Failures:
            version = connection.version_of(ApiKey.OFFSET_COMMIT, _OFFSETS_BY_NAME_MAX)
            response = await connection.request(request, offset_commit.OffsetCommitResponse, version=version)
            codes = {
                TopicPartition(topic.name, partition.partition_index): partition.error_code
                for topic in response.topics
                for partition in topic.partitions
            }
            return _failures(codes, group_id)

        return await self._coordinators.ask_one(group_id, ask)

    async def delete_offsets(self, group_id: str, places: Iterable[TopicPartition]) -> Failures:
        """Forget what the group has committed; which partitions that failed for. Raises if all did."""
        request = offset_delete.OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        offset_delete.OffsetDeleteRequestPartition(partition_index=index)
                        for index in partitions
                    ],
                )
                for topic, partitions in by_topic(places).items()
            ],
        )

        async def ask(connection: Connection) -> Failures:
            response = await connection.request(request, offset_delete.OffsetDeleteResponse)
            _check_group(response.error_code, None, group_id)
            codes = {
                TopicPartition(topic.name, partition.partition_index): partition.error_code
                for topic in response.topics
                for partition in topic.partitions
            }
            return _failures(codes, group_id)

        return await self._coordinators.ask_one(group_id, ask)

    # ------------------------------------------------------------ share groups

    async def share_offsets(self, group_ids: Iterable[str]) -> Outcomes[dict[TopicPartition, ShareOffset]]:
        """Where each share group begins in each partition that it has."""

        async def ask(node: Node, ids: list[str]) -> Outcomes[dict[TopicPartition, ShareOffset]]:
            request = DescribeShareGroupOffsetsRequest(
                groups=[DescribeShareGroupOffsetsRequestGroup(group_id=each, topics=None) for each in ids]
            )
            response = await self._cluster.ask_node(node.node_id, request, DescribeShareGroupOffsetsResponse)
            return {group.group_id: _share_offsets(group) for group in response.groups}

        return await self._coordinators.ask(group_ids, ask)

    async def alter_share_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> Failures:
        """As `alter_offsets`, for a share group."""
        request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[
                alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
                    topic_name=topic,
                    partitions=[
                        alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(
                            partition_index=index, start_offset=offsets[TopicPartition(topic, index)]
                        )
                        for index in partitions
                    ],
                )
                for topic, partitions in by_topic(offsets).items()
            ],
        )

        async def ask(connection: Connection) -> Failures:
            response = await connection.request(
                request, alter_share_group_offsets.AlterShareGroupOffsetsResponse
            )
            _check_group(response.error_code, response.error_message, group_id)
            return {
                TopicPartition(topic.topic_name, partition.partition_index): failure
                for topic in response.responses
                for partition in topic.partitions
                if (failure := _failure(partition.error_code, partition.error_message, group_id))
            }

        return await self._coordinators.ask_one(group_id, ask)

    async def delete_share_offsets(self, group_id: str, topics: Collection[str]) -> dict[str, KafkaError]:
        """Make a share group forget whole topics; which of them that failed for."""
        request = DeleteShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in sorted(topics)],
        )

        async def ask(connection: Connection) -> dict[str, KafkaError]:
            response = await connection.request(request, DeleteShareGroupOffsetsResponse)
            _check_group(response.error_code, response.error_message, group_id)
            return {
                topic.topic_name: failure
                for topic in response.responses
                if (failure := _failure(topic.error_code, topic.error_message, group_id))
            }

        return await self._coordinators.ask_one(group_id, ask)


async def end_offsets(admin: Admin, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where partitions end. Those that are not there any more, or have no leader right now, are left out:
    what was committed for them stays worth telling."""
    wanted: dict[str, list[TopicPartition]] = defaultdict(list)
    for place in places:
        wanted[place.topic].append(place)
    if not wanted:
        return {}
    view = await admin.describe_topics(sorted(wanted))
    led = [
        place
        for name, topic in view.topics.items()
        for place in wanted[name]
        if (partition := topic.partition(place.partition)) is not None and partition.leader is not None
    ]
    found = await admin.list_offsets(dict.fromkeys(led, LATEST_TIMESTAMP))
    return {place: each.offset for place, each in found.items() if each.offset is not None}


# ---------------------------------------------------------------- reading answers


def _failure(code: int, message: str | None, group_id: str) -> KafkaError | None:
    if not code:
        return None
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    return KafkaError(error_code(code), message or f"group {group_id!r}")


def _check_group(code: int, message: str | None, group_id: str) -> None:
    failure = _failure(code, message, group_id)
    if failure is not None:
        raise failure


def _undescribed(group_ids: list[str], outcomes: Outcomes[GroupDescription]) -> list[str]:
    left = []
    for group_id in group_ids:
        outcome = outcomes.get(group_id)
        if outcome is None or (isinstance(outcome, KafkaError) and outcome.code in _OTHER_KIND):
            left.append(group_id)
    return left


def _committed(
    group: OffsetFetchResponseGroup | OffsetFetchResponse, group_id: str
) -> dict[TopicPartition, CommittedOffset] | KafkaError:
    if group.error_code:
        return _failure(group.error_code, None, group_id) or KafkaError(error_code(group.error_code))
    found: dict[TopicPartition, CommittedOffset] = {}
    topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = group.topics
    for topic in topics:
        for partition in topic.partitions:
            place = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                return KafkaError(error_code(partition.error_code), f"partition {place}")
            if partition.committed_offset >= 0:
                epoch = partition.committed_leader_epoch
                found[place] = CommittedOffset(
                    offset=partition.committed_offset,
                    leader_epoch=epoch if epoch >= 0 else None,
                    metadata=partition.metadata or "",
                )
    return found


def _share_offsets(
    group: DescribeShareGroupOffsetsResponseGroup,
) -> dict[TopicPartition, ShareOffset] | KafkaError:
    failure = _failure(group.error_code, group.error_message, group.group_id)
    if failure is not None:
        return failure
    found: dict[TopicPartition, ShareOffset] = {}
    for topic in group.topics:
        for partition in topic.partitions:
            place = TopicPartition(topic.topic_name, partition.partition_index)
            if partition.error_code:
                return KafkaError(error_code(partition.error_code), f"partition {place}")
            found[place] = ShareOffset(
                start_offset=partition.start_offset if partition.start_offset >= 0 else None,
                leader_epoch=partition.leader_epoch if partition.leader_epoch >= 0 else None,
                lag=partition.lag if partition.lag >= 0 else None,
            )
    return found


def _failures(codes: Mapping[TopicPartition, int], group_id: str) -> Failures:
    """Of partitions. What is wrong with the group, or with whom was asked, is told for each of them."""
    failures = {
        place: KafkaError(error_code(code), f"partition {place}") for place, code in codes.items() if code
    }
    if failures and len(failures) == len(codes) and len(set(codes.values())) == 1:
        code = error_code(next(iter(codes.values())))
        if code in _ELSEWHERE or code in _OF_GROUPS:
            raise KafkaError(code, f"group {group_id!r}")
    return failures


_OF_GROUPS = frozenset(
    (
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
)


def _check(code: int, message: str) -> None:
    if code:
        raise KafkaError(error_code(code), message)
