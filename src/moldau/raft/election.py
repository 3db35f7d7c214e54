"""Epochs and votes of one member of the metadata quorum.

Events go in, effects come out in the order in which they have to be carried out. It knows no files, no clock
and no network: a vote is an event, wherever it came from.
Invariants: the epoch never goes back; in one epoch a member votes for one candidate at most, and the vote is
durable before anyone hears of it; a leader has the votes of a majority.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from moldau.raft.election_state import ElectionState
from moldau.raft.voters import ReplicaKey, VoterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """Make it durable before the next effect."""

    state: ElectionState


@dataclass(frozen=True, slots=True, kw_only=True)
class AskForVotes:
    epoch: int
    voters: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BecomeLeader:
    """Append the leader change of `epoch`; what is committed before it stays, the rest is decided by it."""

    epoch: int
    granted_by: tuple[int, ...]


Effect = Persist | AskForVotes | BecomeLeader


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """Nobody leads, or the leader went silent. `log_epoch` is that of the last batch in the log."""

    log_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteGranted:
    epoch: int
    voter_id: int


Event = Campaign | VoteGranted


@dataclass(frozen=True, slots=True, kw_only=True)
class Unattached:
    """Knows an epoch and no leader that it could follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    granted_by: frozenset[int] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    granted_by: frozenset[int]


Role = Unattached | Candidate | Leader


class Election:
    def __init__(self, me: ReplicaKey, voters: VoterSet, state: ElectionState) -> None:
        self.me = me
        self.voters = voters
        self.state = state
        self.role: Role = Unattached()

    @property
    def epoch(self) -> int:
        return self.state.epoch

    def step(self, event: Event) -> list[Effect]:
        match event:
            case Campaign():
                return self._on_campaign(event)
            case VoteGranted():
                return self._on_vote_granted(event)
            case _:
                assert_never(event)

    def _on_campaign(self, event: Campaign) -> list[Effect]:
        if not self.voters.has(self.me) or isinstance(self.role, Leader):
            return []
        self.role = Candidate()
        # A log may be of a later epoch than the state that was kept, if the state file was lost.
        epoch = max(self.state.epoch, event.log_epoch) + 1
        self.state = ElectionState(epoch=epoch, voted=self.me)
        others = tuple(id for id in self.voters if id != self.me.id)
        effects: list[Effect] = [Persist(state=self.state)]
        if others:
            effects.append(AskForVotes(epoch=epoch, voters=others))
        return effects + self._on_vote_granted(VoteGranted(epoch=epoch, voter_id=self.me.id))

    def _on_vote_granted(self, event: VoteGranted) -> list[Effect]:
        role = self.role
        if not isinstance(role, Candidate) or event.epoch != self.epoch or event.voter_id not in self.voters:
            return []
        granted_by = role.granted_by | {event.voter_id}
        if len(granted_by) < self.voters.majority:
            self.role = Candidate(granted_by=granted_by)
            return []
        self.role = Leader(granted_by=granted_by)
        self.state = ElectionState(epoch=self.epoch, leader_id=self.me.id)
        return [
            Persist(state=self.state),
            BecomeLeader(epoch=self.epoch, granted_by=tuple(sorted(granted_by))),
        ]
