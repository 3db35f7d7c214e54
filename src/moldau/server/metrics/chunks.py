"""Long work of a scrape in small pieces: everyone else has a turn of the loop in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

CHUNK = 250  # about a millisecond of work


async def in_chunks(items: Iterable[T], size: int = CHUNK) -> AsyncIterator[list[T]]:
    """The items, with a turn of the loop for everyone else after each `size` of them."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
        await asyncio.sleep(0)
