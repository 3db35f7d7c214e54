"""What becomes of a transaction that is decided when its markers, or its end, cannot be written at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.coordinator.decision import Waiter
from moldau.metadata.image import ClusterImage
from moldau.server.transaction_markers import MarkerSender
from moldau.server.txn_markers import TxnMarkers
from moldau.sim.simulation import Simulation
from moldau.txn.transaction import Markers
from moldau.wire.errors import ErrorCode, KafkaError

HERE, EPOCH = 1, 5
PLACE = "topic", 0
MARKERS = Markers(
    transactional_id="tx",
    producer_id=7,
    producer_epoch=3,
    partitions=frozenset((PLACE,)),
    is_committed=True,
    transaction_version=2,
)


class World:
    """A coordinator and a leader, who say what they are told to say before they say yes."""

    def __init__(self, *, leader: list[ErrorCode] | None = None, coordinator: list[ErrorCode] | None = None):
        self.simulation = Simulation()
        self.of_leader, self.of_coordinator = leader or [], coordinator or []
        self.written = self.completed = 0
        image = SimpleNamespace(partition=lambda topic, index: SimpleNamespace(leader=HERE))
        self.sender = MarkerSender(
            self.simulation.host("here"),
            HERE,
            lambda: cast(ClusterImage, image),
            cast(TxnMarkers, self),
            self.complete,
        )

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.simulation.close()

    def write_marker(self, *_: Any, **__: Any) -> ErrorCode:
        if self.of_leader:
            return self.of_leader.pop(0)
        self.written += 1
        return ErrorCode.NONE

    def complete(self, index: int, markers: Markers) -> Waiter[bool]:
        if self.of_coordinator:
            raise KafkaError(self.of_coordinator.pop(0))
        self.completed += 1
        waiter: Waiter[bool] = Waiter()
        waiter.give(True)
        return waiter

    def run(self, *, stopped_by_epoch: int | None = None) -> None:
        async def main() -> None:
            self.sender.begin(0, EPOCH, MARKERS)
            if stopped_by_epoch is not None:
                self.sender.stop(0, stopped_by_epoch)
            await asyncio.sleep(60)

        self.simulation.run(main())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,  # as when the disk is full
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_the_end_of_a_transaction_is_tried_until_it_is_written(code: ErrorCode) -> None:
    with World(coordinator=[code] * 3) as world:
        world.run()
        assert (world.written, world.completed) == (1, 1)
        assert world.sender.left_of(0, "tx") is None


def test_a_marker_is_tried_until_it_is_written() -> None:
    with World(leader=[ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS]) as world:
        world.run()
        assert (world.written, world.completed) == (1, 1)


def test_what_is_decided_elsewhere_is_not_tried_any_more() -> None:
    with World(coordinator=[ErrorCode.NOT_COORDINATOR]) as world:
        world.run(stopped_by_epoch=EPOCH + 1)
        assert (world.written, world.completed) == (1, 0)
        assert world.sender.left_of(0, "tx") is None
