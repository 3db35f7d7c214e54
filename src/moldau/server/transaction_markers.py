"""Completes what a transaction coordinator has decided: has the markers written, and says when all of them
are.

Partitions are looked up anew at each attempt: one that is gone needs no marker, one that is led here gets
it at once, any other is tried again after a while. The markers of partitions that another broker leads
would leave from `_write_to`, as a WriteTxnMarkers request; with one broker there are none.

Markers of many partitions are written in turns, so that others are served in between. Nothing is kept of
what is under way: who leads the coordinator's partition next finds it in the log and begins again, and a
marker that is there already does no harm."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection

from moldau.coordinator.decision import Waiter
from moldau.metadata.image import ClusterImage
from moldau.runtime.interfaces import Runtime
from moldau.server.txn_markers import TxnMarkers
from moldau.txn.marking import Marking, Verdict
from moldau.txn.transaction import Markers, TopicPartition
from moldau.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

# Others get their turn after this long.
_TURN_S = 0.005
_NO_LEADER = frozenset((ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER))

Complete = Callable[[int, Markers], Waiter[bool]]
"""A partition of `__transaction_state`, and what was written. Raises KafkaError."""


class MarkerSender:
    def __init__(
        self,
        runtime: Runtime,
        node_id: int,
        image: Callable[[], ClusterImage],
        local: TxnMarkers,
        complete: Complete,
    ) -> None:
        self._runtime = runtime
        self._node_id = node_id
        self._image = image
        self._local = local
        self._complete = complete
        self._markings: dict[tuple[int, str], Marking] = {}
        self._ready: deque[tuple[tuple[int, str], Marking]] = deque()
        self._is_running = False
        # For metrics: whose leader is unknown or not here, and whose completion could not be written.
        self._unreached: set[tuple[int, str]] = set()
        self._uncompleted: set[tuple[int, str]] = set()

    def begin(self, index: int, coordinator_epoch: int, markers: Markers) -> None:
        key = index, markers.transactional_id
        marking = self._markings[key] = Marking(markers, coordinator_epoch)
        self._unreached.discard(key)
        self._uncompleted.discard(key)
        self._enqueue(key, marking)

    def stop(self, index: int, coordinator_epoch: int) -> None:
        """What a partition of `__transaction_state` has decided in other epochs is no longer for us to
        complete, or is about to be found in its log."""
        for key, marking in list(self._markings.items()):
            if key[0] == index and marking.coordinator_epoch != coordinator_epoch:
                self._drop(key)

    def close(self) -> None:
        self._markings.clear()
        self._ready.clear()

    def left_of(self, index: int, transactional_id: str) -> Collection[TopicPartition] | None:
        """The partitions without a marker; None where nothing is under way."""
        marking = self._markings.get((index, transactional_id))
        return None if marking is None else marking.left

    @property
    def unreached_count(self) -> int:
        return len(self._unreached)

    @property
    def uncompleted_count(self) -> int:
        return len(self._uncompleted)

    # ------------------------------------------------------------ turns

    def _enqueue(self, key: tuple[int, str], marking: Marking) -> None:
        self._ready.append((key, marking))
        if not self._is_running:
            self._run()

    def _run(self) -> None:
        self._is_running = True
        clock = self._runtime.clock
        turn_ends_at = clock.monotonic() + _TURN_S
        try:
            while self._ready:
                key, marking = self._ready[0]
                if not self._is_current(key, marking) or self._go_on(key, marking, turn_ends_at):
                    self._ready.popleft()
                if self._ready and clock.monotonic() > turn_ends_at:
                    self._runtime.call_later(0, self._run)
                    return
        except Exception:
            # Our bug; whatever else is decided is to be completed all the same.
            log.exception("markers of %s cannot be written", self._ready.popleft()[0])
            self._runtime.call_later(0, self._run)
            return
        self._is_running = False

    def _is_current(self, key: tuple[int, str], marking: Marking) -> bool:
        return self._markings.get(key) is marking

    def _drop(self, key: tuple[int, str]) -> None:
        del self._markings[key]
        self._unreached.discard(key)
        self._uncompleted.discard(key)

    def _go_on(self, key: tuple[int, str], marking: Marking, turn_ends_at: float) -> bool:
        """Writes one marker at least; False if the turn has ended before everything was tried."""
        untried, monotonic = marking.untried, self._runtime.clock.monotonic
        while untried:
            each = untried.popleft()
            if marking.on_code(each, self._write_to(each, marking)) is Verdict.FENCED:
                log.warning("%s-%d knows a newer transaction coordinator than the one here", *each)
                self._drop(key)
                return True
            if untried and monotonic() > turn_ends_at:
                return False
        if marking.left:
            self._try_again(key, marking)
        else:
            self._unreached.discard(key)
            self._finish(key, marking)
        return True

    def _try_again(self, key: tuple[int, str], marking: Marking) -> None:
        if marking.failed.keys() & _NO_LEADER:
            self._unreached.add(key)
        for code, (topic, index) in marking.failed.items():
            log.info("a marker of %s for %s-%d is tried again: %s", key[1], topic, index, code.name)
        self._later(key, marking, marking.begin_again(), self._enqueue)

    def _later(
        self,
        key: tuple[int, str],
        marking: Marking,
        after_ms: int,
        work: Callable[[tuple[int, str], Marking], None],
    ) -> None:
        def go_on() -> None:
            if self._is_current(key, marking):
                work(key, marking)

        self._runtime.call_later(after_ms / 1000, go_on)

    def _write_to(self, each: TopicPartition, marking: Marking) -> ErrorCode:
        topic, index = each
        partition = self._image().partition(topic, index)
        if partition is None:
            return ErrorCode.NONE  # it was deleted, and took with it what was open
        if partition.leader != self._node_id:
            return ErrorCode.LEADER_NOT_AVAILABLE
        markers = marking.markers
        return self._local.write_marker(
            topic,
            index,
            producer_id=markers.producer_id,
            producer_epoch=markers.producer_epoch,
            coordinator_epoch=marking.coordinator_epoch,
            is_committed=markers.is_committed,
            transaction_version=markers.transaction_version,
        )

    def _finish(self, key: tuple[int, str], marking: Marking) -> None:
        try:
            completed = self._complete(key[0], marking.markers)
        except KafkaError as failure:
            self._on_failure(key, marking, failure)
            return

        def on_done() -> None:
            if not self._is_current(key, marking):
                return
            if completed.failure is not None:
                self._on_failure(key, marking, completed.failure)
            else:
                self._drop(key)

        completed.when_done(on_done)

    def _on_failure(self, key: tuple[int, str], marking: Marking, failure: KafkaError) -> None:
        log.info("the end of %s is tried again: %s", key[1], failure.code.name)
        self._uncompleted.add(key)
        self._later(key, marking, marking.next_backoff_ms(), self._finish)
