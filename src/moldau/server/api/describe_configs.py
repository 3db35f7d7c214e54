"""DescribeConfigs (key 32), versions 1-4: v1 sources and synonyms, v3 types and documentation, v4 flexible.

A broker tells of itself only; of topics, groups and client metrics subscriptions any broker does.
"""

from __future__ import annotations

from moldau.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_loggers,
    describe_topic,
)
from moldau.config.option import parse_int
from moldau.controller.topic_names import check_topic_name
from moldau.metadata.image import ResourceType
from moldau.server.context import RequestContext
from moldau.server.services import Services
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_TYPES = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    unknown = next((each for each in request.resources if each.resource_type not in _TYPES), None)
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            if unknown is not None:  # one of them spoils the whole request, as in Kafka
                raise _invalid(f"Unexpected resource type {unknown.resource_type}")
            entries = _describe(context.services, resource)
            result.configs = [
                _result(entry, request.include_synonyms, request.include_documentation) for entry in entries
            ]
        except KafkaError as failure:
            result.error_code, result.error_message = failure.code, failure.message or ""
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _describe(services: Services, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    name, keys = resource.resource_name, resource.configuration_keys
    config, image = services.config, services.image()
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            if name not in image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(image.config(ResourceType.TOPIC, name), config, keys)
        case ResourceType.BROKER:
            if not name:
                return describe_broker_defaults(config, keys)
            _check_broker(services, name, f"{services.node_id} or empty string")
            return describe_broker(config, keys)
        case ResourceType.BROKER_LOGGER:
            if not name:
                raise _invalid("Broker id must not be empty")
            _check_broker(services, name, str(services.node_id))
            return describe_loggers(services.loggers.levels(), keys)
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise _invalid("Client metrics subscription name must not be empty")
            return describe_client_metrics(image.config(ResourceType.CLIENT_METRICS, name), keys)
        case _:
            if not name:
                raise _invalid("Group name must not be empty")
            return describe_group(image.config(ResourceType.GROUP, name), config, keys)


def _check_broker(services: Services, name: str, expected: str) -> None:
    try:
        broker_id = parse_int(name)
    except ValueError:
        raise _invalid(f"Broker id must be an integer, but it is: {name}") from None
    if broker_id != services.node_id:
        raise _invalid(f"Unexpected broker id, expected {expected}, but received {name}")


def _result(
    entry: ConfigEntry, include_synonyms: bool, include_documentation: bool
) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
        ],
        config_type=entry.type,
        # What has no documentation at all has an empty one.
        documentation=entry.documentation if include_documentation or not entry.documentation else None,
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
