"""Metadata (key 3), versions 0-13: v1 racks, the controller and internal topics, v2 the cluster id, v4
creation of topics only if asked for, v5 offline replicas, v7 leader epochs, v8 what the client may do, v9
flexible, v10 topic ids, v12 topics by id, v13 a code for the whole.

Clients ask often and for many topics, so that each partition costs one pass and nothing is looked up twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.controller.topic_names import INTERNAL_TOPICS, check_topic_name
from moldau.metadata.image import PartitionImage, TopicImage
from moldau.server.cluster_view import CLUSTER_OPERATIONS, NO_BROKER, TOPIC_OPERATIONS, ClusterView
from moldau.server.context import RequestContext
from moldau.server.topic_creation import create_in_background
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_TOPIC_IDS_IN_REQUESTS_FROM = 12
_LISTENER_NOT_FOUND_FROM = 6


def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    version, asked = context.version, request.topics
    # Version 0 cannot say null, so that naming no topic stands for all of them.
    everything = asked is None or (version == 0 and not asked)
    if asked is not None and (refusal := _refusal(asked, version)) is not None:
        return _respond_failed(asked, refusal)

    view = ClusterView.of(context)
    results: list[MetadataResponseTopic] = []
    if asked is None or everything:
        results += (_topic(view, topic, version) for topic in view.image.topics.values())
    elif ids := dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID):
        # One id makes it a request by id: names beside it are not looked at.
        results += _topics_by_id(view, ids, version)
    else:
        results += _topics_by_name(context, view, request)
    if request.include_topic_authorized_operations:
        for result in results:
            if result.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                result.topic_authorized_operations = TOPIC_OPERATIONS

    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in view.brokers()
        ],
        cluster_id=context.services.cluster_id,
        controller_id=view.controller_id,
        topics=results,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def unknown_topic_code(name: str) -> ErrorCode:
    """Why there is no topic of this name."""
    try:
        check_topic_name(name)
    except KafkaError as invalid:
        return invalid.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refusal(asked: list[MetadataRequestTopic], version: int) -> ErrorCode | None:
    if version < _TOPIC_IDS_IN_REQUESTS_FROM:
        if any(topic.name is None or topic.topic_id != ZERO_UUID for topic in asked):
            return ErrorCode.INVALID_REQUEST
    elif any(topic.name is None for topic in asked) and all(topic.topic_id == ZERO_UUID for topic in asked):
        # Neither a name nor an id: Kafka does not expect this, fails, and says so.
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return None


def _respond_failed(asked: list[MetadataRequestTopic], code: ErrorCode) -> MetadataResponse:
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in asked
        ],
        error_code=code,
    )


def _topics_by_id(view: ClusterView, ids: Iterable[Uuid], version: int) -> list[MetadataResponseTopic]:
    unknown, known = [], []
    for topic_id in ids:
        topic = view.image.topic_by_id(topic_id)
        if topic is None:
            unknown.append(
                MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
            )
        else:
            known.append(_topic(view, topic, version))
    return unknown + known


def _topics_by_name(
    context: RequestContext, view: ClusterView, request: MetadataRequest
) -> list[MetadataResponseTopic]:
    known, unknown, creatable = [], [], []
    for name in dict.fromkeys(topic.name for topic in request.topics or ()):
        assert name is not None, "refused above"
        topic = view.image.topics.get(name)
        if topic is not None:
            known.append(_topic(view, topic, context.version))
            continue
        code = unknown_topic_code(name)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            creatable.append(name)
        unknown.append(MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS))
    if request.allow_auto_topic_creation and context.services.config.node.auto_create_topics_enable:
        create_in_background(context.services, creatable)
    return known + unknown


def _topic(view: ClusterView, topic: TopicImage, version: int) -> MetadataResponseTopic:
    partition = _partition if version > 0 else _partition_v0
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[partition(view, index, image, version) for index, image in topic.partitions.items()],
    )


def _partition(
    view: ClusterView, index: int, partition: PartitionImage, version: int
) -> MetadataResponsePartition:
    leader_id = view.leader_id(partition)
    return MetadataResponsePartition(
        error_code=0 if leader_id != NO_BROKER else _no_leader_code(view, partition, version),
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=view.offline_replicas(partition),
    )


def _partition_v0(
    view: ClusterView, index: int, partition: PartitionImage, version: int
) -> MetadataResponsePartition:
    """Version 0 has no place for offline replicas: they are left out, and their absence is an error."""
    result = _partition(view, index, partition, version)
    result.replica_nodes = [replica for replica in partition.replicas if view.is_alive(replica)]
    result.isr_nodes = [replica for replica in partition.isr if view.is_alive(replica)]
    is_complete = result.replica_nodes == list(partition.replicas) and result.isr_nodes == list(partition.isr)
    if result.error_code == ErrorCode.NONE and not is_complete:
        result.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
    return result


def _no_leader_code(view: ClusterView, partition: PartitionImage, version: int) -> ErrorCode:
    if version >= _LISTENER_NOT_FOUND_FROM and partition.leader in view.image.brokers:
        return ErrorCode.LISTENER_NOT_FOUND
    return ErrorCode.LEADER_NOT_AVAILABLE
