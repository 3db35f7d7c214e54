"""What to fetch from whom, and what has come and waits to be handed out.

One fetch is in flight for each node. A node is asked again when none of its partitions has more than one
chunk waiting: a fetch that leaves one out would wait at the broker for the others, and keep it from the
program that has asked for it meanwhile. What waits over all partitions is bounded by
`prefetch.max.bytes`, give or take what one fetch may bring beyond its limit (a batch that is larger comes
whole).

Invariants: a chunk is handed out only in the life of its partition that it was fetched for. What comes is
added to a partition only if it begins where the partition had been fetched to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from moldau.client.consuming.asking import FETCH_LANE, Ask, Backoff, Effect, may_pass, soonest
from moldau.client.consuming.chunks import Chunk
from moldau.client.consuming.config import ConsumerConfig
from moldau.client.consuming.metadata import Topics
from moldau.client.consuming.positions import Partition, Positions
from moldau.client.consuming.sessions import (
    SESSION_ERRORS,
    FetchSession,
    Wanted,
    by_topic,
    forgotten_topics,
)
from moldau.client.errors import error_of, metadata_is_stale
from moldau.client.topology import PartitionInfo, TopicPartition
from moldau.records.read_columns import RecordColumns
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.ids import ZERO_UUID
from moldau.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from moldau.wire.schema import Message

_BY_NAME_MAX = 12
_LAST_EPOCHS_FROM = 12
_CHUNKS_MAX = 2
_PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class Flight(NamedTuple):
    node_id: int
    asked: dict[TopicPartition, tuple[int, int]]  # the life and the offset of each
    names: dict[bytes, str]  # of topics by their ids


class Taken(NamedTuple):
    """What is handed out of a partition in one piece."""

    partition: Partition
    columns: RecordColumns


class Fetching:
    def __init__(
        self,
        config: ConsumerConfig,
        positions: Positions,
        topics: Topics,
        *,
        spread: Callable[[], float],
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        replica_age_ms: int = 300_000,
    ) -> None:
        self.errors: dict[object, KafkaError] = {}
        """What the program has to be told, by whatever it is about."""
        self.failure: KafkaError | None = None
        """What keeps records from coming, as long as it may pass."""
        self.bytes_waiting = 0
        self.heard_at: dict[int, int] = {}
        self._config = config
        self._positions = positions
        self._topics = topics
        self._aborted_matter = config.is_read_committed
        self._spread = spread
        self._backoff_ms = (retry_backoff_ms, retry_backoff_max_ms)
        self._replica_age_ms = replica_age_ms
        self._sessions: dict[int, FetchSession] = {}
        self._flights: dict[int, Flight] = {}
        self._pauses: dict[int, Backoff] = {}
        self._partition_pauses: dict[TopicPartition, int] = {}
        self._chunks: dict[TopicPartition, deque[Chunk]] = {}
        self._asked_for: Collection[TopicPartition] | None = None  # by the program, the last time
        self._round: deque[TopicPartition] = deque()  # who has chunks, in the order of their turns

    # What to fetch ----------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> tuple[list[Effect], int | None]:
        """What is to be asked, and when to look again at the latest."""
        effects: list[Effect] = []
        wakeup_ms: int | None = None
        by_node: dict[int, list[tuple[Partition, PartitionInfo]]] = {}
        for place, partition in self._positions.partitions.items():
            if not partition.can_be_read:
                continue
            info = self._topics.partition(place)
            if info is None or info.leader is None:
                self._topics.stale.add(place.topic)
                continue
            not_before_ms = self._partition_pauses.get(place, 0)
            if not_before_ms > now_ms:
                wakeup_ms = soonest(wakeup_ms, not_before_ms)
                continue
            node_id = info.leader
            if partition.replica is not None:
                if partition.replica_until_ms > now_ms and partition.replica in info.replicas:
                    node_id = partition.replica
                else:
                    partition.replica = None
            by_node.setdefault(node_id, []).append((partition, info))
        for node_id, them in by_node.items():
            pause = self._pauses.get(node_id)
            if pause is not None and pause.until_ms > now_ms:
                wakeup_ms = soonest(wakeup_ms, pause.until_ms)
            elif node_id not in self._flights:
                ask = self._fetch_from(node_id, them, len(by_node))
                if ask is not None:
                    effects.append(ask)
        return effects, wakeup_ms

    def _fetch_from(
        self, node_id: int, them: list[tuple[Partition, PartitionInfo]], node_count: int
    ) -> Ask | None:
        full = {each.place for each, _ in them if len(self._chunks.get(each.place, ())) >= _CHUNKS_MAX}
        if full:
            if self._asked_for is None or not full.isdisjoint(self._asked_for):
                return None
            them = [each for each in them if each[0].place not in full]
            if not them:
                return None
        config = self._config
        room = self._room(node_count)
        if room <= 0:
            return None
        max_bytes = min(config.fetch_max_bytes, room)
        wanted: dict[TopicPartition, Wanted] = {}
        names: dict[bytes, str] = {}
        by_id = True
        # Who comes first may take all of the bytes, so they take turns.
        turn = self._sessions.setdefault(node_id, FetchSession()).epoch % len(them)
        for partition, info in them[turn:] + them[:turn]:
            topic_id = self._topics.known[partition.place.topic].topic_id
            by_id = by_id and topic_id != ZERO_UUID
            names[topic_id] = partition.place.topic
            wanted[partition.place] = Wanted(
                topic_id,
                partition.fetch_offset,
                config.max_partition_fetch_bytes,
                info.leader_epoch,
                partition.leader_epoch,
            )
        session = self._sessions[node_id]
        changed, forgotten = session.begin_request(wanted)
        session_id, epoch = session.session_id, session.epoch
        asked = {partition.place: (partition.life, partition.fetch_offset) for partition, _ in them}
        flight = self._flights[node_id] = Flight(node_id, asked, names)

        def message(version: int) -> Message:
            return FetchRequest(
                max_wait_ms=config.fetch_max_wait_ms,
                min_bytes=config.fetch_min_bytes,
                max_bytes=max_bytes,
                isolation_level=self._aborted_matter,
                session_id=session_id,
                session_epoch=epoch,
                topics=by_topic(changed, with_last_epochs=version >= _LAST_EPOCHS_FROM),
                forgotten_topics_data=forgotten_topics(forgotten),
                rack_id=config.client_rack,
            )

        version_max = None if by_id else _BY_NAME_MAX
        return Ask(self, flight, node_id, FetchRequest, message, FetchResponse, version_max, lane=FETCH_LANE)

    def _room(self, node_count: int) -> int:
        """Bytes that a node may be asked for: its part of what there is room for, since none is to keep the
        others from being asked. What nobody can take at the moment gives way."""
        limit = self._config.prefetch_max_bytes
        if self.bytes_waiting >= limit:
            for place in list(self._chunks):
                if not self._can_take(place) or (
                    self._asked_for is not None and place not in self._asked_for
                ):
                    self._forget(place)
        room = limit - self.bytes_waiting
        return max(room // node_count, 1) if room > 0 else 0

    # What comes -------------------------------------------------------------------------------------------

    def on_response(self, now_ms: int, flight: Flight, response: FetchResponse) -> None:
        del self._flights[flight.node_id]
        self.heard_at[flight.node_id] = now_ms
        session = self._sessions[flight.node_id]
        code = error_code(response.error_code)
        session.on_answer(response.session_id, code)
        if code is not ErrorCode.NONE:
            if code not in SESSION_ERRORS:
                self._pause(now_ms, flight.node_id)
                self.failure = error_of(code, f"fetch from node {flight.node_id}")
            return
        pause = self._pauses.pop(flight.node_id, None)
        if response.throttle_time_ms > 0:
            pause = pause or self._backoff()
            pause.until_ms = now_ms + response.throttle_time_ms
            self._pauses[flight.node_id] = pause
        has_failed = False
        for topic in response.responses:
            name = topic.topic or flight.names.get(topic.topic_id, "")
            for data in topic.partitions:
                place = TopicPartition(name, data.partition_index)
                partition = self._positions.partitions.get(place)
                life, offset = flight.asked.get(place, (0, -1))
                if partition is None or partition.life != life or partition.fetch_offset != offset:
                    continue  # no longer of interest
                if data.error_code:
                    has_failed = True
                    self._on_error(now_ms, flight, partition, error_code(data.error_code))
                else:
                    self._on_data(now_ms, partition, data)
        if not has_failed:
            self.failure = None

    def on_failure(self, now_ms: int, flight: Flight, error: KafkaError) -> None:
        del self._flights[flight.node_id]
        self._sessions[flight.node_id].on_failure()
        self._pause(now_ms, flight.node_id)
        self.failure = error
        for place in flight.asked:
            self._topics.stale.add(place.topic)
            partition = self._positions.partitions.get(place)
            if partition is not None and partition.replica == flight.node_id:
                partition.replica = None
        if not may_pass(error):
            self.errors[flight.node_id] = error

    def _on_data(self, now_ms: int, partition: Partition, data: PartitionData) -> None:
        partition.high_watermark = data.high_watermark
        partition.stable_offset = data.last_stable_offset
        partition.log_start_offset = data.log_start_offset
        if data.diverging_epoch.end_offset >= 0:
            self._on_truncated(partition, data.diverging_epoch.end_offset)
            return
        if data.preferred_read_replica >= 0:
            partition.replica = data.preferred_read_replica
            partition.replica_until_ms = now_ms + self._replica_age_ms
        if not data.records:
            return
        chunk = Chunk(
            data.records,
            partition.fetch_offset,
            (data.aborted_transactions or ()) if self._aborted_matter else None,
            life=partition.life,
            checks_crc=self._config.check_crcs,
        )
        if partition.place not in self._chunks:
            self._chunks[partition.place] = deque()
            self._round.append(partition.place)
        self._chunks[partition.place].append(chunk)
        self.bytes_waiting += chunk.size
        if chunk.next_offset > partition.fetch_offset:
            self._positions.fetched(partition, chunk.next_offset, chunk.leader_epoch)

    def _on_truncated(self, partition: Partition, end_offset: int) -> None:
        """Records that were read are not in the log any more (an unclean election)."""
        self._forget(partition.place)
        if partition.position <= end_offset:
            self._positions.seek(partition.place, partition.position)
        elif self._config.reset.at(0) is None:
            reason = (
                f"{partition.place} was cut off at {end_offset}, before the position {partition.position}"
            )
            self.errors[partition.place] = error_of(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
            self._positions.seek(partition.place, partition.position)
        else:
            self._positions.seek(partition.place, end_offset)

    def _on_error(self, now_ms: int, flight: Flight, partition: Partition, code: ErrorCode) -> None:
        place = partition.place
        error = error_of(code, f"partition {place} at offset {partition.fetch_offset}")
        self._partition_pauses[place] = now_ms + int(self._backoff_ms[0] * self._spread())
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if partition.replica is not None:
                partition.replica = None  # the leader may know better
            elif self._config.reset.at(now_ms) is None:
                self.errors[place] = error
            elif partition.position == partition.fetch_offset:
                self._positions.look_up(place, self._config.reset)
            return
        partition.replica = None
        if metadata_is_stale(code):
            self._topics.stale.add(place.topic)
            self.failure = error
        elif code in _PASSING or code.retriable:
            self.failure = error
        else:
            self.errors[place] = error

    def _pause(self, now_ms: int, node_id: int) -> None:
        self._pauses.setdefault(node_id, self._backoff()).failed(now_ms)

    def _backoff(self) -> Backoff:
        return Backoff(*self._backoff_ms, self._spread)

    # What is handed out -----------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether `take` may have something to give, or an error."""
        return bool(self.errors) or any(self._can_take(place) for place in self._chunks)

    def heard_since(self, moment_ms: int) -> bool:
        """Whether all nodes that are being asked have answered since then."""
        return all(self.heard_at.get(node_id, -1) >= moment_ms for node_id in self._flights)

    def take(self, limit: int, places: Collection[TopicPartition] | None = None) -> list[Taken]:
        """Up to `limit` records of what waits, a partition after the other. Raises what the program has to
        know when there is nothing to hand out before it."""
        self._asked_for = places
        taken: list[Taken] = []
        for _ in range(len(self._round)):
            if limit <= 0 or not self._round:
                break
            place = self._round[0]
            self._round.rotate(-1)
            if self._can_take(place) and (places is None or place in places):
                limit -= self._take_from(self._positions.partitions[place], limit, taken)
            elif place not in self._positions.partitions or self._is_old(place):
                self._forget(place)
        if not taken and self.errors:
            raise self.errors.pop(next(iter(self.errors)))
        return taken

    def _take_from(self, partition: Partition, limit: int, taken: list[Taken]) -> int:
        """What of one partition comes in one piece, as far as that goes; how many those were."""
        chunks = self._chunks[partition.place]
        found: RecordColumns | None = None
        count = 0
        while chunks and count < limit:
            chunk = chunks[0]
            try:
                columns = chunk.take(limit - count)
            except KafkaError as error:
                chunk.error = error
                columns = RecordColumns()
            if len(columns):
                count += len(columns)
                if found is None:
                    found = columns
                else:
                    found.extend(columns)
                self._positions.handed_out(partition, columns.offsets[-1] + 1)
            if not chunk.is_over:
                continue
            chunks.popleft()
            self.bytes_waiting -= chunk.size
            if chunk.error is not None:
                # What came before is good; the next fetch begins at the damage.
                self.errors[partition.place] = _of_partition(partition, chunk.error)
                self._forget(partition.place)
                self._positions.seek_again(partition)
                break
            self._positions.handed_out(partition, chunk.next_offset)
        if not chunks:
            self._drop(partition.place)
        if found is not None:
            taken.append(Taken(partition, found))
        elif count == 0:
            taken.append(Taken(partition, RecordColumns()))
        return count

    def forget(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._forget(place)

    def _can_take(self, place: TopicPartition) -> bool:
        partition = self._positions.partitions.get(place)
        return partition is not None and partition.can_be_read and not self._is_old(place)

    def _is_old(self, place: TopicPartition) -> bool:
        chunks = self._chunks.get(place)
        return not chunks or chunks[0].life != self._positions.partitions[place].life

    def _forget(self, place: TopicPartition) -> None:
        """Drop what waits; it will be fetched again."""
        for chunk in self._chunks.get(place, ()):
            self.bytes_waiting -= chunk.size
        self._drop(place)
        partition = self._positions.partitions.get(place)
        if partition is not None and partition.position >= 0 and partition.fetch_offset > partition.position:
            self._positions.seek_again(partition)

    def _drop(self, place: TopicPartition) -> None:
        if self._chunks.pop(place, None) is not None:
            self._round.remove(place)


def _of_partition(partition: Partition, error: KafkaError) -> KafkaError:
    reason = f"partition {partition.place} at offset {partition.position}: {error.message or error}"
    return type(error)(error.code, reason)


__all__ = ["Fetching", "Flight", "Taken"]
