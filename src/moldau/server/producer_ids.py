"""Producer ids for idempotent producers, out of blocks that the controller gives to this broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moldau.controller.driver import Controller
from moldau.controller.producer_ids import decide_allocate_producer_ids
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest


class ProducerIds:
    """A block that was not used up when the node stopped is lost, as in Kafka: ids must never come twice."""

    def __init__(self, controller: Controller, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def next(self) -> int:
        """Raises KafkaError when the controller refuses a block."""
        while self._next >= self._end:
            async with self._refill:
                if self._next >= self._end:
                    await self._take_block()
        self._next += 1
        return self._next - 1

    async def _take_block(self) -> None:
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        block = await self._controller.submit(lambda image: decide_allocate_producer_ids(image, request))
        self._next = block.producer_id_start
        self._end = block.producer_id_start + block.producer_id_len
