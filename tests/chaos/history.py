"""What happened in a run: events that clients wrote down as they happened, each before what it announces and
after what it tells of.

An event is one line of JSON in a file of the process it happened in, so that a process that is killed has
told all it knew. Times are of the machine's monotonic clock, which its processes share, or virtual ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


class Place(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Position(NamedTuple):
    """Of a record, or of where a group goes on."""

    topic: str
    partition: int
    offset: int

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    at: float
    by: str
    """The process; a successor of the same part has another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialized(Event):
    """The producer's transactional id is its own now: whoever had it before is fenced."""

    transactional_id: str
    since: float
    """When it asked for it. Who asked before another had it may have got it first, and tell of it later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing(Event):
    """About to write a record in a transaction. No other record ever has this value."""

    transaction: str
    place: Place
    value: str
    source: Position | None = None
    """Of a record made from another: where that was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingOffsets(Event):
    """About to send where a group goes on, as a part of a transaction."""

    transaction: str
    group: str
    offsets: tuple[Position, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committing(Event):
    """About to ask for the commit."""

    transaction: str
    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Event):
    """The commit was acknowledged."""

    transaction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted(Event):
    """The abort was acknowledged."""

    transaction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored(Event):
    """A record was acknowledged."""

    position: Position
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought(Event):
    """A reader goes on at an offset."""

    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Event):
    """A reader of committed records got one."""

    position: Position
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubled(Event):
    """A client's error. Nothing follows from it, but it tells whoever looks at a failure."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Event):
    """Something was done to the cluster or a client; for whoever looks at a failure."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finally(Event):
    """What a reader of committed records gets of a partition once all is over, and where the partition ends
    for it and for a reader of everything."""

    place: Place
    records: tuple[tuple[int, str], ...]
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFinally(Event):
    """Where a group goes on once all is over, in every partition that it reads."""

    group: str
    offsets: tuple[Position, ...]


EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        *(Initialized, Writing, SendingOffsets, Committing, Committed, Aborted),
        *(Stored, Sought, Read, Troubled, Done, Finally, GroupFinally),
    )
}


def to_line(event: Event) -> bytes:
    fields = {name: value for name, value in asdict(event).items() if value is not None}
    return json.dumps({"event": type(event).__name__, **fields}).encode() + b"\n"


def from_line(line: bytes) -> Event:
    fields: dict[str, Any] = json.loads(line)
    kind = EVENTS[fields.pop("event")]
    if "place" in fields:
        fields["place"] = Place(*fields["place"])
    for name in ("source", "position"):
        if name in fields:
            fields[name] = Position(*fields[name])
    if "offsets" in fields:
        fields["offsets"] = tuple(Position(*offset) for offset in fields["offsets"])
    if "records" in fields:
        fields["records"] = tuple((offset, value) for offset, value in fields["records"])
    return kind(**fields)


def read_lines(data: bytes) -> Iterator[Event]:
    """A process that was killed may have left half a line, which tells nothing."""
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield from_line(line)


def merged(histories: Iterable[Iterable[Event]]) -> list[Event]:
    """In the order of time; of each process in its own order."""
    return sorted((event for history in histories for event in history), key=lambda event: event.at)
