"""DeleteTopics (key 20), versions 1-6: v4 flexible, v5 messages, v6 topics by id."""

from __future__ import annotations

from moldau.controller.topics import decide_delete_topics
from moldau.server.context import RequestContext
from moldau.server.deadline import check_deadline
from moldau.wire.errors import KafkaError
from moldau.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    services = context.services
    try:
        if services.config.node.delete_topic_enable:  # else there is nothing to be late for
            check_deadline(request.timeout_ms)
        return await services.controller.submit(
            lambda image: decide_delete_topics(
                image, request, version=context.version, config=services.config
            )
        )
    except KafkaError as failure:
        asked = [*(DeleteTopicState(name=name) for name in request.topic_names), *request.topics]
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    error_code=failure.code,
                    error_message=failure.message,
                )
                for topic in asked
            ]
        )
