"""What a future log needs next on its way to take the place of the current one.

A replica moves between log directories by a second log that follows the first, as a follower follows a leader
but within one broker: it is cut back to where both agree, started anew where the first has already deleted,
and copied to until it holds all there is. The rules only look; whoever drives them reads and writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from moldau.log.leader_epochs import LeaderEpochs


class LogEnds(Protocol):
    """Of a log, what matters here."""

    log_start_offset: int
    log_end_offset: int
    leader_epochs: LeaderEpochs

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class StartAt:
    """Forget everything and begin at `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Drop what the current log does not have, from `offset` on."""

    offset: int


@dataclass(frozen=True, slots=True)
class AdvanceStart:
    """What is below `offset` was deleted."""

    offset: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Append what the current log has from `offset` on."""

    offset: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Nothing is missing."""


Step = StartAt | TruncateTo | AdvanceStart | Copy | CaughtUp


def next_step(current: LogEnds, future: LogEnds) -> Step:
    """Taking the steps one after another ends in CaughtUp, provided that the current log holds still."""
    end_offset = future.log_end_offset
    if end_offset < current.log_start_offset:
        return StartAt(current.log_start_offset)
    common_end = _common_end(current, future)
    if common_end < max(future.log_start_offset, current.log_start_offset):
        return StartAt(current.log_start_offset)
    if common_end < end_offset:
        return TruncateTo(common_end)
    if future.log_start_offset < current.log_start_offset:
        return AdvanceStart(current.log_start_offset)
    if end_offset < current.log_end_offset:
        return Copy(end_offset)
    return CaughtUp()


def _common_end(current: LogEnds, future: LogEnds) -> int:
    """Up to where both are the same: epochs tell, as they do between a leader and a follower (KIP-101)."""
    end_offset = min(future.log_end_offset, current.log_end_offset)
    latest = future.leader_epochs.latest
    if latest < 0 or future.log_start_offset == future.log_end_offset:
        return end_offset
    epoch, current_end = current.end_offset_for_epoch(latest)
    if epoch < 0:  # an epoch after all that the current log has: it was truncated
        epoch, current_end = current.leader_epochs.latest, current.log_end_offset
    if epoch < 0:
        return min(end_offset, current.log_start_offset)
    if epoch == latest:
        return min(end_offset, current_end)
    _, future_end = future.end_offset_for_epoch(epoch)
    return min(end_offset, current_end, future_end)
