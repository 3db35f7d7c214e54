"""That the checker finds each thing that can be wrong, and nothing in a history that is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from tests.chaos.checker import Anomaly, Kind, check, summary
from tests.chaos.history import (
    Aborted,
    Committed,
    Committing,
    Done,
    Event,
    Finally,
    GroupFinally,
    Initialized,
    Place,
    Position,
    Read,
    SendingOffsets,
    Sought,
    Stored,
    Troubled,
    Writing,
    merged,
    read_lines,
    to_line,
)

LEFT, RIGHT, OUT = Place("in", 0), Place("in", 1), Place("out", 0)


class Story:
    """A history that is told in order. Places are as those who wrote there say in the end."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._times = count(1)

    def tell(self, kind: type[Event], by: str, **fields: object) -> None:
        self.events.append(kind(at=next(self._times), by=by, **fields))  # type: ignore[call-arg]

    def begin(self, by: str) -> None:
        since = next(self._times)
        self.tell(Initialized, by, transactional_id=by.split("/")[0], since=since)

    def write(
        self, by: str, transaction: str, *values: tuple[Place, str], source: Position | None = None
    ) -> None:
        for place, value in values:
            self.tell(Writing, by, transaction=transaction, place=place, value=value, source=source)

    def commit(self, by: str, transaction: str, *, is_told: bool = True) -> None:
        self.tell(Committing, by, transaction=transaction, transactional_id=by.split("/")[0])
        if is_told:
            self.tell(Committed, by, transaction=transaction)

    def end(self, place: Place, *records: tuple[int, str], stable: int = 90, end: int = 90) -> None:
        self.tell(Finally, "end", place=place, records=records, last_stable_offset=stable, high_watermark=end)


def right() -> list[Event]:
    """Five transactions of one writer and its successor, one of each end; a copier; a reader."""
    story = Story()
    story.begin("w/1")
    story.write("w/1", "t1", (LEFT, "a"), (RIGHT, "b"), (LEFT, "c"))
    story.commit("w/1", "t1")
    story.tell(Stored, "w/1", position=Position(*LEFT, 0), value="a")
    story.tell(Sought, "r/1", position=Position(*LEFT, 0))
    story.tell(Read, "r/1", position=Position(*LEFT, 0), value="a")
    story.tell(Read, "r/1", position=Position(*LEFT, 1), value="c")
    story.write("w/1", "t2", (LEFT, "d"), (RIGHT, "e"))
    story.tell(Aborted, "w/1", transaction="t2")
    story.write("w/1", "t3", (LEFT, "f"), (RIGHT, "g"))
    story.commit("w/1", "t3", is_told=False)
    story.begin("w/2")
    story.write("w/2", "t4", (LEFT, "h"), (RIGHT, "i"))
    story.commit("w/2", "t4", is_told=False)
    story.write("w/2", "t5", (LEFT, "j"), (RIGHT, "k"))
    story.begin("c/1")
    for number, (offset, value) in enumerate(((0, "a"), (1, "c"), (5, "f"))):
        source = Position(*LEFT, offset)
        story.write("c/1", f"c{number}", (OUT, f"copy of {value}"), source=source)
        sent = (source._replace(offset=offset + 1),)
        story.tell(SendingOffsets, "c/1", transaction=f"c{number}", group="g", offsets=sent)
        story.commit("c/1", f"c{number}")
    story.tell(Read, "r/1", position=Position(*LEFT, 5), value="f")
    story.tell(Sought, "r/1", position=Position(*LEFT, 4))
    story.tell(Read, "r/1", position=Position(*LEFT, 5), value="f")
    story.tell(Done, "end", text="all is over")
    story.end(LEFT, (0, "a"), (1, "c"), (5, "f"))
    story.end(RIGHT, (0, "b"), (4, "g"))
    story.end(OUT, (0, "copy of a"), (2, "copy of c"), (4, "copy of f"))
    story.tell(GroupFinally, "end", group="g", offsets=(Position(*LEFT, 6),))
    return story.events


def test_a_history_that_is_right():
    assert check(right()) == []
    assert summary(right()) == {
        "committed": 4,
        "aborted": 1,
        "unknown, and there": 1,
        "unknown, and not there": 1,
        "never ended": 1,
        "records": 8,
        "copies": 3,
        "reads": 4,
    }


def found(events: list[Event]) -> set[Kind]:
    return {anomaly.kind for anomaly in check(events)}


def ending(place: Place, *records: tuple[int, str]) -> list[Event]:
    """The right history, but that a partition holds something else in the end, and nobody has read it."""
    return [
        replace(event, records=records) if isinstance(event, Finally) and event.place == place else event
        for event in right()
        if not isinstance(event, Read)
    ]


def changed(change: Callable[[Event], Event | None]) -> list[Event]:
    return [after for event in right() if (after := change(event)) is not None]


def at_end(*events: Event) -> list[Event]:
    return [*right(), *events]


@pytest.mark.parametrize(
    ("kind", "place", "records"),
    [
        (Kind.LOST, RIGHT, [(4, "g")]),
        (Kind.DUPLICATE, RIGHT, [(0, "b"), (1, "b"), (4, "g")]),
        (Kind.ABORTED_READ, RIGHT, [(0, "b"), (2, "e"), (4, "g")]),
        (Kind.UNCOMMITTED_READ, RIGHT, [(0, "b"), (4, "g"), (8, "k")]),
        (Kind.TORN, RIGHT, [(0, "b")]),
        (Kind.TORN, RIGHT, [(0, "b"), (4, "g"), (6, "i")]),
        (Kind.UNKNOWN_RECORD, RIGHT, [(0, "b"), (3, "noise"), (4, "g")]),
        (Kind.MISPLACED, RIGHT, [(0, "b"), (1, "c"), (4, "g")]),
        (Kind.MISPLACED, LEFT, [(1, "a"), (2, "c"), (5, "f")]),
        (Kind.REORDERED, RIGHT, [(0, "g"), (4, "b")]),
        (Kind.COPIED_TWICE, OUT, [(0, "copy of a"), (1, "again"), (2, "copy of c"), (4, "copy of f")]),
        (Kind.NOT_COPIED, OUT, [(0, "copy of a"), (4, "copy of f")]),
        (Kind.COPIED_UNSEEN, LEFT, [(0, "a"), (5, "f")]),
    ],
)
def test_what_is_there_in_the_end(kind: Kind, place: Place, records: list[tuple[int, str]]):
    events = ending(place, *records)
    if kind is Kind.COPIED_TWICE:
        source = Position(*LEFT, 0)
        again = Writing(at=50, by="c/1", transaction="c0", place=OUT, value="again", source=source)
        events.insert(0, again)
    assert kind in found(events)


def test_a_successor_s_records_before_its_predecessor_s():
    events = [*ending(LEFT, (0, "a"), (1, "c"), (3, "h"), (5, "f"))]
    assert Kind.ZOMBIE in found(events)


def test_a_commit_after_a_successor_has_begun():
    def later(event: Event) -> Event:
        return replace(event, at=99) if isinstance(event, Committing) and event.transaction == "t3" else event

    assert Kind.ZOMBIE in found(sorted(changed(later), key=lambda event: event.at))


def test_one_that_tells_late_that_it_has_begun_fences_nobody():
    """It had the transactional id first, and was paused before it could say so."""

    def late(event: Event) -> Event:
        if isinstance(event, Initialized) and event.by == "w/1":
            return replace(event, by="w/0", at=event.at + 0.5)
        return event

    begun = [event for event in right() if isinstance(event, Initialized) and event.by == "w/1"]
    assert found(sorted([*begun, *changed(late)], key=lambda event: event.at)) == set()


def test_no_commit_is_late_that_has_failed():
    """It was asked for, and is not there."""

    def later(event: Event) -> Event:
        if isinstance(event, Finally):
            return replace(event, records=tuple(each for each in event.records if each[1] not in "fg"))
        return replace(event, at=99) if isinstance(event, Committing) and event.transaction == "t3" else event

    assert Kind.ZOMBIE not in found(sorted(changed(later), key=lambda event: event.at))


@pytest.mark.parametrize(
    ("kind", "offset", "value"),
    [
        (Kind.PHANTOM, 3, "d"),
        (Kind.ABORTED_READ, 3, "d"),
        (Kind.UNCOMMITTED_READ, 8, "j"),
        (Kind.PHANTOM, 0, "c"),
        (Kind.UNKNOWN_RECORD, 0, "noise"),
        (Kind.WENT_BACK, 0, "a"),
    ],
)
def test_what_a_reader_gets(kind: Kind, offset: int, value: str):
    assert kind in found(at_end(Read(at=99, by="r/1", position=Position(*LEFT, offset), value=value)))


def test_a_reader_passes_over_a_record():
    def passing(event: Event) -> Event | None:
        return None if isinstance(event, Read) and event.value == "c" else event

    assert found(changed(passing)) == {Kind.SKIPPED}


def test_a_reader_gets_what_nobody_has_asked_to_commit_yet():
    def early(event: Event) -> Event:
        return replace(event, at=2.5) if isinstance(event, Read) and event.value == "a" else event

    assert found(sorted(changed(early), key=lambda event: event.at)) >= {Kind.UNCOMMITTED_READ}


def test_a_copy_of_what_nobody_has_asked_to_commit_yet():
    def early(event: Event) -> Event:
        return replace(event, at=2.5) if isinstance(event, Writing) and event.source else event

    assert found(sorted(changed(early), key=lambda event: event.at)) >= {Kind.UNCOMMITTED_READ}


@pytest.mark.parametrize(
    ("kind", "offset"), [(Kind.OFFSET_LOST, 5), (Kind.OFFSET_LOST, -1), (Kind.OFFSET_UNCOMMITTED, 7)]
)
def test_where_a_group_goes_on(kind: Kind, offset: int):
    def elsewhere(event: Event) -> Event:
        if isinstance(event, GroupFinally):
            return replace(event, offsets=(Position(*LEFT, offset),))
        return event

    assert kind in found(changed(elsewhere))


def test_a_transaction_that_nobody_will_end():
    def hanging(event: Event) -> Event:
        return replace(event, last_stable_offset=89) if isinstance(event, Finally) else event

    assert found(changed(hanging)) == {Kind.HANGING}


def test_an_anomaly_says_what_it_is_about():
    (anomaly,) = check(ending(RIGHT, (0, "b")))
    assert anomaly == Anomaly(Kind.TORN, "t3: f in in-0, and not g in in-1")
    assert str(anomaly).startswith("TORN: a part of a transaction is there and a part is not: t3")


def test_a_history_is_read_as_it_was_written():
    story = [*right(), Troubled(at=99, by="w/2", text="'gone'\n")]
    written = b"".join(map(to_line, story)) + b'{"event": "Comm'
    assert list(read_lines(written)) == story
    assert merged([read_lines(written), story[:2]])[:2] == [story[0], story[0]]
