"""How the rest of the broker keeps and asks for the states of share partitions: through the share
coordinator, as requests from elsewhere do, and again for a while if that is not there yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from moldau.coordinator.coordinator import Decide
from moldau.coordinator.decision import Waiter
from moldau.runtime.interfaces import Runtime
from moldau.server.share_coordinator import TOPIC, ShareCoordinator
from moldau.share.batches import StateBatch
from moldau.share.partition import SharePartition, Write
from moldau.share.states import ShareKey, ShareStateShard
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages import read_share_group_state as read
from moldau.wire.messages import write_share_group_state as write
from moldau.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from moldau.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from moldau.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)

log = logging.getLogger(__name__)

# The topic is created, or a partition of it is being read, within moments; what takes longer is told.
_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_COUNT_MAX = 2**31 - 1

_NOT_YET = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    )
)

R = TypeVar("R")


class SharePersister:
    def __init__(
        self, runtime: Runtime, coordinator: ShareCoordinator, create_topic: Callable[[], None]
    ) -> None:
        self._runtime = runtime
        self._coordinator = coordinator
        self._create_topic = create_topic

    # ------------------------------------------------------------ for leaders of partitions

    def read(self, key: ShareKey, leader_epoch: int) -> Waiter[read.PartitionResult]:
        return self._submit(key, lambda shard, now_ms, waiter: shard.read(now_ms, key, leader_epoch))

    def write(self, key: ShareKey, partition: SharePartition, change: Write) -> Waiter[write.PartitionResult]:
        data = write.PartitionData(
            partition=key.partition,
            state_epoch=partition.state_epoch,
            leader_epoch=partition.leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=min(change.delivery_complete_count, _COUNT_MAX),
            state_batches=[_state_batch(batch) for batch in change.batches],
        )
        return self._submit(key, lambda shard, now_ms, waiter: shard.write(now_ms, key, data))

    def _submit(self, key: ShareKey, decide: Decide[ShareStateShard, R]) -> Waiter[R]:
        """Done at once where the coordinator is at hand and its log has one replica."""
        try:
            return self._coordinator.submit(key, decide)
        except KafkaError as failure:
            waiter: Waiter[R] = Waiter()
            if failure.code in _NOT_YET:
                self._runtime.spawn(self._submit_later(key, decide, waiter), f"share state of {key}")
            else:
                waiter.fail(failure)
            return waiter

    async def _submit_later(
        self, key: ShareKey, decide: Decide[ShareStateShard, R], waiter: Waiter[R]
    ) -> None:
        failure = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for pause_s in _PAUSES_S:
            self._have_topic()
            await asyncio.sleep(pause_s)
            try:
                done = self._coordinator.submit(key, decide)
            except KafkaError as refused:
                failure = refused
                if refused.code not in _NOT_YET:
                    break
            else:
                done.when_done(partial(_pass_on, done, waiter))
                return
        waiter.fail(failure)

    def _have_topic(self) -> None:
        if TOPIC not in self._coordinator.environment.image.topics:
            self._create_topic()

    # ------------------------------------------------------------ for the group coordinator

    async def initialize(
        self, request: InitializeShareGroupStateRequest
    ) -> InitializeShareGroupStateResponse:
        return await self._ask(lambda: self._coordinator.initialize(request))

    async def delete(self, request: DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse:
        return await self._ask(lambda: self._coordinator.delete(request))

    async def summarize(
        self, request: ReadShareGroupStateSummaryRequest
    ) -> ReadShareGroupStateSummaryResponse:
        return await self._ask(lambda: self._coordinator.summarize(request))

    async def _ask(self, ask: Callable[[], Awaitable[R]]) -> R:
        """All of it may be asked for twice, so it is asked for as a whole until nothing has to wait."""
        response = await ask()
        for pause_s in _PAUSES_S:
            if not _has_to_wait(response):
                break
            self._have_topic()
            await asyncio.sleep(pause_s)
            response = await ask()
        return response


def _has_to_wait(response: object) -> bool:
    results = getattr(response, "results", ())
    return any(partition.error_code in _NOT_YET for topic in results for partition in topic.partitions)


def _pass_on(done: Waiter[R], waiter: Waiter[R]) -> None:
    try:
        waiter.give(done.result())
    except KafkaError as failure:
        waiter.fail(failure)


def _state_batch(batch: StateBatch) -> write.StateBatch:
    return write.StateBatch(
        first_offset=batch.first,
        last_offset=batch.last,
        delivery_state=batch.state,
        delivery_count=batch.delivery_count,
    )
