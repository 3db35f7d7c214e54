"""ListGroups (API key 16), versions 0-5.

With an extension of ours: who asks for it is also told how far each client has read, be it of a group or not.
Kafka's nodes and clients pass over tags that they do not know.
"""

from __future__ import annotations

from moldau.wire.schema import (
    OWN_TAGS_FROM,
    STRING,
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = array(STRING, "4+")
    types_filter: list[str] = array(STRING, "5+")
    with_positions: bool = boolean("5+", tag=OWN_TAGS_FROM, tagged="5+")


class ListedGroup(Struct):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class FetchedPartition(Struct):
    index: int = int32("5+")
    position: int = int64("5+")
    high_watermark: int = int64("5+")
    age_ms: int = int64("5+")


class FetchedTopic(Struct):
    name: str = string("5+")
    partitions: list[FetchedPartition] = array(FetchedPartition, "5+")


class FetchingClient(Struct):
    client_id: str = string("5+")
    host: str = string("5+")
    topics: list[FetchedTopic] = array(FetchedTopic, "5+")


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("0+", default=0)
    groups: list[ListedGroup] = array(ListedGroup, "0+")
    fetching_clients: list[FetchingClient] | None = array(
        FetchingClient, "5+", nullable="5+", default=None, tag=OWN_TAGS_FROM, tagged="5+", ignorable=True
    )
