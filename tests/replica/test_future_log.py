"""A future log gets to where the current one is, wherever it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from moldau.log.leader_epochs import LeaderEpochs
from moldau.replica.future_log import AdvanceStart, CaughtUp, Copy, StartAt, TruncateTo, next_step
from moldau.sim.simulation import Simulation

STEPS_MAX = 200


@dataclass
class ModelLog:
    """One record for each offset, each with an epoch and a mark that tells it from any other."""

    leader_epochs: LeaderEpochs
    log_start_offset: int = 0
    log_end_offset: int = 0
    records: dict[int, tuple[int, int]] = field(default_factory=dict)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def append(self, epoch: int, mark: int) -> None:
        self.leader_epochs.assign(epoch, self.log_end_offset)
        self.records[self.log_end_offset] = epoch, mark
        self.log_end_offset += 1

    def truncate_to(self, offset: int) -> None:
        assert self.log_start_offset <= offset < self.log_end_offset
        self.log_end_offset = offset
        self.leader_epochs.truncate_from_end(offset)
        self.records = {at: record for at, record in self.records.items() if at < offset}

    def start_at(self, offset: int) -> None:
        self.records.clear()
        self.log_start_offset = self.log_end_offset = offset
        self.leader_epochs.truncate_from_end(offset)

    def advance_start(self, offset: int) -> None:
        assert self.log_start_offset < offset <= self.log_end_offset
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.records = {at: record for at, record in self.records.items() if at >= offset}


def settle(current: ModelLog, future: ModelLog, steps: int = STEPS_MAX) -> bool:
    """Takes up to so many steps; True when nothing is missing any more."""
    for _ in range(steps):
        match next_step(current, future):
            case StartAt(offset):
                future.start_at(offset)
            case TruncateTo(offset):
                future.truncate_to(offset)
            case AdvanceStart(offset):
                future.advance_start(offset)
            case Copy(offset):
                assert offset == future.log_end_offset
                future.append(*current.records[offset])
            case CaughtUp():
                return True
    return False


# What happens to the current log while it is followed: (what, how much).
EVENTS = st.lists(
    st.tuples(st.sampled_from(["append", "elect", "truncate", "delete", "follow"]), st.integers(1, 5)),
    max_size=40,
)


@given(EVENTS)
def test_ends_up_with_what_the_current_log_has(events: list[tuple[str, int]]) -> None:
    with Simulation() as simulation:
        files = simulation.host("a").files
        files.make_dirs("/a")
        current, future = (ModelLog(LeaderEpochs(files, f"/a/{name}")) for name in ("current", "future"))
        epoch = mark = 0
        for what, count in events:
            if what == "append":
                for _ in range(count):
                    mark += 1
                    current.append(epoch, mark)
            elif what == "elect":
                epoch += count
            elif what == "truncate" and current.log_end_offset - count >= current.log_start_offset:
                # Only a new leader takes records back.
                epoch += 1
                current.truncate_to(current.log_end_offset - count)
            elif what == "delete" and current.log_start_offset + count <= current.log_end_offset:
                current.advance_start(current.log_start_offset + count)
            elif what == "follow":
                settle(current, future, count)
        assert settle(current, future)
        assert future.records == current.records
        assert future.log_start_offset == current.log_start_offset
        assert future.log_end_offset == current.log_end_offset
