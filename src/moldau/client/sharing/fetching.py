"""Fetching and acknowledging records of a share group: a session with each leader, and what it is told.

One request is in flight for each node, since each has the next epoch of the session. Records are fetched only
while the program waits for some: what waits here is locked for others. Acknowledgements go with the next
fetch, or alone where nobody fetches.

Invariants: an acknowledgement is sent once. When the session that it belongs to is gone, or nobody knows
whether it came, its outcome is an error, and the records are delivered again when their locks have run out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from moldau.client.consuming.asking import FETCH_LANE, Ask, Backoff, Call, Effect, soonest
from moldau.client.consuming.metadata import Topics
from moldau.client.errors import error_of, metadata_is_stale
from moldau.client.sharing.config import ShareConsumerConfig
from moldau.client.topology import TopicPartition
from moldau.records.batch import check_crc, iterate_headers
from moldau.records.read_columns import RecordColumns, read_columns
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.ids import Uuid
from moldau.wire.messages import share_acknowledge as wire_acknowledge
from moldau.wire.messages import share_fetch as wire_fetch

_FINAL_EPOCH = -1
_EPOCH_MAX = (1 << 31) - 1


class AcknowledgeType(IntEnum):
    GAP = 0
    """There is no record there to deliver."""
    ACCEPT = 1
    RELEASE = 2
    """Deliver it again, to whoever comes."""
    REJECT = 3
    """Never deliver it again."""


Ranges = list[tuple[int, int, int]]  # first and last offset, and the type


class Acquired(NamedTuple):
    """Records of a partition, for this consumer to acknowledge; as many delivery counts as records."""

    place: TopicPartition
    node_id: int
    columns: RecordColumns
    delivery_counts: list[int]

    def __len__(self) -> int:
        return len(self.columns)


class Commit(Call):
    """Ends when what was acknowledged before has an outcome: `result` by partition, None for success.
    `waits_for` says by node how many requests with acknowledgements have to be over."""

    __slots__ = ("waits_for",)

    def __init__(self, deadline_ms: int | None, waits_for: Mapping[int, int]) -> None:
        super().__init__("commit", deadline_ms)
        self.result: dict[TopicPartition, KafkaError | None] = {}
        self.waits_for = waits_for


class Flight(NamedTuple):
    node_id: int
    acknowledged: dict[TopicPartition, Ranges]
    is_last: bool


class _Session:
    def __init__(self, backoff: Backoff) -> None:
        self.epoch = 0
        self.told: set[TopicPartition] = set()
        self.ids: dict[TopicPartition, Uuid] = {}
        self.pending: dict[TopicPartition, Ranges] = {}
        self.flight: Flight | None = None
        self.backoff = backoff
        self.is_final = False
        self.begun = self.over = 0  # requests with acknowledgements, of all time

    def reset(self) -> None:
        self.epoch = 0
        self.told = set()


class ShareFetching:
    def __init__(
        self,
        config: ShareConsumerConfig,
        group_id: str,
        member_id: str,
        topics: Topics,
        *,
        spread: Callable[[], float],
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
    ) -> None:
        self.finished: list[Call] = []
        self.errors: dict[object, KafkaError] = {}
        self.failure: KafkaError | None = None
        self.acquired: deque[Acquired] = deque()
        self.outcomes: list[tuple[TopicPartition, Ranges, KafkaError | None]] = []
        """What became of acknowledgements, for whoever wants to be told."""
        self.is_wanted = False
        """Whether the program waits for records."""
        self.assigned: list[TopicPartition] = []
        self._config = config
        self._group_id = group_id
        self._member_id = member_id
        self._topics = topics
        self._pauses = (retry_backoff_ms, retry_backoff_max_ms, spread)
        self._sessions: dict[int, _Session] = {}
        self._commits: list[Commit] = []

    # What the program does --------------------------------------------------------------------------------

    def acknowledge(
        self, node_id: int, place: TopicPartition, ranges: Iterable[tuple[int, int, int]]
    ) -> None:
        ranges = list(ranges)
        session = self._sessions.get(node_id)
        if session is None or session.epoch == 0:
            self._tell({place: ranges}, _no_session())
        else:
            session.pending.setdefault(place, []).extend(ranges)

    def commit(self, deadline_ms: int | None) -> Commit:
        waits_for = {
            node_id: each.begun + bool(each.pending)
            for node_id, each in self._sessions.items()
            if each.begun + bool(each.pending) > each.over
        }
        commit = Commit(deadline_ms, waits_for)
        if waits_for:
            self._commits.append(commit)
        else:
            commit.end(self.finished)
        return commit

    def finish(self) -> None:
        """The last requests: they end the sessions, which releases what was not acknowledged."""
        for session in self._sessions.values():
            session.is_final = True

    @property
    def is_finished(self) -> bool:
        return all(each.epoch == 0 and each.flight is None for each in self._sessions.values())

    def close(self, error: KafkaError) -> None:
        for commit in self._commits:
            commit.end(self.finished, error)
        self._commits.clear()

    # What is sent -----------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> tuple[list[Effect], int | None]:
        wakeup_ms: int | None = None
        for commit in self._commits:
            if commit.deadline_ms is not None and commit.deadline_ms <= now_ms:
                reason = "acknowledgements took too long"
                commit.end(self.finished, error_of(ErrorCode.REQUEST_TIMED_OUT, reason))
            else:
                wakeup_ms = soonest(wakeup_ms, commit.deadline_ms)
        self._commits = [commit for commit in self._commits if not commit.is_done]
        by_leader: dict[int, list[TopicPartition]] = {}
        for place in self.assigned:
            info = self._topics.partition(place)
            if info is None or info.leader is None:
                self._topics.stale.add(place.topic)
            else:
                by_leader.setdefault(info.leader, []).append(place)
        effects: list[Effect] = []
        for node_id in by_leader.keys() | self._sessions.keys():
            session = self._sessions.setdefault(node_id, _Session(Backoff(*self._pauses)))
            if session.flight is not None:
                continue
            places = by_leader.get(node_id, [])
            if session.is_final or (session.pending and not self._may_fetch):
                if session.epoch:
                    effects.append(self._send_acknowledgements(node_id, session))
            elif session.backoff.until_ms > now_ms:
                wakeup_ms = soonest(wakeup_ms, session.backoff.until_ms)
            elif self._may_fetch and (places or session.pending):
                effects.append(self._fetch(node_id, session, places))
        return effects, wakeup_ms

    @property
    def _may_fetch(self) -> bool:
        return self.is_wanted and not self.acquired

    def _take_pending(self, node_id: int, session: _Session, *, is_last: bool = False) -> Flight:
        pending, session.pending = session.pending, {}
        session.begun += bool(pending)
        session.flight = Flight(node_id, pending, is_last)
        return session.flight

    def _send_acknowledgements(self, node_id: int, session: _Session) -> Ask:
        flight = self._take_pending(node_id, session, is_last=session.is_final)
        topics: dict[Uuid, wire_acknowledge.AcknowledgeTopic] = {}
        for place, ranges in flight.acknowledged.items():
            topic_id = session.ids[place]
            topic = topics.setdefault(topic_id, wire_acknowledge.AcknowledgeTopic(topic_id=topic_id))
            topic.partitions.append(
                wire_acknowledge.AcknowledgePartition(
                    partition_index=place.partition,
                    acknowledgement_batches=[
                        wire_acknowledge.AcknowledgementBatch(
                            first_offset=first, last_offset=last, acknowledge_types=[kind]
                        )
                        for first, last, kind in sorted(ranges)
                    ],
                )
            )
        request = wire_acknowledge.ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=_FINAL_EPOCH if session.is_final else session.epoch,
            topics=list(topics.values()),
        )
        return Ask(
            self,
            flight,
            node_id,
            wire_acknowledge.ShareAcknowledgeRequest,
            lambda _: request,
            wire_acknowledge.ShareAcknowledgeResponse,
            lane=FETCH_LANE,
        )

    def _fetch(self, node_id: int, session: _Session, places: list[TopicPartition]) -> Ask:
        flight = self._take_pending(node_id, session)
        for place in places:
            session.ids[place] = self._topics.known[place.topic].topic_id
        topics: dict[Uuid, wire_fetch.FetchTopic] = {}
        for place in dict.fromkeys([*(set(places) - session.told), *flight.acknowledged]):
            topic_id = session.ids[place]
            topic = topics.setdefault(topic_id, wire_fetch.FetchTopic(topic_id=topic_id))
            topic.partitions.append(
                wire_fetch.FetchPartition(
                    partition_index=place.partition,
                    acknowledgement_batches=[
                        wire_fetch.AcknowledgementBatch(
                            first_offset=first, last_offset=last, acknowledge_types=[kind]
                        )
                        for first, last, kind in sorted(flight.acknowledged.get(place, ()))
                    ],
                )
            )
        forgotten: dict[Uuid, wire_fetch.ForgottenTopic] = {}
        for place in session.told - set(places):
            topic_id = session.ids[place]
            gone = forgotten.setdefault(topic_id, wire_fetch.ForgottenTopic(topic_id=topic_id))
            gone.partitions.append(place.partition)
        session.told = set(places)
        config = self._config
        request = wire_fetch.ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_records=config.max_poll_records,
            batch_size=config.max_poll_records,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )
        return Ask(
            self,
            flight,
            node_id,
            wire_fetch.ShareFetchRequest,
            lambda _: request,
            wire_fetch.ShareFetchResponse,
            lane=FETCH_LANE,
        )

    # What comes back --------------------------------------------------------------------------------------

    def on_response(self, now_ms: int, flight: Flight, response: Any) -> None:
        session = self._sessions[flight.node_id]
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            self.on_failure(now_ms, flight, error_of(code, response.error_message or "ShareFetch"))
            return
        session.flight = None
        session.backoff.succeeded()
        session.epoch = 0 if flight.is_last else session.epoch % _EPOCH_MAX + 1
        self.failure = None
        names = {topic_id: place.topic for place, topic_id in session.ids.items()}
        errors: dict[TopicPartition, KafkaError] = {}
        for topic in response.responses:
            for data in topic.partitions:
                place = TopicPartition(names.get(topic.topic_id, ""), data.partition_index)
                if isinstance(data, wire_fetch.PartitionData):
                    if data.acknowledge_error_code:
                        errors[place] = _error(
                            data.acknowledge_error_code, data.acknowledge_error_message, place
                        )
                    self._on_partition(now_ms, session, flight, place, data)
                elif data.error_code:
                    errors[place] = _error(data.error_code, data.error_message, place)
        for place, ranges in flight.acknowledged.items():
            error = errors.get(place)
            if error is not None and metadata_is_stale(error.code):
                self._topics.stale.add(place.topic)
            self._outcome(place, ranges, error)
        self._end_commits(session, flight)

    def _on_partition(
        self,
        now_ms: int,
        session: _Session,
        flight: Flight,
        place: TopicPartition,
        data: wire_fetch.PartitionData,
    ) -> None:
        code = error_code(data.error_code)
        if code is not ErrorCode.NONE:
            error = error_of(code, data.error_message or f"partition {place}")
            if metadata_is_stale(code) or code.retriable:
                self._topics.stale.add(place.topic)
                session.backoff.failed(now_ms)
                self.failure = error
            else:
                self.errors[place] = error
            return
        if not data.acquired_records:
            return
        try:
            columns = self._decoded(data)
        except KafkaError as error:
            self.errors[place] = error_of(error.code, f"partition {place}: {error.message}")
            ranges = [
                (each.first_offset, each.last_offset, AcknowledgeType.REJECT)
                for each in data.acquired_records
            ]
            session.pending.setdefault(place, []).extend(ranges)
            return
        found = RecordColumns()
        counts: list[int] = []
        at = 0
        gaps: Ranges = []
        for run in sorted(data.acquired_records, key=lambda run: run.first_offset):
            while at < len(columns) and columns.offsets[at] < run.first_offset:
                at += 1
            start, expected = at, run.first_offset
            while at < len(columns) and columns.offsets[at] <= run.last_offset:
                if columns.offsets[at] > expected:
                    gaps.append((expected, columns.offsets[at] - 1, AcknowledgeType.GAP))
                expected = columns.offsets[at] + 1
                at += 1
            if expected <= run.last_offset:
                gaps.append((expected, run.last_offset, AcknowledgeType.GAP))
            found.extend(columns.part(start, at))
            counts += [run.delivery_count] * (at - start)
        if gaps:
            session.pending.setdefault(place, []).extend(gaps)
        if len(found):
            self.acquired.append(Acquired(place, flight.node_id, found, counts))

    def _decoded(self, data: wire_fetch.PartitionData) -> RecordColumns:
        columns = RecordColumns()
        view = memoryview(data.records or b"")
        for position, header in iterate_headers(view):
            if not header.is_control:
                batch = view[position : position + header.size]
                if self._config.check_crcs:
                    check_crc(batch, header)
                columns.extend(read_columns(batch, header))
        return columns

    def on_failure(self, now_ms: int, flight: Flight, error: KafkaError) -> None:
        session = self._sessions[flight.node_id]
        session.flight = None
        session.reset()
        session.backoff.failed(now_ms)
        self.failure = error
        self._topics.stale.update(place.topic for place in self.assigned)
        if not error.code.retriable and error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
            self.errors[flight.node_id] = error
        # What has been acquired in this session is not ours any more.
        pending, session.pending = session.pending, {}
        self._tell(flight.acknowledged, error)
        self._tell(pending, _no_session())
        if pending:
            session.begun += 1
            session.over += 1
        self._end_commits(session, flight)

    def _tell(self, acknowledged: Mapping[TopicPartition, Ranges], error: KafkaError | None) -> None:
        for place, ranges in acknowledged.items():
            self._outcome(place, ranges, error)

    def _outcome(self, place: TopicPartition, ranges: Ranges, error: KafkaError | None) -> None:
        if any(kind != AcknowledgeType.GAP for _, _, kind in ranges):
            self.outcomes.append((place, ranges, error))
            for commit in self._commits:
                if error is not None or place not in commit.result:
                    commit.result[place] = error

    def _end_commits(self, session: _Session, flight: Flight) -> None:
        session.over += bool(flight.acknowledged)
        for commit in self._commits:
            if all(self._sessions[node_id].over >= count for node_id, count in commit.waits_for.items()):
                commit.end(self.finished)
        self._commits = [commit for commit in self._commits if not commit.is_done]


def _no_session() -> KafkaError:
    return error_of(
        ErrorCode.SHARE_SESSION_NOT_FOUND, "the session has ended in which the records were acquired"
    )


def _error(code: int, message: str | None, place: TopicPartition) -> KafkaError:
    return error_of(error_code(code), message or f"acknowledgements of partition {place}")
