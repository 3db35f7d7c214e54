"""Changing the dynamic configuration of topics, brokers, client metrics subscriptions and groups.

The result of a change is checked as a whole, by the rules of `moldau.config`; only what differs is recorded.
Broker loggers are no configuration that is kept, and are the server's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, TypeVar

from moldau.config.alter import Change, Operation, alter_incrementally
from moldau.config.broker import BROKER_OPTIONS, BrokerConfig
from moldau.config.client_metrics import CLIENT_METRICS_OPTIONS, ClientMetricsConfig
from moldau.config.option import ConfigError, Option, parse_int
from moldau.config.topic import TOPIC_OPTIONS
from moldau.controller.decision import RECORDS_MAX, TOO_MANY_RECORDS, Decision, versioned
from moldau.controller.partition_change import is_elr_enabled
from moldau.controller.topic_names import check_topic_name
from moldau.metadata.image import ClusterImage, ConfigResource, ResourceType
from moldau.metadata.records import ClearElrRecord, ConfigRecord
from moldau.wire.codec import STRING_BYTES_MAX
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages import alter_configs, incremental_alter_configs
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from moldau.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.schema import Message

_MIN_INSYNC_REPLICAS = "min.insync.replicas"

# Kafka's controller knows the types of these only: no other list can be appended to.
_OPTIONS: Mapping[int, Mapping[str, Option[Any]]] = {
    ResourceType.TOPIC: TOPIC_OPTIONS,
    ResourceType.BROKER: BROKER_OPTIONS,
}

_Resource = TypeVar(
    "_Resource", alter_configs.AlterConfigsResource, incremental_alter_configs.AlterConfigsResource
)


def decide_alter_configs(
    image: ClusterImage, request: AlterConfigsRequest, *, config: BrokerConfig
) -> Decision[AlterConfigsResponse]:
    """The overrides of each resource become what the request says; others are dropped."""

    def wanted(resource: alter_configs.AlterConfigsResource, current: Mapping[str, str]) -> Mapping[str, str]:
        _check_values([entry.name for entry in resource.configs if entry.value is None])
        return {entry.name: entry.value for entry in resource.configs if entry.value is not None}

    messages, outcomes = _alter_all(image, request.resources, wanted, config)
    responses = [
        alter_configs.AlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, code, message in outcomes
    ]
    return Decision(
        records=[] if request.validate_only else versioned(image, messages),
        reply=AlterConfigsResponse(responses=responses),
    )


def decide_incremental_alter_configs(
    image: ClusterImage, request: IncrementalAlterConfigsRequest, *, config: BrokerConfig
) -> Decision[IncrementalAlterConfigsResponse]:
    """What the request names is set, deleted, appended to or subtracted from; the rest stays."""

    def wanted(
        resource: incremental_alter_configs.AlterConfigsResource, current: Mapping[str, str]
    ) -> Mapping[str, str]:
        _check_values(
            [
                entry.name
                for entry in resource.configs
                if entry.value is None and entry.config_operation != Operation.DELETE
            ]
        )
        changes = [
            Change(entry.name, _operation(entry.config_operation), entry.value) for entry in resource.configs
        ]
        return alter_incrementally(current, changes, _OPTIONS.get(resource.resource_type, {}))

    messages, outcomes = _alter_all(image, request.resources, wanted, config)
    responses = [
        incremental_alter_configs.AlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, code, message in outcomes
    ]
    return Decision(
        records=[] if request.validate_only else versioned(image, messages),
        reply=IncrementalAlterConfigsResponse(responses=responses),
    )


def check_overrides(
    resource: ConfigResource, overrides: Mapping[str, str], current: Mapping[str, str], config: BrokerConfig
) -> None:
    """Raises a KafkaError unless the resource may have `overrides` instead of its `current` ones."""
    try:
        match resource.type:
            case ResourceType.TOPIC:
                config.topic(overrides, current)
            case ResourceType.GROUP:
                config.group(overrides)
            case ResourceType.CLIENT_METRICS:
                _check_client_metrics(overrides)
            case _:
                config.check_dynamic(overrides, per_broker=resource.name != "")
    except ConfigError as error:
        # Kafka checks a broker's configuration before the controller does, and calls what is wrong with it
        # an invalid request (KAFKA-13609).
        is_broker = resource.type == ResourceType.BROKER
        code = ErrorCode.INVALID_REQUEST if is_broker else ErrorCode.INVALID_CONFIG
        raise KafkaError(code, str(error)) from None


def _check_client_metrics(overrides: Mapping[str, str]) -> None:
    """Kafka calls unknown options and intervals out of bounds invalid requests, and what it cannot read
    invalid configurations."""
    try:
        ClientMetricsConfig.from_overrides(overrides)
    except ConfigError as error:
        is_unknown = any(name not in CLIENT_METRICS_OPTIONS for name in overrides)
        if is_unknown or _is_interval_out_of_bounds(overrides, error):
            raise _invalid(str(error)) from None
        raise


def _is_interval_out_of_bounds(overrides: Mapping[str, str], error: ConfigError) -> bool:
    if not any(problem.name == "interval.ms" for problem in error.problems):
        return False
    try:
        parse_int(overrides["interval.ms"].strip())
    except ValueError:
        return False
    return True


def elr_configs(image: ClusterImage, min_insync_replicas: str) -> list[Message]:
    """What turning ELR on needs: one min.insync.replicas for all brokers, if there is none yet the one given,
    and none for single brokers (KIP-966)."""
    changes: list[Message] = []
    if _MIN_INSYNC_REPLICAS not in image.config(ResourceType.BROKER, ""):
        changes.append(_min_insync_replicas_record("", min_insync_replicas))
    changes += [
        _min_insync_replicas_record(resource.name, None)
        for resource, overrides in image.configs.items()
        if resource.type == ResourceType.BROKER and resource.name and _MIN_INSYNC_REPLICAS in overrides
    ]
    return changes


def _min_insync_replicas_record(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ResourceType.BROKER, resource_name=broker, name=_MIN_INSYNC_REPLICAS, value=value
    )


def _check_min_insync_replicas(
    image: ClusterImage,
    resource: ConfigResource,
    overrides: Mapping[str, str],
    current: Mapping[str, str],
    mentioned: Container[str],
) -> None:
    """Eligible leader replicas are judged by one number for the whole cluster, which has to be there."""
    wanted, had = overrides.get(_MIN_INSYNC_REPLICAS), current.get(_MIN_INSYNC_REPLICAS)
    if resource.type != ResourceType.BROKER or not is_elr_enabled(image):
        return
    if wanted == had and _MIN_INSYNC_REPLICAS not in mentioned:
        return
    if resource.name:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Broker-level {_MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled.",
        )
    if wanted is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cluster-level {_MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled.",
        )


def config_changes(
    image: ClusterImage,
    resource: ConfigResource,
    current: Mapping[str, str],
    overrides: Mapping[str, str],
) -> list[Message]:
    """The records that turn `current` into `overrides`."""
    changes: list[Message] = []
    names = [*overrides, *(name for name in current if name not in overrides)]
    for name in names:
        value = overrides.get(name)
        if value != current.get(name):
            changes.append(
                ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
            )
    if is_elr_enabled(image) and overrides.get(_MIN_INSYNC_REPLICAS) != current.get(_MIN_INSYNC_REPLICAS):
        changes += _clear_elr(resource)
    return changes


def _clear_elr(resource: ConfigResource) -> list[Message]:
    """Who is eligible was judged by another min.insync.replicas, and is not known any more (KIP-966)."""
    if resource.type == ResourceType.TOPIC:
        return [ClearElrRecord(topic_name=resource.name)]
    return [ClearElrRecord(topic_name="")] if resource.type == ResourceType.BROKER else []


def _alter_all(
    image: ClusterImage,
    resources: Sequence[_Resource],
    wanted: Callable[[_Resource, Mapping[str, str]], Mapping[str, str]],
    config: BrokerConfig,
) -> tuple[list[Message], list[tuple[_Resource, int, str | None]]]:
    """Records of what may be done, and the outcome for each resource. Too many records, and nothing is done,
    whatever else is wrong with some of them."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    messages: list[Message] = []
    outcomes: list[tuple[_Resource, int, str | None]] = []
    for resource in resources:
        try:
            key = ConfigResource(resource.resource_type, resource.resource_name)
            if counts[key] > 1:
                raise _invalid("Each resource must appear at most once.")
            mentioned = {entry.name for entry in resource.configs}
            if len(mentioned) != len(resource.configs):
                raise _invalid("Error due to duplicate config keys")
            _check_resource(key)
            current = image.configs.get(key, {})
            try:
                overrides = wanted(resource, current)
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
            _check_sizes(overrides)
            check_overrides(key, overrides, current, config)
            _check_min_insync_replicas(image, key, overrides, current, mentioned)
            _check_exists(image, key)
            messages += config_changes(image, key, current, overrides)
            outcomes.append((resource, ErrorCode.NONE, None))
        except KafkaError as error:
            outcomes.append((resource, error.code, error.message))
    if len(messages) > RECORDS_MAX:
        return [], [(resource, ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS) for resource in resources]
    return messages, outcomes


def _check_resource(resource: ConfigResource) -> None:
    match resource.type:
        case ResourceType.TOPIC:
            if not resource.name:
                raise _invalid("Default topic resources are not allowed.")
            check_topic_name(resource.name)
        case ResourceType.BROKER if resource.name:
            try:
                broker_id = parse_int(resource.name)
            except ValueError:
                raise _invalid("Unable to parse broker name as a base 10 number.") from None
            if broker_id < 0:
                raise _invalid("Invalid negative broker ID.")
        case ResourceType.GROUP if not resource.name:
            raise _invalid("Default group resources are not allowed.")
        case ResourceType.CLIENT_METRICS if not resource.name:
            raise _invalid("Subscription name can't be empty")
        case ResourceType.BROKER | ResourceType.GROUP | ResourceType.CLIENT_METRICS:
            pass
        case _:
            raise _invalid(f"Unknown resource type {resource.type}")


def _check_exists(image: ClusterImage, resource: ConfigResource) -> None:
    if resource.type == ResourceType.TOPIC and resource.name not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
    if (
        resource.type == ResourceType.BROKER
        and resource.name
        and int(resource.name) not in image.brokers
        and int(resource.name) not in image.controllers
    ):
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {resource.name} found.")


def _check_sizes(overrides: Mapping[str, str]) -> None:
    """A list may have grown, by what was appended to it, to what no record could hold."""
    if any(len(value.encode()) > STRING_BYTES_MAX for value in overrides.values()):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{STRING_BYTES_MAX} bytes.",
        )


def _operation(code: int) -> Operation:
    try:
        return Operation(code)
    except ValueError:
        raise _invalid(f"Unknown operations type {code}") from None


def _check_values(unset: list[str]) -> None:
    if unset:
        raise _invalid(f"Null value not supported for : {', '.join(unset)}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
