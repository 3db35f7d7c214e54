"""ListConfigResources (API key 74), versions 0-1."""

from __future__ import annotations

from moldau.wire.schema import INT8, Message, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    resource_types: list[int] = array(INT8, "1+")


class ConfigResource(Struct):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+", default=0)
    error_code: int = int16("0+", default=0)
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")
