"""Creating and deleting topics, and adding partitions to them.

Each topic of a request has its own outcome; the records of those that succeed are appended together.
Authorization happened before: names the caller may not use are not in the request any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from random import Random

from moldau.config.broker import BrokerConfig
from moldau.config.describe import describe_new_topic
from moldau.controller.assignment import check_manual_assignment, manual_partition, placed_partition
from moldau.controller.configs import check_overrides, config_changes
from moldau.controller.decision import RECORDS_MAX, TOO_MANY_RECORDS, Decision, versioned
from moldau.controller.placement import place_replicas
from moldau.controller.topic_names import CLUSTER_METADATA_TOPIC, check_topic_name, metric_name
from moldau.metadata.image import ClusterImage, ConfigResource, PartitionImage, ResourceType, TopicImage
from moldau.metadata.records import RemoveTopicRecord, TopicRecord
from moldau.metadata.snapshot import partition_record
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import ZERO_UUID, Uuid, random_uuid
from moldau.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from moldau.wire.schema import Message

# ---------------------------------------------------------------- create topics


def decide_create_topics(
    image: ClusterImage,
    request: CreateTopicsRequest,
    *,
    config: BrokerConfig,
    random: Random,
    describable: Container[str] | None = None,
) -> Decision[CreateTopicsResponse]:
    """`describable`: topics whose configuration the caller may see; None for all. Raises
    POLICY_VIOLATION when the request is too large as a whole."""
    counts = Counter(topic.name for topic in request.topics)
    wanted = [
        topic for topic in request.topics if counts[topic.name] == 1 and topic.name != CLUSTER_METADATA_TOPIC
    ]
    check_room(sum(max(0, _partition_count(topic, config)) for topic in wanted), RECORDS_MAX)
    taken = _MetricNames(image)
    messages: list[Message] = []
    results = []
    for topic in wanted:
        try:
            may_describe = describable is None or topic.name in describable
            result, created = _create(image, topic, config, random, taken, may_describe)
            results.append(result)
            messages += created
        except KafkaError as error:
            results.append(_failed_creation(topic.name, error.code, error.message))
    if len(messages) > RECORDS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS)
    results += [
        _failed_creation(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in counts.items()
        if count > 1
    ]
    if counts[CLUSTER_METADATA_TOPIC] == 1:
        message = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
        results.append(_failed_creation(CLUSTER_METADATA_TOPIC, ErrorCode.INVALID_REQUEST, message))
    return Decision(
        records=[] if request.validate_only else versioned(image, messages),
        reply=CreateTopicsResponse(topics=results),
    )


def _create(
    image: ClusterImage,
    topic: CreatableTopic,
    config: BrokerConfig,
    random: Random,
    taken: _MetricNames,
    may_describe: bool,
) -> tuple[CreatableTopicResult, list[Message]]:
    check_topic_name(topic.name)
    if topic.name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    taken.check(topic.name)
    unset = [entry.name for entry in topic.configs if entry.value is None]
    if unset:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(unset)}"
        )
    overrides = {entry.name: entry.value for entry in topic.configs if entry.value is not None}
    resource = ConfigResource(ResourceType.TOPIC, topic.name)
    check_overrides(resource, overrides, {}, config)
    partitions = _new_partitions(image, topic, config, random)
    topic_id = random_uuid(random)

    # Configuration before partitions: whoever sees a partition knows how to keep its log.
    messages: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    messages += config_changes(image, resource, {}, overrides)
    messages += [partition_record(topic_id, index, partition) for index, partition in partitions.items()]
    result = CreatableTopicResult(name=topic.name, topic_id=topic_id, error_message=None)
    if not may_describe:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result, messages
    result.num_partitions = len(partitions)
    result.replication_factor = len(partitions[0].replicas)
    result.configs = [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in describe_new_topic(overrides, config)
    ]
    return result, messages


def _new_partitions(
    image: ClusterImage, topic: CreatableTopic, config: BrokerConfig, random: Random
) -> dict[int, PartitionImage]:
    if topic.assignments:
        return _assigned_partitions(image, topic)
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    count = _partition_count(topic, config)
    factor = topic.replication_factor
    if factor == -1:
        factor = config.node.default_replication_factor
    try:
        placed = place_replicas(image, count, factor, random)
    except KafkaError as error:
        raise KafkaError(
            error.code, f"Unable to replicate the partition {factor} time(s): {error.message}"
        ) from None
    return {index: placed_partition(image, replicas) for index, replicas in enumerate(placed)}


def _partition_count(topic: CreatableTopic, config: BrokerConfig) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return config.node.num_partitions if topic.num_partitions == -1 else topic.num_partitions


def _assigned_partitions(image: ClusterImage, topic: CreatableTopic) -> dict[int, PartitionImage]:
    for name, value in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.num_partitions),
    ):
        if value != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )
    partitions: dict[int, PartitionImage] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in partitions:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_manual_assignment(image, assignment.broker_ids, factor)
        factor = len(assignment.broker_ids)
        partitions[index] = manual_partition(image, index, assignment.broker_ids)
    if set(partitions) != set(range(len(partitions))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return dict(sorted(partitions.items()))


class _MetricNames:
    """Names of topics as metrics see them. Built when the first name that could collide asks.

    As in Kafka, two new topics of one request are not held against each other.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._topics: dict[str, str] | None = None

    def check(self, name: str) -> None:
        if "." not in name and "_" not in name:
            return
        if self._topics is None:
            self._topics = {metric_name(topic): topic for topic in self._image.topics}
        colliding = self._topics.get(metric_name(name))
        if colliding is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {colliding}",
            )


def check_room(partitions: int, room: int) -> None:
    if partitions > room:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _failed_creation(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


# ---------------------------------------------------------------- delete topics


def decide_delete_topics(
    image: ClusterImage, request: DeleteTopicsRequest, *, version: int, config: BrokerConfig
) -> Decision[DeleteTopicsResponse]:
    if not config.node.delete_topic_enable:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST)
    results: list[DeletableTopicResult] = []

    def fail(name: str | None, topic_id: Uuid, code: ErrorCode, message: str | None = None) -> None:
        results.append(
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
        )

    names, ids = Counter(request.topic_names), Counter[Uuid]()
    for state in request.topics:
        if state.name is None and state.topic_id == ZERO_UUID:
            fail(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif state.name is None:
            ids[state.topic_id] += 1
        elif state.topic_id != ZERO_UUID:
            message = "You may not specify both topic name and topic id."
            fail(state.name, state.topic_id, ErrorCode.INVALID_REQUEST, message)
        else:
            names[state.name] += 1

    found: dict[Uuid, TopicImage] = {}
    for topic_id, count in ids.items():
        topic = image.topic_by_id(topic_id)
        if count > 1:
            fail(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        elif topic is None:
            fail(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        else:
            found[topic_id] = topic
    for name, count in names.items():
        topic = image.topics.get(name)
        if count > 1:
            fail(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif topic is None:
            message = "This server does not host this topic-partition."
            fail(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        elif topic.topic_id in ids:
            found.pop(topic.topic_id, None)
            message = "The provided topic name maps to an ID that was already supplied."
            fail(name, topic.topic_id, ErrorCode.INVALID_REQUEST, message)
        else:
            found[topic.topic_id] = topic
    for topic_id, topic in found.items():
        results.append(DeletableTopicResult(name=topic.name, topic_id=topic_id))
    return Decision(
        records=versioned(image, [RemoveTopicRecord(topic_id=topic_id) for topic_id in found]),
        reply=DeleteTopicsResponse(responses=results),
    )


# ---------------------------------------------------------------- create partitions


def decide_create_partitions(
    image: ClusterImage, request: CreatePartitionsRequest, *, random: Random
) -> Decision[CreatePartitionsResponse]:
    counts = Counter(topic.name for topic in request.topics)
    results = [
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
        )
        for name, count in counts.items()
        if count > 1
    ]
    messages: list[Message] = []
    for topic in request.topics:
        if counts[topic.name] > 1:
            continue
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            messages += _add_partitions(image, topic, random, RECORDS_MAX - len(messages))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return Decision(
        records=[] if request.validate_only else versioned(image, messages),
        reply=CreatePartitionsResponse(results=results),
    )


def _add_partitions(
    image: ClusterImage, request: CreatePartitionsTopic, random: Random, room: int
) -> list[Message]:
    topic = image.topics.get(request.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(topic.partitions)
    if request.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if request.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {request.name} currently has {present} partition(s); {request.count} would not be an "
            "increase.",
        )
    additional = request.count - present
    if request.assignments is not None and len(request.assignments) != additional:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(request.assignments)} "
            "assignment(s) were specified.",
        )
    check_room(additional, room)
    factor = len(next(iter(topic.partitions.values())).replicas)
    partitions = []
    if request.assignments is not None:
        for index, assignment in enumerate(request.assignments, present):
            check_manual_assignment(image, assignment.broker_ids, factor)
            partitions.append(manual_partition(image, index, assignment.broker_ids))
    else:
        placed = place_replicas(image, additional, factor, random)
        partitions = [placed_partition(image, replicas) for replicas in placed]
    return [partition_record(topic.topic_id, index, new) for index, new in enumerate(partitions, present)]
