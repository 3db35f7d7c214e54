"""The leader epochs of a log: which offset each epoch started at.

Followers find with it where their log departs from the leader's. Kept in `leader-epoch-checkpoint`, which is
written before the recovery point passes the first batch of an epoch: epochs of later batches are found again
by the recovery that reads those batches, so that assigning an epoch costs no sync. Entries too many do no
harm, they are cut when the log is opened.
Invariant: epochs and start offsets both grow strictly.
"""

from __future__ import annotations

from bisect import bisect_right

from moldau.log.checkpoints import decode_epochs, encode_epochs
from moldau.runtime.interfaces import FileSystem
from moldau.runtime.replaced_file import ReplacedFile, Replacement

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    __slots__ = ("_epochs", "_file", "_is_cut", "_starts", "_unwritten_from", "latest")

    def __init__(self, files: FileSystem, path: str, entries: list[tuple[int, int]] | None = None) -> None:
        self._file = ReplacedFile(files, path)
        self._epochs = [epoch for epoch, _ in entries or ()]
        self._starts = [start for _, start in entries or ()]
        self.latest = UNDEFINED_EPOCH
        self._unwritten_from = UNDEFINED_OFFSET
        self._is_cut = False
        self._changed()

    @classmethod
    def load(cls, files: FileSystem, path: str) -> LeaderEpochs:
        """Raises CorruptFileError if the checkpoint is not one."""
        return cls(files, path, decode_epochs(files.read_bytes(path), path) if files.exists(path) else [])

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Batches from `start_offset` on are of `epoch`."""
        if self._epochs and epoch == self.latest and start_offset >= self._starts[-1]:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch
        if self._unwritten_from < 0 or start_offset < self._unwritten_from:
            self._unwritten_from = start_offset

    def unwritten(self, log_end_offset: int) -> Replacement | None:
        """What the checkpoint should hold and does not; None if it misses nothing. An epoch without a batch
        is not missed: it would be cut when the log is opened."""
        is_missed = self._is_cut or 0 <= self._unwritten_from < log_end_offset
        return self._file.replacement(self._encode()) if is_missed else None

    def written(self, replacement: Replacement) -> None:
        """It was run. What was assigned meanwhile is still missed."""
        if replacement.data == self._encode():
            self._unwritten_from = UNDEFINED_OFFSET
            self._is_cut = False

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch up to the one asked for, and where it ends; (-1, -1) if that cannot be told."""
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        return (self._epochs[above - 1] if above else epoch), self._starts[above]

    def epoch_for_offset(self, offset: int) -> int:
        above = bisect_right(self._starts, offset)
        return self._epochs[above - 1] if above else UNDEFINED_EPOCH

    def earliest(self) -> tuple[int, int] | None:
        return (self._epochs[0], self._starts[0]) if self._epochs else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that start at or after `end_offset`. True if there were any; the caller writes."""
        kept = len(self._starts)
        while kept and self._starts[kept - 1] >= end_offset:
            kept -= 1
        if kept == len(self._starts):
            return False
        del self._epochs[kept:], self._starts[kept:]
        self._changed()
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Nothing before `start_offset` is left: the epoch it lies in starts there now. Written with the next
        flush; before that, opening the log does the same again."""
        covered = bisect_right(self._starts, start_offset)
        if not covered or (covered == 1 and self._starts[0] == start_offset):
            return False
        del self._epochs[: covered - 1], self._starts[: covered - 1]
        self._starts[0] = start_offset
        self._is_cut = True
        return True

    def clear(self) -> None:
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._changed()
            self.write()

    def write(self) -> None:
        replacement = self._file.replacement(self._encode())
        replacement.run()
        self.written(replacement)

    def moved_to(self, path: str) -> None:
        self._file.path = path

    def _encode(self) -> bytes:
        return encode_epochs(self.entries())

    def _changed(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
