"""ListConfigResources (key 74), versions 0-1: what has, or may have, a configuration. v0 was
ListClientMetricsResources; v1 takes the types to list, all of them if none is named."""

from __future__ import annotations

from collections.abc import Iterable

from moldau.metadata.image import ClusterImage, ResourceType
from moldau.server.context import RequestContext
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_TYPES = (
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
    ResourceType.BROKER_LOGGER,
    ResourceType.BROKER,
    ResourceType.TOPIC,
)


def handle(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    asked = request.resource_types or _TYPES
    if context.version == 0:
        asked = [ResourceType.CLIENT_METRICS]
    if not set(asked) <= set(_TYPES):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = context.services.image()
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=type)
            for type in _TYPES
            if type in asked
            for name in _names(image, type)
        ]
    )


def _names(image: ClusterImage, type: int) -> Iterable[str]:
    if type == ResourceType.TOPIC:
        return image.topics
    if type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return map(str, image.brokers)
    return (resource.name for resource in image.configs if resource.type == type)
