"""Share sessions: a member names its partitions at a broker once, then only changes.

A session is known by group and member. Each request moves its epoch by one; a client that lost a response
notices by the epoch and begins anew. There is room for so many; one ends when its member says so, or with its
connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1

TopicPartition = tuple[Uuid, int]


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


class ShareSession:
    """`partitions` tells of each whether its next answer is sent though there is nothing new in it."""

    __slots__ = ("connection", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, partitions: Iterable[TopicPartition], connection: object) -> None:
        self.key = key
        self.epoch = 1
        self.partitions = dict.fromkeys(partitions, False)
        self.connection = connection

    def update(self, asked: Iterable[TopicPartition], forgotten: Iterable[TopicPartition]) -> None:
        for partition in asked:
            self.partitions.setdefault(partition, True)
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def is_news(self, partition: TopicPartition, *, error_code: int, has_records: bool) -> bool:
        """Whether the answer has to be sent; remembers it as sent if so."""
        has_to = self.partitions.get(partition, True) or has_records or error_code != 0
        if partition in self.partitions:
            # When an error goes away, that is news as well.
            self.partitions[partition] = error_code != 0
            if has_records:
                # A partition that had its turn waits behind those that had not.
                self.partitions[partition] = self.partitions.pop(partition)
        return has_to


class ShareContext:
    """What one request reads, and how its response is made. Without a session everything is told."""

    __slots__ = ("epoch", "partitions", "session")

    def __init__(
        self, epoch: int, partitions: list[TopicPartition], session: ShareSession | None = None
    ) -> None:
        self.epoch = epoch
        self.partitions = partitions
        self.session = session

    def is_told(self, partition: TopicPartition, *, error_code: int, has_records: bool) -> bool:
        session = self.session
        return session is None or session.is_news(partition, error_code=error_code, has_records=has_records)

    def in_turn(self) -> list[TopicPartition]:
        """The partitions, beginning with another one each time, so that none is always the last."""
        if not self.partitions:
            return []
        first = max(self.epoch, 0) % len(self.partitions)
        return self.partitions[first:] + self.partitions[:first]


class ShareSessions:
    def __init__(self) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, key: SessionKey) -> bool:
        return key in self._sessions

    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(
        self,
        key: SessionKey,
        epoch: int,
        asked: list[TopicPartition],
        forgotten: Iterable[TopicPartition],
        connection: object,
        *,
        has_acknowledgements: bool,
        slots: int,
    ) -> ShareContext:
        """Raises SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED, or
        INVALID_REQUEST for acknowledgements of what a new session cannot have acquired."""
        if epoch == FINAL_EPOCH:
            self._find(key)
            return ShareContext(epoch, [])
        if epoch == INITIAL_EPOCH:
            if has_acknowledgements:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            self._sessions.pop(key, None)
            if len(self._sessions) >= slots:
                raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            session = ShareSession(key, asked, connection)
            self._sessions[key] = session
            return ShareContext(epoch, list(session.partitions))
        session = self._at(key, epoch)
        session.update(asked, forgotten)
        _advance(session)
        return ShareContext(epoch, list(session.partitions), session)

    def acknowledge(self, key: SessionKey, epoch: int) -> None:
        """A request that only acknowledges. Raises as `open` does."""
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if epoch == FINAL_EPOCH:
            self._find(key)
        else:
            _advance(self._at(key, epoch))

    def close(self, key: SessionKey) -> list[TopicPartition]:
        """The partitions of the session that ends; none if there is no such session."""
        session = self._sessions.pop(key, None)
        return [] if session is None else list(session.partitions)

    def close_those_of(self, connection: object, keys: Iterable[SessionKey]) -> list[ShareSession]:
        """Which of the sessions end with the connection: those that did not move to another one."""
        ended = []
        for key in keys:
            session = self._sessions.get(key)
            if session is not None and session.connection is connection:
                ended.append(self._sessions.pop(key))
        return ended

    def has_group(self, group_id: str) -> bool:
        return any(key.group_id == group_id for key in self._sessions)

    def _find(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def _at(self, key: SessionKey, epoch: int) -> ShareSession:
        session = self._find(key)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return session


def _advance(session: ShareSession) -> None:
    session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
