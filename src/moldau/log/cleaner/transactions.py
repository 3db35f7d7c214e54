"""Which batches of transactions may go: those of aborted ones at once, a marker when nothing is left of what
it ended.

Batches come in the order of the log. What is told here of aborted transactions comes from the transaction
indexes; which of them are still worth an entry is what the index of the cleaned segment is made of.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.log.transaction_index import AbortedTransaction
from moldau.records.batch import BatchHeader
from moldau.records.control import ControlType


class CleanedTransactions:
    __slots__ = ("_aborted", "_committed", "_ongoing", "retained")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # The next to begin is last.
        self._aborted = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        # Aborted transactions that have begun and not ended, and whether a batch of theirs was met.
        self._ongoing: dict[int, tuple[AbortedTransaction, bool]] = {}
        # Producers of which a batch was met that belongs to no aborted transaction.
        self._committed: set[int] = set()
        self.retained: list[AbortedTransaction] = []
        """Aborted transactions that ended, and of which there were batches, since this was last emptied."""

    def on_batch(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        ongoing = self._ongoing.get(header.producer_id)
        if ongoing is None:
            self._committed.add(header.producer_id)
            return False
        self._ongoing[header.producer_id] = ongoing[0], True
        return True

    def on_marker(self, header: BatchHeader, kind: ControlType | None) -> bool:
        """Whether no batch is left of the transaction that the control batch ends. None is a control batch
        that was emptied by an earlier cleaning."""
        self._begin_up_to(header.last_offset)
        match kind:
            case None:
                return True
            case ControlType.ABORT:
                ongoing = self._ongoing.pop(header.producer_id, None)
                if ongoing is None or not ongoing[1]:
                    return True
                self.retained.append(ongoing[0])
                return False
            case ControlType.COMMIT:
                if header.producer_id in self._committed:
                    self._committed.remove(header.producer_id)
                    return False
                return True
            case _:
                return False

    def _begin_up_to(self, offset: int) -> None:
        aborted = self._aborted
        while aborted and aborted[-1].first_offset <= offset:
            entry = aborted.pop()
            self._ongoing.setdefault(entry.producer_id, (entry, False))
