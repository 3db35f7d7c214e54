"""What share groups have to do with the share coordinator: their partitions get a state before they are
assigned, and lose it before the group goes.

What is about to be asked is written down by the group coordinator first, and what became of it afterwards, so
that a failure in between is found and made up for.
"""

from __future__ import annotations

import logging

from moldau.server.services import Services
from moldau.server.waiting import result_of
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid
from moldau.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteStateResult
from moldau.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)

log = logging.getLogger(__name__)


async def initialize(
    services: Services, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Has the states begun, and tells the group which of them are there."""
    response = await services.share_partitions.persister.initialize(request)
    begun: dict[Uuid, frozenset[int]] = {}
    failed: dict[Uuid, frozenset[int]] = {}
    for topic in response.results:
        by_outcome: dict[bool, set[int]] = {True: set(), False: set()}
        for partition in topic.partitions:
            by_outcome[not partition.error_code].add(partition.partition)
            if partition.error_code:
                log.warning(
                    "the share state of %s cannot be begun: %s", request.group_id, partition.error_message
                )
        begun[topic.topic_id], failed[topic.topic_id] = map(frozenset, (by_outcome[True], by_outcome[False]))
    begun = {topic_id: partitions for topic_id, partitions in begun.items() if partitions}
    failed = {topic_id: partitions for topic_id, partitions in failed.items() if partitions}
    group_id = request.group_id
    try:
        if begun:
            await result_of(
                services.groups.submit(
                    group_id, lambda shard, now_ms, waiter: shard.share.on_initialized(group_id, begun)
                )
            )
        if failed:
            await result_of(
                services.groups.submit(
                    group_id, lambda shard, now_ms, waiter: shard.share.on_not_initialized(group_id, failed)
                )
            )
    except KafkaError as failure:
        # The next heartbeat asks for them again.
        log.info("group %s does not hear of its share states: %s", group_id, failure)
    return response


async def delete_all(services: Services, group_id: str) -> None:
    """What the share coordinator has of a group that is about to be deleted; nothing if it is none of its.
    Raises KafkaError."""
    request: DeleteShareGroupStateRequest = await result_of(
        services.groups.submit_any_id(
            group_id, lambda shard, now_ms, waiter: shard.share.delete_states(group_id)
        )
    )
    for topic in await delete(services, request):
        for partition in topic.partitions:
            if partition.error_code:
                raise KafkaError(ErrorCode(partition.error_code), partition.error_message)


async def delete(services: Services, request: DeleteShareGroupStateRequest) -> list[DeleteStateResult]:
    if not request.topics:
        return []
    return (await services.share_partitions.persister.delete(request)).results
