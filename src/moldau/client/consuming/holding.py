"""What a member has of its group, and what the program has yet to be told of that.

Invariants: `owned` is what the program has been told it has. It changes only when the program has been told,
one change after the other, in the order in which they came about. What is taken away is not read any more
from the moment on that it is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from moldau.client.consuming.asking import Assigned, Change, Lost, Revoked
from moldau.client.consuming.positions import Positions, State
from moldau.client.topology import TopicPartition


class Holding:
    def __init__(self, positions: Positions) -> None:
        self.owned: frozenset[TopicPartition] = frozenset()
        self.changes: deque[Change] = deque()
        self._positions = positions
        self._is_telling = False

    def assign(self, places: Iterable[TopicPartition]) -> None:
        self.changes.append(Assigned(sorted(places)))

    def revoke(self, places: Iterable[TopicPartition]) -> None:
        """The program is to finish with these, unless it has been asked to already."""
        self._take_away(Revoked, places)

    def lose(self) -> None:
        """All of it. What the program has not been told of it never had."""
        self.drop_news()
        self._take_away(Lost, self.owned)

    def give_back(self, *, has_lost: bool) -> None:
        self.drop_news()
        self._take_away(Lost if has_lost else Revoked, self.owned)

    def stop_reading(self) -> None:
        """It may be somebody else's already."""
        self.drop_news()
        self._positions.revoke(self.owned)

    def drop_news(self) -> None:
        told, self.changes = list(self.changes), deque()
        for number, change in enumerate(told):
            if (number == 0 and self._is_telling) or not isinstance(change, Assigned):
                self.changes.append(change)

    def begin_change(self) -> Change:
        """What the program has to be told next."""
        self._is_telling = True
        change = self.changes[0]
        if isinstance(change, Assigned):
            self._positions.add(change.places, State.NEW)
        return change

    def end_change(self) -> Change:
        self._is_telling = False
        change = self.changes.popleft()
        if isinstance(change, Assigned):
            self.owned |= frozenset(change.places)
        else:
            self._positions.remove(change.places)
            self.owned -= frozenset(change.places)
        return change

    def _take_away(self, kind: type[Revoked] | type[Lost], places: Iterable[TopicPartition]) -> None:
        told_of = (change.places for change in self.changes if not isinstance(change, Assigned))
        rest = sorted(set(places).difference(*told_of))
        if rest:
            self._positions.revoke(rest)
            self.changes.append(kind(rest))
