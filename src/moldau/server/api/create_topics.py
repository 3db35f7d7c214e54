"""CreateTopics (key 19), versions 2-7: v4 defaults of the broker, v5 flexible and the configuration in the
response, v7 topic ids."""

from __future__ import annotations

from moldau.controller.topics import decide_create_topics
from moldau.server.context import RequestContext
from moldau.server.deadline import check_deadline
from moldau.wire.errors import KafkaError
from moldau.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    services = context.services
    try:
        check_deadline(request.timeout_ms)
        return await services.controller.submit(
            lambda image: decide_create_topics(
                image, request, config=services.config, random=services.runtime.random
            )
        )
    except KafkaError as failure:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=failure.code, error_message=failure.message)
                for topic in request.topics
            ]
        )
