"""DescribeShareGroupOffsets (key 90), versions 0-1: where share groups are; v1 how far from the end
(KIP-1226).

Of what nobody knows, the answer is an offset of -1, and no error.
"""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.server.share_acknowledging import check_enabled
from moldau.server.waiting import result_of
from moldau.share.batches import NO_START_OFFSET
from moldau.share.states import NO_COUNT
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid
from moldau.wire.messages import describe_share_group_offsets as wire
from moldau.wire.messages import read_share_group_state_summary as summary

_NO_LAG = -1
_NO_LEADER_EPOCH = 0


async def handle(
    context: RequestContext, request: wire.DescribeShareGroupOffsetsRequest
) -> wire.DescribeShareGroupOffsetsResponse:
    return wire.DescribeShareGroupOffsetsResponse(
        groups=[await _describe(context, group) for group in request.groups]
    )


async def _describe(
    context: RequestContext, asked: wire.DescribeShareGroupOffsetsRequestGroup
) -> wire.DescribeShareGroupOffsetsResponseGroup:
    group = wire.DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
    try:
        check_enabled(context)
        if asked.topics is None:
            partitions = await _initialized(context, asked.group_id)
        else:
            partitions = _asked(context, asked.topics, group)
        if partitions:
            known = await _read(context, asked.group_id, partitions)
            group.topics = known + group.topics
    except KafkaError as failure:
        group.error_code, group.error_message = failure.code, failure.message
    return group


async def _initialized(context: RequestContext, group_id: str) -> dict[Uuid, list[int]]:
    found: dict[Uuid, frozenset[int]] = await result_of(
        context.services.groups.submit(
            group_id, lambda shard, now_ms, waiter: shard.share.initialized(group_id)
        )
    )
    names = context.services.image().topic_names
    return {topic_id: sorted(indexes) for topic_id, indexes in found.items() if topic_id in names}


def _asked(
    context: RequestContext,
    topics: list[wire.DescribeShareGroupOffsetsRequestTopic],
    group: wire.DescribeShareGroupOffsetsResponseGroup,
) -> dict[Uuid, list[int]]:
    """Of topics that there are. The others are answered."""
    partitions: dict[Uuid, list[int]] = {}
    for asked in topics:
        topic = context.services.image().topics.get(asked.topic_name)
        if topic is not None:
            partitions.setdefault(topic.topic_id, []).extend(asked.partitions)
            continue
        group.topics.append(
            wire.DescribeShareGroupOffsetsResponseTopic(
                topic_name=asked.topic_name,
                partitions=[
                    wire.DescribeShareGroupOffsetsResponsePartition(
                        partition_index=index, start_offset=NO_START_OFFSET
                    )
                    for index in asked.partitions
                ],
            )
        )
    return partitions


async def _read(
    context: RequestContext, group_id: str, partitions: dict[Uuid, list[int]]
) -> list[wire.DescribeShareGroupOffsetsResponseTopic]:
    response = await context.services.share_partitions.persister.summarize(
        summary.ReadShareGroupStateSummaryRequest(
            group_id=group_id,
            topics=[
                summary.ReadStateSummaryData(
                    topic_id=topic_id,
                    partitions=[summary.PartitionData(partition=index) for index in indexes],
                )
                for topic_id, indexes in partitions.items()
            ],
        )
    )
    names = context.services.image().topic_names
    return [
        wire.DescribeShareGroupOffsetsResponseTopic(
            topic_name=names.get(topic.topic_id, ""),
            topic_id=topic.topic_id,
            partitions=[_described(context, topic.topic_id, each) for each in topic.partitions],
        )
        for topic in response.results
    ]


def _described(
    context: RequestContext, topic_id: Uuid, state: summary.PartitionResult
) -> wire.DescribeShareGroupOffsetsResponsePartition:
    described = wire.DescribeShareGroupOffsetsResponsePartition(
        partition_index=state.partition,
        start_offset=NO_START_OFFSET if state.error_code else state.start_offset,
        leader_epoch=_NO_LEADER_EPOCH if state.error_code else state.leader_epoch,
        lag=_NO_LAG,
    )
    if state.error_code or state.start_offset == NO_START_OFFSET or state.delivery_complete_count == NO_COUNT:
        return described
    replica = context.services.replicas.by_id.get(topic_id, {}).get(state.partition)
    if replica is None or replica.log is None or not replica.is_leader:
        return wire.DescribeShareGroupOffsetsResponsePartition(
            partition_index=state.partition, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
    described.lag = replica.log.high_watermark - state.start_offset - state.delivery_complete_count
    return described
