"""What is wrong with a history: a function of events, in the manner of Jepsen's workload for Kafka.

The measure is what a reader of committed records finds when all is over, `Finally`, and what every client
wrote down on the way. A transaction whose commit was acknowledged is there whole; one that was aborted, or
whose commit nobody ever asked for, not at all. Of one whose end nobody was told, because its process was
killed or its commit failed otherwise, either may be, but it is all or nothing across its partitions and the
offsets it sent. What readers got on the way is a gapless part of what is there in the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tests.chaos.history import (
    Aborted,
    Committed,
    Committing,
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
    Writing,
)


class Kind(StrEnum):
    LOST = "a record of an acknowledged transaction is missing"
    DUPLICATE = "a record is there twice"
    ABORTED_READ = "a record of an aborted transaction was read"
    UNCOMMITTED_READ = "a record was read before anyone asked for its commit"
    TORN = "a part of a transaction is there and a part is not"
    UNKNOWN_RECORD = "a record that nobody wrote"
    MISPLACED = "a record is not where it was written, or not where that was acknowledged"
    REORDERED = "records of a producer are not in the order of their writing"
    ZOMBIE = "a producer went on after another had taken its transactional id"
    SKIPPED = "a reader passed over a record"
    WENT_BACK = "a reader got a record again without seeking"
    PHANTOM = "a reader got what is not there in the end"
    NOT_COPIED = "a record that its group has gone past has no copy"
    COPIED_TWICE = "a record has several copies"
    COPIED_UNSEEN = "a copy is of something that is not there"
    OFFSET_LOST = "a group goes on before what it committed in a transaction"
    OFFSET_UNCOMMITTED = "a group goes on where no committed transaction said it should"
    HANGING = "a partition ends with a transaction that nobody will end"


class Anomaly(NamedTuple):
    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.kind}: {self.what}"


def check(history: Sequence[Event]) -> list[Anomaly]:
    """Everything that is wrong; `history` is in the order of time."""
    told = Told(history)
    return [
        *_records(told),
        *_transactions(told),
        *_producers(told),
        *_readers(told),
        *_copies(told),
        *_group_offsets(told),
        *_ends(told),
    ]


@dataclass(slots=True)
class Transaction:
    name: str
    writes: list[Writing] = field(default_factory=list)
    offsets: list[SendingOffsets] = field(default_factory=list)
    committing: Committing | None = None
    is_committed: bool = False
    is_aborted: bool = False


class Told:
    """The history, looked up by what is asked of it."""

    def __init__(self, history: Sequence[Event]) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.owner: dict[str, tuple[Transaction, Writing]] = {}  # by value
        self.number: dict[str, int] = {}  # of a value, among all that its process wrote
        self.initialized: dict[str, list[Initialized]] = defaultdict(list)  # by transactional id
        self.readers: dict[tuple[str, Place], list[Sought | Read]] = defaultdict(list)
        self.stored: list[Stored] = []
        self.finally_: dict[Place, Finally] = {}
        self.groups: dict[str, GroupFinally] = {}
        for event in history:
            self._take(event)
        self.found: dict[str, list[Position]] = defaultdict(list)  # by value, in the end
        self.values: dict[Place, dict[int, str]] = defaultdict(dict)  # in the end, by offset
        for place, final in self.finally_.items():
            self.values[place] = dict(final.records)
            for offset, value in final.records:
                self.found[value].append(Position(*place, offset))

    def _take(self, event: Event) -> None:
        match event:
            case Writing():
                transaction = self._transaction(event.transaction)
                assert event.value not in self.owner, f"{event.value} was written twice"
                self.number[event.value] = len(self.owner)
                self.owner[event.value] = transaction, event
                transaction.writes.append(event)
            case SendingOffsets():
                self._transaction(event.transaction).offsets.append(event)
            case Committing():
                self._transaction(event.transaction).committing = event
            case Committed():
                self._transaction(event.transaction).is_committed = True
            case Aborted():
                self._transaction(event.transaction).is_aborted = True
            case Initialized():
                self.initialized[event.transactional_id].append(event)
            case Read() | Sought():
                self.readers[event.by, event.position.place].append(event)
            case Stored():
                self.stored.append(event)
            case Finally():
                self.finally_[event.place] = event
            case GroupFinally():
                self.groups[event.group] = event
            case _:
                pass

    def _transaction(self, name: str) -> Transaction:
        return self.transactions.setdefault(name, Transaction(name))

    def reign_of(self, transaction: Transaction) -> Initialized | None:
        """How its producer came to its transactional id; None if that never asked for a commit."""
        committing = transaction.committing
        if committing is None:
            return None
        (reign,) = (
            event for event in self.initialized[committing.transactional_id] if event.by == committing.by
        )
        return reign

    def is_there(self, transaction: Transaction) -> bool:
        return any(write.value in self.found for write in transaction.writes)


def _records(told: Told) -> Iterator[Anomaly]:
    """What is there is what was written, once, where it was written."""
    for value, positions in told.found.items():
        if len(positions) > 1:
            yield Anomaly(Kind.DUPLICATE, f"{value}: {_list(positions)}")
        if value not in told.owner:
            yield Anomaly(Kind.UNKNOWN_RECORD, f"{value!r} at {_list(positions)}")
        elif any(position.place != told.owner[value][1].place for position in positions):
            yield Anomaly(Kind.MISPLACED, f"{value} of {told.owner[value][1].place} is at {_list(positions)}")
    for stored in told.stored:
        positions = told.found.get(stored.value, [])
        if positions and stored.position not in positions:
            yield Anomaly(
                Kind.MISPLACED,
                f"{stored.value} was acknowledged in {stored.position}, and is at {_list(positions)}",
            )


def _transactions(told: Told) -> Iterator[Anomaly]:
    """All or nothing, and what was told is so."""
    for transaction in told.transactions.values():
        there = [write for write in transaction.writes if write.value in told.found]
        missing = [write for write in transaction.writes if write.value not in told.found]
        if transaction.is_committed:
            for write in missing:
                yield Anomaly(Kind.LOST, f"{write.value} of {transaction.name} in {write.place}")
        elif there and transaction.is_aborted:
            yield Anomaly(Kind.ABORTED_READ, _values(there))
        elif there and transaction.committing is None:
            yield Anomaly(Kind.UNCOMMITTED_READ, _values(there))
        elif there and missing:
            yield Anomaly(Kind.TORN, f"{transaction.name}: {_values(there)}, and not {_values(missing)}")


def _producers(told: Told) -> Iterator[Anomaly]:
    """Order within a producer, and between those who had the same transactional id one after another."""
    for place, final in told.finally_.items():
        latest_number: dict[str, tuple[int, str]] = {}  # by process
        latest_reign: dict[str, tuple[float, str]] = {}  # by transactional id: of the last to ask
        for _, value in final.records:
            if value not in told.owner:
                continue
            transaction, write = told.owner[value]
            number = told.number[value], value
            if write.by in latest_number and number < latest_number[write.by]:
                yield Anomaly(Kind.REORDERED, f"{place}: {value} after {latest_number[write.by][1]}")
            latest_number[write.by] = number
            reign = told.reign_of(transaction)
            if reign is None:
                continue
            since, of_later = latest_reign.get(reign.transactional_id, (reign.since, value))
            if since > reign.at:
                yield Anomaly(Kind.ZOMBIE, f"{place}: {value} after {of_later}")
            latest_reign[reign.transactional_id] = max((since, of_later), (reign.since, value))
    for transaction in told.transactions.values():
        reign = told.reign_of(transaction)
        if reign is None or transaction.committing is None or not told.is_there(transaction):
            continue
        for other in told.initialized[reign.transactional_id]:
            if reign.at < other.since and other.at < transaction.committing.at:
                yield Anomaly(
                    Kind.ZOMBIE, f"{transaction.name} of {reign.by} was committed after {other.by} had begun"
                )


def _readers(told: Told) -> Iterator[Anomaly]:
    """Whatever a reader got, from where it sought on, is what is there, without a gap."""
    for (reader, place), events in told.readers.items():
        values = told.values[place]
        offsets = list(values)
        next_index = 0
        for event in events:
            offset = event.position.offset
            if isinstance(event, Sought):
                next_index = bisect_left(offsets, offset)
                continue
            where = f"{reader} at {event.position}: {event.value}"
            yield from _dirty_read(told, event.value, event.at, where)
            if values.get(offset) != event.value:
                yield Anomaly(Kind.PHANTOM, f"{where}, and not {values.get(offset)}")
                continue
            index = bisect_left(offsets, offset)
            if index > next_index:
                passed = offsets[next_index:index]
                yield Anomaly(
                    Kind.SKIPPED,
                    f"{where}, before {_list([values[each] for each in passed])} at {passed[:5]}",
                )
            elif index < next_index:
                yield Anomaly(Kind.WENT_BACK, where)
            next_index = index + 1


def _dirty_read(told: Told, value: str, at: float, where: str) -> Iterator[Anomaly]:
    if value not in told.owner:
        yield Anomaly(Kind.UNKNOWN_RECORD, where)
        return
    transaction, _ = told.owner[value]
    if transaction.is_aborted:
        yield Anomaly(Kind.ABORTED_READ, where)
    elif transaction.committing is None or transaction.committing.at > at:
        yield Anomaly(Kind.UNCOMMITTED_READ, where)


def _copies(told: Told) -> Iterator[Anomaly]:
    """What a group has gone past has one copy, and what it goes on with has none."""
    copies: dict[tuple[str, Position], list[str]] = defaultdict(list)
    for transaction in told.transactions.values():
        groups = {sent.group for sent in transaction.offsets}
        for write in transaction.writes:
            if write.source is None:
                continue
            if write.value in told.found:
                for group in groups:
                    copies[group, write.source].append(write.value)
            original = told.values[write.source.place].get(write.source.offset)
            if original is not None:
                yield from _dirty_read(told, original, write.at, f"{write.by} copied {write.source}")
            else:
                yield Anomaly(Kind.COPIED_UNSEEN, f"{write.value} of {write.source}")
    for (group, source), values in copies.items():
        if len(values) > 1:
            yield Anomaly(Kind.COPIED_TWICE, f"by {group}: {source}: {_list(values)}")
    for group, ended in told.groups.items():
        for end in ended.offsets:
            for offset, value in told.finally_[end.place].records:
                source = Position(*end.place, offset)
                if offset < end.offset and (group, source) not in copies:
                    yield Anomaly(Kind.NOT_COPIED, f"by {group}: {value} at {source}")


def _group_offsets(told: Told) -> Iterator[Anomaly]:
    """A group goes on where the last committed transaction said; at -1 if none has."""
    said: dict[tuple[str, Place], list[tuple[int, Transaction]]] = defaultdict(list)
    for transaction in told.transactions.values():
        for sent in transaction.offsets:
            for position in sent.offsets:
                said[sent.group, position.place].append((position.offset, transaction))
    for group, ended in told.groups.items():
        for end in ended.offsets:
            committed = [
                offset for offset, transaction in said[group, end.place] if told.is_there(transaction)
            ]
            last = max(committed, default=-1)
            if end.offset < last:
                yield Anomaly(Kind.OFFSET_LOST, f"{group}: {end}, and not {last}")
            elif end.offset > last:
                yield Anomaly(Kind.OFFSET_UNCOMMITTED, f"{group}: {end}, and not {last}")


def _ends(told: Told) -> Iterator[Anomaly]:
    for place, final in told.finally_.items():
        if final.last_stable_offset < final.high_watermark:
            yield Anomaly(
                Kind.HANGING,
                f"{place}: stable up to {final.last_stable_offset}, and ends at {final.high_watermark}",
            )


def _list(things: Sequence[object]) -> str:
    shown = ", ".join(map(str, things[:5]))
    return shown if len(things) <= 5 else f"{shown} and {len(things) - 5} more"


def _values(writes: Sequence[Writing]) -> str:
    return _list([f"{write.value} in {write.place}" for write in writes])


def summary(history: Sequence[Event]) -> Mapping[str, int]:
    """How much happened, for whoever would believe that nothing is wrong."""
    told = Told(history)
    transactions = told.transactions.values()
    unknown = [t for t in transactions if t.committing and not (t.is_committed or t.is_aborted)]
    return {
        "committed": sum(t.is_committed for t in transactions),
        "aborted": sum(t.is_aborted for t in transactions),
        "unknown, and there": sum(told.is_there(t) for t in unknown),
        "unknown, and not there": sum(not told.is_there(t) for t in unknown),
        "never ended": sum(not (t.committing or t.is_aborted) for t in transactions),
        "records": len(told.found),
        "copies": sum(told.owner[value][1].source is not None for value in told.found if value in told.owner),
        "reads": sum(isinstance(event, Read) for event in history),
    }
