"""For handlers that make something of a coordinator's answer, or put several together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from moldau.coordinator.decision import Waiter
from moldau.wire.errors import KafkaError

R = TypeVar("R")
M = TypeVar("M")


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


def answered(
    ask: Callable[[], Waiter[R]], answer: Callable[[R], M], refuse: Callable[[KafkaError], M]
) -> M | Waiter[M]:
    """What to respond with, once what `ask` asks for is there; without a task for it."""
    try:
        waiter = ask()
    except KafkaError as failure:
        return refuse(failure)

    def response() -> M:
        return answer(waiter.result()) if waiter.failure is None else refuse(waiter.failure)

    if waiter.is_done:
        return response()
    later: Waiter[M] = Waiter()
    waiter.when_done(lambda: later.give(response()))
    return later
