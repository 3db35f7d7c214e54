"""AlterConfigs (key 33), versions 0-2: all overrides of a resource at once; v2 flexible. Deprecated in favour
of IncrementalAlterConfigs, and without broker loggers."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.controller.configs import decide_alter_configs
from moldau.metadata.image import ResourceType
from moldau.server.api.incremental_alter_configs import check_node_id
from moldau.server.context import RequestContext
from moldau.wire.errors import KafkaError
from moldau.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    services = context.services
    ours: list[AlterConfigsResource] = []
    refused: dict[int, AlterConfigsResourceResponse] = {}
    for number, resource in enumerate(request.resources):
        try:
            if resource.resource_type == ResourceType.BROKER and resource.resource_name:
                check_node_id(resource.resource_name, services.node_id)
            ours.append(resource)
        except KafkaError as failure:
            refused[number] = AlterConfigsResourceResponse(
                error_code=failure.code,
                error_message=failure.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
    decided: Iterator[AlterConfigsResourceResponse] = iter(())
    if ours:
        left = AlterConfigsRequest(resources=ours, validate_only=request.validate_only)
        reply = await services.controller.submit(
            lambda image: decide_alter_configs(image, left, config=services.config)
        )
        decided = iter(reply.responses)
    return AlterConfigsResponse(
        responses=[refused.get(number) or next(decided) for number in range(len(request.resources))]
    )
