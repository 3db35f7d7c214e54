"""CreatePartitions (key 37), versions 0-3: v2 flexible."""

from __future__ import annotations

from moldau.controller.topics import decide_create_partitions
from moldau.server.context import RequestContext
from moldau.server.deadline import check_deadline
from moldau.wire.errors import KafkaError
from moldau.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    services = context.services
    try:
        check_deadline(request.timeout_ms)
        return await services.controller.submit(
            lambda image: decide_create_partitions(image, request, random=services.runtime.random)
        )
    except KafkaError as failure:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=failure.code, error_message=failure.message
                )
                for topic in request.topics
            ]
        )
