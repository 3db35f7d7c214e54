"""OffsetFetch while something that it would tell is not committed yet."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from moldau.coordinator.decision import Waiter
from moldau.server.api.offset_fetch import handle
from moldau.server.context import RequestContext
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)


def begin(waiters: dict[str, Waiter[OffsetFetchResponseGroup]]) -> Any:
    groups = SimpleNamespace(submit_any_id=lambda group_id, decide: waiters[group_id])
    context = cast(RequestContext, SimpleNamespace(version=9, services=SimpleNamespace(groups=groups)))
    asked = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in waiters]
    return handle(context, OffsetFetchRequest(groups=asked))


def test_groups_that_have_answered_wait_for_those_that_have_not() -> None:
    waiters = {name: Waiter[OffsetFetchResponseGroup]() for name in "abc"}
    waiters["b"].give(OffsetFetchResponseGroup(group_id="b"))

    async def scenario() -> OffsetFetchResponse:
        answer = asyncio.ensure_future(begin(waiters))
        for name in "ca":
            await asyncio.sleep(0)
            assert not answer.done()
            if name == "c":
                waiters[name].fail(KafkaError(ErrorCode.NOT_COORDINATOR))
            else:
                waiters[name].give(OffsetFetchResponseGroup(group_id=name))
        return await answer

    told = asyncio.run(scenario()).groups
    assert [(group.group_id, group.error_code) for group in told] == [
        ("a", 0),
        ("b", 0),
        ("c", ErrorCode.NOT_COORDINATOR),
    ]


def test_nothing_waits_when_all_have_answered() -> None:
    waiters = {"a": Waiter[OffsetFetchResponseGroup]()}
    waiters["a"].give(OffsetFetchResponseGroup(group_id="a"))
    assert begin(waiters) == OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="a")])
