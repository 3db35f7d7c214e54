"""DeleteGroups (API key 42), versions 0-2."""

from __future__ import annotations

from moldau.wire.schema import STRING, Message, Struct, array, int16, int32, string


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[str] = array(STRING, "0+")


class DeletableGroupResult(Struct):
    group_id: str = string("0+")
    error_code: int = int16("0+", default=0)


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+", default=0)
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")
