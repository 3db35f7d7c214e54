"""Where a consumer stands in each of its partitions.

Answerable for what may be fetched, what may be handed out, and which offset may be committed. Knows neither
nodes nor groups.

Invariants of a partition: `processed <= position <= fetch_offset`. `fetch_offset` is the next to be fetched,
`position` the next to be handed out, and `processed` what the program has come back from: only that is
committed without being asked. A position moves past a record only when the record is handed out, or is one
that nobody may see. `life` changes whenever what was fetched before has become worthless.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from moldau.client.consuming.config import Reset
from moldau.client.topology import TopicPartition


class State(Enum):
    NEW = "its committed offset is to be asked for"
    RESET = "its offset is to be looked up"
    READ = "it is read"


class Partition:
    __slots__ = (
        "fetch_offset",
        "high_watermark",
        "is_paused",
        "is_revoked",
        "leader_epoch",
        "life",
        "log_start_offset",
        "place",
        "position",
        "processed",
        "replica",
        "replica_until_ms",
        "reset",
        "stable_offset",
        "state",
    )

    def __init__(self, place: TopicPartition, state: State, life: int) -> None:
        self.place = place
        self.state = state
        self.life = life
        self.reset: Reset | None = None
        self.fetch_offset = self.position = self.processed = -1
        self.leader_epoch = -1  # of the last record before `fetch_offset`
        self.is_paused = False
        self.is_revoked = False  # on its way out: nothing more is fetched or handed out
        self.high_watermark = self.stable_offset = self.log_start_offset = -1
        self.replica: int | None = None  # a follower that the leader sent us to
        self.replica_until_ms = 0

    @property
    def can_be_read(self) -> bool:
        return self.state is State.READ and not self.is_paused and not self.is_revoked


class Positions:
    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, Partition] = {}
        self._lives = 0

    def __contains__(self, place: TopicPartition) -> bool:
        return place in self.partitions

    def __getitem__(self, place: TopicPartition) -> Partition:
        return self.partitions[place]

    def set(self, places: Iterable[TopicPartition], state: State) -> None:
        """Exactly these are assigned. Those that were stay as they are."""
        before = self.partitions
        self.partitions = {place: before.get(place) or self._new(place, state) for place in places}
        for partition in self.partitions.values():
            partition.is_revoked = False

    def add(self, places: Iterable[TopicPartition], state: State) -> None:
        for place in places:
            if place not in self.partitions:
                self.partitions[place] = self._new(place, state)

    def remove(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self.partitions.pop(place, None)

    def revoke(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            if place in self.partitions:
                self.partitions[place].is_revoked = True

    def seek(self, place: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        partition = self.partitions[place]
        partition.fetch_offset = partition.position = partition.processed = offset
        partition.leader_epoch = leader_epoch
        partition.state = State.READ
        partition.reset = None
        partition.replica = None
        self._renew(partition)

    def seek_again(self, partition: Partition) -> None:
        """What was fetched beyond the position is worthless."""
        partition.fetch_offset = partition.position
        partition.leader_epoch = -1
        self._renew(partition)

    def rewind(self, partition: Partition, offset: int) -> None:
        """What was handed out from `offset` on came back unread."""
        assert partition.processed <= offset <= partition.position
        partition.position = offset
        self.seek_again(partition)

    def look_up(self, place: TopicPartition, reset: Reset) -> None:
        """Its offset is to be looked up, however that was."""
        partition = self.partitions[place]
        partition.state = State.RESET
        partition.reset = reset
        partition.replica = None
        self._renew(partition)

    def fetched(self, partition: Partition, next_offset: int, leader_epoch: int) -> None:
        assert next_offset >= partition.fetch_offset
        partition.fetch_offset = next_offset
        partition.leader_epoch = leader_epoch

    def handed_out(self, partition: Partition, next_offset: int) -> None:
        assert partition.position <= next_offset <= partition.fetch_offset
        partition.position = next_offset

    def came_back(self) -> None:
        """The program is done with all that it was given."""
        for partition in self.partitions.values():
            partition.processed = partition.position

    def done_with(self, partition: Partition, offset: int) -> None:
        """The program is done with what is before `offset`, since it says so."""
        assert partition.processed <= offset <= partition.position
        partition.processed = offset

    def to_commit(self) -> Mapping[TopicPartition, int]:
        return {
            place: partition.processed
            for place, partition in self.partitions.items()
            if partition.state is State.READ and partition.processed >= 0
        }

    def in_state(self, state: State) -> list[Partition]:
        return [each for each in self.partitions.values() if each.state is state and not each.is_revoked]

    def _new(self, place: TopicPartition, state: State) -> Partition:
        self._lives += 1
        return Partition(place, state, self._lives)

    def _renew(self, partition: Partition) -> None:
        self._lives += 1
        partition.life = self._lives
