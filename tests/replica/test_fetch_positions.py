"""What is remembered of readers, in sessions and without."""

from __future__ import annotations

from random import Random

import pytest

from moldau.replica.fetch_positions import EXPIRY_MS, FetchPositions, Reader
from moldau.replica.fetch_session import FetchSessionCache
from moldau.wire.fetch import FetchPartition, FetchRequest

SPARK = Reader("spark", "10.0.0.1", True)
AUDIT = Reader("audit", "10.0.0.2", False)


def fetched(partition: int, offset: int) -> FetchPartition:
    return FetchPartition(b"t", partition, -1, offset, -1, -1, 1_000_000)


def current(positions: FetchPositions, now_ms: int) -> list[tuple[str, int, int, int]]:
    return [
        (each.reader.client_id, each.partition, each.offset, each.at_ms)
        for some in positions.current(now_ms)
        for each in some
    ]


def test_the_last_position_counts():
    positions = FetchPositions()
    positions.record(SPARK, [fetched(0, 5), fetched(1, 7)], 10)
    positions.record(AUDIT, [fetched(0, 1)], 20)
    positions.record(SPARK, [fetched(0, 6)], 30)
    assert sorted(current(positions, 30)) == [("audit", 0, 1, 20), ("spark", 0, 6, 30), ("spark", 1, 7, 10)]
    assert len(positions) == 3


def test_what_is_old_is_forgotten():
    positions = FetchPositions()
    positions.record(SPARK, [fetched(0, 5), fetched(1, 7)], 0)
    positions.record(SPARK, [fetched(1, 8)], 1)
    assert len(current(positions, EXPIRY_MS)) == 2
    assert current(positions, EXPIRY_MS + 1) == [("spark", 1, 8, 1)]
    assert current(positions, EXPIRY_MS + 2) == []
    assert len(positions) == 0


def test_there_is_a_bound_and_who_was_silent_longest_goes():
    positions = FetchPositions(positions_max=4)
    positions.record(SPARK, [fetched(0, 1), fetched(1, 1)], 1)
    positions.record(AUDIT, [fetched(0, 1), fetched(1, 1)], 2)
    positions.record(SPARK, [fetched(0, 2)], 3)
    positions.record(Reader("new", "10.0.0.3", True), [fetched(0, 3)], 4)
    assert {name for name, *_ in current(positions, 5)} == {"spark", "new"}
    positions.record(AUDIT, [fetched(number, 0) for number in range(5)], 6)  # more than there may be at all
    assert current(positions, 6) == []
    assert len(positions) == 0


class Sessions:
    def __init__(self, slots: int = 10) -> None:
        self.cache = FetchSessionCache(slots, 1000, Random(3))
        self.now_ms = 0

    def fetch(
        self, *asked: FetchPartition, session_id: int = 0, epoch: int = 0, forgotten=(), replica_id: int = -1
    ) -> int:
        request = FetchRequest(
            replica_id, 0, 0, 1 << 30, 0, session_id, epoch, list(asked), list(forgotten), ""
        )
        opened = self.cache.open(request, "spark", "10.0.0.1", by_topic_id=True, now_ms=self.now_ms)
        return opened.session_id

    def told(self) -> dict[int, tuple[int, int]]:
        """The newest of each partition, and when."""
        newest: dict[int, tuple[int, int]] = {}
        for some in self.cache.positions(self.now_ms):
            for each in some:
                if each.partition not in newest or newest[each.partition][1] <= each.at_ms:
                    newest[each.partition] = (each.offset, each.at_ms)
        return newest


def test_a_session_tells_where_its_client_is():
    sessions = Sessions()
    session = sessions.fetch(fetched(0, 5), fetched(1, 7))
    sessions.now_ms = 100
    sessions.fetch(fetched(1, 8), session_id=session, epoch=1)
    assert sessions.told() == {0: (5, 100), 1: (8, 100)}


def test_a_partition_that_a_session_leaves_out_for_a_while_stays_known():
    sessions = Sessions()
    session = sessions.fetch(fetched(0, 5), fetched(1, 7))
    sessions.now_ms = 100
    sessions.fetch(session_id=session, epoch=1, forgotten=[(b"t", 1)])
    sessions.now_ms = 200
    sessions.fetch(session_id=session, epoch=2)
    assert sessions.told() == {0: (5, 200), 1: (7, 100)}
    sessions.now_ms = 300
    sessions.fetch(fetched(1, 9), session_id=session, epoch=3)
    assert sessions.told() == {0: (5, 300), 1: (9, 300)}


def test_a_session_that_ends_or_gives_way_leaves_its_positions():
    sessions = Sessions(slots=1)
    sessions.fetch(fetched(0, 5))
    sessions.now_ms = 5000
    session = sessions.fetch(fetched(1, 7))
    assert sessions.cache.evictions_total == 1
    assert sessions.told() == {0: (5, 0), 1: (7, 5000)}
    sessions.now_ms = 6000
    sessions.fetch(session_id=session, epoch=-1)
    assert len(sessions.cache) == 0
    assert sessions.told() == {0: (5, 0), 1: (7, 5000)}


@pytest.mark.parametrize("slots", [0, 10])
def test_who_has_no_session_is_known_too(slots: int):
    sessions = Sessions(slots)
    sessions.fetch(fetched(0, 5), epoch=-1 if slots else 0)
    assert len(sessions.cache) == 0
    assert sessions.told() == {0: (5, 0)}


def test_followers_are_no_readers():
    sessions = Sessions()
    session = sessions.fetch(fetched(0, 5), fetched(1, 5), replica_id=2)
    sessions.fetch(session_id=session, epoch=1, forgotten=[(b"t", 1)], replica_id=2)
    sessions.fetch(fetched(2, 5), epoch=-1, replica_id=3)
    sessions.fetch(session_id=session, epoch=-1, replica_id=2)
    assert sessions.told() == {}


def test_a_session_that_is_silent_is_forgotten():
    sessions = Sessions()
    sessions.fetch(fetched(0, 5))
    sessions.now_ms = EXPIRY_MS
    assert sessions.told() == {0: (5, 0)}
    sessions.now_ms += 1
    assert sessions.told() == {}
