"""Incremental fetch sessions (KIP-227): a consumer or follower names its partitions once, then only changes.

A session remembers for each partition what was asked and what was last answered. A response to an
incremental request leaves out partitions of which there is nothing new to say. Sessions are many and memory
is not, so the cache has slots; a full cache lets go of a session that was long unused, or of a smaller one
that has had its time.

What a session remembers is also how far its client has read. `positions` tells that of all clients, with or
without a session.

Pure: time and chance are arguments. Each request moves the session's epoch by one; a client that lost a
response notices by the epoch and starts over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from moldau.replica.fetch_positions import EXPIRY_MS, FetchPositions, Position, Reader
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.fetch import FetchPartition, FetchRequest, PartitionHead

NO_SESSION = 0
FULL_EPOCH = 0  # this request starts a session
FINAL_EPOCH = -1  # this request wants none
_EPOCH_MAX = 2**31 - 1

Key = tuple[bytes, int]


class Asked:
    """One partition of a session: the last request for it, and the last answer."""

    __slots__ = ("high_watermark", "log_start_offset", "request")

    def __init__(self, request: FetchPartition) -> None:
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1

    def is_news(self, head: PartitionHead, records_bytes: int) -> bool:
        """Whether the answer has to be sent; remembers it as sent if so."""
        news = records_bytes > 0 or head.error_code != 0 or head.preferred_read_replica != -1
        if head.high_watermark != self.high_watermark:
            news, self.high_watermark = True, head.high_watermark
        if head.log_start_offset != self.log_start_offset:
            news, self.log_start_offset = True, head.log_start_offset
        if head.diverging_epoch is not None:
            news = True
        if head.error_code:
            # The first answer after an error is sent even if all numbers are as they were before it.
            self.high_watermark = -1
        return news


class FetchSession:
    __slots__ = ("created_ms", "epoch", "id", "last_used_ms", "partitions", "privileged", "reader")

    def __init__(self, session_id: int, reader: Reader, *, privileged: bool, now_ms: int) -> None:
        self.id = session_id
        self.epoch = 1
        self.reader = reader
        self.privileged = privileged  # a follower's: outlives those of consumers
        self.created_ms = self.last_used_ms = now_ms
        self.partitions: dict[Key, Asked] = {}

    def update(self, asked: Iterable[FetchPartition], forgotten: Iterable[Key]) -> list[FetchPartition]:
        """Takes over what a request changes; the last requests for what is forgotten."""
        for request in asked:
            known = self.partitions.get((request.topic, request.partition))
            if known is None:
                self.partitions[request.topic, request.partition] = Asked(request)
            else:
                known.request = request
        gone = [self.partitions.pop(key, None) for key in forgotten]
        return [known.request for known in gone if known is not None]

    def move_to_end(self, key: Key) -> None:
        """A partition that had its turn waits behind those that had not: `max_bytes` must starve none."""
        self.partitions[key] = self.partitions.pop(key)


class FetchContext:
    """What one fetch request reads, and with which session its response is counted."""

    __slots__ = ("incremental", "partitions", "session", "session_id")

    def __init__(
        self, partitions: list[FetchPartition], session: FetchSession | None, *, incremental: bool
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.session_id = session.id if session is not None else NO_SESSION
        self.incremental = incremental


class FetchSessionCache:
    def __init__(self, slots: int, evict_after_ms: int, random: Random) -> None:
        self._slots = slots
        self._evict_after_ms = evict_after_ms
        self._random = random
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._positions = FetchPositions()  # what is in no session
        self.evictions_total = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def positions(self, now_ms: int) -> Iterator[list[Position]]:
        """How far consumers have read, and when they last asked for it. The same partition of the same client
        may come several times. Between two lists requests may come in."""
        yield from self._positions.current(now_ms)
        for session in list(self._sessions.values()):
            if session.privileged or session.last_used_ms < now_ms - EXPIRY_MS:
                continue
            yield [
                Position(session.reader, topic, partition, asked.request.fetch_offset, session.last_used_ms)
                for (topic, partition), asked in session.partitions.items()
            ]

    def open(
        self, request: FetchRequest, client_id: str, host: str, *, by_topic_id: bool, now_ms: int
    ) -> FetchContext:
        """`client_id` and `host` are those of the reader. Raises FETCH_SESSION_ID_NOT_FOUND,
        INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR."""
        if request.session_epoch in (FULL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self._close(request.session_id)
            created = None
            reader = Reader(client_id, host, by_topic_id)
            if request.session_epoch == FULL_EPOCH:
                created = self._create(request, reader, now_ms=now_ms)
            if created is None and request.replica_id < 0:
                self._positions.record(reader, request.partitions, now_ms)
            return FetchContext(request.partitions, created, incremental=False)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.reader.by_topic_id != by_topic_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        gone = session.update(request.partitions, request.forgotten)
        if gone and not session.privileged:
            self._positions.record(session.reader, gone, now_ms)
        if not session.partitions:
            del self._sessions[session.id]
            return FetchContext(request.partitions, None, incremental=False)
        session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
        session.last_used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        return FetchContext(
            [asked.request for asked in session.partitions.values()], session, incremental=True
        )

    def _close(self, session_id: int) -> None:
        """How far its client had come stays known for a while."""
        session = self._sessions.pop(session_id, None)
        if session is not None and not session.privileged:
            last_asked = [asked.request for asked in session.partitions.values()]
            self._positions.record(session.reader, last_asked, session.last_used_ms)

    def _create(self, request: FetchRequest, reader: Reader, *, now_ms: int) -> FetchSession | None:
        privileged = request.replica_id >= 0
        if not self._make_room(len(request.partitions), privileged, now_ms):
            return None
        session_id = self._random.randint(1, _EPOCH_MAX)
        while session_id in self._sessions:
            session_id = self._random.randint(1, _EPOCH_MAX)
        session = FetchSession(session_id, reader, privileged=privileged, now_ms=now_ms)
        session.update(request.partitions, ())
        self._sessions[session_id] = session
        return session

    def _make_room(self, partition_count: int, privileged: bool, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        victim: FetchSession | None = None
        if now_ms - oldest.last_used_ms > self._evict_after_ms:
            victim = oldest
        else:
            # A session has time to settle before it gives way, but a consumer's none before a follower's.
            settled = [
                s
                for s in self._sessions.values()
                if now_ms - s.created_ms > self._evict_after_ms or (privileged and not s.privileged)
            ]
            if settled:
                smallest = min(settled, key=lambda s: (s.privileged, len(s.partitions), s.id))
                if (smallest.privileged, len(smallest.partitions)) < (privileged, partition_count):
                    victim = smallest
        if victim is None:
            return False
        self._close(victim.id)
        self.evictions_total += 1
        return True
