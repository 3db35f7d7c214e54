"""Performs what a consumer's rules decide: asks, brings the answers back, and tells the program.

As with the producer, whatever happens calls `wake`, and on the next turn of the loop `step` is asked once for
what is to be done. Changes of the assignment are told within `poll`, so that a program never finds a
partition gone while it works on its records.

Invariant: every effect is answered to the rules exactly once, and every call that waits ends: answered, too
late, or because the consumer was closed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any, assert_never

from moldau.client.cluster import Cluster
from moldau.client.consuming.asking import (
    Ask,
    Assigned,
    Call,
    Change,
    Effect,
    Lost,
    RefreshMetadata,
    Revoked,
)
from moldau.client.consuming.machine import Machine
from moldau.client.delivery import release
from moldau.client.errors import ClosedError
from moldau.client.sharing.machine import ShareMachine
from moldau.client.topology import TopicPartition
from moldau.runtime.interfaces import Runtime, Timer
from moldau.wire.api import ApiKey
from moldau.wire.errors import KafkaError

Tell = Callable[[Change], Any]
"""Tells the program of a change; what it returns is awaited if it can be."""

_LEAVE_TIMEOUT_S = 5.0


class ConsumeDriver:
    def __init__(
        self, runtime: Runtime, cluster: Cluster, machine: Machine | ShareMachine, tell: Tell
    ) -> None:
        self.cluster = cluster
        self.machine = machine
        self.is_closed = False
        self._runtime = runtime
        self._now_ms = runtime.clock.now_ms
        self._monotonic = runtime.clock.monotonic
        self._tell = tell
        self._is_woken = False
        self._is_polling = False
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._news: asyncio.Future[None] | None = None
        self._watchers: list[asyncio.Future[None]] = []
        self._failing_since: float | None = None

    def wake(self) -> None:
        """Something has changed."""
        if not self._is_woken and not self.is_closed:
            self._is_woken = True
            self._runtime.call_soon(self.pump)

    async def leave(self, effects: list[Effect]) -> None:
        """Say goodbye; who cannot be reached will find out."""
        asks = [self._ask(effect) for effect in effects if isinstance(effect, Ask)]
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await asyncio.gather(*asks)
        except TimeoutError:
            pass

    async def close(self) -> None:
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.machine.commits is not None:
            self.machine.commits.close(ClosedError.because("the consumer was closed"))
        self._finish()
        for future in (*self._watchers, self._news):
            if future is not None:
                release(future)

    # Polls ------------------------------------------------------------------------------------------------

    async def poll(
        self,
        timeout_s: float,
        limit: int,
        places: Collection[TopicPartition] | None = None,
        *,
        patience_s: float | None = None,
        with_hidden: bool = False,
    ) -> list[Any]:
        """What is there or comes first, in columns by partition; nothing if nothing came in time.

        A failure that has not passed for `patience_s` is raised. `with_hidden` also tells of positions that
        have moved past what is not to be seen.
        """
        if self._is_polling:
            raise RuntimeError("the consumer is being polled already")
        self._is_polling = True
        machine = self.machine
        deadline = self._monotonic() + timeout_s
        machine.begin_poll(self._now_ms())
        try:
            while True:
                self.pump()
                await self.tell_changes()
                taken = machine.take(limit, places)
                if taken:
                    self.wake()
                    seen = [each for each in taken if with_hidden or len(each.columns)]
                    if seen:
                        return seen
                    continue
                now = self._monotonic()
                until = deadline
                failure = machine.failure
                if failure is not None and patience_s is not None and self._failing_since is not None:
                    until = min(until, self._failing_since + patience_s)
                    if until <= now and until < deadline:
                        raise failure
                if until <= now:
                    return []
                await self._wait_for_news(until - now)
                if self.is_closed:
                    raise ClosedError.because("the consumer was closed")
        finally:
            self._is_polling = False
            machine.end_poll(self._now_ms())

    async def tell_changes(self) -> None:
        """Have the program follow what has become of its partitions."""
        machine = self.machine
        while machine.changes:
            change = machine.begin_change()
            try:
                if isinstance(change, Revoked) and machine.commits_by_itself:
                    await self._commit_before(change)
                told = self._tell(change)
                if inspect.isawaitable(told):
                    await told
            finally:
                machine.end_change()
                self.pump()

    async def _commit_before(self, change: Revoked) -> None:
        """What was handed out of partitions that go to others, who begin there."""
        assert isinstance(self.machine, Machine)
        commits = self.machine.commits
        assert commits is not None
        timeout_ms = min(self.machine.config.default_api_timeout_ms, self.machine.config.max_poll_interval_ms)
        try:
            await self.wait(commits.commit(None, self._now_ms() + timeout_ms))
        except KafkaError:
            pass  # others read again what this one has read, as after a crash

    async def _wait_for_news(self, timeout_s: float) -> None:
        self._news = asyncio.get_running_loop().create_future()
        if self.machine.has_news:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._news
        except TimeoutError:
            pass

    async def until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Until something is so, which is looked at whenever something has changed; False if not in time."""
        deadline = self._monotonic() + timeout_s
        self.wake()
        while not is_so():
            if self.is_closed:
                raise ClosedError.because("the consumer was closed")
            future = asyncio.get_running_loop().create_future()
            self._watchers.append(future)
            try:
                async with asyncio.timeout(max(deadline - self._monotonic(), 0)):
                    await future
            except TimeoutError:
                return is_so()
        return True

    async def wait(self, call: Call) -> Any:
        """Until a call has ended; what it gives, or its error."""
        self.wake()
        if not call.is_done:
            future = asyncio.get_running_loop().create_future()
            call.waiters.append(partial(release, future))
            await future
        if call.error is not None:
            raise type(call.error)(call.error.code, call.error.message)
        return call.result

    # Effects ----------------------------------------------------------------------------------------------

    def pump(self) -> None:
        self._is_woken = False
        if self.is_closed:
            return
        for effect in self.machine.step(self._now_ms()):
            self._perform(effect)
        self._finish()
        self._set_timer()
        is_failing = self.machine.failure is not None
        if is_failing is (self._failing_since is None):
            self._failing_since = self._monotonic() if is_failing else None
            if self._news is not None:
                release(self._news)  # how long to wait for it may be another matter
        if self._news is not None and self.machine.has_news:
            release(self._news)
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            release(watcher)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Ask():
                self._spawn(self._ask(effect), effect.request.__name__)
            case RefreshMetadata():
                self._spawn(self._refresh(effect.topics), "metadata")
            case _:
                assert_never(effect)

    async def _ask(self, ask: Ask) -> None:
        try:
            coordinator = self.machine.coordinator
            if coordinator is not None and coordinator.address is not None:
                address, coordinator.address = coordinator.address, None
                self.cluster.learn_node(*address, None)
            if ask.node_id is None:
                connection = await self.cluster.connection_to_any()
            else:
                connection = await self.cluster.connection_to(ask.node_id, ask.lane)
            version = connection.version_of(ApiKey(ask.request.API_KEY), ask.version_max)
            timeout_s = None if ask.timeout_ms is None else ask.timeout_ms / 1000
            response = await connection.request(
                ask.message(version), ask.response, version=version, timeout_s=timeout_s
            )
        except KafkaError as error:
            ask.owner.on_failure(self._now_ms(), ask.about, error)
        else:
            ask.owner.on_response(self._now_ms(), ask.about, response)
        self.wake()

    async def _refresh(self, topics: tuple[str, ...] | None) -> None:
        creates = topics is not None and self.machine.creates_topics
        try:
            view = await self.cluster.refresh(topics, allow_auto_topic_creation=creates)
        except KafkaError as error:
            self.machine.topics.on_failure(self._now_ms(), error)
        else:
            self.machine.on_metadata(self._now_ms(), view.topics, view.errors)
        self.wake()

    def _finish(self) -> None:
        commits = self.machine.commits
        while commits is not None and commits.finished:
            finished, commits.finished = commits.finished, []
            for call in finished:
                waiters, call.waiters = call.waiters, []
                for wake in waiters:
                    wake()

    def _set_timer(self) -> None:
        wakeup_ms = self.machine.wakeup_ms
        if self._timer is not None:
            if wakeup_ms is not None and self._timer_ms == wakeup_ms:
                return
            self._timer.cancel()
            self._timer = None
        if wakeup_ms is not None:
            self._timer_ms = wakeup_ms
            delay_s = max(wakeup_ms - self._now_ms(), 0) / 1000
            self._timer = self._runtime.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.pump()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._runtime.spawn(work, f"consumer: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


__all__ = ["Assigned", "ConsumeDriver", "Lost", "Revoked"]
