"""For handlers that put several answers together: waiting for a coordinator's."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from moldau.coordinator.decision import Waiter

R = TypeVar("R")


async def settled(waiter: Waiter[Any]) -> None:
    """Until there is an answer or a failure."""
    if not waiter.is_done:
        done = asyncio.Event()
        waiter.when_done(done.set)
        await done.wait()


async def result_of(waiter: Waiter[R]) -> R:
    """Raises the KafkaError that it failed with."""
    await settled(waiter)
    return waiter.result()
