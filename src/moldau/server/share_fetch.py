"""A fetch of a member of a share group: reads what nobody has acquired, and waits while that is too little.

It looks again when records are appended, when others give records back or their locks end, and when a share
partition was loaded; when its time is over it takes what there is. What it reads it acquires in the same
turn, except where only the disk has it: then the share partition is its own until the read is done.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from moldau.coordinator.decision import Waiter
from moldau.log.batch_scan import read_marker
from moldau.log.log import Slice
from moldau.log.transaction_index import AbortedTransaction
from moldau.records.batch import BatchHeader, iterate_headers
from moldau.records.control import ControlType
from moldau.runtime.interfaces import Runtime, Timer
from moldau.server.share_partitions import LoadedShare, SharePartitions
from moldau.share.partition import Acquired, SharePartition
from moldau.share.sessions import SessionKey, TopicPartition
from moldau.share.states import ShareKey
from moldau.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)


class ShareFetchLimits(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    records_max: int
    batch_size: int
    is_record_limit: bool


class Fetched(NamedTuple):
    """What a member gets of one partition."""

    records: bytes | memoryview = b""
    acquired: Sequence[Acquired] = ()
    failure: KafkaError | None = None


class _Readable(NamedTuple):
    loaded: LoadedShare
    share: SharePartition
    offset: int
    found: Slice


Result = dict[TopicPartition, Fetched]


class ShareFetch:
    """Made by `begin`; `cancel` when the client is gone."""

    def __init__(
        self,
        runtime: Runtime,
        partitions: SharePartitions,
        key: SessionKey,
        limits: ShareFetchLimits,
    ) -> None:
        self.result: Waiter[Result] = Waiter()
        self._runtime = runtime
        self._partitions = partitions
        self._key = key
        self._limits = limits
        self.read_committed = partitions.group_config(key.group_id).share_isolation_level == "read_committed"
        self._loaded: dict[TopicPartition, LoadedShare] = {}
        self._failures: Result = {}
        self._timer: Timer | None = None
        self._is_woken = False
        self._is_over = False

    def begin(self, asked: Sequence[TopicPartition]) -> Waiter[Result]:
        """In that order they are read."""
        if not self._limits.records_max or not self._limits.max_bytes:
            asked = ()
        for topic_partition in asked:
            topic_id, index = topic_partition
            try:
                loaded = self._partitions.load(ShareKey(self._key.group_id, topic_id, index))
                self._loaded[topic_partition] = loaded
            except KafkaError as failure:
                self._failures[topic_partition] = Fetched(failure=failure)
        if not self._loaded:
            self._finish({})
        elif not self._try(is_last=self._limits.max_wait_ms <= 0):
            self._wait()
        return self.result

    def cancel(self) -> None:
        self._is_over = True
        self._leave()

    # ------------------------------------------------------------ waiting

    def _wait(self) -> None:
        self._timer = self._runtime.call_later(self._limits.max_wait_ms / 1000, self._expire)
        for loaded in self._loaded.values():
            loaded.waiting[self.wake] = None
            loaded.replica.wait(self)

    def on_append(self, appended_bytes: int) -> None:
        self.wake()

    def on_gone(self) -> None:
        self.wake()

    def wake(self) -> None:
        if not (self._is_woken or self._is_over):
            self._is_woken = True
            self._runtime.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._is_woken = False
        if not self._is_over:
            self._attempt(is_last=False)

    def _expire(self) -> None:
        if not self._is_over:
            self._attempt(is_last=True)

    def _attempt(self, *, is_last: bool) -> None:
        try:
            self._try(is_last=is_last)
        except Exception:
            # Our bug, with nobody above us who would answer.
            log.exception("a share fetch of %s failed", self._key)
            self._is_over = True
            self._leave()
            self.result.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for loaded in self._loaded.values():
            loaded.waiting.pop(self.wake, None)
            loaded.replica.stop_waiting(self)

    # ------------------------------------------------------------ reading

    def _try(self, *, is_last: bool) -> bool:
        """Whether it is done, or about to be."""
        readable, has_news = self._look()
        found_bytes = sum(each.found.count for each in readable)
        if not (is_last or has_news or (readable and found_bytes >= self._limits.min_bytes)):
            return False
        self._is_over = True
        self._leave()
        cold = [each for each in readable if not each.found.is_cached]
        if not cold:
            self._finish(self._take(readable))
            return True
        for each in readable:
            each.loaded.is_fetching = True
        self._runtime.spawn(self._take_cold(readable), f"share fetch of {self._key}")
        return True

    def _look(self) -> tuple[list[_Readable], bool]:
        """What there is, and whether there is something to be told at once."""
        readable: list[_Readable] = []
        has_news = False
        limits = self._partitions.limits(self._key.group_id)
        acquirable: list[tuple[TopicPartition, LoadedShare, SharePartition]] = []
        for topic_partition, loaded in self._loaded.items():
            if not loaded.is_current:
                has_news = True
                self._failures[topic_partition] = Fetched(failure=_gone(loaded))
            elif loaded.share is not None and not loaded.is_fetching and loaded.share.can_acquire(limits):
                acquirable.append((topic_partition, loaded, loaded.share))
        max_bytes = self._limits.max_bytes // max(1, len(acquirable))
        is_first = True
        for topic_partition, loaded, share in acquirable:
            offset = share.next_fetch_offset
            try:
                found = loaded.replica.read(
                    offset, max_bytes, read_committed=self.read_committed, min_one_batch=is_first
                )
            except KafkaError as failure:
                has_news = True
                of_log = loaded.replica.log
                if failure.code == ErrorCode.OFFSET_OUT_OF_RANGE and of_log is not None:
                    # Records were deleted. The member is told nothing, and asks again.
                    share.on_log_start_offset(of_log.log_start_offset)
                    self._failures[topic_partition] = Fetched()
                else:
                    self._failures[topic_partition] = Fetched(failure=failure)
                continue
            is_first = is_first and not found.count
            readable.append(_Readable(loaded, share, offset, found))
        return readable, has_news

    async def _take_cold(self, readable: list[_Readable]) -> None:
        try:
            for each in readable:
                await self._runtime.run_blocking(each.found.file.load, each.found.count, each.found.position)
        except OSError as error:
            # Whoever reads it will meet the same, and knows what it means there.
            log.warning("cannot read for a share fetch: %s", error)
        finally:
            for each in readable:
                each.loaded.is_fetching = False
        try:
            self._finish(self._take(readable))
        except Exception:
            log.exception("a share fetch of %s failed", self._key)
            self.result.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _take(self, readable: list[_Readable]) -> Result:
        result: Result = {}
        left = self._limits.records_max
        for each in readable:
            key = each.loaded.key
            topic_partition = key.topic_id, key.partition
            if not each.loaded.is_current:
                result[topic_partition] = Fetched(failure=_gone(each.loaded))
                continue
            fetched = result[topic_partition] = self._acquire(each, left)
            left -= sum(run.last - run.first + 1 for run in fetched.acquired)
            self._partitions.arm(each.loaded)
            # Others may have waited for this one to be done.
            each.loaded.wake()
        return result

    def _acquire(self, readable: _Readable, records_max: int) -> Fetched:
        loaded, share, offset, found = readable
        if not found.count or records_max <= 0:
            return Fetched()
        data = memoryview(found.file.read_at(found.count, found.position))
        try:
            batches = list(iterate_headers(data))
        except KafkaError as failure:
            return Fetched(failure=failure)
        if not batches:
            return Fetched()
        aborted: Sequence[tuple[int, int]] = ()
        if self.read_committed and loaded.replica.log is not None:
            transactions = loaded.replica.log.aborted_transactions_of(offset, found)
            aborted = _aborted_ranges(data, batches, transactions) if transactions else ()
        acquired = share.acquire(
            self._runtime.clock.now_ms(),
            self._key.member_id,
            offset,
            [header for _, header in batches],
            self._partitions.limits(self._key.group_id),
            records_max=records_max,
            batch_size=self._limits.batch_size,
            is_record_limit=self._limits.is_record_limit,
            aborted=aborted,
        )
        if not acquired:
            return Fetched()
        records = _batches_of(data, batches, acquired[0].first, acquired[-1].last)
        loaded.replica.bytes_out += len(records)
        return Fetched(records, acquired)

    def _finish(self, result: Result) -> None:
        self.result.give({**self._failures, **result})


def _gone(loaded: LoadedShare) -> KafkaError:
    if loaded.failure is not None:
        return loaded.failure
    if loaded.replica.log is None and loaded.replica.is_leader:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _batches_of(
    data: memoryview, batches: Sequence[tuple[int, BatchHeader]], first: int, last: int
) -> memoryview:
    """From the batch that holds the first offset to the one that holds the last."""
    start, end = 0, len(data)
    for position, header in batches:
        if header.last_offset < first:
            start = position + header.size
        if header.base_offset <= last:
            end = position + header.size
    return data[start:end]


def _aborted_ranges(
    data: memoryview,
    batches: Sequence[tuple[int, BatchHeader]],
    transactions: Sequence[AbortedTransaction],
) -> list[tuple[int, int]]:
    """First and last offsets of the batches that belong to them: from where one begins to its marker."""
    waiting = sorted(transactions, key=lambda each: each.first_offset, reverse=True)
    aborted: set[int] = set()
    ranges = []
    for position, header in batches:
        while waiting and waiting[-1].first_offset <= header.last_offset:
            aborted.add(waiting.pop().producer_id)
        if header.is_control:
            marker = read_marker(data[position : position + header.size])
            if marker is not None and marker[0].type is ControlType.ABORT:
                aborted.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborted:
            ranges.append((header.base_offset, header.last_offset))
    return ranges
