"""ListGroups (key 16), versions 0-5: v3 flexible, v4 states, v5 types. Each broker tells of the groups that
it coordinates.

Who asks for it by a tag of ours is also told how far clients have read of the partitions that this broker
leads; if that is too much for one answer, of those most behind."""

from __future__ import annotations

from collections.abc import Awaitable
from heapq import nlargest

from moldau.groups.group import GroupType
from moldau.server.context import RequestContext
from moldau.server.fetching_clients import client_positions
from moldau.wire.messages.list_groups import (
    FetchedPartition,
    FetchedTopic,
    FetchingClient,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

POSITIONS_MAX = 10_000  # some tens of milliseconds of work
_TYPES = {type.value: type for type in GroupType}


def handle(
    context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse | Awaitable[ListGroupsResponse]:
    states = {state.lower() for state in request.states_filter}
    # One that is not known is a type that no group has.
    types = {_TYPES.get(name.lower()) for name in request.types_filter}
    response = ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type.value,
            )
            for shard in context.services.groups.shards()
            for group in shard.groups.groups.values()
            if (not states or group.state.lower() in states) and (not types or group.type in types)
        ]
    )
    return _with_positions(context, response) if request.with_positions else response


async def _with_positions(context: RequestContext, response: ListGroupsResponse) -> ListGroupsResponse:
    services = context.services
    now_ms = services.runtime.clock.now_ms()
    clients: dict[tuple[str, str], FetchingClient] = {}
    topics: dict[tuple[str, str, str], FetchedTopic] = {}
    found = await client_positions(services.fetch_sessions, services.replicas, now_ms)
    for each in nlargest(POSITIONS_MAX, found, key=lambda each: each.lag):
        who, name = (each.client_id, each.host), each.partition.topic
        topic = topics.get((*who, name))
        if topic is None:
            topic = topics[*who, name] = FetchedTopic(name=name)
            client = clients.setdefault(who, FetchingClient(client_id=each.client_id, host=each.host))
            client.topics.append(topic)
        topic.partitions.append(
            FetchedPartition(
                index=each.partition.index,
                position=each.position,
                high_watermark=each.high_watermark,
                age_ms=each.age_ms,
            )
        )
    response.fetching_clients = list(clients.values())
    return response
