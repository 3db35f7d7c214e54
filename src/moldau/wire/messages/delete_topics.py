"""DeleteTopics (API key 20), versions 1-6."""

from __future__ import annotations

from moldau.wire.ids import Uuid
from moldau.wire.schema import STRING, Message, Struct, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: Uuid = uuid("6+")


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(STRING, "0-5", ignorable=True)
    timeout_ms: int = int32("0+")


class DeletableTopicResult(Struct):
    name: str | None = string("0+", nullable="6+")
    topic_id: Uuid = uuid("6+", ignorable=True)
    error_code: int = int16("0+", default=0)
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")
