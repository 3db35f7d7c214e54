"""When members are given up: the events of the timers, and how timers are told apart.

A member has one timer of each kind. Tuples of the same strings are equal whatever their class, so a key names
the kind.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple


class SessionTimeout(NamedTuple):
    """The member was silent for too long."""

    group_id: str
    member_id: str


class RebalanceTimeout(NamedTuple):
    """The member has not given up its partitions in time. `epoch` is the one that it should have left."""

    group_id: str
    member_id: str
    epoch: int


class JoinTimeout(NamedTuple):
    """A member of the classic protocol was told to join again, and has not."""

    group_id: str
    member_id: str


class SyncTimeout(NamedTuple):
    """A member of the classic protocol has joined, and not asked for its assignment."""

    group_id: str
    member_id: str


Timeout = SessionTimeout | RebalanceTimeout | JoinTimeout | SyncTimeout


def key(kind: type, group_id: str, member_id: str) -> Hashable:
    return kind, group_id, member_id


KINDS = (SessionTimeout, RebalanceTimeout, JoinTimeout, SyncTimeout)
