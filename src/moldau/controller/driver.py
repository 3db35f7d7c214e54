"""The active controller: one decision after another, each on the image that the one before left behind.

It is the only writer of the metadata log and the only maker of images, hence no locks: between deciding and
having appended and applied, nothing else runs. Decisions may be taken on records that are not committed yet,
and share one flush; but nobody hears of them, neither listeners nor callers, before they are committed.
Order of effects: appended, applied, durable, every listener has seen it, the reply is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from moldau.controller.decision import Decision
from moldau.metadata.delta import Delta, MetadataReplay
from moldau.metadata.framing import MetadataRecord
from moldau.metadata.image import ClusterImage

R = TypeVar("R")

Listener = Callable[[ClusterImage, Delta], None]


class RecordLog(Protocol):
    """What the controller needs of the metadata quorum."""

    @property
    def epoch(self) -> int: ...
    @property
    def high_watermark(self) -> int:
        """Records below it are committed."""
        ...

    @property
    def failure(self) -> BaseException | None:
        """Why nothing can be appended or committed any more."""
        ...

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        """Append as a whole; the last offset. Not committed yet. If it raises and there is no `failure`,
        nothing was appended."""
        ...

    async def commit(self, offset: int) -> None:
        """Return when the record at `offset` is committed."""
        ...


class Controller:
    """`image` is the newest committed one. Listeners are called in the order in which they were added. One
    that raises would miss a change for ever: it stops the controller, as a failed disk does, and `on_failure`
    is told."""

    def __init__(
        self,
        log: RecordLog,
        replay: MetadataReplay,
        now_ms: Callable[[], int],
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._log = log
        self._replay = replay
        self._now_ms = now_ms
        self._uncommitted: deque[tuple[ClusterImage, Delta]] = deque()
        self.image = replay.image
        self.failure: BaseException | None = None
        self._on_failure = on_failure
        self.listeners: list[Listener] = []

    async def submit(self, decide: Callable[[ClusterImage], Decision[R]]) -> R:
        """Decide on the newest image, carry it out, give the reply. What `decide` raises is raised here, and
        nothing has happened then."""
        self._check()
        decision = decide(self._replay.image)
        if decision.records:
            self._append(decision.records)
        if self._uncommitted:
            # Also when there is nothing to record: the reply may speak of what is not committed yet.
            await self._commit(self._replay.image.offset)
        return decision.reply

    def _append(self, records: Sequence[MetadataRecord]) -> None:
        now_ms = self._now_ms()
        try:
            last_offset = self._log.append(records, now_ms)
        except BaseException as error:
            if self._log.failure is not None:
                self._fail(error)
            raise
        try:
            for record in records:
                self._replay.apply(record.message)
        except BaseException as error:
            # The records are in the log, and the image is not what they say: only a restart can tell.
            self._fail(error)
            raise
        self._uncommitted.append(self._replay.publish(last_offset, self._log.epoch, now_ms))

    async def _commit(self, offset: int) -> None:
        try:
            await self._log.commit(offset)
            self._publish()
        except Exception as error:
            self._fail(error)
            raise
        # Another caller may have published this and stumbled over a listener.
        self._check()

    def _publish(self) -> None:
        while self._uncommitted and self._uncommitted[0][0].offset < self._log.high_watermark:
            self._check()
            self.image, delta = self._uncommitted.popleft()
            for listener in self.listeners:
                listener(self.image, delta)

    def _check(self) -> None:
        if self.failure is not None:
            raise RuntimeError("the controller has stopped") from self.failure

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            if self._on_failure is not None:
                self._on_failure(error)
