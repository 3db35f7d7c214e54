"""Where the replicas of new partitions go: striped over racks, and over the brokers of each rack.

Successive partitions start one rack further, and in each rack one broker further, so that leaders and
replicas spread evenly; after a round in which every live broker had its turn, the order is shuffled, so that
followers of one broker do not all end up on its neighbour. The first replica, which will lead, is on a broker
that lives; fenced brokers take further replicas when their rack has no other.
"""

from __future__ import annotations

from random import Random

from moldau.metadata.image import (
    DIRECTORY_LOST,
    DIRECTORY_UNASSIGNED,
    BrokerImage,
    ClusterImage,
)
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid


def place_replicas(
    image: ClusterImage, partitions: int, replication_factor: int, random: Random
) -> list[list[int]]:
    """Broker ids for each new partition. Raises INVALID_REPLICATION_FACTOR if there are not enough."""
    placer = _Placer(image, random)
    if replication_factor <= 0:
        raise _refused(
            f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        )
    if not placer.live:
        raise _refused("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > placer.total:
        raise _refused(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{placer.total} broker(s) are registered or some brokers have all their log directories "
            "cordoned."
        )
    return [placer.place(replication_factor) for _ in range(partitions)]


def default_directory(image: ClusterImage, broker_id: int) -> Uuid:
    """Where a new replica goes on a broker: known if it has one directory, else the broker chooses."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return DIRECTORY_UNASSIGNED
    usable = _usable_directories(broker)
    if len(usable) == 1:
        return usable[0]
    return DIRECTORY_UNASSIGNED if broker.log_dirs else DIRECTORY_LOST


def _usable_directories(broker: BrokerImage) -> list[Uuid]:
    """Those that are not cordoned (KIP-1066)."""
    cordoned = broker.cordoned_log_dirs or ()
    return [directory for directory in broker.log_dirs if directory not in cordoned]


class _Ring:
    """Brokers in turn. Each new round starts one further; within a round none comes twice."""

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self._offset = 0
        self._index = 0
        self._round = 0

    def start(self, random: Random) -> None:
        if self.brokers:
            self.brokers.sort()
            self._offset = random.randrange(len(self.brokers))

    def next(self, round: int) -> int | None:
        if not self.brokers:
            return None
        if self._round != round:
            self._round, self._index = round, 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._index >= len(self.brokers):
            return None
        broker = self.brokers[(self._index + self._offset) % len(self.brokers)]
        self._index += 1
        return broker


class _Rack:
    def __init__(self) -> None:
        self.live = _Ring()
        self.fenced = _Ring()

    def next(self, round: int) -> int | None:
        broker = self.live.next(round)
        return self.fenced.next(round) if broker is None else broker


class _Placer:
    def __init__(self, image: ClusterImage, random: Random) -> None:
        self._random = random
        racks: dict[str | None, _Rack] = {}
        self.total = 0
        self.live = 0
        for broker in sorted(image.brokers.values(), key=lambda broker: broker.id):
            if broker.log_dirs and not _usable_directories(broker):
                continue
            rack = racks.setdefault(broker.rack, _Rack())
            self.total += 1
            (rack.fenced if broker.fenced else rack.live).brokers.append(broker.id)
            self.live += not broker.fenced
        self._racks = [racks[name] for name in sorted(racks, key=lambda name: (name is not None, name or ""))]
        for rack in self._racks:
            rack.live.start(random)
            rack.fenced.start(random)
        self._offset = random.randrange(len(self._racks)) if self._racks else 0
        self._round = 0

    def place(self, count: int) -> list[int]:
        if self._round == self.live and self.live > 1:
            self._shuffle()
            self._round = 0
        racks, start = self._racks, self._offset % len(self._racks)
        leader_rack = start
        while True:
            broker = racks[leader_rack].live.next(self._round)
            if broker is not None:
                break
            leader_rack = (leader_rack + 1) % len(racks)
        replicas = [broker]
        # The rack that gave the leader gives nothing more until the others had their turn.
        skipped: int | None = leader_rack
        at = start
        while len(replicas) < count:
            if at == skipped:
                skipped = None
            else:
                broker = racks[at].next(self._round)
                if broker is not None:
                    replicas.append(broker)
            at = (at + 1) % len(racks)
        self._round += 1
        self._offset = start + 1
        return replicas

    def _shuffle(self) -> None:
        self._random.shuffle(self._racks)
        for rack in self._racks:
            self._random.shuffle(rack.live.brokers)
            self._random.shuffle(rack.fenced.brokers)


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
